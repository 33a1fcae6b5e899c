/* The map: a row a layer, a column an expert.  The ground of a cell says whether its weights are in
 * memory and how often it was chosen, the shape on it what happened last and how long ago. */
import { el } from '../dom';
import { calm, drawShape, fit, type Paint } from './paint';
import { kinds } from './protocol';
import type { State } from './history';

const fade = 2600;  // ms
const gutter = 30;  // px, for the numbers of the layers
const top = 16;     // px, for the numbers of the experts

export interface Picture {
  state: State;
  rows: number[];
  columns: number;
  resident: boolean;             // nothing is ever read: no absent cells
  lit: Set<number> | null;       // experts of the tokens one looks at; the others are dimmed
  selected: number | null;
  busiest: number;               // most uses of a cell
  now: number;                   // ms, on the server's clock
}

export class ExpertMap {
  readonly canvas = el('canvas', { tabindex: 0, role: 'application', 'aria-label': 'Map of the experts: arrow keys choose one',
    'aria-describedby': 'cell-facts' });
  readonly root = el('div', { class: 'map-frame' }, this.canvas);
  onSelect: (cell: number | null, final: boolean) => void = () => undefined;
  zoom = 1;
  private size = 8;   // px across
  private tall = 8;   // and down: small maps on narrow screens have high cells
  private rows = 0;
  private columns = 0;

  constructor() {
    this.canvas.addEventListener('pointermove', (event) => { if (event.pointerType !== 'touch') this.onSelect(this.cellAt(event), false); });
    this.canvas.addEventListener('pointerleave', () => this.onSelect(null, false));
    this.canvas.addEventListener('click', (event) => this.onSelect(this.cellAt(event), true));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
  }

  private keyCell = 0;

  private key(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    const step = steps[event.key];
    if (event.key === 'Escape') { this.onSelect(null, true); return; }
    if (step === undefined || !this.columns) return;
    event.preventDefault();
    const next = this.keyCell + step;
    if (next >= 0 && next < this.rows * this.columns) this.keyCell = next;
    this.onSelect(this.keyCell, true);
  }

  private cellAt(event: MouseEvent): number | null {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - gutter) / this.size);
    const row = Math.floor((event.clientY - box.top - top) / this.tall);
    if (column < 0 || row < 0 || column >= this.columns || row >= this.rows) return null;
    this.keyCell = row * this.columns + column;
    return this.keyCell;
  }

  private measure(): void {
    const room = Math.max(200, this.root.clientWidth) - gutter - 2;
    const fitting = Math.floor(room / this.columns * 2) / 2;
    this.size = Math.max(4, Math.min(24, Math.max(5, fitting) * this.zoom));
    this.tall = Math.max(this.size, Math.min(2 * this.size, 120 / this.rows));
    this.root.classList.toggle('wide', this.size * this.columns > room + 1);
  }

  draw(picture: Picture, paint: Paint): void {
    this.rows = picture.rows.length;
    this.columns = picture.columns;
    this.measure();
    const { size } = this;
    const context = fit(this.canvas, gutter + size * this.columns + 1, top + this.tall * this.rows + 1);
    this.labels(context, picture, paint);
    this.ground(context, picture, paint);
    this.events(context, picture, paint);
    if (picture.lit) this.light(context, picture.lit, paint);
    if (picture.selected !== null) this.select(context, picture.selected, paint);
  }

  private labels(context: CanvasRenderingContext2D, picture: Picture, paint: Paint): void {
    context.fillStyle = paint.soft;
    context.font = '10px ui-monospace, monospace';
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    const every = Math.max(1, Math.ceil(11 / this.tall));
    picture.rows.forEach((layer, row) => {
      if (row % every === 0) context.fillText(String(layer), gutter - 5, top + (row + 0.5) * this.tall);
    });
    context.textAlign = 'center';
    for (let column = 0; column < this.columns; column += this.columns > 96 ? 16 : 8)
      context.fillText(String(column), gutter + (column + 0.5) * this.size, 7);
  }

  private ground(context: CanvasRenderingContext2D, picture: Picture, paint: Paint): void {
    const { size, tall, columns } = this;
    const gap = size >= 7 ? 1 : size >= 5 ? 0.5 : 0;
    const { state, resident } = picture;
    const scale = 1 / Math.log2(2 + picture.busiest);
    for (let cell = 0; cell < state.cells; cell++) {
      const x = gutter + (cell % columns) * size, y = top + Math.floor(cell / columns) * tall;
      const there = resident || state.present[cell] === 1;
      context.globalAlpha = 1;
      context.fillStyle = there ? paint['resident-cell'] : paint['absent-cell'];
      context.fillRect(x, y, size - gap, tall - gap);
      const uses = state.uses[cell]!;
      if (!uses) continue;
      context.globalAlpha = (there ? 0.6 : 0.22) * Math.log2(1 + uses) * scale;
      context.fillStyle = paint.hit;
      context.fillRect(x, y, size - gap, tall - gap);
    }
    context.globalAlpha = 1;
  }

  private events(context: CanvasRenderingContext2D, picture: Picture, paint: Paint): void {
    const { size, tall, columns } = this;
    const { state } = picture;
    const still = calm();
    for (let cell = 0; cell < state.cells; cell++) {
      const age = picture.now - state.when[cell]!;
      const number = state.kind[cell]!;
      if (age > fade || number > 5) continue;
      const kind = kinds[number]!;
      const strength = still ? (age < 400 ? 1 : 0) : 1 - age / fade;
      if (strength <= 0) continue;
      context.globalAlpha = strength * (kind === 'evicted' ? 0.5 : 1);
      context.fillStyle = context.strokeStyle = paint[kind];
      drawShape(context, kind, gutter + (cell % columns) * size, top + Math.floor(cell / columns) * tall + (tall - size) / 2, size - (size >= 7 ? 1 : 0));
    }
    context.globalAlpha = 1;
  }

  private light(context: CanvasRenderingContext2D, lit: Set<number>, paint: Paint): void {
    const { size, tall, columns } = this;
    context.globalAlpha = 0.72;
    context.fillStyle = paint.card;
    context.fillRect(gutter, top, size * columns, tall * this.rows);
    context.globalAlpha = 1;
    context.fillStyle = paint.accent;
    context.strokeStyle = paint.ink;
    context.lineWidth = size >= 7 ? 1.5 : 1;
    for (const cell of lit) {
      const x = gutter + (cell % columns) * size, y = top + Math.floor(cell / columns) * tall;
      context.fillRect(x, y, size - 0.5, tall - 0.5);
      context.strokeRect(x - 0.5, y - 0.5, size + 0.5, tall + 0.5);
    }
  }

  private select(context: CanvasRenderingContext2D, cell: number, paint: Paint): void {
    const { size, tall, columns } = this;
    const x = gutter + (cell % columns) * size, y = top + Math.floor(cell / columns) * tall;
    context.strokeStyle = paint.ink;
    context.lineWidth = 2;
    context.strokeRect(x - 1.5, y - 1.5, size + 2, tall + 2);
  }
}
