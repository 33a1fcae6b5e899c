// Responses, judged by the openai client: CLIENT names the package.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as support from './support.mjs';

const { url, weather, weatherQuestion, weatherAnswer, weatherResult, sum, story } = support;
const { default: OpenAI, ...sdk } = await import(process.env.CLIENT);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
const { responses } = client;
const told = { model: 'pebble', input: story, max_output_tokens: 24, temperature: 0.9,
  seed: support.seed };
const tool = { type: 'function', ...weather, strict: true };
const asked = { model: 'pebble', input: weatherQuestion, tools: [tool], temperature: 0 };
const form = { format: { type: 'json_schema', name: 'wide', strict: true,
  schema: support.wideSchema } };

// The order that the API promises, checked for every stream of this file.
function assertOrder(events) {
  events.forEach((event, i) => assert.equal(event.sequence_number, i));
  const types = events.map((event) => event.type);
  assert.deepEqual(types.slice(0, 2), ['response.created', 'response.in_progress']);
  assert.deepEqual(events[0].response.output, []);
  assert.equal(events[0].response.status, 'in_progress');
  assert.ok(['response.completed', 'response.incomplete'].includes(types.at(-1)));
  const { response } = events.at(-1);
  assert.equal(response.id, events[0].response.id);
  let open = null, count = 0;
  for (const event of events.slice(2, -1)) {
    if (event.type === 'response.output_item.added') {
      assert.equal(open, null, 'an item begins after the one before it has ended');
      assert.equal(event.output_index, count++);
      open = event.item.id;
    } else if (event.type === 'response.output_item.done') {
      assert.equal(event.item.id, open);
      assert.deepEqual(event.item, response.output[event.output_index]);
      open = null;
    } else {
      assert.equal(event.item_id, open);
      assert.equal(event.output_index, count - 1);
    }
  }
  assert.equal(count, response.output.length);
  return response;
}

const deltas = (events, type) =>
  events.filter((event) => event.type === `${type}.delta`).map((event) => event.delta).join('');

describe('responses', support.beside, () => {
  test('a response has the shape of the API', async () => {
    const { data, request_id: id } = await responses.create({ model: 'pebble', temperature: 0,
      input: 'What is the capital of France?' }).withResponse();
    assert.ok(id);
    assert.match(data.id, /^resp_./);
    assert.equal(data.object, 'response');
    assert.equal(data.status, 'completed');
    assert.equal(data.model, 'pebble');
    assert.equal(data.output_text, 'The capital of France is Paris.');
    for (const name of ['error', 'incomplete_details', 'instructions', 'previous_response_id'])
      assert.equal(data[name], null, name);
    assert.equal(data.store, false);
    assert.deepEqual(data.tools, []);
    assert.equal(data.truncation, 'disabled');
    assert.deepEqual(data.metadata, {});
    const [message] = data.output;
    assert.match(message.id, /^msg_./);
    assert.equal(message.type, 'message');
    assert.equal(message.role, 'assistant');
    assert.equal(message.status, 'completed');
    assert.equal(message.content[0].type, 'output_text');
    assert.deepEqual(message.content[0].annotations, []);
    const { usage } = data;
    assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
    assert.ok(usage.input_tokens_details.cached_tokens >= 0);
    assert.equal(usage.output_tokens_details.reasoning_tokens, 0);
  });

  test('a raw stream has the order of the API and the text of the whole answer', async () => {
    const whole = await responses.create(told);
    const events = await support.all(await responses.create({ ...told, stream: true }));
    const final = assertOrder(events);
    assert.equal(final.status, 'incomplete');
    assert.deepEqual(final.incomplete_details, { reason: 'max_output_tokens' });
    assert.equal(whole.status, 'incomplete');
    assert.equal(deltas(events, 'response.output_text'), whole.output_text);
    assert.equal(final.output[0].content[0].text, whole.output_text);
    assert.ok(events.length > 25);
    assert.equal(final.usage.output_tokens, 24);
  });

  test('the helper of streams accepts every event', async () => {
    const whole = await responses.create({ ...told, max_output_tokens: 200 });
    const bodies = [{ ...told, max_output_tokens: 200 }, { model: 'pebble', input: sum,
      temperature: 0 }, asked, { ...told, input: 'JSON.', text: form,
      max_output_tokens: 400 }];
    const texts = [];
    for (const body of bodies) {
      const stream = responses.stream(body);
      let text = '';
      stream.on('response.output_text.delta', (event) => { text += event.delta; });
      const final = await stream.finalResponse();
      assert.equal(final.output_text, text);
      texts.push(text);
    }
    assert.equal(texts[0], whole.output_text);
    assert.equal(texts[1], '27 + 45 = 72');
    assert.equal(JSON.parse(texts[3]).word, support.wideText);
  });

  test('reasoning is an item of its own and comes back', async () => {
    const body = { model: 'pebble', input: sum, temperature: 0, store: false,
      include: ['reasoning.encrypted_content'] };
    const whole = await responses.create(body);
    assert.deepEqual(whole.output.map((item) => item.type), ['reasoning', 'message']);
    const [reasoning] = whole.output;
    assert.match(reasoning.id, /^rs_./);
    assert.match(reasoning.content[0].text, /7 \+ 5 = 12/);
    assert.equal(reasoning.content[0].type, 'reasoning_text');
    assert.ok(reasoning.encrypted_content);
    assert.ok(whole.usage.output_tokens_details.reasoning_tokens > 10);
    const events = await support.all(await responses.create({ ...body, stream: true }));
    assertOrder(events);
    assert.equal(deltas(events, 'response.reasoning_text'), reasoning.content[0].text);
    // With its content, and with the token alone: the same prompt.
    const next = (item) => ({ ...body, max_output_tokens: 8,
      input: [{ role: 'user', content: sum }, item, whole.output[1],
        { role: 'user', content: 'And 3 + 4?' }] });
    const bare = { type: 'reasoning', id: reasoning.id, summary: [],
      encrypted_content: reasoning.encrypted_content };
    const full = await responses.create(next(reasoning));
    const short = await responses.create(next(bare));
    assert.equal(short.usage.input_tokens, full.usage.input_tokens);
    assert.equal(short.output_text, full.output_text);
  });

  test('a tool is called, and the answer comes from what it returned', async () => {
    for (const helper of [false, true]) {
      const first = helper ? await responses.stream(asked).finalResponse()
        : await responses.create(asked);
      const call = first.output.at(-1);
      assert.equal(call.type, 'function_call');
      assert.match(call.id, /^fc_./);
      assert.match(call.call_id, /^call_./);
      assert.equal(call.name, 'get_weather');
      assert.deepEqual(JSON.parse(call.arguments), { city: 'Lisbon' });
      assert.equal(first.status, 'completed');
      const second = await responses.create({ ...asked, input: [
        { role: 'user', content: weatherQuestion }, ...first.output,
        { type: 'function_call_output', call_id: call.call_id, output: weatherResult }] });
      assert.equal(second.output_text, weatherAnswer);
    }
    const events = await support.all(await responses.create({ ...asked, stream: true }));
    const final = assertOrder(events);
    assert.equal(deltas(events, 'response.function_call_arguments'), final.output.at(-1).arguments);
    const done = events.find((event) => event.type === 'response.function_call_arguments.done');
    assert.equal(done.arguments, final.output.at(-1).arguments);
  });

  test('tool_choice decides, tools of other kinds are left out', async () => {
    const forced = await responses.create({ ...asked, input: 'Hello.', temperature: 1.5, seed: 2,
      tool_choice: { type: 'function', name: 'get_weather' }, parallel_tool_calls: false });
    assert.equal(forced.output.filter((item) => item.type === 'function_call').length, 1);
    assert.equal(typeof JSON.parse(forced.output.at(-1).arguments).city, 'string');
    const none = await responses.create({ ...asked, tool_choice: 'none', max_output_tokens: 20 });
    assert.ok(none.output.every((item) => item.type !== 'function_call'));
    const { data, response } = await responses.create({ ...asked, tools: [tool,
      { type: 'web_search' }] }).withResponse();
    assert.match(response.headers.get('x-moeflux-ignored'), /tools\[1\]/);
    assert.equal(data.output.at(-1).name, 'get_weather');
  });

  test('structured output parses, probabilities belong to the text', async () => {
    const parsed = await responses.parse({ model: 'pebble', input: 'JSON.', text: form,
      temperature: 1, seed: 5 });
    assert.equal(parsed.output_parsed.word, support.wideText);
    const body = { model: 'pebble', input: 'What is the capital of France?', temperature: 0,
      include: ['message.output_text.logprobs'], top_logprobs: 2 };
    const whole = await responses.create(body);
    const { logprobs } = whole.output[0].content[0];
    const bytes = Buffer.from(logprobs.flatMap((entry) => entry.bytes));
    assert.equal(bytes.toString(), whole.output_text);
    assert.ok(logprobs.every((entry) => entry.logprob <= 0 && entry.top_logprobs.length === 2));
    const events = await support.all(await responses.create({ ...body, stream: true }));
    const parts = events.filter((event) => event.type === 'response.output_text.delta')
      .flatMap((event) => event.logprobs);
    assert.deepEqual(parts, logprobs);
  });

  test('instructions and items of all kinds', async () => {
    const base = { model: 'pebble', temperature: 0, max_output_tokens: 10 };
    const text = async (fields) => {
      const reply = await responses.create({ ...base, ...fields });
      return [reply.output_text, reply.usage.input_tokens];
    };
    const [first] = await Promise.all([text({ instructions: 'Be kind.', input: 'Hello.' })]);
    for (const input of [
      [{ role: 'developer', content: 'Be kind.' }, { role: 'user', content: 'Hello.' }],
      [{ type: 'message', role: 'system', content: [{ type: 'input_text', text: 'Be kind.' }] },
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hello.' }] }]])
      assert.deepEqual(await text({ input }), first);
    const count = await client.post('/responses/input_tokens', { body: { model: 'pebble',
      instructions: 'Be kind.', input: 'Hello.' } });
    assert.deepEqual(count, { object: 'response.input_tokens', input_tokens: first[1] });
  });

  test('refusals', async () => {
    const refuse = (fields, expected) => support.refused(
      () => responses.create({ ...told, ...fields }), { is: sdk.BadRequestError, status: 400,
        type: 'invalid_request_error', ...expected });
    await refuse({ previous_response_id: 'resp_1' },
      { param: 'previous_response_id', code: 'unsupported_parameter' });
    await refuse({ background: true }, { param: 'background' });
    await refuse({ truncation: 'auto' }, { param: 'truncation' });
    await refuse({ no_such_field: 1 }, { param: 'no_such_field', code: 'unknown_parameter' });
    await refuse({ input: 7 }, { param: 'input' });
    await refuse({ input: [{ type: 'item_reference', id: 'x' }] }, {});
    await refuse({ temperature: 3 }, { param: 'temperature' });
    await refuse({ input: 'fox '.repeat(9000) }, { code: 'context_length_exceeded' });
    await support.refused(() => responses.retrieve('resp_1'),
      { is: sdk.NotFoundError, status: 404 });
  });
});

test('an aborted stream gives its pages back', async () => {
  const stream = await responses.create({ ...told, max_output_tokens: 3000, stream: true });
  for await (const event of stream) if (event.type === 'response.output_text.delta') break;
  await support.idle();
});
