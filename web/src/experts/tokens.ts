/* The tokens of one answer: each leads to the experts that it chose, and back. */
import { el, replace } from '../dom';
import { allAnswers, answerOf, onAnswers, type Piece } from '../answers';
import type { Feed } from './feed';
import type { TokenRoute } from './protocol';

const mostPieces = 4000;

/** A piece of text, and the routes of its tokens. */
interface Entry { piece: Piece; span: HTMLElement; routes: TokenRoute[] }

export class TokenStrip {
  private readonly choice = el('select', { id: 'answer', onchange: () => { this.follow = false; this.show(this.choice.value); } });
  private readonly text = el('div', { class: 'tokens', role: 'listbox', tabindex: 0, 'aria-label': 'Tokens of the answer' });
  private readonly hint = el('p', { class: 'empty' });
  readonly root = el('section', { class: 'card token-card', 'aria-label': 'Tokens' },
    el('div', { class: 'card-head' }, el('h2', {}, 'Tokens'), el('label', { class: 'unseen', for: 'answer' }, 'Answer'), this.choice),
    this.hint, this.text);
  onLook: (routes: TokenRoute[] | null, final: boolean) => void = () => undefined;

  private request = '';
  private follow = true; // the newest answer
  private entries: Entry[] = [];
  private at = -1;
  private options = '';

  constructor(private readonly feed: Feed) {
    onAnswers((answer) => {
      if (this.follow && answer.live) this.request = answer.request;
      this.dirty = true;
    });
    this.text.addEventListener('pointerover', (event) => this.look(this.entryOf(event.target), false));
    this.text.addEventListener('pointerleave', () => this.onLook(null, false));
    this.text.addEventListener('click', (event) => this.look(this.entryOf(event.target), true));
    this.text.addEventListener('keydown', (event) => {
      const step = event.key === 'ArrowRight' || event.key === 'ArrowDown' ? 1 : event.key === 'ArrowLeft' || event.key === 'ArrowUp' ? -1 : 0;
      if (event.key === 'Escape') this.look(-1, true);
      if (!step) return;
      event.preventDefault();
      this.look(Math.max(0, Math.min(this.entries.length - 1, this.at + step)), true);
    });
  }

  dirty = true;

  private entryOf(target: EventTarget | null): number {
    return target instanceof HTMLElement && target.dataset.at !== undefined ? Number(target.dataset.at) : -1;
  }

  private look(at: number, final: boolean): void {
    const entry = this.entries[at];
    if (final) {
      this.entries[this.at]?.span.removeAttribute('aria-selected');
      this.at = entry ? at : -1;
      entry?.span.setAttribute('aria-selected', 'true');
      if (entry) { this.text.setAttribute('aria-activedescendant', entry.span.id); entry.span.scrollIntoView({ block: 'nearest' }); }
    }
    this.onLook(entry?.routes.length ? entry.routes : null, final);
  }

  show(request: string): void {
    this.request = request;
    this.follow = !request;
    this.dirty = true;
    this.draw();
  }

  /** Marks the token that `route` is of. */
  mark(route: TokenRoute | null): void {
    if (route && route.request !== this.request) this.show(route.request);
    this.entries[this.at]?.span.removeAttribute('aria-selected');
    this.at = route ? this.entries.findIndex((entry) => entry.routes.includes(route)) : -1;
    const entry = this.entries[this.at];
    entry?.span.setAttribute('aria-selected', 'true');
    entry?.span.scrollIntoView({ block: 'nearest' });
  }

  /** Marks the tokens that chose an expert. */
  markChosen(chose: ((route: TokenRoute) => boolean) | null): void {
    for (const entry of this.entries) entry.span.classList.toggle('chosen', Boolean(chose && entry.routes.some(chose)));
  }

  textOf(route: TokenRoute): string {
    const pieces = answerOf(route.request)?.pieces ?? [];
    const piece = pieces.find((one) => one.index <= route.index && route.index < one.index + one.count);
    return piece?.text.trim() || `#${route.index}`;
  }

  /** Answers of other clients have numbers instead of text. */
  private piecesOf(request: string): Piece[] {
    const known = answerOf(request);
    if (known) return known.pieces.slice(-mostPieces);
    const pieces: Piece[] = [];
    for (const route of this.feed.routes.values())
      if (route.request === request) pieces.push({ index: route.index, count: 1, text: `${route.index} `, reasoning: true });
    return pieces.slice(-mostPieces);
  }

  draw(): void {
    if (!this.dirty) return;
    this.dirty = false;
    this.drawChoice();
    const pieces = this.request ? this.piecesOf(this.request) : [];
    this.hint.textContent = pieces.length ? '' : 'Ask for an answer in the chat: its tokens appear here, each with the experts it chose.';
    this.text.hidden = !pieces.length;
    // Pieces only come at the end while an answer is written: those that are there stay.
    const same = this.entries.length <= pieces.length && this.entries.every((entry, at) => entry.piece === pieces[at]);
    if (!same) { this.text.textContent = ''; this.entries = []; this.at = -1; }
    const stuck = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 30;
    for (let at = this.entries.length; at < pieces.length; at++) {
      const piece = pieces[at]!;
      const span = el('span', { role: 'option', id: `token-${at}`, 'data-at': at, class: piece.reasoning ? 'token thought' : 'token' },
        piece.text || '∅');
      this.text.append(span);
      this.entries.push({ piece, span, routes: [] });
    }
    for (const entry of this.entries) {
      if (entry.routes.length < entry.piece.count) entry.routes = this.routesOf(entry.piece);
      entry.span.classList.toggle('known', entry.routes.length > 0);
    }
    if (stuck && this.at < 0) this.text.scrollTop = this.text.scrollHeight;
  }

  private routesOf(piece: Piece): TokenRoute[] {
    const routes: TokenRoute[] = [];
    for (let index = piece.index; index < piece.index + piece.count; index++) {
      const route = this.feed.routes.get(`${this.request}/${index}`);
      if (route) routes.push(route);
    }
    return routes;
  }

  private drawChoice(): void {
    const titles = new Map(allAnswers().map((answer) => [answer.request, answer.title || answer.request]));
    const foreign = new Set<string>();
    for (const route of this.feed.routes.values()) if (!titles.has(route.request)) foreign.add(route.request);
    for (const request of [...foreign].slice(-10)) titles.set(request, `another client: ${request}`);
    if (!this.request) this.request = [...titles.keys()].at(-1) ?? '';
    const options = JSON.stringify([[...titles], this.request]);
    if (options === this.options) return;
    this.options = options;
    this.choice.hidden = titles.size === 0;
    replace(this.choice, ...[...titles].reverse().map(([request, title]) => el('option', { value: request }, title.slice(0, 60))));
    this.choice.value = this.request;
  }
}
