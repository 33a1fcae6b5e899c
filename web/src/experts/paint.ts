/* Colours of the style sheet for canvases, and the shapes of the reasons. */
import type { Kind } from './protocol';

export type Paint = Record<Kind | 'ink' | 'soft' | 'line' | 'card' | 'accent' | 'resident-cell' | 'absent-cell', string>;

/** What the style sheet's names mean now, in light or dark. */
export function readPaint(element: Element): Paint {
  const probe = document.createElement('span');
  probe.hidden = true;
  element.append(probe);
  const paint = {} as Paint;
  for (const name of ['hit', 'ahead', 'late', 'demand', 'evicted', 'wasted', 'ink', 'soft', 'line', 'card', 'accent',
    'resident-cell', 'absent-cell'] as const) {
    probe.style.color = `var(--${name})`;
    paint[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return paint;
}

/** A shape for each reason in a box of `size`, so that colour is never the only difference. */
export function drawShape(context: CanvasRenderingContext2D, kind: Kind, x: number, y: number, size: number): void {
  const s = size;
  context.beginPath();
  switch (kind) {
    case 'hit': // a dot
      context.arc(x + s / 2, y + s / 2, s * 0.24, 0, 7);
      context.fill();
      break;
    case 'ahead': // points forward
      context.moveTo(x + s * 0.22, y + s * 0.14);
      context.lineTo(x + s * 0.86, y + s * 0.5);
      context.lineTo(x + s * 0.22, y + s * 0.86);
      context.fill();
      break;
    case 'late': // a diamond
      context.moveTo(x + s * 0.5, y + s * 0.08);
      context.lineTo(x + s * 0.92, y + s * 0.5);
      context.lineTo(x + s * 0.5, y + s * 0.92);
      context.lineTo(x + s * 0.08, y + s * 0.5);
      context.fill();
      break;
    case 'demand': // all of it
      context.fillRect(x + s * 0.06, y + s * 0.06, s * 0.88, s * 0.88);
      break;
    case 'evicted': // crossed out
      context.lineWidth = Math.max(1, s * 0.14);
      context.moveTo(x + s * 0.2, y + s * 0.2);
      context.lineTo(x + s * 0.8, y + s * 0.8);
      context.moveTo(x + s * 0.8, y + s * 0.2);
      context.lineTo(x + s * 0.2, y + s * 0.8);
      context.stroke();
      break;
    case 'wasted': // hollow
      context.lineWidth = Math.max(1, s * 0.14);
      context.strokeRect(x + s * 0.2, y + s * 0.2, s * 0.6, s * 0.6);
      break;
  }
}

/** Makes the canvas `width` by `height` in CSS pixels, sharp on dense screens; its context. */
export function fit(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = Math.min(3, devicePixelRatio || 1);
  const across = Math.max(1, Math.round(width * ratio)), down = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d')!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** The legend's picture of a reason. */
export function legendShape(kind: Kind, paint: Paint): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  const context = fit(canvas, 14, 14);
  context.fillStyle = context.strokeStyle = paint[kind];
  drawShape(context, kind, 0, 0, 14);
  canvas.setAttribute('aria-hidden', 'true');
  return canvas;
}

export const calm = (): boolean => matchMedia('(prefers-reduced-motion: reduce)').matches;
