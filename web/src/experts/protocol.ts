/* What /v1/moeflux/experts sends, unpacked. */

/* In the order of their numbers in the records. */
export const kinds = ['hit', 'ahead', 'late', 'demand', 'evicted', 'wasted'] as const;
export type Kind = (typeof kinds)[number];
export type Sums = Record<Kind, number>;

export const meanings: Record<Kind, string> = {
  hit: 'was in memory',
  ahead: 'read ahead, there in time',
  late: 'read ahead, but the step waited',
  demand: 'read when it was needed',
  evicted: 'left memory for another',
  wasted: 'read ahead for nothing',
};

export interface MapMessage {
  time: number;
  rows: number[];
  columns: number;
  present: Uint8Array; // a byte a cell
  slots: number;
  totals: Sums;
}

export interface TokenRoute {
  request: string;
  index: number;
  experts: Uint16Array; // [rows][experts per token]
}

export interface Frame {
  time: number; // ms since the server's start
  steps: number;
  promptRows: number;
  decodeRows: number;
  cells: Uint32Array; // row * columns + expert, of each event
  kinds: Uint8Array;
  counts: Uint8Array;
  sums: Sums;
  bytes: { demand: number; ahead: number; wasted: number };
  stages: Record<string, number>; // seconds
  present: number;
  tokens: TokenRoute[];
  dropped: boolean;
}

function unpack(text: string | undefined): Uint8Array {
  if (!text) return new Uint8Array(0);
  const binary = atob(text);
  const out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) out[i] = binary.charCodeAt(i);
  return out;
}

function sumsOf(value: Partial<Sums> | undefined): Sums {
  return Object.fromEntries(kinds.map((kind) => [kind, value?.[kind] ?? 0])) as Sums;
}

interface RawMap { time: number; rows: number[]; columns: number; present?: string; slots: number; totals?: Partial<Sums> }

export function parseMap(text: string): MapMessage {
  const raw = JSON.parse(text) as RawMap;
  const bits = unpack(raw.present);
  const present = new Uint8Array(raw.rows.length * raw.columns);
  for (let i = 0; i < present.length; i++) present[i] = ((bits[i >> 3] ?? 0) >> (i & 7)) & 1;
  return { time: raw.time, rows: raw.rows, columns: raw.columns, present, slots: raw.slots, totals: sumsOf(raw.totals) };
}

interface RawFrame {
  time: number; steps?: number; prompt_rows?: number; decode_rows?: number; events?: string; dropped?: boolean;
  sums?: Partial<Sums>; bytes?: Partial<Frame['bytes']>; stages?: Record<string, number>; present?: number;
  tokens?: { request: string; index: number; experts: string }[];
}

export function parseFrame(text: string, rows: number, columns: number): Frame {
  const raw = JSON.parse(text) as RawFrame;
  const records = unpack(raw.events);
  const view = new DataView(records.buffer);
  const count = Math.floor(records.length / 6);
  const frame: Frame = {
    time: raw.time, steps: raw.steps ?? 0, promptRows: raw.prompt_rows ?? 0, decodeRows: raw.decode_rows ?? 0,
    cells: new Uint32Array(count), kinds: new Uint8Array(count), counts: new Uint8Array(count), sums: sumsOf(raw.sums),
    bytes: { demand: raw.bytes?.demand ?? 0, ahead: raw.bytes?.ahead ?? 0, wasted: raw.bytes?.wasted ?? 0 },
    stages: raw.stages ?? {}, present: raw.present ?? 0, dropped: raw.dropped === true,
    tokens: (raw.tokens ?? []).map((token) => {
      const bytes = unpack(token.experts);
      const experts = new Uint16Array(bytes.length >> 1);
      for (let i = 0; i < experts.length; i++) experts[i] = bytes[2 * i]! | (bytes[2 * i + 1]! << 8);
      return { request: token.request, index: token.index, experts };
    }),
  };
  for (let i = 0; i < count; i++) {
    const row = view.getUint16(6 * i, true), expert = view.getUint16(6 * i + 2, true);
    const valid = row < rows && expert < columns;
    frame.cells[i] = valid ? row * columns + expert : 0;
    frame.kinds[i] = valid ? view.getUint8(6 * i + 4) : 255;
    frame.counts[i] = view.getUint8(6 * i + 5);
  }
  return frame;
}
