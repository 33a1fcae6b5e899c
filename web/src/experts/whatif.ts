/* What if there were more memory, or less: the hit rate by memory from the routes of the last
 * tokens, with the best that any policy could reach (Belady) as a ghost line. */
import { el } from '../dom';
import { ApiError, getJson } from '../api';
import { bytes, count, percent } from '../format';
import { fit, type Paint } from './paint';

interface Curve { memory: number[]; hit: number[]; belady: number[]; now: number; tokens: number }

const height = 150;

export class WhatIf {
  private readonly canvas = el('canvas', { role: 'img', 'aria-label': 'Hit rate by memory' });
  private readonly slider = el('input', { id: 'whatif', type: 'range', min: 0, max: 1, step: 1, oninput: () => this.redraw() });
  private readonly said = el('output', { for: 'whatif' });
  private readonly frame = el('div', { class: 'whatif-chart' }, this.canvas);
  private readonly body = el('div', {}, this.frame, el('label', { for: 'whatif' }, 'Memory for experts'), this.slider, this.said);
  private readonly problem = el('p', { class: 'empty' });
  readonly root = el('section', { class: 'card whatif', 'aria-label': 'What if there were more memory' },
    el('div', { class: 'card-head' }, el('h2', {}, 'What if'),
      el('button', { type: 'button', class: 'quiet', onclick: () => void this.load() }, 'Reckon anew')), this.body, this.problem);
  private curve: Curve | null = null;
  private paint: Paint | null = null;

  constructor(private readonly hasRoutes: () => boolean) { this.body.hidden = true; }

  get loaded(): boolean { return this.curve !== null; }

  /** Before a token was computed the server has nothing to reckon with. */
  async load(): Promise<void> {
    if (!this.hasRoutes()) {
      this.problem.textContent = 'Ask for an answer while this page is open: the routes of its tokens say what more memory would give.';
      return;
    }
    if (!this.curve) this.problem.textContent = 'Reckoning…';
    try {
      const curve = await getJson<Curve>('/v1/moeflux/whatif');
      const first = this.curve === null;
      this.curve = curve;
      this.slider.max = String(curve.memory.length - 1);
      if (first) this.slider.value = String(nearest(curve.memory, curve.now));
      this.problem.textContent = '';
      this.body.hidden = false;
      this.redraw();
    } catch (error) {
      this.problem.textContent = error instanceof ApiError ? error.message : 'The server does not answer.';
      this.body.hidden = this.curve === null;
    }
  }

  setPaint(paint: Paint): void {
    this.paint = paint;
    this.redraw();
  }

  private redraw(): void {
    const { curve, paint } = this;
    if (!curve || !paint || !this.root.isConnected || this.body.hidden || !curve.memory.length) return;
    const at = Math.min(curve.memory.length - 1, Number(this.slider.value));
    const memory = curve.memory[at]!;
    const width = Math.max(200, this.frame.clientWidth);
    const context = fit(this.canvas, width, height);
    const most = Math.max(...curve.memory, curve.now, 1);
    const x = (value: number): number => 34 + (width - 42) * (value / most);
    const y = (rate: number): number => 8 + (height - 30) * (1 - rate);
    this.grid(context, width, x, y, most, paint);
    const line = (rates: number[], colour: string, dash: number[]): void => {
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.setLineDash(dash);
      context.beginPath();
      rates.forEach((rate, i) => context.lineTo(x(curve.memory[i]!), y(rate)));
      context.stroke();
      context.setLineDash([]);
    };
    line(curve.belady, paint.soft, [3, 4]);
    line(curve.hit, paint.accent, []);
    context.strokeStyle = paint.line;
    context.beginPath();
    context.moveTo(x(curve.now), 8);
    context.lineTo(x(curve.now), height - 22);
    context.stroke();
    context.fillStyle = paint.accent;
    context.beginPath();
    context.arc(x(memory), y(curve.hit[at] ?? 0), 5, 0, 7);
    context.fill();
    const text = `With ${bytes(memory)}: ${percent(curve.hit[at] ?? 0)} of the choices find their expert in memory; `
      + `no policy can do better than ${percent(curve.belady[at] ?? 0)}. Now there are ${bytes(curve.now)}. `
      + `From the routes of the last ${count(curve.tokens)} tokens.`;
    this.said.textContent = text;
    this.slider.setAttribute('aria-valuetext', `${bytes(memory)}: hit rate ${percent(curve.hit[at] ?? 0)}, bound ${percent(curve.belady[at] ?? 0)}`);
  }

  private grid(context: CanvasRenderingContext2D, width: number, x: (value: number) => number, y: (rate: number) => number,
               most: number, paint: Paint): void {
    context.strokeStyle = paint.line;
    context.fillStyle = paint.soft;
    context.font = '10px system-ui, sans-serif';
    context.lineWidth = 1;
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    for (const rate of [0, 0.5, 1]) {
      context.beginPath();
      context.moveTo(34, Math.round(y(rate)) + 0.5);
      context.lineTo(width - 4, Math.round(y(rate)) + 0.5);
      context.stroke();
      context.fillText(`${rate * 100}%`, 29, y(rate));
    }
    context.textBaseline = 'top';
    context.textAlign = 'center';
    for (const part of [0.25, 0.5, 0.75]) context.fillText(bytes(most * part), x(most * part), height - 17);
  }
}

function nearest(values: number[], wanted: number): number {
  let best = 0;
  values.forEach((value, at) => { if (Math.abs(value - wanted) < Math.abs(values[best]! - wanted)) best = at; });
  return best;
}
