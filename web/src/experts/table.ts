/* The map as tables: the layers with their sums, the experts chosen most.  For screen readers and
 * small screens, and for exact figures anywhere. */
import { el, replace } from '../dom';
import { count, percent } from '../format';
import type { State } from './history';

interface Column<Row> { key: string; title: string; value: (row: Row) => number; text?: (row: Row) => string }

interface LayerRow { layer: number; present: number; uses: number; reads: number; experts: number; distinct: number }
interface ExpertRow { cell: number; layer: number; expert: number; uses: number; reads: number; present: number }

class SortedTable<Row> {
  private by: string;
  private down = true;
  private rows: Row[] = [];
  private readonly head = el('tr');
  private readonly body = el('tbody');
  readonly root: HTMLElement;

  constructor(title: string, private readonly columns: Column<Row>[], first: string, private readonly most: number,
              private readonly open?: (row: Row) => void) {
    this.by = first;
    this.root = el('div', { class: 'table-frame', tabindex: 0, role: 'region', 'aria-label': title },
      el('table', {}, el('caption', { class: 'unseen' }, title), el('thead', {}, this.head), this.body));
    this.drawHead();
  }

  private drawHead(): void {
    replace(this.head, ...this.columns.map((column) => {
      const sorted = column.key === this.by;
      return el('th', { scope: 'col', 'aria-sort': sorted ? (this.down ? 'descending' : 'ascending') : 'none' },
        el('button', { type: 'button', class: 'sort', onclick: () => this.sort(column.key) }, column.title,
          el('span', { 'aria-hidden': 'true' }, sorted ? (this.down ? ' ▾' : ' ▴') : '')));
    }));
  }

  private sort(key: string): void {
    this.down = key === this.by ? !this.down : true;
    this.by = key;
    this.drawHead();
    this.draw(this.rows);
    this.head.querySelectorAll('button')[this.columns.findIndex((column) => column.key === key)]?.focus();
  }

  draw(rows: Row[]): void {
    this.rows = rows;
    const { value } = this.columns.find((column) => column.key === this.by)!;
    const sorted = [...rows].sort((a, b) => (this.down ? value(b) - value(a) : value(a) - value(b))).slice(0, this.most);
    replace(this.body, ...sorted.map((row) => el('tr', {}, ...this.columns.map((column, at) => {
      const text = column.text ? column.text(row) : count(column.value(row));
      return at === 0 ? el('th', { scope: 'row' }, this.open ? el('button', { type: 'button', class: 'link', onclick: () => this.open!(row) }, text) : text)
        : el('td', {}, text);
    }))));
  }
}

export class ExpertTables {
  onOpen: (cell: number) => void = () => undefined;
  private readonly layers = new SortedTable<LayerRow>('Layers', [
    { key: 'layer', title: 'Layer', value: (row) => row.layer },
    { key: 'present', title: 'In memory', value: (row) => row.present / row.experts, text: (row) => `${count(row.present)} (${percent(row.present / row.experts)})` },
    { key: 'uses', title: 'Chosen', value: (row) => row.uses },
    { key: 'distinct', title: 'Different', value: (row) => row.distinct },
    { key: 'reads', title: 'Read', value: (row) => row.reads },
    { key: 'rate', title: 'Without a read', value: (row) => (row.uses ? 1 - row.reads / row.uses : 0), text: (row) => (row.uses ? percent(1 - row.reads / row.uses) : '—') },
  ], 'reads', 1000);
  private readonly experts = new SortedTable<ExpertRow>('The experts chosen most', [
    { key: 'expert', title: 'Expert', value: (row) => row.cell, text: (row) => `${row.layer}.${row.expert}` },
    { key: 'uses', title: 'Chosen', value: (row) => row.uses },
    { key: 'reads', title: 'Read', value: (row) => row.reads },
    { key: 'present', title: 'In memory', value: (row) => row.present, text: (row) => (row.present ? 'yes' : 'no') },
  ], 'uses', 60, (row) => this.onOpen(row.cell));
  readonly root = el('div', { class: 'tables' }, el('div', {}, el('h3', {}, 'Layers'), this.layers.root),
    el('div', {}, el('h3', {}, 'Experts, the first 60'), this.experts.root));

  draw(state: State, rows: number[], columns: number, resident: boolean): void {
    const layers: LayerRow[] = [], experts: ExpertRow[] = [];
    rows.forEach((layer, row) => {
      const sums: LayerRow = { layer, present: 0, uses: 0, reads: 0, experts: columns, distinct: 0 };
      for (let expert = 0; expert < columns; expert++) {
        const cell = row * columns + expert;
        const uses = state.uses[cell]!, reads = state.reads[cell]!, present = resident ? 1 : state.present[cell]!;
        sums.present += present;
        sums.uses += uses;
        sums.reads += reads;
        sums.distinct += uses > 0 ? 1 : 0;
        if (uses) experts.push({ cell, layer, expert, uses, reads, present });
      }
      layers.push(sums);
    });
    this.layers.draw(layers);
    this.experts.draw(experts);
  }
}
