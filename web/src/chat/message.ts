/* One message on the screen. */
import { append, announce, el, icon, iconButton, replace } from '../dom';
import { count, percent, plural, seconds } from '../format';
import { codeBlock, MarkdownStream } from '../markdown';
import type { Call, Facts, Message } from './tree';

/** What a message can ask of the conversation it is in. */
export interface MessageActions {
  regenerate(message: Message): void;
  edit(message: Message, text: string): void;
  fork(message: Message): void;
  showSibling(message: Message, step: 1 | -1): void;
  results(message: Message, results: Map<string, string>): void;
  showExperts(message: Message): void;
}

export interface Surroundings {
  live: boolean;              // its answer is being written
  last: boolean;              // nothing follows it
  at: number;                 // its place among its siblings
  of: number;
  results: Map<string, string>; // tool results that follow, by call
}

export function factsLine(facts: Facts): string {
  const parts: string[] = [];
  if (facts.answer_tokens !== undefined) parts.push(plural(facts.answer_tokens, 'token'));
  if (facts.answer_tokens && facts.answer_s) {
    const rate = facts.answer_tokens / facts.answer_s;
    parts.push(`${rate.toFixed(rate < 20 ? 1 : 0)} tokens/s`);
  }
  if (facts.prompt_tokens !== undefined) {
    let text = `prompt ${count(facts.prompt_tokens)}`;
    if (facts.prompt_s !== undefined) text += ` in ${seconds(facts.prompt_s)}`;
    if (facts.cached !== undefined)
      text += facts.cached ? `, ${count(facts.cached)} cached (${percent(facts.cached / Math.max(1, facts.prompt_tokens))})` : ', none cached';
    parts.push(text);
  }
  if (facts.wait_s && facts.wait_s >= 0.05) parts.push(`waited ${seconds(facts.wait_s)}`);
  if (facts.why) parts.push(facts.why);
  return parts.join(' · ');
}

function prettyArguments(text: string): string {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

export class MessageView {
  readonly root: HTMLElement;
  private readonly body = el('div', { class: 'markdown' });
  private readonly stream = new MarkdownStream(this.body);
  private readonly reasoning = el('details', { class: 'reasoning', hidden: true });
  private readonly reasoningTitle = el('summary');
  private readonly reasoningText = el('div', { class: 'reasoning-text' });
  private readonly calls = el('div', { class: 'calls' });
  private readonly foot = el('div', { class: 'foot' });
  private drawnCalls = '';
  private began = 0;
  private pieces = 0;
  private finished = false;

  constructor(private readonly message: Message, private readonly actions: MessageActions) {
    const said = message.role === 'user' ? 'You' : 'Answer';
    this.root = el('article', { class: `message ${message.role}`, 'data-id': message.id, 'aria-label': said });
    this.reasoning.append(this.reasoningTitle, this.reasoningText);
    if (message.role === 'user') this.root.append(el('div', { class: 'bubble' }, this.body), this.foot);
    else this.root.append(this.reasoning, this.body, this.calls, this.foot);
  }

  update(around: Surroundings): void {
    const { message } = this;
    this.root.classList.toggle('live', around.live);
    if (message.role === 'user') {
      this.body.className = 'plain';
      this.body.textContent = message.text;
    } else {
      this.drawReasoning(around);
      if (around.live) this.stream.update(message.text);
      else if (!this.finished) { this.stream.finish(message.text); this.finished = true; }
      this.drawCalls(around);
    }
    this.drawFoot(around);
  }

  private drawReasoning(around: Surroundings): void {
    const text = this.message.reasoning;
    this.reasoning.hidden = !text;
    if (!text) return;
    const thinking = around.live && !this.message.text && !this.message.calls?.length;
    const words = text.trim().split(/\s+/).length;
    this.reasoningTitle.textContent = thinking ? `Thinking… ${plural(words, 'word')}` : `Reasoning, ${plural(words, 'word')}`;
    if (this.reasoningText.textContent !== text) this.reasoningText.textContent = text;
  }

  private drawCalls(around: Surroundings): void {
    const calls = this.message.calls ?? [];
    const drawn = JSON.stringify([calls, [...around.results], around.live]);
    if (drawn === this.drawnCalls) return;
    this.drawnCalls = drawn;
    const open = !around.live && calls.some((call) => !around.results.has(call.id));
    const fields = new Map<string, HTMLTextAreaElement>();
    const cards = calls.map((call, at) => this.callCard(call, at, around, fields));
    replace(this.calls, ...cards, open && el('button', { type: 'button', class: 'primary', onclick: () => {
      const results = new Map(around.results);
      for (const [id, field] of fields) results.set(id, field.value);
      this.actions.results(this.message, results);
    } }, calls.length > 1 ? 'Send the results' : 'Send the result'));
  }

  private callCard(call: Call, at: number, around: Surroundings, fields: Map<string, HTMLTextAreaElement>): HTMLElement {
    const result = around.results.get(call.id);
    const card = el('section', { class: 'call', 'aria-label': `Call of ${call.name}` },
      el('div', { class: 'call-head' }, el('span', { class: 'call-mark', 'aria-hidden': 'true' }, 'ƒ'),
        el('strong', {}, call.name || '…'), el('small', {}, around.live ? 'being written' : 'tool call')),
      codeBlock(prettyArguments(call.arguments), 'json'));
    if (result !== undefined) {
      append(card, el('div', { class: 'result' }, el('small', {}, 'Result'), el('pre', { tabindex: 0 }, result)));
    } else if (!around.live) {
      const id = `result-${this.message.id}-${at}`;
      const field = el('textarea', { id, rows: 2, class: 'mono', placeholder: 'what the tool answers', spellcheck: 'false' });
      fields.set(call.id, field);
      append(card, el('label', { for: id }, `Result of ${call.name}`), field);
    }
    return card;
  }

  private liveLine(): string {
    this.pieces++;
    const now = performance.now();
    if (this.pieces <= 2) { this.began = now; return 'Reading the prompt…'; }
    const rate = (this.pieces - 2) / Math.max(0.001, (now - this.began) / 1000);
    return `about ${rate.toFixed(rate < 20 ? 1 : 0)} tokens/s`;
  }

  private drawFoot(around: Surroundings): void {
    const { message } = this;
    if (around.live) {
      replace(this.foot, el('span', { class: 'facts' }, el('span', { class: 'pulse', 'aria-hidden': 'true' }), this.liveLine()));
      return;
    }
    const notes: Node[] = [];
    if (message.error) notes.push(el('p', { class: 'error', role: 'alert' }, message.error));
    if (message.finish === 'stopped') notes.push(el('p', { class: 'note' }, 'Stopped.'));
    if (message.finish === 'length') notes.push(el('p', { class: 'note' }, 'The longest allowed answer ends here.'));
    const line = message.facts ? factsLine(message.facts) : '';
    replace(this.foot, ...notes, line && el('span', { class: 'facts' }, line), this.buttons(around));
    if (message.role === 'assistant' && message.request) this.root.dataset.request = message.request;
  }

  private buttons(around: Surroundings): HTMLElement {
    const { message, actions } = this;
    return el('div', { class: 'actions' },
      around.of > 1 && el('span', { class: 'siblings' },
        iconButton('left', 'The version before', () => actions.showSibling(message, -1), { disabled: around.at === 0 }),
        el('span', { 'aria-label': `Version ${around.at + 1} of ${around.of}`, role: 'img' }, `${around.at + 1}/${around.of}`),
        iconButton('right', 'The next version', () => actions.showSibling(message, 1), { disabled: around.at === around.of - 1 })),
      iconButton('copy', 'Copy the text', () => {
        void navigator.clipboard?.writeText(message.text);
        announce('Copied');
      }),
      message.role === 'user' && iconButton('edit', 'Edit and send again', () => this.beginEdit()),
      message.role === 'assistant' && iconButton('again', 'Answer again', () => actions.regenerate(message)),
      iconButton('fork', 'Go on from here in a new conversation', () => actions.fork(message)),
      message.role === 'assistant' && message.request && el('button', { type: 'button', class: 'icon-button with-text',
        title: 'The experts that wrote this answer', onclick: () => actions.showExperts(message) }, icon('experts'), 'Experts'));
  }

  private beginEdit(): void {
    const field = el('textarea', { class: 'edit', 'aria-label': 'Your message', rows: 3 });
    field.value = this.message.text;
    const end = (): void => { form.remove(); this.root.classList.remove('editing'); };
    const send = (): void => { const text = field.value.trim(); end(); if (text) this.actions.edit(this.message, text); };
    field.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { event.stopPropagation(); end(); }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    const form = el('div', { class: 'edit-form' }, field, el('div', { class: 'row' },
      el('button', { type: 'button', class: 'primary', onclick: send }, 'Send'),
      el('button', { type: 'button', class: 'quiet', onclick: end }, 'Cancel')));
    this.root.classList.add('editing');
    this.root.prepend(form);
    field.focus();
  }
}
