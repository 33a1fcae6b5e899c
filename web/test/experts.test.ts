import assert from 'node:assert/strict';
import { test } from 'node:test';
import { History, span } from '../src/experts/history';
import { parseFrame, parseMap } from '../src/experts/protocol';
import { gather } from '../src/experts/timeline';

const none = { hit: 0, ahead: 0, late: 0, demand: 0, evicted: 0, wasted: 0 };
const base64 = (bytes: number[]) => Buffer.from(bytes).toString('base64');

// Two layers of 10 experts; 0.1 and 1.9 are in memory.
const map = () => parseMap(JSON.stringify({ time: 0, rows: [3, 5], columns: 10, present: base64([0b10, 0, 0b1000]), slots: 4, totals: { ...none, hit: 7 } }));

type Event = [row: number, expert: number, kind: number, count: number];
function frame(time: number, events: Event[], more: Record<string, unknown> = {}) {
  const bytes = events.flatMap(([row, expert, kind, count]) => [row & 255, row >> 8, expert & 255, expert >> 8, kind, count]);
  return parseFrame(JSON.stringify({ time, steps: 1, events: base64(bytes), present: 2, ...more }), 2, 10);
}

test('a map says which experts are in memory', () => {
  const { present, rows } = map();
  assert.deepEqual([...present].flatMap((one, at) => (one ? [at] : [])), [1, 19]);
  assert.deepEqual(rows, [3, 5]);
});

test('frames move experts in and out of memory, and count', () => {
  const history = new History(map());
  history.push(frame(100, [[0, 1, 0, 3], [1, 2, 3, 1], [1, 9, 4, 1]], { sums: { ...none, hit: 3, demand: 1, evicted: 1 } }));
  const { state } = history;
  assert.equal(state.uses[1], 3);
  assert.equal(state.reads[1], 0);
  assert.equal(state.present[12], 1, 'a demand read is in memory');
  assert.equal(state.present[19], 0, 'an evicted one is not');
  assert.deepEqual(history.totals, { ...none, hit: 10, demand: 1, evicted: 1 });
  history.push(frame(200, [[1, 2, 0, 1], [1, 2, 4, 1], [0, 4, 3, 1], [0, 4, 4, 1]]));
  assert.equal(state.present[12], 0, 'used, then evicted in the same frame');
  history.push(frame(300, [[0, 1, 4, 1], [0, 1, 3, 1]]));
  assert.equal(state.kind[1], 3, 'a read on demand tells more than an eviction');
});

test('records outside of the map are left out', () => {
  const history = new History(map());
  history.push(frame(100, [[2, 0, 0, 1], [0, 10, 0, 1], [0, 0, 9, 1]]));
  assert.equal(history.state.uses.reduce((sum, uses) => sum + uses), 0);
});

test('any moment of the last minute can be shown again, also when older ones have left', () => {
  const history = new History(map());
  const seen: string[] = [];
  const times: number[] = [];
  for (let at = 0; at < 900; at++) {
    history.push(frame(at * 100, [[at % 2, at % 10, at % 3 === 0 ? 4 : 3, 1]]));
    seen.push(history.state.present.join(''));
    times.push(at * 100);
  }
  const recording = history.record();
  assert.ok(recording.to - recording.from <= span);
  assert.ok(recording.frames.length >= 600, `${recording.frames.length} frames`);
  history.push(frame(90100, [[0, 0, 3, 1]]));
  for (const at of [0, 17, 300, recording.frames.length - 1]) {
    const time = recording.frames[at]!.time;
    assert.equal(recording.at(time + 50), at);
    assert.equal(recording.stateAt(at).present.join(''), seen[times.indexOf(time)]);
  }
});

test('the timeline sums frames by quarter seconds', () => {
  const frames = [59900, 59800, 100].map((time) => frame(time, [], { bytes: { demand: 10, ahead: 5, wasted: 1 }, sums: { ...none, hit: 3, demand: 1 } }));
  const data = gather(frames, 60000);
  assert.equal(data.length, 240);
  assert.deepEqual([data.at(-1)!.demand, data.at(-1)!.hits, data.at(-1)!.uses, data.at(-1)!.steps], [20, 6, 8, 2]);
  assert.equal(data[0]!.demand, 10);
  assert.equal(data[1], null);
});

test('routes of tokens', () => {
  const { tokens } = frame(0, [], { tokens: [{ request: 'r', index: 4, experts: base64([1, 0, 2, 1]) }] });
  assert.deepEqual([...tokens[0]!.experts], [1, 258]);
});
