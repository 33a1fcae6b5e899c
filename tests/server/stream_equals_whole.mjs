// Properties over the socket, in every dialect and without a client's library in between: for a
// seed the streamed text equals the whole one byte for byte over several turns; the parts of arguments
// are the arguments; every line of a stream is UTF-8 and JSON; no text has a control token.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { beside as together, json, lines, metrics, story, streamed, sum, weather,
  weatherQuestion, wideSchema } from './support.mjs';

const join = (list, part) => list.map((item) => part(item) ?? '').join('');
const textBlock = (list, type, name) => join(list.filter((block) => block.type === type),
  (block) => block[name]);

// A dialect: how a turn is asked for (`ask`: {messages, seed, limit, tools, schema, temperature}),
// and what of a whole and of a streamed reply is text, reasoning and calls (name and arguments; the
// arguments as text where the API gives them as text).
const dialects = {
  chat: {
    path: '/v1/chat/completions',
    body: (ask) => ({ model: 'pebble', messages: ask.messages, seed: ask.seed,
      max_tokens: ask.limit, temperature: ask.temperature,
      tools: ask.tools?.map((tool) => ({ type: 'function', function: tool })),
      response_format: ask.schema && { type: 'json_schema',
        json_schema: { name: 'x', schema: ask.schema } } }),
    whole: ({ choices: [{ message, finish_reason: finish }] }) => ({ text: message.content ?? '',
      reasoning: message.reasoning_content ?? '', finish,
      calls: (message.tool_calls ?? []).map((call) => [call.function.name,
        call.function.arguments]) }),
    streamed: (records) => {
      assert.equal(records.pop().data, '[DONE]');
      const choices = records.flatMap((record) => record.data.choices);
      const deltas = choices.map((choice) => choice.delta);
      const calls = [];
      for (const part of deltas.flatMap((delta) => delta.tool_calls ?? [])) {
        calls[part.index] ??= [part.function.name, ''];
        calls[part.index][1] += part.function.arguments ?? '';
      }
      return { text: join(deltas, (delta) => delta.content), calls,
        reasoning: join(deltas, (delta) => delta.reasoning_content),
        finish: choices.at(-1).finish_reason };
    },
  },
  responses: {
    path: '/v1/responses',
    body: (ask) => ({ model: 'pebble', input: ask.messages, seed: ask.seed,
      max_output_tokens: ask.limit, temperature: ask.temperature,
      tools: ask.tools?.map((tool) => ({ type: 'function', ...tool })),
      text: ask.schema && { format: { type: 'json_schema', name: 'x', schema: ask.schema } } }),
    whole: ({ output, status }) => {
      const content = output.flatMap((item) => item.content ?? []);
      return { text: textBlock(content, 'output_text', 'text'), finish: status,
        reasoning: textBlock(content, 'reasoning_text', 'text'),
        calls: output.filter((item) => item.type === 'function_call')
          .map((item) => [item.name, item.arguments]) };
    },
    streamed: (records) => {
      const events = records.map((record) => {
        assert.equal(record.event, record.data.type);
        return record.data;
      });
      const deltas = (type) => textBlock(events, `response.${type}.delta`, 'delta');
      const names = events.filter((event) => event.item?.type === 'function_call' &&
        event.type === 'response.output_item.added').map((event) => event.item.name);
      const parts = new Map();
      for (const event of events)
        if (event.type === 'response.function_call_arguments.delta')
          parts.set(event.output_index, (parts.get(event.output_index) ?? '') + event.delta);
      return { text: deltas('output_text'), reasoning: deltas('reasoning_text'),
        finish: events.at(-1).type.slice('response.'.length),
        calls: [...parts.values()].map((text, i) => [names[i], text]) };
    },
  },
  messages: {
    path: '/v1/messages',
    body: (ask) => ({ model: 'pebble', messages: ask.messages, seed: ask.seed,
      max_tokens: ask.limit, temperature: ask.temperature,
      thinking: { type: 'enabled', budget_tokens: 1024 },
      tools: ask.tools?.map(({ parameters, ...tool }) => ({ ...tool, input_schema: parameters })),
      output_config: ask.schema && { format: { type: 'json_schema', schema: ask.schema } } }),
    whole: ({ content, stop_reason: finish }) => ({ finish,
      text: textBlock(content, 'text', 'text'), reasoning: textBlock(content, 'thinking', 'thinking'),
      calls: content.filter((block) => block.type === 'tool_use')
        .map((block) => [block.name, JSON.stringify(block.input)]) }),
    streamed: (records) => {
      const events = records.map((record) => {
        assert.equal(record.event, record.data.type);
        return record.data;
      });
      const delta = (name) => join(events, (event) => event.delta?.[name]);
      const calls = [];
      for (const event of events) {
        if (event.content_block?.type === 'tool_use') calls.push([event.content_block.name, '']);
        if (event.delta?.partial_json) calls.at(-1)[1] += event.delta.partial_json;
      }
      return { text: delta('text'), reasoning: delta('thinking'), finish: delta('stop_reason'),
        calls: calls.map(([name, text]) => [name, JSON.stringify(JSON.parse(text || '{}'))]) };
    },
  },
  ollama: {
    path: '/api/chat',
    body: (ask) => ({ model: 'pebble', messages: ask.messages, format: ask.schema, think: true,
      options: { seed: ask.seed, num_predict: ask.limit, temperature: ask.temperature },
      tools: ask.tools?.map((tool) => ({ type: 'function', function: tool })) }),
    off: { stream: false },
    whole: ({ message, done_reason: finish }) => ({ text: message.content, finish,
      reasoning: message.thinking ?? '', calls: (message.tool_calls ?? [])
        .map(({ function: call }) => [call.name, JSON.stringify(call.arguments)]) }),
    lines: (parts) => ({ text: join(parts, (part) => part.message.content),
      reasoning: join(parts, (part) => part.message.thinking), finish: parts.at(-1).done_reason,
      calls: parts.flatMap((part) => part.message.tool_calls ?? [])
        .map(({ function: call }) => [call.name, JSON.stringify(call.arguments)]) }),
  },
};

const chosen = (process.env.DIALECTS ?? Object.keys(dialects).join()).split(',');

// The reply both ways, which must be the same; the whole one is returned.
async function bothWays(dialect, ask) {
  const body = dialect.body(ask);
  const whole = dialect.whole(await json(dialect.path, { ...body, ...dialect.off }));
  const parts = dialect.lines
    ? dialect.lines(await lines(dialect.path, { ...body, stream: true }))
    : dialect.streamed(await streamed(dialect.path, { ...body, stream: true }));
  assert.deepEqual(parts, whole);
  for (const text of [whole.text, whole.reasoning])
    assert.ok(!/<\|im_(start|end)\|>|<\|endoftext\|>|<\/?think>|<\/?tool_call>/.test(text), text);
  return whole;
}

for (const name of chosen) {
  const dialect = dialects[name];
  const ask = (text, fields) => bothWays(dialect, { messages: [{ role: 'user', content: text }],
    seed: 1, temperature: 0, ...fields });

  describe(name, together, () => {
    test('a conversation of several turns', async () => {
      const messages = [];
      for (const [turn, text] of [story, sum, 'And then?', 'Spell bird.'].entries()) {
        messages.push({ role: 'user', content: text });
        const whole = await bothWays(dialect, { messages, seed: 100 + turn, limit: 40,
          temperature: turn % 2 ? 0 : 1.2 });
        messages.push({ role: 'assistant', content: whole.text || '…' });
      }
    });

    test('answers cut at many lengths', async () => {
      const limits = [1, 2, 3, 5, 9, 17, 30, 41, 43, 46, 60];
      const replies = await Promise.all(limits.map((limit) => ask(sum, { limit })));
      const texts = replies.map((whole) => whole.reasoning + whole.text);
      for (const [i, text] of texts.entries())
        assert.ok(texts.at(-1).startsWith(text.trimEnd()), `${text} of ${texts.at(-1)}`);
      assert.match(texts.at(-1), /27 \+ 45 = 72$/);
    });

    test('characters of several tokens, also cut', async () => {
      const whole = await ask('JSON.', { limit: 400, temperature: 1, schema: wideSchema });
      assert.equal(JSON.parse(whole.text).word, wideSchema.properties.word.const);
      const word = { type: 'string', pattern: '^[é日🙂]{30}$' };
      await Promise.all([9, 10, 11, 12, 13, 14, 20, 27].map((limit) => ask('JSON.', { limit,
        temperature: 1, schema: { ...wideSchema, properties: { word, n: { const: 1 } } } })));
    });

    test('calls of tools', async () => {
      const whole = await ask(weatherQuestion, { limit: 200, tools: [weather] });
      assert.equal(whole.calls.length, 1);
      assert.equal(whole.calls[0][0], 'get_weather');
      assert.deepEqual(JSON.parse(whole.calls[0][1]), { city: 'Lisbon' });
      await Promise.all([5, 6].map((seed) =>
        ask(weatherQuestion, { seed, limit: 40, temperature: 1.5, tools: [weather] })));
    });
  });
}

// Long prompts beside each other: answers wait, and are the same.
test('a long prompt beside others', async () => {
  const dialect = dialects.chat;
  const filler = 'The fox ran over the hill and into the wood. '.repeat(60);
  const ask = { messages: [{ role: 'user', content: `${filler}\n${story}` }], seed: 9, limit: 30,
    temperature: 1 };
  const beside = [1, 2, 3].map((seed) => bothWays(dialect, { ...ask, seed,
    messages: [{ role: 'user', content: `${seed}. ${filler}` }] }));
  await bothWays(dialect, ask);
  await Promise.all(beside);
  assert.equal((await metrics())['moeflux_requests_total{finish="failed"}'], 0);
});
