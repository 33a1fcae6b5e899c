// The Responses API, judged by the openai client, whose helper checks every event: CLIENT names
// the package.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as support from './support.mjs';

const { url, weather, weatherQuestion, weatherAnswer, weatherResult, sum, story } = support;
const { default: OpenAI } = await import(process.env.CLIENT);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
const { responses } = client;
const tool = { type: 'function', ...weather, strict: false };
const asked = { model: 'pebble', input: weatherQuestion, tools: [tool], temperature: 0 };
const counted = { model: 'pebble', input: sum, temperature: 0 };
const told = { model: 'pebble', input: story, temperature: 0.9, seed: support.seed,
  max_output_tokens: 24 };

// The helper's own view of a stream: its events, and the response that it put together from them.
async function helped(body) {
  const stream = responses.stream(body);
  const events = await support.all(stream);
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, index) => index));
  return { events, response: await stream.finalResponse() };
}

// What lasts from one request to the next.
function lasting(value) {
  if (Array.isArray(value)) return value.map(lasting);
  if (typeof value !== 'object' || value === null) return value;
  const changing = ['id', 'call_id', 'created_at', 'completed_at', 'input_tokens_details',
    'moeflux', 'parsed', 'parsed_arguments', 'output_parsed'];
  return Object.fromEntries(Object.entries(value).filter(([name]) => !changing.includes(name))
    .map(([name, one]) => [name, lasting(one)]));
}

async function assertSame(body) {
  const whole = await responses.create(body);
  const { events, response } = await helped(body);
  assert.deepEqual(lasting(response), lasting(whole));
  return { events, response };
}

describe('responses', support.beside, () => {
  test('an answer is the same whole and put together by the helper', async () => {
    const { response } = await assertSame(counted);
    assert.deepEqual(response.output.map((item) => item.type), ['reasoning', 'message']);
    assert.match(response.output_text, /72/);
    assert.equal(response.status, 'completed');
    assert.ok(response.usage.output_tokens_details.reasoning_tokens > 0);
  });

  test('a cut answer is incomplete', async () => {
    for (const limit of [3, 50]) {
      const { events, response } = await assertSame({ ...counted, max_output_tokens: limit });
      assert.equal(events.at(-1).type, 'response.incomplete');
      assert.equal(response.incomplete_details.reason, 'max_output_tokens');
      assert.equal(response.usage.output_tokens, limit);
    }
  });

  test('a tool is called and its output answered', async () => {
    const { response } = await assertSame(asked);
    const call = response.output.at(-1);
    assert.equal(call.type, 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), { city: 'Lisbon' });
    const answer = await responses.create({ ...asked, input: [
      { role: 'user', content: weatherQuestion }, ...response.output,
      { type: 'function_call_output', call_id: call.call_id, output: weatherResult }] });
    assert.equal(answer.output_text, weatherAnswer);
  });

  test('custom tools, namespaces and encrypted reasoning pass the helper', async () => {
    const tools = [{ type: 'custom', name: 'note', description: 'Write a note.' },
      { type: 'namespace', name: 'sky', description: 'The sky.', tools: [tool] }];
    const { response: noted } = await assertSame({ ...asked, tools, max_output_tokens: 30,
      tool_choice: { type: 'custom', name: 'note' } });
    assert.equal(noted.output.at(-1).type, 'custom_tool_call');
    const { response: called } = await assertSame({ ...asked, tools, max_output_tokens: 30,
      tool_choice: { type: 'function', name: 'get_weather' } });
    assert.equal(called.output.at(-1).namespace, 'sky');
    const { response } = await assertSame({ ...counted,
      include: ['reasoning.encrypted_content'] });
    assert.match(response.output[0].encrypted_content, /^[\w-]+$/);
  });

  test('structured output is parsed', async () => {
    const schema = { type: 'object', properties: { city: { enum: ['Lisbon', 'São Paulo'] } },
      required: ['city'], additionalProperties: false };
    const body = { ...asked, tools: [],
      text: { format: { type: 'json_schema', name: 'place', schema, strict: true } } };
    const { response } = await assertSame(body);
    assert.ok(schema.properties.city.enum.includes(JSON.parse(response.output_text).city));
    const parsed = await responses.parse(body);
    assert.deepEqual(parsed.output_parsed, JSON.parse(response.output_text));
  });

  test('log-probabilities are those of the text', async () => {
    const { response } = await assertSame({ ...counted, top_logprobs: 3,
      include: ['message.output_text.logprobs'] });
    const [part] = response.output.at(-1).content;
    assert.equal(part.logprobs.map((one) => one.token).join(''), part.text);
    assert.ok(part.logprobs.every((one) => one.top_logprobs.length === 3));
  });

  test('a raw stream can be left early', async () => {
    const stream = await responses.create({ ...told, max_output_tokens: 400, stream: true });
    for await (const event of stream)
      if (event.type === 'response.output_text.delta') break;
    await support.idle();
  });

  test('input tokens are counted as generation counts them', async () => {
    for (const body of [counted, asked, { ...counted, instructions: 'Be short.' }]) {
      const { temperature, ...rest } = body;
      const count = await responses.inputTokens.count(rest);
      assert.equal(count.object, 'response.input_tokens');
      const answer = await responses.create({ ...body, max_output_tokens: 1 });
      assert.equal(count.input_tokens, answer.usage.input_tokens, String(temperature));
    }
  });

  test('what is not kept is not found, and state is refused', async () => {
    await support.refused(() => responses.retrieve('resp_1'), { status: 404, code: 'not_found' });
    await support.refused(() => responses.delete('resp_1'), { status: 404, code: 'not_found' });
    await support.refused(() => responses.cancel('resp_1'), { status: 404, code: 'not_found' });
    await support.refused(() => support.all(responses.inputItems.list('resp_1')), { status: 404 });
    await support.refused(() => responses.create({ ...counted, previous_response_id: 'resp_1' }),
      { status: 400, param: 'previous_response_id', code: 'unsupported_parameter',
        message: /replay the full input/ });
  });

  test('a prompt that is too long is told with its code', async () => {
    const input = 'word '.repeat(9000);
    await support.refused(() => responses.create({ ...counted, input }),
      { status: 400, code: 'context_length_exceeded' });
    const events = await support.all(await responses.create({ ...counted, input, stream: true }));
    assert.equal(events.at(-1).type, 'response.failed');
    assert.equal(events.at(-1).response.error.code, 'context_length_exceeded');
  });
});
