// Chat completions, judged by the openai client: CLIENT names the package.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as support from './support.mjs';

const { url, weather, weatherQuestion, weatherAnswer, weatherResult, sum, story } = support;
const { default: OpenAI, ...sdk } = await import(process.env.CLIENT);
const { LengthFinishReasonError } = await import(`${process.env.CLIENT}/error`);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
const chat = client.chat.completions;
const capital = 'What is the capital of France?';
const user = (content) => [{ role: 'user', content }];
const told = { model: 'pebble', messages: user(story), max_tokens: 24, temperature: 0.9,
  seed: support.seed };
const tool = { type: 'function', function: weather };
const asked = { model: 'pebble', messages: user(weatherQuestion), tools: [tool], temperature: 0 };
const person = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 12 },
    age: { type: 'integer', minimum: 0, maximum: 150 },
    city: { enum: ['Lisbon', 'Paris', 'São Paulo'] },
  },
  required: ['name', 'age', 'city'],
  additionalProperties: false,
};
const form = { type: 'json_schema', json_schema: { name: 'person', schema: person, strict: true } };

function assertPerson(value) {
  assert.deepEqual(Object.keys(value).sort(), ['age', 'city', 'name']);
  assert.equal(typeof value.name, 'string');
  assert.ok(Number.isInteger(value.age) && value.age >= 0 && value.age <= 150);
  assert.ok(person.properties.city.enum.includes(value.city));
}

function assertUsage(usage) {
  assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.ok(usage.prompt_tokens_details.cached_tokens >= 0);
  assert.ok(usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens);
  assert.ok(usage.completion_tokens_details.reasoning_tokens <= usage.completion_tokens);
}

const textOf = (chunks, index = 0) => chunks.flatMap((chunk) => chunk.choices)
  .filter((choice) => choice.index === index).map((choice) => choice.delta.content ?? '').join('');

describe('chat completions', support.beside, () => {
  test('an answer has the shape of the API', async () => {
    const { data, response, request_id: id } = await chat.create({
      model: 'pebble', messages: user(capital), temperature: 0,
    }).withResponse();
    assert.ok(id && id === response.headers.get('x-request-id'));
    assert.match(data.id, /^chatcmpl-./);
    assert.equal(data.object, 'chat.completion');
    assert.equal(data.model, 'pebble');
    assert.ok(Math.abs(data.created - Date.now() / 1000) < 60);
    assert.equal(data.choices.length, 1);
    const [choice] = data.choices;
    assert.equal(choice.index, 0);
    assert.equal(choice.finish_reason, 'stop');
    assert.equal(choice.logprobs, null);
    assert.equal(choice.message.role, 'assistant');
    assert.equal(choice.message.content, 'The capital of France is Paris.');
    assert.equal(choice.message.refusal, null);
    assert.equal(choice.message.tool_calls, undefined);
    assertUsage(data.usage);
  });

  test('a raw stream has the order of the API and the text of the whole answer', async () => {
    const whole = await chat.create(told);
    const chunks = await support.all(await chat.create({ ...told, stream: true }));
    const [first] = chunks;
    for (const chunk of chunks) {
      assert.equal(chunk.object, 'chat.completion.chunk');
      assert.equal(chunk.id, first.id);
      assert.equal(chunk.created, first.created);
      assert.equal(chunk.model, 'pebble');
      assert.equal(chunk.choices.length, 1);
      assert.equal(chunk.usage ?? null, null);
    }
    assert.equal(first.choices[0].delta.role, 'assistant');
    assert.equal(first.choices[0].delta.content, '');
    const reasons = chunks.map((chunk) => chunk.choices[0].finish_reason);
    assert.equal(reasons.pop(), 'length');
    assert.ok(reasons.every((reason) => reason === null));
    assert.ok(chunks.length > 12, `24 tokens came in ${chunks.length} chunks`);
    assert.equal(textOf(chunks), whole.choices[0].message.content);
  });

  test('usage comes last, where it is asked for', async () => {
    const whole = await chat.create(told);
    const chunks = await support.all(await chat.create({
      ...told, stream: true, stream_options: { include_usage: true } }));
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assertUsage(last.usage);
    assert.equal(last.usage.completion_tokens, 24);
    assert.equal(last.usage.prompt_tokens, whole.usage.prompt_tokens);
    assert.ok(chunks.every((chunk) => chunk.usage === null));
  });

  test('the helper of streams builds the same answer', async () => {
    const whole = await chat.create(told);
    const stream = chat.stream(told);
    let text = '', last = '';
    stream.on('content', (delta, snapshot) => {
      text += delta;
      last = snapshot;
    });
    const final = await stream.finalChatCompletion();
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(last, text);
    assert.equal(final.choices[0].message.content, text);
    assert.equal(final.choices[0].finish_reason, 'length');
  });

  test('reasoning is apart from content', async () => {
    const body = { model: 'pebble', messages: user(sum), temperature: 0 };
    const whole = await chat.create(body);
    const { message } = whole.choices[0];
    assert.equal(message.content, '27 + 45 = 72');
    assert.match(message.reasoning_content, /7 \+ 5 = 12/);
    assert.ok(whole.usage.completion_tokens_details.reasoning_tokens > 10);
    const chunks = await support.all(await chat.create({ ...body, stream: true }));
    const deltas = chunks.map((chunk) => chunk.choices[0].delta);
    assert.equal(deltas.map((delta) => delta.reasoning_content ?? '').join(''),
      message.reasoning_content);
    assert.equal(textOf(chunks), message.content);
    const without = await chat.create({ ...body,
      chat_template_kwargs: { enable_thinking: false } });
    assert.ok(!without.choices[0].message.reasoning_content);
    assert.equal(without.usage.completion_tokens_details.reasoning_tokens, 0);
  });

  test('structured output parses', async () => {
    for (const seed of [1, 2]) {
      const body = { model: 'pebble', messages: user('Describe a person.'), response_format: form,
        temperature: 1.2, seed };
      const parsed = await chat.parse(body);
      assertPerson(parsed.choices[0].message.parsed);
      const final = await chat.stream(body).finalChatCompletion();
      assert.deepEqual(JSON.parse(final.choices[0].message.content),
        parsed.choices[0].message.parsed);
    }
    const object = await chat.create({ model: 'pebble', messages: user('JSON, please.'),
      response_format: { type: 'json_object' }, temperature: 1, seed: 4, max_tokens: 300 });
    if (object.choices[0].finish_reason === 'stop')
      assert.equal(typeof JSON.parse(object.choices[0].message.content), 'object');
  });

  test('structured output that does not fit ends with length', async () => {
    const whole = await chat.create({ model: 'pebble', messages: user('Describe a person.'),
      response_format: form, temperature: 1, seed: 1 });
    const body = { model: 'pebble', messages: user('Describe a person.'), response_format: form,
      temperature: 1, seed: 1, max_tokens: 1 };
    assert.ok(whole.usage.completion_tokens > 1);
    let result;
    try {
      result = await chat.parse(body);
    } catch (error) {
      assert.ok(error instanceof LengthFinishReasonError, `${error}`);
    }
    // The constraint may close the object within the limit; then it has to be whole.
    if (result) assertPerson(result.choices[0].message.parsed);
  });

  test('a tool is called, whole and in parts', async () => {
    const whole = await chat.create(asked);
    const [choice] = whole.choices;
    assert.equal(choice.finish_reason, 'tool_calls');
    assert.equal(choice.message.tool_calls.length, 1);
    const [call] = choice.message.tool_calls;
    assert.match(call.id, /^call_./);
    assert.equal(call.type, 'function');
    assert.equal(call.function.name, 'get_weather');
    assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Lisbon' });
    assert.ok(!choice.message.content);

    const chunks = await support.all(await chat.create({ ...asked, stream: true }));
    const parts = chunks.flatMap((chunk) => chunk.choices[0].delta.tool_calls ?? []);
    assert.equal(parts[0].function.name, 'get_weather');
    assert.match(parts[0].id, /^call_./);
    assert.ok(parts.every((part) => part.index === 0));
    assert.ok(parts.slice(1).every((part) => !part.function.name && !part.id));
    assert.equal(parts.map((part) => part.function.arguments ?? '').join(''),
      call.function.arguments);
    assert.equal(chunks.at(-1).choices[0].finish_reason, 'tool_calls');

    const events = [];
    const stream = chat.stream({ ...asked, tools: [{ type: 'function',
      function: { ...weather, strict: true } }] });
    stream.on('tool_calls.function.arguments.done', (event) => events.push(event));
    const final = await stream.finalChatCompletion();
    assert.equal(events.length, 1);
    assert.deepEqual(events[0].parsed_arguments, { city: 'Lisbon' });
    assert.deepEqual(final.choices[0].message.tool_calls[0].function.parsed_arguments,
      { city: 'Lisbon' });
  });

  for (const stream of [false, true]) {
    test(`runTools answers from what the tool returned, stream: ${stream}`, async () => {
      const calls = [];
      const runner = chat.runTools({ ...asked, stream, tools: [{ type: 'function', function: {
        ...weather, parse: JSON.parse,
        function: (given) => {
          calls.push(given);
          return weatherResult;
        } } }] });
      assert.equal(await runner.finalContent(), weatherAnswer);
      assert.deepEqual(calls, [{ city: 'Lisbon' }]);
    });
  }

  test('tool_choice decides', async () => {
    const other = { type: 'function', function: { name: 'play_music', description: 'Play a song.',
      parameters: { type: 'object', properties: { loud: { type: 'boolean' } },
        required: ['loud'], additionalProperties: false } } };
    const body = { ...asked, tools: [tool, other] };
    const none = await chat.create({ ...body, tool_choice: 'none', max_tokens: 30 });
    assert.equal(none.choices[0].message.tool_calls, undefined);
    const named = await chat.create({ ...body, parallel_tool_calls: false,
      tool_choice: { type: 'function', function: { name: 'play_music' } } });
    const [call, ...more] = named.choices[0].message.tool_calls;
    assert.equal(call.function.name, 'play_music');
    assert.deepEqual(more, []);
    assert.equal(typeof JSON.parse(call.function.arguments).loud, 'boolean');
    const required = await chat.create({ ...body, messages: user('Hello.'), tool_choice: 'required',
      parallel_tool_calls: false, temperature: 1.5, seed: 3 });
    assert.equal(required.choices[0].message.tool_calls.length, 1);
    await support.refused(() => chat.create({ ...body,
      tool_choice: { type: 'function', function: { name: 'launch' } } }), { status: 400 });
  });

  test('probabilities belong to the text', async () => {
    const body = { ...told, max_tokens: 12, temperature: 0, logprobs: true, top_logprobs: 3,
      chat_template_kwargs: { enable_thinking: false } };
    const whole = await chat.create(body);
    const { content } = whole.choices[0].logprobs;
    assert.equal(content.length, 12);
    for (const { token, logprob, bytes, top_logprobs: top } of content) {
      assert.ok(logprob <= 0 && logprob > -20);
      assert.equal(top.length, 3);
      assert.equal(top[0].token, token); // greedy
      assert.ok(Math.abs(top[0].logprob - logprob) < 1e-6);
      assert.ok(top[0].logprob >= top[1].logprob && top[1].logprob >= top[2].logprob);
      assert.ok(bytes.length > 0);
    }
    const bytes = Buffer.from(content.flatMap((entry) => entry.bytes));
    assert.equal(bytes.toString(), whole.choices[0].message.content);
    const chunks = await support.all(await chat.create({ ...body, stream: true }));
    const parts = chunks.flatMap((chunk) => chunk.choices[0].logprobs?.content ?? []);
    assert.deepEqual(parts, content);
    await support.refused(() => chat.create({ ...body, top_logprobs: 21 }), { status: 400 });
  });

  test('two answers to one prompt', async () => {
    const body = { ...told, n: 2 };
    const whole = await chat.create(body);
    assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1]);
    const texts = whole.choices.map((choice) => choice.message.content);
    assert.notEqual(texts[0], texts[1]);
    assert.ok(whole.usage.completion_tokens > 24 && whole.usage.completion_tokens <= 48);
    const chunks = await support.all(await chat.create({ ...body, stream: true }));
    assert.deepEqual([textOf(chunks, 0), textOf(chunks, 1)], texts);
    const final = await chat.stream(body).finalChatCompletion();
    assert.deepEqual(final.choices.map((choice) => choice.message.content), texts);
  });

  test('a seed gives its text again, another one another text', async () => {
    const text = async (seed) =>
      (await chat.create({ ...told, seed })).choices[0].message.content;
    const first = await text(2);
    assert.equal(await text(2), first);
    assert.notEqual(await text(6), first);
  });

  test('stop strings end the answer and are not part of it', async () => {
    const body = { model: 'pebble', messages: user(capital), temperature: 0 };
    for (const stop of ['is Par', ['zebra', ' Paris']]) {
      const whole = await chat.create({ ...body, stop });
      const expected = `The capital of France ${typeof stop === 'string' ? '' : 'is'}`;
      assert.equal(whole.choices[0].message.content, expected);
      assert.equal(whole.choices[0].finish_reason, 'stop');
      const chunks = await support.all(await chat.create({ ...body, stop, stream: true }));
      assert.equal(textOf(chunks), expected);
    }
  });

  test('limits, biases and penalties', async () => {
    for (const name of ['max_tokens', 'max_completion_tokens']) {
      const whole = await chat.create({ ...told, max_tokens: undefined, [name]: 5 });
      assert.equal(whole.usage.completion_tokens, 5);
      assert.equal(whole.choices[0].finish_reason, 'length');
    }
    const { tokens } = await support.json('/tokenize', { content: ' gold', add_special: false });
    const biased = await chat.create({ ...told, max_tokens: 4,
      logit_bias: { [tokens[0]?.id ?? tokens[0]]: 100 } });
    assert.match(biased.choices[0].message.content, /^( gold| g){4}/);
    const plain = { ...told, temperature: 0, max_tokens: 60 };
    const repeating = (await chat.create(plain)).choices[0].message.content;
    const penalised = (await chat.create({ ...plain, frequency_penalty: 1.5, presence_penalty: 1 }))
      .choices[0].message.content;
    const distinct = (text) => new Set(text.split(' ')).size / text.split(' ').length;
    assert.ok(distinct(penalised) > distinct(repeating));
  });

  test('messages of all roles, and content in parts', async () => {
    const first = { model: 'pebble', temperature: 0, max_tokens: 20 };
    const texts = [];
    for (const content of ['Hello there.', [{ type: 'text', text: 'Hello there.' }]]) {
      const whole = await chat.create({ ...first, messages: [
        { role: 'developer', content: 'Be kind.' }, { role: 'user', content }] });
      texts.push([whole.choices[0].message.content, whole.usage.prompt_tokens]);
    }
    assert.deepEqual(texts[1], texts[0]);
    const after = await chat.create({ model: 'pebble', temperature: 0, tools: [tool], messages: [
      { role: 'system', content: '' }, ...user(weatherQuestion),
      { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function',
        function: { name: 'get_weather', arguments: '{"city": "Lisbon"}' } }] },
      { role: 'tool', tool_call_id: 'call_1',
        content: [{ type: 'text', text: weatherResult }] }] });
    assert.equal(after.choices[0].finish_reason, 'stop');
    const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
    await support.refused(() => chat.create({ ...first, messages: user([image]) }),
      { status: 400 });
  });

  test('the beginning of a conversation is not read twice', async () => {
    const head = Array.from({ length: 60 }, (_, i) => `Rule ${i}: be brief.`).join(' ');
    const messages = [{ role: 'system', content: head }, ...user('What is 2 + 3?')];
    const first = await chat.create({ model: 'pebble', messages, temperature: 0, max_tokens: 8 });
    messages.push(first.choices[0].message, ...user('And 3 + 4?'));
    const second = await chat.create({ model: 'pebble', messages, temperature: 0, max_tokens: 8 });
    const cached = second.usage.prompt_tokens_details.cached_tokens;
    assert.ok(cached >= 0.8 * first.usage.prompt_tokens,
      `${cached} of ${first.usage.prompt_tokens} tokens`);
  });

  test('models', async () => {
    const list = await support.all(client.models.list());
    assert.deepEqual(list.map((model) => [model.id, model.object]), [['pebble', 'model']]);
    assert.equal((await client.models.retrieve('pebble')).id, 'pebble');
    await support.refused(() => client.models.retrieve('gpt-9'),
      { is: sdk.NotFoundError, status: 404, code: 'model_not_found' });
  });
});

test('requests beside others get the same text', async () => {
  const bodies = [2, 3, 6, 9].map((seed) => ({ ...told, seed }));
  const text = async (body) => (await chat.create(body)).choices[0].message.content;
  const beside = await Promise.all(bodies.map(text));
  for (const [i, body] of bodies.entries()) assert.equal(await text(body), beside[i]);
});
