/* The last 60 seconds: the state before them and every frame since, so that any moment can be shown
 * again by applying the frames up to it. */
import { kinds, type Frame, type MapMessage, type Sums, type TokenRoute } from './protocol';

export const span = 60000; // ms
const mostBytes = 24 << 20;

/* Within a frame the most telling event of a cell is shown. */
const rank = [0, 3, 4, 5, 1, 2];

export class State {
  readonly present: Uint8Array;
  readonly kind: Uint8Array;    // the last event, 255: none
  readonly when: Float64Array;  // its time
  readonly uses: Uint32Array;   // hit, ahead, late and demand
  readonly reads: Uint32Array;  // ahead, late and demand
  time = 0;

  constructor(readonly cells: number) {
    this.present = new Uint8Array(cells);
    this.kind = new Uint8Array(cells).fill(255);
    this.when = new Float64Array(cells).fill(-1e9);
    this.uses = new Uint32Array(cells);
    this.reads = new Uint32Array(cells);
  }

  clone(): State {
    const copy = new State(this.cells);
    copy.present.set(this.present);
    copy.kind.set(this.kind);
    copy.when.set(this.when);
    copy.uses.set(this.uses);
    copy.reads.set(this.reads);
    copy.time = this.time;
    return copy;
  }

  apply(frame: Frame): void {
    this.time = frame.time;
    const gone = new Set<number>();
    const came = new Set<number>();
    for (let i = 0; i < frame.cells.length; i++) {
      const cell = frame.cells[i]!, kind = frame.kinds[i]!, count = frame.counts[i]!;
      if (kind > 5) continue;
      if (kind === 4) gone.add(cell);
      else if (kind < 4) {
        this.uses[cell]! += count;
        if (kind > 0) this.reads[cell]! += count;
        came.add(cell);
      }
      if (this.when[cell] !== frame.time || rank[kind]! > (rank[this.kind[cell]!] ?? -1)) this.kind[cell] = kind;
      this.when[cell] = frame.time;
    }
    // Both in one frame: it was there and left, or came and left again, or left and came back.
    for (const cell of came) if (!gone.has(cell)) this.present[cell] = 1;
    for (const cell of gone) this.present[cell] = came.has(cell) ? this.present[cell]! ^ 1 : 0;
  }
}

export function addSums(to: Sums, from: Sums): void {
  for (const kind of kinds) to[kind] += from[kind];
}

export const chosen = (sums: Sums): number => sums.hit + sums.ahead + sums.late + sums.demand;

/** A window of frames that does not change: what one scrubs through. */
export class Recording {
  constructor(readonly base: State, readonly frames: Frame[]) {}

  get from(): number { return this.frames[0]?.time ?? this.base.time; }
  get to(): number { return this.frames.at(-1)?.time ?? this.base.time; }

  /** The number of the last frame at or before `time`; -1: none. */
  at(time: number): number {
    let low = 0, high = this.frames.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle]!.time <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  stateAt(index: number): State {
    const state = this.base.clone();
    for (let i = 0; i <= index; i++) state.apply(this.frames[i]!);
    return state;
  }

  tokens(): { frame: number; token: TokenRoute }[] {
    return this.frames.flatMap((frame, at) => frame.tokens.map((token) => ({ frame: at, token })));
  }
}

export class History {
  base: State;
  state: State;
  frames: Frame[] = [];
  totals: Sums;
  readonly began: Sums; // of the map
  private bytes = 0;

  constructor(readonly map: MapMessage) {
    this.base = new State(map.rows.length * map.columns);
    this.base.present.set(map.present);
    this.base.time = map.time;
    this.state = this.base.clone();
    this.totals = { ...map.totals };
    this.began = { ...map.totals };
  }

  push(frame: Frame): void {
    this.frames.push(frame);
    this.bytes += 6 * frame.cells.length + frame.tokens.length * 700;
    this.state.apply(frame);
    addSums(this.totals, frame.sums);
    while (this.frames.length > 1 && (frame.time - this.frames[0]!.time > span || this.bytes > mostBytes)) {
      const oldest = this.frames.shift()!;
      this.bytes -= 6 * oldest.cells.length + oldest.tokens.length * 700;
      this.base.apply(oldest);
    }
  }

  /** Of now; frames that come later are not in it. */
  record(): Recording { return new Recording(this.base.clone(), this.frames.slice()); }
}
