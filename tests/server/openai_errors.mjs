// Refusals and aborted requests, judged by the openai client: CLIENT names the package.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';
import * as support from './support.mjs';

const { url, story } = support;
const { default: OpenAI, ...sdk } = await import(process.env.CLIENT);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
const chat = client.chat.completions;
const body = { model: 'pebble', messages: [{ role: 'user', content: story }], max_tokens: 20,
  temperature: 0.9, seed: support.seed };
const refuse = (fields, expected) =>
  support.refused(() => chat.create({ ...body, ...fields }), { is: sdk.BadRequestError, status: 400,
    type: 'invalid_request_error', ...expected });

test('fields out of range or of a wrong type are named', async () => {
  await refuse({ temperature: 3 }, { param: 'temperature' });
  await refuse({ temperature: 'hot' }, { param: 'temperature' });
  await refuse({ top_p: -1 }, { param: 'top_p' });
  await refuse({ n: 0 }, { param: 'n' });
  await refuse({ n: 1000 }, { param: 'n' });
  await refuse({ max_tokens: -1 }, { param: 'max_tokens' });
  await refuse({ messages: 'hello' }, { param: 'messages' });
  await refuse({ messages: [] }, { param: 'messages' });
  await refuse({ stop: [1] }, { param: 'stop' });
  await refuse({ logit_bias: { x: 1 } }, { param: 'logit_bias' });
  await refuse({ messages: [{ role: 'wizard', content: 'x' }] }, {});
  await refuse({ response_format: { type: 'json_schema', json_schema: { name: 'x',
    schema: { type: 'nothing' } } } }, {});
});

test('what cannot be done is refused by name, what changes nothing is noted', async () => {
  await refuse({ no_such_field: 1 }, { param: 'no_such_field', code: 'unknown_parameter' });
  await refuse({ prediction: { type: 'content', content: 'x' } }, { param: 'prediction' });
  await refuse({ modalities: ['audio'], audio: { voice: 'alloy', format: 'wav' } }, {});
  const { response } = await chat.create({ ...body, store: true, metadata: { a: 'b' },
    user: 'someone' }).withResponse();
  const noted = response.headers.get('x-moeflux-ignored').split(',');
  for (const name of ['store', 'metadata']) assert.ok(noted.includes(name), `${noted}`);
});

test('a prompt beyond the context is refused in the words that agents look for', async () => {
  const long = [{ role: 'user', content: 'fox '.repeat(9000) }];
  const error = await refuse({ messages: long }, { code: 'context_length_exceeded' });
  assert.match(error.message, /exceeds the available context size|maximum context length/);
  await support.refused(() => chat.create({ ...body, messages: long, stream: true }),
    { status: 400, code: 'context_length_exceeded' });
});

test('more tokens than the context has left are what is left', async () => {
  const whole = await chat.create({ ...body, max_tokens: 32000, stop: [' '], temperature: 0 });
  assert.ok(['stop', 'length'].includes(whole.choices[0].finish_reason));
});

test('broken bodies', async () => {
  const message = (text) => `{"messages":[{"role":"user","content":"${text}"}]}`;
  for (const text of ['{"model":', '[]', 'null', '', '{"a":1}{', message('\\ud800'), message('\n'),
    message('x').replace('{', '{"messages":[],')]) {
    const reply = await support.post('/v1/chat/completions', text);
    const { error } = await reply.json();
    assert.equal(reply.status, 400, text);
    assert.deepEqual(Object.keys(error).sort(), ['code', 'message', 'param', 'type']);
    assert.ok(reply.headers.get('x-request-id'));
  }
});

test('embeddings are refused cleanly', async () => {
  const error = await support.refused(
    () => client.embeddings.create({ model: 'pebble', input: 'x' }), { status: 501 });
  assert.match(error.message, /embedding/i);
  assert.equal(error.headers.get('x-should-retry'), 'false');
});

test('--strict and --strict-model', async () => {
  await support.withServer(['--strict', '--strict-model'], async (at) => {
    const strict = new OpenAI({ baseURL: `${at}/v1`, apiKey: 'none', maxRetries: 0 });
    await support.refused(() => strict.chat.completions.create({ ...body, model: 'gpt-9' }),
      { is: sdk.NotFoundError, status: 404, code: 'model_not_found' });
    await support.refused(() => strict.chat.completions.create({ ...body, store: true }),
      { status: 400, param: 'store' });
    const whole = await strict.chat.completions.create(body);
    assert.equal(whole.usage.completion_tokens, 20);
  });
  const any = await chat.create({ ...body, model: 'gpt-9' });
  assert.equal(any.model, 'pebble');
});

test('a key is asked for', async () => {
  writeFileSync('key', 'a long secret\n', { mode: 0o600 });
  await support.withServer(['--api-key-file', 'key'], async (at) => {
    const make = (apiKey) => new OpenAI({ baseURL: `${at}/v1`, apiKey, maxRetries: 0 });
    for (const wrong of ['none', 'a long secre', 'a long secret!'])
      await support.refused(() => make(wrong).chat.completions.create(body),
        { is: sdk.AuthenticationError, status: 401, code: 'invalid_api_key' });
    await support.refused(() => make('none').models.list(), { status: 401 });
    const whole = await make('a long secret').chat.completions.create(body);
    assert.equal(whole.usage.completion_tokens, 20);
    assert.equal((await fetch(`${at}/metrics`)).status, 401);
    const other = await support.post('/v1/chat/completions', body,
      { at, headers: { 'x-api-key': 'a long secret' } });
    assert.equal(other.status, 200);
    await other.arrayBuffer();
  });
});

test('an aborted stream gives its pages back', async () => {
  const long = { ...body, max_tokens: 3000, temperature: 1.3, seed: support.seed, stream: true };
  const before = await support.idle();
  for (const how of ['break', 'abort', 'helper']) {
    if (how === 'helper') {
      const stream = chat.stream(long);
      stream.on('content', () => stream.abort());
      await support.refused(() => stream.done(), { is: sdk.APIUserAbortError });
    } else {
      const stream = await chat.create(long);
      for await (const chunk of stream) {
        if (!chunk.choices[0].delta.content) continue;
        if (how === 'break') break;
        stream.controller.abort();
      }
    }
    await support.idle();
  }
  const controller = new AbortController();
  const waiting = chat.create({ ...long, stream: false }, { signal: controller.signal });
  setTimeout(() => controller.abort(), 100);
  await support.refused(() => waiting, { is: sdk.APIUserAbortError });
  const after = await support.idle();
  const cancelled = 'moeflux_requests_total{finish="cancelled"}';
  assert.ok(after[cancelled] >= before[cancelled] + 4,
    `${before[cancelled]} then ${after[cancelled]} cancelled`);
});
