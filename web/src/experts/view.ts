import { el } from '../dom';
import type { Info } from '../api';
export class ExpertsView {
  readonly root = el('section', { class: 'view experts', 'aria-label': 'Experts' });
  setInfo(_info: Info): void {}
  setShown(_shown: boolean): void {}
  showAnswer(_request: string): void {}
  recolour(): void {}
}
