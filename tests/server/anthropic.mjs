// Messages, judged by the client of that API: CLIENT names the package.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as support from './support.mjs';

const { url, weather, weatherQuestion, weatherAnswer, weatherResult, sum, story } = support;
const { default: Anthropic, ...sdk } = await import(process.env.CLIENT);
const client = new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const { messages } = client;
const user = (content) => [{ role: 'user', content }];
const told = { model: 'pebble', max_tokens: 24, messages: user(story), temperature: 0.9,
  seed: support.seed };
const { parameters: input_schema, ...named } = weather;
const tool = { ...named, input_schema };
const asked = { model: 'pebble', max_tokens: 100, messages: user(weatherQuestion), tools: [tool],
  temperature: 0 };
const thinking = { type: 'enabled', budget_tokens: 1024 };
const summed = { model: 'pebble', max_tokens: 2000, messages: user(sum), temperature: 0, thinking };
const promptOf = (usage) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0) +
  (usage.cache_creation_input_tokens ?? 0);
const textOf = (message) => message.content.filter((block) => block.type === 'text')
  .map((block) => block.text).join('');

describe('messages', support.beside, () => {
  test('a message has the shape of the API', async () => {
    const { data, request_id: id } = await messages.create({ model: 'pebble', max_tokens: 50,
      messages: user('What is the capital of France?'), temperature: 0 }).withResponse();
    assert.ok(id);
    assert.match(data.id, /^msg_./);
    assert.equal(data.type, 'message');
    assert.equal(data.role, 'assistant');
    assert.equal(data.model, 'pebble');
    assert.equal(data.stop_reason, 'end_turn');
    assert.equal(data.stop_sequence, null);
    assert.deepEqual(data.content, [{ ...data.content[0], type: 'text',
      text: 'The capital of France is Paris.' }]);
    assert.ok(data.usage.output_tokens > 3);
    assert.equal(data.usage.service_tier, 'standard');
  });

  test('a raw stream has the order of the API and the text of the whole message', async () => {
    const whole = await messages.create(told);
    assert.equal(whole.stop_reason, 'max_tokens');
    assert.equal(whole.usage.output_tokens, 24);
    const events = await support.all(await messages.create({ ...told, stream: true }));
    const types = events.map((event) => event.type);
    assert.equal(types[0], 'message_start');
    assert.deepEqual(events[0].message.content, []);
    assert.equal(events[0].message.stop_reason, null);
    assert.equal(promptOf(events[0].message.usage), promptOf(whole.usage));
    assert.deepEqual(types.slice(1, 2), ['content_block_start']);
    assert.deepEqual(types.slice(-3), ['content_block_stop', 'message_delta', 'message_stop']);
    assert.ok(types.slice(2, -3).every((type) => type === 'content_block_delta'));
    assert.ok(types.length > 25);
    const text = events.map((event) => event.delta?.text ?? '').join('');
    assert.equal(text, textOf(whole));
    const last = events.at(-2);
    assert.equal(last.delta.stop_reason, 'max_tokens');
    assert.equal(last.usage.output_tokens, 24);
  });

  test('the helper of streams builds the same message', async () => {
    const whole = await messages.create(told);
    const stream = messages.stream(told);
    let text = '';
    stream.on('text', (delta) => { text += delta; });
    const final = await stream.finalMessage();
    assert.equal(text, textOf(whole));
    assert.equal(textOf(final), text);
    assert.equal(final.stop_reason, 'max_tokens');
    assert.equal(final.usage.output_tokens, 24);
  });

  test('thinking is a block with a signature and comes back', async () => {
    const whole = await messages.create(summed);
    assert.deepEqual(whole.content.map((block) => block.type), ['thinking', 'text']);
    const [thought] = whole.content;
    assert.match(thought.thinking, /7 \+ 5 = 12/);
    assert.ok(thought.signature);
    assert.equal(textOf(whole), '27 + 45 = 72');
    const final = await messages.stream(summed).finalMessage();
    assert.equal(final.content[0].thinking, thought.thinking);
    assert.ok(final.content[0].signature);
    // The next turn: as it came, from the stream, without the text, and with a foreign signature.
    const counts = [], texts = [];
    for (const block of [thought, final.content[0], { ...thought, thinking: '' },
      { ...thought, signature: 'foreign' }]) {
      const next = await messages.create({ ...summed, messages: [...user(sum),
        { role: 'assistant', content: [block, { type: 'text', text: '27 + 45 = 72' }] },
        ...user('What is 12 + 13?')] });
      counts.push(promptOf(next.usage));
      texts.push(textOf(next));
    }
    assert.equal(new Set(counts).size, 1, `prompts of ${counts} tokens`);
    assert.equal(new Set(texts).size, 1);
    const off = await messages.create({ ...summed, thinking: { type: 'disabled' } });
    assert.deepEqual(off.content.map((block) => block.type), ['text']);
  });

  test('a tool is called, and the answer comes from what it returned', async () => {
    for (const how of ['whole', 'stream']) {
      const first = how === 'whole' ? await messages.create(asked)
        : await messages.stream(asked).finalMessage();
      assert.equal(first.stop_reason, 'tool_use');
      const call = first.content.at(-1);
      assert.equal(call.type, 'tool_use');
      assert.match(call.id, /^toolu_./);
      assert.equal(call.name, 'get_weather');
      assert.deepEqual(call.input, { city: 'Lisbon' });
      for (const content of [weatherResult, [{ type: 'text', text: weatherResult }]]) {
        const second = await messages.create({ ...asked, messages: [...asked.messages,
          { role: 'assistant', content: first.content },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content }] }] });
        assert.equal(textOf(second), weatherAnswer);
        assert.equal(second.stop_reason, 'end_turn');
      }
    }
    const events = await support.all(await messages.create({ ...asked, stream: true }));
    const json = events.map((event) => event.delta?.partial_json ?? '').join('');
    assert.deepEqual(JSON.parse(json), { city: 'Lisbon' });
  });

  test('the runner of tools goes on without threads', async () => {
    const calls = [];
    const runner = client.beta.messages.toolRunner({ ...asked, tools: [{ ...tool, type: 'custom',
      parse: (given) => given,
      run: (given) => {
        calls.push(given);
        return weatherResult;
      } }] });
    const final = await runner;
    assert.deepEqual(calls, [{ city: 'Lisbon' }]);
    assert.equal(textOf(final), weatherAnswer);
  });

  test('tool_choice decides', async () => {
    const other = { name: 'play_music', description: 'Play a song.', input_schema: {
      type: 'object', properties: { loud: { type: 'boolean' } }, required: ['loud'],
      additionalProperties: false } };
    const body = { ...asked, tools: [tool, other], temperature: 1.2, seed: 3 };
    const forced = await messages.create({ ...body, tool_choice: { type: 'tool', name: 'play_music',
      disable_parallel_tool_use: true } });
    const calls = forced.content.filter((block) => block.type === 'tool_use');
    assert.deepEqual(calls.map((call) => call.name), ['play_music']);
    assert.equal(typeof calls[0].input.loud, 'boolean');
    const any = await messages.create({ ...body, tool_choice: { type: 'any',
      disable_parallel_tool_use: true } });
    assert.equal(any.stop_reason, 'tool_use');
    const none = await messages.create({ ...body, tool_choice: { type: 'none' }, max_tokens: 30 });
    assert.ok(none.content.every((block) => block.type !== 'tool_use'));
  });

  test('structured output parses', async () => {
    const whole = await messages.create({ model: 'pebble', max_tokens: 400, messages: user('JSON.'),
      temperature: 1, seed: 2,
      output_config: { format: { type: 'json_schema', schema: support.wideSchema } } });
    assert.equal(JSON.parse(textOf(whole)).word, support.wideText);
  });

  test('stop sequences', async () => {
    const whole = await messages.create({ model: 'pebble', max_tokens: 50, temperature: 0,
      messages: user('What is the capital of France?'), stop_sequences: ['zebra', ' Paris'] });
    assert.equal(textOf(whole), 'The capital of France is');
    assert.equal(whole.stop_reason, 'stop_sequence');
    assert.equal(whole.stop_sequence, ' Paris');
  });

  test('count_tokens is what a request reports', async () => {
    const bodies = [
      { messages: user('Hello.') },
      { messages: user('Hello.'), system: 'Be kind.' },
      { messages: user([{ type: 'text', text: 'Hello.', cache_control: { type: 'ephemeral' } }]),
        system: [{ type: 'text', text: 'Be kind.', cache_control: { type: 'ephemeral' } }] },
      { messages: asked.messages, tools: [tool] },
      { messages: user(sum), thinking },
    ];
    const counts = [];
    for (const body of bodies) {
      const counted = await messages.countTokens({ model: 'pebble', ...body });
      const whole = await messages.create({ model: 'pebble', max_tokens: 2000, temperature: 0,
        stop_sequences: [' '], ...body });
      assert.equal(counted.input_tokens, promptOf(whole.usage), JSON.stringify(body));
      counts.push(counted.input_tokens);
    }
    assert.equal(counts[2], counts[1], 'a text and a block with cache_control are the same prompt');
  });

  test('the beginning of a conversation is not read twice', async () => {
    const system = [{ type: 'text', cache_control: { type: 'ephemeral' },
      text: Array.from({ length: 60 }, (_, i) => `Rule ${i}: be brief.`).join(' ') }];
    const body = { model: 'pebble', max_tokens: 8, temperature: 0, system };
    const first = await messages.create({ ...body, messages: user('What is 2 + 3?') });
    const second = await messages.create({ ...body, messages: [...user('What is 2 + 3?'),
      { role: 'assistant', content: first.content }, ...user('And 3 + 4?')] });
    assert.ok(second.usage.cache_read_input_tokens >= 0.8 * promptOf(first.usage),
      `${second.usage.cache_read_input_tokens} of ${promptOf(first.usage)} tokens`);
    assert.ok(second.usage.input_tokens < promptOf(second.usage));
  });

  test('refusals', async () => {
    const refuse = async (fields, expected = {}) => {
      const error = await support.refused(() => messages.create({ ...told, ...fields }),
        { is: sdk.BadRequestError, status: 400 });
      assert.equal(error.error.type, 'error');
      assert.equal(error.error.error.type, 'invalid_request_error');
      assert.ok(error.error.request_id);
      if (expected.message) assert.match(error.error.error.message, expected.message);
    };
    await refuse({ max_tokens: undefined }, { message: /max_tokens/ });
    await refuse({ messages: [] });
    await refuse({ messages: user([{ type: 'image', source: { type: 'base64',
      media_type: 'image/png', data: 'AAAA' } }]) });
    await refuse({ no_such_field: 1 }, { message: /no_such_field/ });
    await refuse({ temperature: 'hot' }, { message: /temperature/ });
    await refuse({ messages: user('fox '.repeat(9000)) },
      { message: /prompt is too long: \d+ tokens > \d+ maximum/ });
    await refuse({ tool_choice: { type: 'tool', name: 'launch' }, tools: [tool] });
    const models = await support.all(client.models.list());
    assert.deepEqual(models.map((model) => [model.id, model.type]), [['pebble', 'model']]);
    assert.equal((await client.models.retrieve('pebble')).display_name.length > 0, true);
    await support.refused(() => client.models.retrieve('other'), { is: sdk.NotFoundError });
  });

  test('keys in both forms', async () => {
    await support.withServer(['--api-key', 'secret'], async (at) => {
      const make = (options) => new Anthropic({ baseURL: at, maxRetries: 0, ...options });
      await support.refused(() => make({ apiKey: 'wrong' }).messages.create(told),
        { is: sdk.AuthenticationError, status: 401 });
      for (const options of [{ apiKey: 'secret' }, { apiKey: null, authToken: 'secret' }])
        assert.equal((await make(options).messages.create(told)).usage.output_tokens, 24);
    });
  });
});

test('an aborted stream gives its pages back', async () => {
  const long = { ...told, max_tokens: 3000, temperature: 1.3 };
  for await (const event of await messages.create({ ...long, stream: true }))
    if (event.type === 'content_block_delta') break;
  await support.idle();
  const stream = messages.stream(long);
  stream.on('text', () => stream.abort());
  await support.refused(() => stream.done(), { is: sdk.APIUserAbortError });
  await support.idle();
});
