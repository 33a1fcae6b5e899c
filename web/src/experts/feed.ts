/* The connection to /v1/moeflux/experts, while there is a reason for one: the view is open, or the
 * chat is being answered (so that its tokens' experts are known afterwards). */
import { ApiError, request } from '../api';
import { readEvents } from '../sse';
import { History } from './history';
import { parseFrame, parseMap, type Frame, type TokenRoute } from './protocol';

const mostRoutes = 8192;

export class Feed {
  history: History | null = null;
  arrived = 0;                                        // performance.now() of the last frame
  readonly routes = new Map<string, TokenRoute>();    // "request/index"; the oldest leave
  onChange: (frame: Frame | null) => void = () => undefined;
  onStatus: (text: string) => void = () => undefined;

  private control: AbortController | null = null;
  private shown = false;
  private answers = 0;
  private linger: ReturnType<typeof setTimeout> | undefined;
  private waiting: (() => void)[] = [];

  constructor() {
    document.addEventListener('visibilitychange', () => this.decide());
  }

  setShown(shown: boolean): void {
    this.shown = shown;
    this.decide();
  }

  /** Resolves when frames of what happens from now on will arrive, or at once if they cannot. */
  async answerBegins(): Promise<void> {
    this.answers++;
    this.decide();
    if (this.history) return;
    await new Promise<void>((resolve) => {
      this.waiting.push(resolve);
      setTimeout(resolve, 400);
    });
  }

  answerEnds(): void {
    clearTimeout(this.linger);
    this.answers--;
    this.linger = setTimeout(() => this.decide(), 1500);
  }

  private decide(): void {
    const wanted = (this.shown && !document.hidden) || this.answers > 0;
    if (wanted && !this.control) void this.connect();
    else if (!wanted && this.control) {
      this.control.abort();
      this.control = null;
      this.history = null;
    }
  }

  private async connect(): Promise<void> {
    const control = this.control = new AbortController();
    for (let pause = 500; !control.signal.aborted; pause = Math.min(8000, pause * 2)) {
      try {
        const response = await request('/v1/moeflux/experts', { signal: control.signal });
        pause = 500;
        for await (const { event, data } of readEvents(response)) this.take(event, data);
        this.onStatus('The server closed the connection.');
      } catch (error) {
        if (control.signal.aborted) return;
        this.onStatus(error instanceof ApiError ? error.message : 'The server does not answer. Trying again…');
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  private take(event: string, data: string): void {
    if (event === 'map') {
      this.history = new History(parseMap(data));
      for (const resolve of this.waiting.splice(0)) resolve();
      this.onStatus('');
      this.onChange(null);
      return;
    }
    if (event !== 'frame' || !this.history) return;
    const { map } = this.history;
    const frame = parseFrame(data, map.rows.length, map.columns);
    this.history.push(frame);
    this.arrived = performance.now();
    for (const token of frame.tokens) this.routes.set(`${token.request}/${token.index}`, token);
    for (const key of this.routes.keys()) {
      if (this.routes.size <= mostRoutes) break;
      this.routes.delete(key);
    }
    this.onChange(frame);
  }

  /** The server's clock now, as well as it is known. */
  now(): number {
    const last = this.history?.state.time ?? 0;
    return last + Math.min(5000, performance.now() - this.arrived);
  }
}
