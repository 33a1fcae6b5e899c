/* The chat: conversations at the side, the thread, the line to write in, the sampling panel. */
import { announce, append, el, iconButton, notice } from '../dom';
import type { Info } from '../api';
import { MessageView, type MessageActions, type Surroundings } from './message';
import { SettingsPanel, toolsProblem } from './settings';
import { Sidebar } from './sidebar';
import * as store from './store';
import * as tree from './tree';
import { runTurn, type Turn } from './turn';
import type { Conversation, Message } from './tree';

const examples = [
  'Tell me a short story about a lighthouse.',
  'Why is the sky blue?',
  'Write a C function that reverses a string in place.',
];

interface Running { message: Message; control: AbortController }

export class ChatView implements MessageActions {
  readonly root = el('section', { class: 'view chat', 'aria-label': 'Chat' });
  onShowExperts: (request: string) => void = () => undefined;
  /** Before an answer is asked for; what it returns is called when the answer has ended. */
  beforeAnswer: () => Promise<() => void> = () => Promise.resolve(() => undefined);

  private info: Info | null = null;
  private readonly panel = new SettingsPanel(null);
  private readonly sidebar: Sidebar;
  private readonly thread = el('div', { class: 'thread', role: 'log', 'aria-label': 'Conversation', 'aria-live': 'off', tabindex: 0 });
  private readonly column = el('div', { class: 'column' });
  private readonly input = el('textarea', { id: 'prompt', rows: 1, placeholder: 'Write a message', 'aria-label': 'Message' });
  private readonly send = iconButton('send', 'Send', () => this.submit(), { class: 'icon-button primary send' });
  private readonly stopButton = iconButton('stop', 'Stop', () => this.stop(), { class: 'icon-button primary stop', hidden: true });
  private readonly latest = iconButton('down', 'To the newest', () => this.toEnd(), { class: 'icon-button latest', hidden: true });
  private conversations: Conversation[] = [];
  private current: Conversation | null = null;
  private readonly running = new Map<string, Running>();
  private views = new Map<string, MessageView>();
  private stuck = true;       // to the end of the thread
  private pending = false;    // a drawing is due in the next animation frame

  constructor() {
    this.sidebar = new Sidebar({
      open: (conversation) => this.show(conversation),
      begin: () => { this.show(null); this.input.focus(); },
      remove: (conversation) => void this.remove(conversation),
      imported: (list) => void this.imported(list),
    });
    this.build();
    void store.open().then((list) => {
      this.conversations = list.concat(this.conversations);
      if (!this.current && list[0]) this.show(list[0]);
      else this.drawSidebar();
    });
  }

  private build(): void {
    this.input.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener('input', () => this.grow());
    this.root.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') { if (this.running.has(this.current?.id ?? '')) this.stop(); else this.close(); }
    });
    this.thread.addEventListener('scroll', () => {
      this.stuck = this.thread.scrollHeight - this.thread.scrollTop - this.thread.clientHeight < 48;
      this.latest.hidden = this.stuck;
    });
    const toggle = (name: 'show-sidebar' | 'show-settings'): void => { this.root.classList.toggle(name); };
    this.thread.append(this.column);
    append(this.root,
      this.sidebar.root,
      el('div', { class: 'scrim', onclick: () => this.close() }),
      el('div', { class: 'centre' },
        el('div', { class: 'bar' },
          iconButton('menu', 'Conversations', () => toggle('show-sidebar'), { class: 'icon-button to-sidebar' }),
          el('h1', { class: 'bar-title' }, 'Chat'),
          iconButton('plus', 'New conversation', () => { this.show(null); this.input.focus(); }, { class: 'icon-button to-sidebar' }),
          iconButton('sliders', 'Sampling', () => toggle('show-settings'))),
        this.thread,
        el('div', { class: 'composer' }, this.latest,
          el('div', { class: 'composer-box' }, this.input, this.send, this.stopButton))),
      el('aside', { class: 'panel', 'aria-label': 'Sampling panel' },
        el('div', { class: 'panel-head' }, el('h2', {}, 'Sampling'),
          iconButton('close', 'Close', () => this.close())), this.panel.root));
    if (matchMedia('(min-width: 1200px)').matches) this.root.classList.add('show-settings');
    this.draw();
  }

  private close(): void { this.root.classList.remove('show-sidebar', 'show-settings'); }

  setInfo(info: Info): void {
    this.info = info;
    this.panel.setInfo(info);
    this.draw();
  }

  private grow(): void {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, 220)}px`;
  }

  private show(conversation: Conversation | null): void {
    this.current = conversation;
    this.views.clear();
    this.column.textContent = '';
    this.stuck = true;
    this.root.classList.remove('show-sidebar');
    this.drawSidebar();
    this.draw();
    this.toEnd();
  }

  private drawSidebar(): void { this.sidebar.draw(this.conversations, this.current); }

  private async keep(conversation: Conversation): Promise<void> {
    if (!this.conversations.includes(conversation)) this.conversations.unshift(conversation);
    this.conversations.sort((a, b) => b.changed - a.changed);
    try {
      await store.save(conversation);
      while (this.conversations.length > store.limits.conversations) {
        const oldest = this.conversations.pop()!;
        await store.remove(oldest.id);
        notice(`The oldest conversation is gone: ${store.limits.conversations} are kept.`);
      }
    } catch (error) {
      notice((error as Error).message);
    }
    this.drawSidebar();
  }

  private async remove(conversation: Conversation): Promise<void> {
    if (!confirm(`Delete “${conversation.title || 'Untitled'}”?`)) return;
    this.running.get(conversation.id)?.control.abort();
    this.conversations = this.conversations.filter((other) => other !== conversation);
    await store.remove(conversation.id);
    if (this.current === conversation) this.show(this.conversations[0] ?? null);
    else this.drawSidebar();
  }

  private async imported(list: Conversation[]): Promise<void> {
    for (const conversation of list) await this.keep(conversation);
    notice(`${list.length === 1 ? 'One conversation was' : `${list.length} conversations were`} imported.`);
    if (list[0]) this.show(list[0]);
  }

  private submit(): void {
    const text = this.input.value.trim();
    if (!text || this.running.has(this.current?.id ?? '')) return;
    this.input.value = '';
    this.grow();
    if (!this.current) {
      this.current = tree.newConversation();
      this.conversations.unshift(this.current);
    }
    tree.add(this.current, this.current.leaf, { role: 'user', text });
    this.stuck = true;
    this.begin(this.current);
  }

  /** Asks for an answer to the end of the conversation's path. */
  private begin(conversation: Conversation): void {
    const problem = toolsProblem(this.panel.settings.tools);
    if (problem) notice(`${problem} The request goes without tools.`);
    const path = tree.path(conversation);
    const message = tree.add(conversation, conversation.leaf, { role: 'assistant', text: '' });
    const control = new AbortController();
    this.running.set(conversation.id, { message, control });
    void this.keep(conversation);
    announce('Answering');
    this.draw();
    void this.answer({ message, path, settings: this.panel.settings, info: this.info, title: conversation.title,
      signal: control.signal, changed: () => this.drawSoon(conversation) }).then(() => {
      this.running.delete(conversation.id);
      conversation.changed = Date.now();
      announce(message.error ?? (message.finish === 'stopped' ? 'Stopped' : `Answer complete: ${message.text.slice(0, 400)}`));
      void this.keep(conversation);
      if (conversation === this.current) this.draw();
    });
  }

  private async answer(turn: Turn): Promise<void> {
    const ended = await this.beforeAnswer();
    await runTurn(turn);
    ended();
  }

  private stop(): void { this.running.get(this.current?.id ?? '')?.control.abort(); }

  private drawSoon(conversation: Conversation): void {
    if (conversation !== this.current || this.pending) return;
    this.pending = true;
    // A hidden page has no animation frames; its answer must not wait for one.
    const due = (): void => { if (this.pending) { this.pending = false; this.draw(true); } };
    if (document.hidden) setTimeout(due, 200);
    else requestAnimationFrame(due);
  }

  private toEnd(): void {
    this.thread.scrollTop = this.thread.scrollHeight;
    this.latest.hidden = true;
  }

  private surroundings(path: Message[], at: number): Surroundings {
    const message = path[at]!;
    const family = tree.siblings(this.current!, message);
    const results = new Map<string, string>();
    for (let next = at + 1; path[next]?.role === 'tool'; next++) results.set(path[next]!.callId ?? '', path[next]!.text);
    return { live: this.running.get(this.current!.id)?.message === message, last: at === path.length - 1,
      at: family.indexOf(message), of: family.length, results };
  }

  /** `streaming`: only the answer that is being written can have changed. */
  private draw(streaming = false): void {
    const running = this.running.has(this.current?.id ?? '');
    this.send.hidden = running;
    this.stopButton.hidden = !running;
    const path = this.current ? tree.path(this.current) : [];
    if (!path.length) { this.drawEmpty(); return; }
    this.column.querySelector('.welcome')?.remove();
    const shown = new Set<string>();
    path.forEach((message, at) => {
      if (message.role === 'tool') return;
      shown.add(message.id);
      let view = this.views.get(message.id);
      const around = this.surroundings(path, at);
      if (!view) {
        view = new MessageView(message, this);
        this.views.set(message.id, view);
      } else if (streaming && !around.live) {
        return;
      }
      view.update(around);
      if (!view.root.isConnected) this.column.append(view.root);
    });
    for (const [id, view] of this.views) {
      if (shown.has(id)) continue;
      view.root.remove();
      this.views.delete(id);
    }
    if (this.stuck) this.toEnd();
  }

  private drawEmpty(): void {
    if (this.column.querySelector('.welcome')) this.column.textContent = '';
    this.column.append(el('div', { class: 'welcome' },
      el('h2', {}, this.info ? `Talk to ${this.info.model.name}` : 'Talk to the model'),
      this.info && el('p', {}, `${this.info.moe_layers.length} layers of ${this.info.experts} experts, `
        + `${this.info.experts_per_token} of them for each token. Everything stays on this machine.`),
      el('div', { class: 'examples' }, ...examples.map((text) =>
        el('button', { type: 'button', onclick: () => { this.input.value = text; this.submit(); } }, text)))));
  }

  regenerate(message: Message): void {
    const conversation = this.current;
    if (!conversation || this.running.has(conversation.id)) return;
    conversation.leaf = message.parent;
    this.begin(conversation);
  }

  edit(message: Message, text: string): void {
    const conversation = this.current;
    if (!conversation || this.running.has(conversation.id)) return;
    tree.add(conversation, message.parent, { role: 'user', text });
    this.begin(conversation);
  }

  fork(message: Message): void {
    if (!this.current) return;
    const copy = tree.fork(this.current, message);
    void this.keep(copy);
    this.show(copy);
    this.input.focus();
  }

  showSibling(message: Message, step: 1 | -1): void {
    const conversation = this.current;
    if (!conversation || this.running.has(conversation.id)) return;
    const family = tree.siblings(conversation, message);
    const other = family[family.indexOf(message) + step];
    if (!other) return;
    tree.show(conversation, other);
    void this.keep(conversation);
    this.draw();
  }

  results(message: Message, results: Map<string, string>): void {
    const conversation = this.current;
    if (!conversation || this.running.has(conversation.id)) return;
    let parent = message.id;
    for (const call of message.calls ?? [])
      parent = tree.add(conversation, parent, { role: 'tool', callId: call.id, text: results.get(call.id) ?? '' }).id;
    this.begin(conversation);
    this.draw();
  }

  showExperts(message: Message): void { if (message.request) this.onShowExperts(message.request); }
}
