/* Queue, batch and cache: /v1/moeflux/requests once a second while the view is open. */
import { el, replace } from './dom';
import { getJson } from './api';
import { bytes, count, percent, plural, seconds } from './format';

interface RequestRow {
  id: string; dialect: string; client: string; state: string;
  prompt_tokens: number; read: number; answer_tokens: number;
  cached: { matched: number; resumed: number; replayed: number; why?: string } | null;
  wait_s: number; prompt_s: number; answer_s: number; finish: string | null; started: number;
}

interface Requests {
  running: RequestRow[]; waiting: RequestRow[]; recent: RequestRow[];
  batch: { rows: number; step_ms: number; tokens_per_second: number };
  cache: { mode: string; bytes: number; pages: number; checkpoints: number; requests: number; asked: number;
    matched: number; resumed: number };
}

function figure(label: string, value: string, note = ''): HTMLElement {
  return el('div', { class: 'figure' }, el('dt', {}, label), el('dd', {}, value, note && el('small', {}, note)));
}

/** A bar that says its value in text, too. */
function bar(label: string, value: number, most: number): HTMLElement {
  const meter = el('meter', { min: 0, max: Math.max(1, most), value, 'aria-label': label });
  return el('span', { class: 'bar-cell' }, meter, `${count(value)} of ${count(most)}`);
}

function cachedText(row: RequestRow): string {
  const cached = row.cached;
  if (!cached) return '';
  return `${count(cached.resumed)} of ${count(row.prompt_tokens)}`;
}

/* On a phone a row is a card, and its cells say what they are. */
const heads = ['Request', 'State', 'Prompt', 'From the cache, and why not more', 'Answer', 'Waited'];

function cell(at: number, ...content: (Node | string | false | null)[]): HTMLElement {
  return el('td', { 'data-label': heads[at], class: at === 0 ? 'mono' : null }, ...content);
}

function rowOf(row: RequestRow): HTMLElement {
  const rate = row.answer_s > 0 ? row.answer_tokens / row.answer_s : 0;
  const client = /[^0]/.test(row.client) ? ` · ${row.client}` : '';
  return el('tr', { class: `state-${row.state}` },
    cell(0, row.id, el('small', {}, row.dialect + client)),
    cell(1, el('span', { class: `state ${row.state}` }, row.state), row.finish && el('small', {}, row.finish)),
    cell(2, row.state === 'reading' ? bar('Prompt tokens read', row.read, row.prompt_tokens) : count(row.prompt_tokens),
      row.prompt_s > 0 && el('small', {}, seconds(row.prompt_s))),
    cell(3, cachedText(row), Boolean(row.cached?.why) && el('small', { class: 'why' }, row.cached!.why)),
    cell(4, count(row.answer_tokens), rate > 0 && el('small', {}, `${rate.toFixed(1)} tokens/s`)),
    cell(5, row.wait_s >= 0.001 ? seconds(row.wait_s) : 'none'));
}

export class RequestsView {
  readonly root = el('section', { class: 'view requests', 'aria-label': 'Requests' });
  private readonly figures = el('dl', { class: 'figures' });
  private readonly rows = el('tbody');
  private readonly status = el('p', { class: 'status', role: 'status' });
  private timer: ReturnType<typeof setTimeout> | undefined;
  private shown = false;
  private control: AbortController | null = null;

  constructor() {
    this.root.append(el('div', { class: 'page' },
      el('h1', {}, 'Requests'), this.status, this.figures,
      el('div', { class: 'table-frame', tabindex: 0, role: 'region', 'aria-label': 'Requests' },
        el('table', { class: 'request-table' }, el('thead', {}, el('tr', {}, ...heads.map((head) => el('th', { scope: 'col' }, head)))),
          this.rows))));
    document.addEventListener('visibilitychange', () => { if (this.shown && !document.hidden) void this.poll(); });
  }

  setShown(shown: boolean): void {
    if (shown === this.shown) return;
    this.shown = shown;
    if (shown) { void this.poll(); return; }
    clearTimeout(this.timer);
    this.control?.abort();
  }

  private async poll(): Promise<void> {
    clearTimeout(this.timer);
    this.control?.abort();
    const control = this.control = new AbortController();
    try {
      this.draw(await getJson<Requests>('/v1/moeflux/requests', control.signal));
      this.status.textContent = '';
    } catch (error) {
      if (control.signal.aborted) return;
      this.status.textContent = error instanceof TypeError ? 'The server does not answer.' : (error as Error).message;
    }
    if (this.shown && !document.hidden) this.timer = setTimeout(() => void this.poll(), 1000);
  }

  private draw(data: Requests): void {
    const { batch, cache } = data;
    replace(this.figures,
      figure('Running', count(data.running.length), `${plural(batch.rows, 'row')} in a step`),
      figure('Waiting', count(data.waiting.length)),
      figure('A step', batch.step_ms > 0 ? seconds(batch.step_ms / 1000) : 'none yet'),
      figure('All answers', `${batch.tokens_per_second.toFixed(1)}`, 'tokens/s'),
      figure('Cache', cache.mode, `${bytes(cache.bytes)} · ${count(cache.pages)} pages · ${count(cache.checkpoints)} checkpoints`),
      figure('Prompts from the cache', cache.asked ? percent(cache.resumed / cache.asked) : 'none yet',
        cache.asked ? `${count(cache.matched)} matched, ${count(cache.resumed)} resumed of ${count(cache.asked)} tokens` : ''));
    const rows = [...data.running, ...data.waiting, ...data.recent];
    if (rows.length) replace(this.rows, ...rows.map(rowOf));
    else replace(this.rows, el('tr', {}, el('td', { colspan: 6, class: 'empty' }, 'No request yet. One from the chat or any client shows here.')));
  }
}
