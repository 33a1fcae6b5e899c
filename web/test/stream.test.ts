import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventParser, type ServerEvent } from '../src/sse';

const stream = ': hello\n\nevent: map\ndata: {"a":1}\n\ndata: one\r\ndata: two\r\n\r\nid: 7\ndata:x\rdata\r\revent: lost\n\ndata: [DONE]\n\n';
const expected = [
  { event: 'map', data: '{"a":1}' }, { event: 'message', data: 'one\ntwo' }, { event: 'message', data: 'x\n' },
  { event: 'message', data: '[DONE]' },
];

function parse(pieces: string[]): ServerEvent[] {
  const parser = new EventParser();
  return pieces.flatMap((piece) => parser.push(piece));
}

test('events of a stream, wherever it is cut', () => {
  const whole = parse([stream]);
  assert.deepEqual(whole, expected);
  for (let cut = 0; cut <= stream.length; cut++)
    assert.deepEqual(parse([stream.slice(0, cut), stream.slice(cut)]), whole, `cut at ${cut}`);
  assert.deepEqual(parse([...stream]), whole);
});

test('an event without its empty line has not come yet', () => {
  assert.deepEqual(parse(['data: half\n']), []);
});
