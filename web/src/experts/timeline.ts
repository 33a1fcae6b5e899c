/* The last 60 seconds in four lanes over one time axis, and the place one looks at in them. */
import { el } from '../dom';
import { bytes, percent } from '../format';
import { chosen, span } from './history';
import { fit, type Paint } from './paint';
import type { Frame } from './protocol';

interface Bucket { seconds: number; demand: number; ahead: number; wasted: number; hits: number; uses: number; present: number; steps: number;
  stages: Record<string, number> }

const buckets = 240; // 250 ms each
const laneHeight = 44;
const gap = 16;
const left = 0;

export interface Lane { title: string; value: string }

/** Sums of frames by quarter seconds, `until` at the right end. */
export function gather(frames: Frame[], until: number): (Bucket | null)[] {
  const out: (Bucket | null)[] = new Array<Bucket | null>(buckets).fill(null);
  const width = span / buckets;
  for (const frame of frames) {
    const at = buckets - 1 - Math.floor((until - frame.time) / width);
    if (at < 0 || at >= buckets) continue;
    const bucket = out[at] ??= { seconds: width / 1000, demand: 0, ahead: 0, wasted: 0, hits: 0, uses: 0, present: 0, steps: 0, stages: {} };
    bucket.demand += frame.bytes.demand;
    bucket.ahead += frame.bytes.ahead;
    bucket.wasted += frame.bytes.wasted;
    bucket.hits += frame.sums.hit + frame.sums.ahead;
    bucket.uses += chosen(frame.sums);
    bucket.present = frame.present;
    bucket.steps += frame.steps;
    for (const [stage, value] of Object.entries(frame.stages)) bucket.stages[stage] = (bucket.stages[stage] ?? 0) + value;
  }
  return out;
}

export class Timeline {
  readonly canvas = el('canvas', { role: 'img', 'aria-label': 'Bytes read, hit rate, occupancy and wasted read-ahead of the last minute' });
  readonly root = el('div', { class: 'timeline' }, this.canvas);
  onScrub: (time: number) => void = () => undefined;
  private until = 0;

  constructor() {
    const scrub = (event: PointerEvent): void => {
      const box = this.canvas.getBoundingClientRect();
      const part = Math.max(0, Math.min(1, (event.clientX - box.left - left) / (box.width - left)));
      this.onScrub(this.until - span * (1 - part));
    };
    this.canvas.addEventListener('pointerdown', (event) => { this.canvas.setPointerCapture(event.pointerId); scrub(event); });
    this.canvas.addEventListener('pointermove', (event) => { if (event.buttons) scrub(event); });
  }

  draw(frames: Frame[], until: number, cursor: number | null, slots: number, paint: Paint): void {
    this.until = until;
    const width = Math.max(200, this.root.clientWidth);
    const data = gather(frames, until);
    const lanes = 4;
    const context = fit(this.canvas, width, lanes * (laneHeight + gap) + 16);
    const step = (width - left) / buckets;
    const rate = (at: number, key: 'demand' | 'ahead' | 'wasted'): number => (data[at] ? data[at]![key] / data[at]!.seconds : 0);
    let most = 1, mostWaste = 1;
    for (let at = 0; at < buckets; at++) {
      most = Math.max(most, rate(at, 'demand') + rate(at, 'ahead'));
      mostWaste = Math.max(mostWaste, rate(at, 'wasted'));
    }
    const shown = cursor === null ? buckets - 1 : Math.max(0, Math.min(buckets - 1, buckets - 1 - Math.floor((until - cursor) / (span / buckets))));
    const around = data.slice(Math.max(0, shown - 6), shown + 1).findLast((bucket) => bucket) ?? null;
    const titles = [
      `Read: ${bytes(around ? (around.demand + around.ahead) / around.seconds : 0)}/s` + (most > 1 ? `, at most ${bytes(most)}/s` : ''),
      `In memory in time: ${around?.uses ? percent(around.hits / around.uses) : 'no step now'}`,
      `Occupancy: ${around ? percent(around.present / Math.max(1, slots)) : 'unknown'}`,
      `Wasted: ${bytes(around ? around.wasted / around.seconds : 0)}/s`,
    ];
    for (let lane = 0; lane < lanes; lane++) this.frame(context, lane, width, titles[lane]!, paint);
    const bar = (at: number, lane: number, from: number, to: number, colour: string): void => {
      const base = lane * (laneHeight + gap) + gap + laneHeight;
      context.fillStyle = colour;
      context.fillRect(left + at * step, base - to * laneHeight, lane === 2 ? step + 0.5 : Math.max(1, step - 0.4), Math.max(0.5, (to - from) * laneHeight));
    };
    let present: number | null = null; // an idle server says it once a second: it holds until then
    for (let at = 0; at < buckets; at++) {
      const bucket = data[at];
      present = bucket?.present ?? present;
      if (present !== null) bar(at, 2, 0, Math.min(1, present / Math.max(1, slots)), paint['resident-cell']);
      if (!bucket) continue;
      const demand = rate(at, 'demand') / most, ahead = rate(at, 'ahead') / most;
      if (demand > 0) bar(at, 0, 0, demand, paint.demand);
      if (ahead > 0) bar(at, 0, demand, demand + ahead, paint.ahead);
      if (bucket.uses) bar(at, 1, 0, bucket.hits / bucket.uses, paint.hit);
      if (bucket.wasted > 0) bar(at, 3, 0, rate(at, 'wasted') / mostWaste, paint.wasted);
    }
    this.axis(context, width, lanes, cursor === null ? null : 1 - (until - cursor) / span, paint);
  }

  private frame(context: CanvasRenderingContext2D, lane: number, width: number, title: string, paint: Paint): void {
    const y = lane * (laneHeight + gap) + gap;
    context.fillStyle = paint.ink;
    context.font = '11px system-ui, sans-serif';
    context.textAlign = 'left';
    context.textBaseline = 'alphabetic';
    context.fillText(title, left, y - 4);
    context.strokeStyle = paint.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(left, y + laneHeight + 0.5);
    context.lineTo(width, y + laneHeight + 0.5);
    context.stroke();
  }

  private axis(context: CanvasRenderingContext2D, width: number, lanes: number, part: number | null, paint: Paint): void {
    const bottom = lanes * (laneHeight + gap);
    context.fillStyle = paint.soft;
    context.textBaseline = 'top';
    for (let seconds = 60; seconds >= 0; seconds -= 15) {
      context.textAlign = seconds === 60 ? 'left' : seconds === 0 ? 'right' : 'center';
      context.fillText(seconds ? `${seconds} s ago` : 'now', left + (width - left) * (1 - seconds / 60), bottom + 3);
    }
    if (part === null || part < 0) return;
    const x = left + (width - left) * part;
    context.strokeStyle = paint.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x, 4);
    context.lineTo(x, bottom);
    context.stroke();
  }
}
