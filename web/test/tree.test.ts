import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as tree from '../src/chat/tree';
import { requestMessages } from '../src/chat/turn';

function conversation() {
  const one = tree.newConversation();
  const question = tree.add(one, null, { role: 'user', text: 'First question\nwith a second line' });
  const answer = tree.add(one, question.id, { role: 'assistant', text: 'First answer', reasoning: 'hm' });
  return { one, question, answer };
}

const texts = (one: tree.Conversation) => tree.path(one).map((message) => message.text);

test('asking again and editing add siblings and keep what was there', () => {
  const { one, question, answer } = conversation();
  assert.equal(one.title, 'First question');
  const again = tree.add(one, question.id, { role: 'assistant', text: 'Second answer' });
  assert.deepEqual(tree.siblings(one, answer), [answer, again]);
  const edited = tree.add(one, null, { role: 'user', text: 'Other question' });
  assert.deepEqual(texts(one), ['Other question']);
  assert.deepEqual(tree.siblings(one, edited).length, 2);
  tree.show(one, question);
  assert.deepEqual(texts(one).at(-1), 'Second answer', 'the newest of what follows');
  tree.show(one, answer);
  assert.deepEqual(texts(one).at(-1), 'First answer');
});

test('a fork is a copy up to its message', () => {
  const { one, question, answer } = conversation();
  tree.add(one, answer.id, { role: 'user', text: 'Later' });
  const copy = tree.fork(one, answer);
  copy.messages[question.id]!.text = 'changed';
  assert.deepEqual(texts(copy), ['changed', 'First answer']);
  assert.equal(one.messages[question.id]!.text.startsWith('First'), true);
  assert.notEqual(copy.id, one.id);
});

test('a tool call and its result as a request has them', () => {
  const { one, answer } = conversation();
  answer.calls = [{ id: 'call_1', name: 'f', arguments: '{}' }];
  tree.add(one, answer.id, { role: 'tool', callId: 'call_1', text: 'result' });
  assert.deepEqual(requestMessages(tree.path(one), 'be brief'), [
    { role: 'system', content: 'be brief' },
    { role: 'user', content: 'First question\nwith a second line' },
    { role: 'assistant', content: 'First answer', reasoning_content: 'hm',
      tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'call_1', content: 'result' },
  ]);
});

test('what is exported is imported; what is no export is refused by name', () => {
  const { one } = conversation();
  const [back] = tree.importText(tree.exportText([one]));
  assert.deepEqual(tree.path(back!), tree.path(one));
  assert.throws(() => tree.importText('{"conversations": []}'), /no "format"/);
  assert.throws(() => tree.importText('{"format": "moeflux-conversations", "version": 9, "conversations": []}'), /version 9/);
  const bad = (messages: unknown) => JSON.stringify({ format: tree.exportFormat, version: 1, conversations: [{ messages }] });
  assert.throws(() => tree.importText(bad({ a: { role: 'root', text: '' } })), /role "root"/);
  assert.throws(() => tree.importText(bad({ a: { role: 'user', text: 5 } })), /no text/);
  const [loop] = tree.importText(bad({ a: { role: 'user', text: 'a', parent: 'b' }, b: { role: 'user', text: 'b', parent: 'a' } }));
  assert.equal(tree.path(loop!).length, 2, 'a circle ends');
  const [own] = tree.importText(bad(JSON.parse('{"__proto__": {"role": "user", "text": "x"}}')));
  assert.equal(({} as Record<string, unknown>).role, undefined);
  assert.ok(own);
});
