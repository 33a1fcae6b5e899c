// The dialect of Ollama, judged by its client.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Ollama } from 'ollama';
import * as support from './support.mjs';

const { url, weather, weatherQuestion, weatherAnswer, weatherResult, sum, story } = support;
const client = new Ollama({ host: url });
const user = (content) => [{ role: 'user', content }];
const options = { temperature: 0.9, seed: support.seed, num_predict: 24 };
const tool = { type: 'function', function: weather };

describe("Ollama's dialect", support.beside, () => {
  test('models', async () => {
    const { models } = await client.list();
    assert.equal(models.length, 1);
    assert.match(models[0].name, /^pebble/);
    assert.ok(models[0].size > 0 && models[0].details.family);
    assert.match(models[0].details.parameter_size, /^30\.\d\dM$/);
    assert.equal(models[0].details.quantization_level, 'affine 4-bit');
    const shown = await client.show({ model: models[0].name });
    for (const name of ['completion', 'tools', 'thinking'])
      assert.ok(shown.capabilities.includes(name), `${shown.capabilities}`);
    assert.ok(shown.template.includes('im_start'));
    assert.ok(Object.keys(shown.model_info).some((key) => key.endsWith('.context_length')));
    assert.equal((await client.ps()).models.length, 1);
    assert.match((await client.version()).version, /^\d+\.\d+/);
  });

  test('chat, whole and streamed', async () => {
    const body = { model: 'pebble', messages: user(story), options };
    const whole = await client.chat(body);
    assert.equal(whole.done, true);
    assert.equal(whole.done_reason, 'length');
    assert.equal(whole.message.role, 'assistant');
    assert.equal(whole.eval_count, 24);
    assert.ok(whole.prompt_eval_count > 0);
    assert.ok(whole.total_duration > 1e6 && whole.eval_duration > 0); // nanoseconds
    assert.ok(Math.abs(new Date(whole.created_at) - Date.now()) < 60000);
    const parts = await support.all(await client.chat({ ...body, stream: true }));
    assert.ok(parts.length > 20);
    assert.ok(parts.slice(0, -1).every((part) => part.done === false));
    assert.equal(parts.map((part) => part.message.content).join(''), whole.message.content);
    assert.equal(parts.at(-1).eval_count, 24);
  });

  test('generate, with a template and raw', async () => {
    const body = { model: 'pebble', prompt: story, options };
    const whole = await client.generate(body);
    const parts = await support.all(await client.generate({ ...body, stream: true }));
    assert.equal(parts.map((part) => part.response).join(''), whole.response);
    assert.ok(whole.response.length > 20);
    const raw = await client.generate({ ...body, prompt: 'Once upon a time', raw: true });
    const other = await support.json('/v1/completions', { model: 'pebble',
      prompt: 'Once upon a time', temperature: 0.9, seed: support.seed, max_tokens: 24 });
    assert.equal(raw.response, other.choices[0].text);
    const spoken = await client.generate({ ...body, system: 'Be kind.' });
    assert.ok(spoken.prompt_eval_count > whole.prompt_eval_count);
  });

  test('thinking is apart', async () => {
    const body = { model: 'pebble', messages: user(sum), options: { temperature: 0 } };
    const whole = await client.chat({ ...body, think: true });
    assert.match(whole.message.thinking, /7 \+ 5 = 12/);
    assert.equal(whole.message.content, '27 + 45 = 72');
    const parts = await support.all(await client.chat({ ...body, think: true, stream: true }));
    assert.equal(parts.map((part) => part.message.thinking ?? '').join(''), whole.message.thinking);
    const off = await client.chat({ ...body, think: false });
    assert.ok(!off.message.thinking);
  });

  test('a tool is called, and the answer comes from what it returned', async () => {
    const body = { model: 'pebble', messages: user(weatherQuestion), tools: [tool],
      options: { temperature: 0 } };
    const first = await client.chat(body);
    const [call] = first.message.tool_calls;
    assert.equal(call.function.name, 'get_weather');
    assert.deepEqual(call.function.arguments, { city: 'Lisbon' });
    const parts = await support.all(await client.chat({ ...body, stream: true }));
    const calls = parts.flatMap((part) => part.message.tool_calls ?? []);
    assert.deepEqual(calls.map((part) => part.function.arguments), [{ city: 'Lisbon' }]);
    const second = await client.chat({ ...body, messages: [...body.messages, first.message,
      { role: 'tool', tool_name: 'get_weather', content: weatherResult }] });
    assert.equal(second.message.content, weatherAnswer);
  });

  test('formats', async () => {
    const body = { model: 'pebble', messages: user('JSON.'), options: { temperature: 1, seed: 3 } };
    const whole = await client.chat({ ...body, format: support.wideSchema });
    assert.equal(JSON.parse(whole.message.content).word, support.wideText);
    const parts = await support.all(await client.chat({ ...body, format: support.wideSchema,
      stream: true }));
    assert.equal(parts.map((part) => part.message.content).join(''), whole.message.content);
    const text = await client.generate({ model: 'pebble', prompt: 'JSON.',
      format: support.wideSchema, options: { temperature: 1, seed: 4 } });
    assert.equal(JSON.parse(text.response).word, support.wideText);
  });

  test('stops, refusals and unknown models', async () => {
    const whole = await client.chat({ model: 'pebble',
      messages: user('What is the capital of France?'),
      options: { temperature: 0, stop: [' Paris'] } });
    assert.equal(whole.message.content, 'The capital of France is');
    assert.equal(whole.done_reason, 'stop');
    await support.refused(() => client.chat({ model: 'pebble', messages: user('x'),
      options: { temperature: 'hot' } }), { status_code: 400, message: /temperature/ });
    await support.refused(() => client.embed({ model: 'pebble', input: 'x' }),
      { name: 'ResponseError' });
    await support.withServer(['--strict-model'], async (at) => {
      const strict = new Ollama({ host: at });
      await support.refused(() => strict.chat({ model: 'other', messages: user('x') }),
        { status_code: 404, message: /other/ });
      assert.ok((await strict.chat({ model: 'pebble:latest', messages: user('x'), options })).done);
    });
  });
});

test('an aborted stream gives its pages back', async () => {
  const stream = await client.chat({ model: 'pebble', messages: user(story), stream: true,
    options: { ...options, num_predict: 3000 } });
  await support.refused(async () => {
    for await (const part of stream) if (part.message.content) stream.abort();
  }, { name: 'AbortError' });
  await support.idle();
});
