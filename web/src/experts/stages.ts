/* The stage strip: where the time of a step went. */
import { el, replace } from '../dom';
import { percent, seconds } from '../format';
import type { Frame } from './protocol';

/* A stage keeps its colour whatever others there are; waiting for the disk has that of demand. */
const known = ['embedding', 'attention', 'delta net', 'router', 'prediction', 'expert wait', 'experts', 'shared expert', 'expert sum', 'head'];

function tone(name: string): number {
  const at = known.indexOf(name);
  return /wait|read/.test(name) ? 5 : at >= 0 ? at : 10;
}

export class StageStrip {
  private readonly strip = el('div', { class: 'strip', 'aria-hidden': 'true' });
  private readonly list = el('dl', { class: 'stage-list' });
  private readonly none = el('p', { class: 'empty' }, 'Ask for an answer to see where its time goes.');
  private readonly title = el('h2', {}, 'A step');
  readonly root = el('section', { class: 'card stages', 'aria-label': 'Stages of a step' }, this.title, this.none, this.strip, this.list);
  private drawn = '';

  /** The sum of `frames`, as the mean of their steps. */
  draw(frames: Frame[], when: string): void {
    const sums = new Map<string, number>();
    let steps = 0;
    for (const frame of frames) {
      steps += frame.steps;
      for (const [name, value] of Object.entries(frame.stages)) if (value > 0) sums.set(name, (sums.get(name) ?? 0) + value);
    }
    const parts = [...sums].sort((a, b) => order(a[0]) - order(b[0]));
    const total = parts.reduce((sum, part) => sum + part[1], 0);
    const drawn = JSON.stringify([parts, steps, when]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.title.textContent = steps ? `A step ${when}: ${seconds(total / steps)}` : `A step ${when}: none`;
    this.none.hidden = steps > 0;
    this.strip.hidden = this.list.hidden = steps === 0;
    if (!steps) return;
    replace(this.strip, ...parts.map(([name, value]) => {
      const piece = el('span', { class: `tone-${tone(name)}`, title: `${name}: ${seconds(value / steps)}` });
      piece.style.flexGrow = String(value / total);
      return piece;
    }));
    replace(this.list, ...parts.map(([name, value]) => el('div', {}, el('dt', {}, el('i', { class: `tone-${tone(name)}`, 'aria-hidden': 'true' }), name),
      el('dd', {}, seconds(value / steps), ' ', el('small', {}, percent(value / total))))));
  }
}

function order(name: string): number {
  const at = known.indexOf(name);
  return at >= 0 ? at : known.length;
}
