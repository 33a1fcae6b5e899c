/* The experts at work: map, stages, timeline and tokens over one clock. */
import { announce, el, icon, replace } from '../dom';
import type { Info } from '../api';
import { bytes, count, percent, plural } from '../format';
import { Feed } from './feed';
import { chosen, span, type Recording, type State } from './history';
import { ExpertMap } from './map';
import { calm, legendShape, readPaint, type Paint } from './paint';
import { kinds, meanings, type Frame, type Kind, type TokenRoute } from './protocol';
import { StageStrip } from './stages';
import { ExpertTables } from './table';
import { Timeline } from './timeline';
import { TokenStrip } from './tokens';
import { WhatIf } from './whatif';

const fade = 2700;      // ms after an event that the live map still changes
const tableEvery = 1000;

interface Paused { recording: Recording; at: number; state: State; token: number }

export class ExpertsView {
  readonly feed = new Feed();
  private readonly map = new ExpertMap();
  private readonly timeline = new Timeline();
  private readonly stages = new StageStrip();
  private readonly whatif = new WhatIf(() => this.feed.routes.size > 0);
  private readonly tables = new ExpertTables();
  private readonly tokens = new TokenStrip(this.feed);
  private readonly status = el('p', { class: 'status', role: 'status' });
  private readonly live = el('span', { class: 'live-mark' });
  private readonly figures = el('dl', { class: 'figures legend' });
  private readonly facts = el('div', { class: 'cell-facts', id: 'cell-facts' });
  private readonly pauseButton = el('button', { type: 'button', class: 'quiet', 'aria-keyshortcuts': 'Space', onclick: () => this.togglePause() });
  private readonly range = el('input', { type: 'range', id: 'scrub', min: 0, max: span, step: 50, 'aria-label': 'Time within the last minute',
    oninput: () => this.scrub(this.end() - span + Number(this.range.value)) });
  private readonly when = el('output', { for: 'scrub', class: 'when' });
  private readonly mapCard: HTMLElement;
  private readonly tableCard = el('section', { class: 'card table-card', 'aria-label': 'Experts as tables', hidden: true }, this.tables.root);
  private readonly modes = (['Map', 'Table'] as const).map((name) =>
    el('button', { type: 'button', 'aria-pressed': String(name === 'Map'), onclick: () => this.setTable(name === 'Table') }, name));
  readonly root: HTMLElement;

  private info: Info | null = null;
  private paint: Paint | null = null;
  private paused: Paused | null = null;
  private looked: TokenRoute[] | null = null; // of tokens under the pointer
  private pinned: TokenRoute[] | null = null; // of the chosen token
  private hover: number | null = null;
  private selected: number | null = null;
  private shown = false;
  private due = 0;
  private lastTable = 0;
  private lastDrawn = 0;
  private triedWhatIf = -1e9;

  constructor() {
    this.mapCard = el('section', { class: 'card map-card', 'aria-label': 'Map' }, this.map.root, this.facts);
    this.root = this.build();
    this.feed.onChange = (frame) => this.changed(frame);
    this.feed.onStatus = (text) => { this.status.textContent = text; };
    this.map.onSelect = (cell, final) => this.select(cell, final);
    this.timeline.onScrub = (time) => this.scrub(time);
    this.tokens.onLook = (routes, final) => { if (final) this.pinned = routes; this.looked = routes; this.later(); };
    this.tables.onOpen = (cell) => { this.setTable(false); this.select(cell, true); this.map.canvas.focus(); };
    new ResizeObserver(() => this.later()).observe(this.root);
  }

  private build(): HTMLElement {
    const zoom = (factor: number): void => { this.map.zoom = Math.max(1, Math.min(4, this.map.zoom * factor)); this.later(); };
    this.drawPause();
    const root = el('section', { class: 'page experts', 'aria-label': 'Experts' },
      el('div', { class: 'head' }, el('h1', {}, 'Experts'), this.live,
        el('div', { class: 'segments', role: 'group', 'aria-label': 'Shown as' }, ...this.modes),
        el('div', { class: 'segments zoom', role: 'group', 'aria-label': 'Size of the map' },
          el('button', { type: 'button', 'aria-label': 'Smaller', onclick: () => zoom(1 / 1.5) }, '−'),
          el('button', { type: 'button', 'aria-label': 'Larger', onclick: () => zoom(1.5) }, '+'))),
      this.status, this.figures,
      el('div', { class: 'layout' },
        el('div', { class: 'main-column' }, this.mapCard, this.tableCard,
          el('section', { class: 'card', 'aria-label': 'Timeline' },
            el('div', { class: 'controls' }, this.pauseButton,
              el('button', { type: 'button', class: 'quiet', onclick: () => this.step(-1) }, icon('left'), 'Token'),
              el('button', { type: 'button', class: 'quiet', onclick: () => this.step(1) }, 'Token', icon('right')), this.range, this.when),
            this.timeline.root)),
        el('div', { class: 'side-column' }, this.tokens.root, this.stages.root, this.whatif.root)));
    root.addEventListener('keydown', (event) => {
      const inField = event.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT|BUTTON)$/.test(event.target.tagName);
      if (inField) return;
      if (event.key === ' ') { event.preventDefault(); this.togglePause(); }
      if (event.key === ',') this.step(-1);
      if (event.key === '.') this.step(1);
    });
    return root;
  }

  setInfo(info: Info): void { this.info = info; this.later(); }

  setShown(shown: boolean): void {
    if (shown === this.shown) return;
    this.shown = shown;
    this.feed.setShown(shown);
    if (!shown) return;
    this.recolour();
    void this.whatif.load();
  }

  recolour(): void {
    if (!this.root.isConnected) return;
    this.paint = readPaint(this.root);
    this.whatif.setPaint(this.paint);
    this.figures.textContent = '';
    this.later();
  }

  showAnswer(request: string): void { this.tokens.show(request); }

  private setTable(table: boolean): void {
    this.mapCard.hidden = table;
    this.tableCard.hidden = !table;
    this.modes.forEach((button, at) => button.setAttribute('aria-pressed', String(table === (at === 1))));
    this.lastTable = 0;
    this.later();
  }

  private changed(frame: Frame | null): void {
    if (!frame && this.paused) this.resume();
    if (frame?.tokens.length) this.tokens.dirty = true;
    if (frame && !this.whatif.loaded && this.shown) this.tryWhatIf();
    this.later();
  }

  /** Once an answer has ended there is something to reckon with. */
  private tryWhatIf(): void {
    const now = performance.now();
    const recorded = this.feed.routes.size >= 32 && this.feed.history!.frames.at(-1)!.steps === 0;
    if (!recorded || now - this.triedWhatIf < 5000) return;
    this.triedWhatIf = now;
    void this.whatif.load();
  }

  /** Draws in the next animation frame; nothing is drawn while the view is hidden. */
  private later(): void {
    if (!this.shown || this.due) return;
    this.due = requestAnimationFrame((now) => {
      this.due = 0;
      if (now - this.lastDrawn < (calm() ? 450 : 60)) { this.later(); return; }
      this.lastDrawn = now;
      this.draw();
    });
  }

  /* ---------------------------------------------------------------- time */

  private end(): number { return this.paused?.recording.to ?? this.feed.now(); }

  private togglePause(): void {
    if (this.paused) this.resume();
    else this.pause();
  }

  private pause(): void {
    const { history } = this.feed;
    if (!history) return;
    const recording = history.record();
    const at = recording.frames.length - 1;
    this.paused = { recording, at, state: recording.stateAt(at), token: recording.tokens().length };
    this.drawPause();
    announce('Paused');
    this.later();
  }

  private resume(): void {
    this.paused = null;
    this.pinned = this.looked = null;
    this.tokens.mark(null);
    this.drawPause();
    announce('Live');
    this.later();
  }

  private drawPause(): void {
    const paused = this.paused !== null;
    replace(this.pauseButton, icon(paused ? 'play' : 'pause'), paused ? 'Live' : 'Pause');
    this.root?.classList.toggle('paused', paused);
  }

  private goTo(at: number): void {
    const paused = this.paused!;
    paused.at = Math.max(-1, Math.min(paused.recording.frames.length - 1, at));
    paused.state = paused.recording.stateAt(paused.at);
    this.later();
  }

  private scrub(time: number): void {
    if (!this.paused) this.pause();
    if (!this.paused) return;
    this.goTo(this.paused.recording.at(time));
    const tokens = this.paused.recording.tokens();
    this.paused.token = tokens.findIndex((token) => token.frame > this.paused!.at);
    if (this.paused.token < 0) this.paused.token = tokens.length;
  }

  /** To the token before or after, and the moment of its step. */
  private step(by: 1 | -1): void {
    if (!this.paused) this.pause();
    if (!this.paused) return;
    const tokens = this.paused.recording.tokens();
    if (!tokens.length) { announce('There is no token in the last minute.'); return; }
    const next = Math.max(0, Math.min(tokens.length - 1, this.paused.token + by));
    this.paused.token = next;
    const { frame, token } = tokens[next]!;
    this.goTo(frame);
    this.pinned = this.looked = [token];
    this.tokens.mark(token);
    announce(`Token ${token.index}: ${this.tokens.textOf(token)}`);
  }

  /* ------------------------------------------------------------- drawing */

  private draw(): void {
    const { history } = this.feed;
    const { paint } = this;
    this.drawStatus();
    if (!paint) return;
    if (!history) { this.drawFigures(null, paint); return; }
    const { map } = history;
    const state = this.paused?.state ?? history.state;
    const now = this.paused ? state.time : this.feed.now();
    const routes = this.looked ?? this.pinned;
    this.drawFigures(history.totals, paint);
    if (!this.mapCard.hidden) {
      this.map.draw({ state, rows: map.rows, columns: map.columns, resident: this.isResident(), selected: this.hover ?? this.selected,
        lit: routes ? this.cellsOf(routes) : null, busiest: state.uses.reduce((most, uses) => Math.max(most, uses), 0), now }, paint);
      this.drawFacts(state);
    } else if (performance.now() - this.lastTable > tableEvery) {
      this.lastTable = performance.now();
      this.tables.draw(state, map.rows, map.columns, this.isResident());
    }
    this.drawTime(history.frames, map.slots, paint);
    this.tokens.draw();
    const cell = this.selected;
    this.tokens.markChosen(cell === null ? null : (route) => this.chose(route, cell));
    const active = !this.paused && now - (history.frames.findLast((frame) => frame.cells.length > 0)?.time ?? -1e9) < fade;
    if (active && !calm()) this.later();
  }

  private drawTime(frames: Frame[], slots: number, paint: Paint): void {
    const { paused } = this;
    const end = this.end();
    const shown = paused?.recording.frames ?? frames;
    const moment = paused ? paused.recording.frames[paused.at]?.time ?? paused.recording.from : null;
    this.timeline.draw(shown, end, moment, slots, paint);
    if (paused) {
      const ago = (end - moment!) / 1000;
      this.range.value = String(span - (end - moment!));
      this.when.textContent = ago < 0.05 ? 'at the pause' : `${ago.toFixed(1)} s before`;
      this.stages.draw(paused.recording.frames.slice(Math.max(0, paused.at), paused.at + 1), 'at this moment');
    } else {
      this.range.value = String(span);
      this.when.textContent = 'live';
      const recent = shown.filter((frame) => end - frame.time < 3000 && frame.steps > 0);
      const last = shown.findLast((frame) => frame.steps > 0);
      this.stages.draw(recent.length ? recent : last ? [last] : [], recent.length ? 'now' : 'at last');
    }
    this.range.setAttribute('aria-valuetext', this.when.textContent ?? '');
  }

  private isResident(): boolean { return this.info?.mode === 'resident'; }

  private drawStatus(): void {
    const { history } = this.feed;
    const frame = history?.frames.findLast((one) => one.steps > 0);
    const busy = history && frame && this.feed.now() - frame.time < 1500;
    this.live.textContent = this.paused ? 'paused' : busy ? plural(frame.decodeRows + frame.promptRows, 'row') + ' in the last frame' : history ? 'idle' : 'connecting…';
    this.live.className = `live-mark ${this.paused ? 'is-paused' : busy ? 'is-busy' : ''}`;
    if (this.isResident()) this.status.textContent = 'Resident: every expert is in memory and nothing is read. The map shows which ones the tokens choose.';
    else if (this.info?.mode === 'mapped') this.status.textContent = 'Mapped: the kernel reads and drops pages of experts, which a program cannot see. The map shows which ones the tokens choose.';
    else if (frame?.dropped) this.status.textContent = 'This browser is slower than the server: single events are left out, sums are exact.';
  }

  /** The sums since the server's start: the legend and the figures in one. */
  private drawFigures(totals: Record<Kind, number> | null, paint: Paint): void {
    if (!this.figures.childElementCount) {
      this.figures.append(...kinds.map((kind) => el('div', { class: 'figure', 'data-kind': kind },
        el('dt', {}, legendShape(kind, paint), kind === 'ahead' ? 'read ahead' : kind === 'demand' ? 'on demand' : kind),
        el('dd', {}, '…', el('small', {}, meanings[kind])))));
    }
    if (!totals) return;
    const all = Math.max(1, chosen(totals));
    for (const figure of this.figures.children) {
      const kind = (figure as HTMLElement).dataset.kind as Kind;
      const value = totals[kind];
      (figure as HTMLElement).dataset.value = String(value);
      const share = kind === 'evicted' || kind === 'wasted' ? '' : ` ${percent(value / all)}`;
      figure.querySelector('dd')!.firstChild!.nodeValue = count(value);
      figure.querySelector('small')!.textContent = meanings[kind] + (share ? `,${share}` : '');
    }
  }

  /* ------------------------------------------------- experts and tokens */

  private perToken(): number { return this.info?.experts_per_token ?? 1; }

  private cellsOf(routes: TokenRoute[]): Set<number> {
    const columns = this.feed.history!.map.columns, each = this.perToken();
    const cells = new Set<number>();
    for (const route of routes)
      route.experts.forEach((expert, at) => cells.add(Math.floor(at / each) * columns + expert));
    return cells;
  }

  private chose(route: TokenRoute, cell: number): boolean {
    const columns = this.feed.history!.map.columns, each = this.perToken();
    const row = Math.floor(cell / columns), expert = cell % columns;
    for (let at = row * each; at < (row + 1) * each; at++) if (route.experts[at] === expert) return true;
    return false;
  }

  private select(cell: number | null, final: boolean): void {
    if (final) this.selected = this.selected === cell ? null : cell;
    this.hover = final ? null : cell;
    this.later();
    if (final && cell !== null) announce(this.facts.textContent ?? '');
  }

  private drawFacts(state: State): void {
    const cell = this.hover ?? this.selected;
    const { map } = this.feed.history!;
    if (cell === null || cell >= state.cells) {
      replace(this.facts, el('p', {}, 'Point at an expert, or choose one with the arrow keys, to see the tokens that chose it. The space bar pauses; comma and full stop go from token to token.'));
      return;
    }
    const row = Math.floor(cell / map.columns), expert = cell % map.columns, each = this.perToken();
    const takers = [...this.feed.routes.values()].filter((route) => this.chose(route, cell));
    const together = new Map<number, number>();
    for (const route of takers)
      for (const other of route.experts.slice(row * each, (row + 1) * each)) if (other !== expert) together.set(other, (together.get(other) ?? 0) + 1);
    const friends = [...together].sort((a, b) => b[1] - a[1]).slice(0, 5);
    const kind = kinds[state.kind[cell]!];
    const ago = (state.time - state.when[cell]!) / 1000;
    replace(this.facts,
      el('p', {}, el('strong', {}, `Layer ${map.rows[row]}, expert ${expert}`), ` · ${this.isResident() || state.present[cell] ? 'in memory' : 'on disk'}`,
        this.info && ` · ${bytes(this.info.expert_bytes)}`,
        ` · chosen ${plural(state.uses[cell]!, 'time')}, read ${plural(state.reads[cell]!, 'time')} since this page looks`,
        kind && ` · last: ${kind} (${meanings[kind]}), ${ago.toFixed(1)} s ago`),
      takers.length > 0 && el('p', {}, `Chosen by ${plural(takers.length, 'token')}: `,
        ...takers.slice(-24).map((route) => el('span', { class: 'taker' }, this.tokens.textOf(route)))),
      friends.length > 0 && el('p', {}, `Most often together with ${friends.map(([other, times]) => `${other} (${times}×)`).join(', ')}`));
  }
}
