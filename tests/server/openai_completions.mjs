// Completions of texts, judged by the openai client: CLIENT names the package.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import * as support from './support.mjs';

const { default: OpenAI, ...sdk } = await import(process.env.CLIENT);
const client = new OpenAI({ baseURL: `${support.url}/v1`, apiKey: 'none', maxRetries: 0 });
const create = (fields) => client.completions.create({ model: 'pebble', prompt: 'Once upon a time',
  max_tokens: 20, temperature: 0.8, seed: 3, ...fields });
const textOf = (chunks, index) => chunks.flatMap((chunk) => chunk.choices)
  .filter((choice) => choice.index === index).map((choice) => choice.text).join('');

describe('completions', support.beside, () => {
  test('a completion has the shape of the API', async () => {
    const whole = await create({});
    assert.match(whole.id, /^cmpl-./);
    assert.equal(whole.object, 'text_completion');
    assert.equal(whole.model, 'pebble');
    const [choice] = whole.choices;
    assert.equal(choice.index, 0);
    assert.equal(choice.finish_reason, 'length');
    assert.equal(choice.logprobs, null);
    assert.ok(choice.text.length > 20);
    assert.equal(whole.usage.completion_tokens, 20);
    const short = await create({ max_tokens: undefined });
    assert.equal(short.usage.completion_tokens, 16); // the API's default
  });

  test('a stream has the text of the whole', async () => {
    const whole = await create({});
    const chunks = await support.all(await create({ stream: true,
      stream_options: { include_usage: true } }));
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    assert.deepEqual(last.usage.completion_tokens, 20);
    assert.equal(textOf(chunks, 0), whole.choices[0].text);
    assert.ok(chunks.every((chunk) => chunk.object === 'text_completion'));
    assert.equal(chunks.at(-1).choices[0].finish_reason, 'length');
    assert.ok(chunks.length > 10);
  });

  test('prompts and answers come in order', async () => {
    const prompts = ['Once upon a time', 'The old king'];
    const whole = await create({ prompt: prompts, n: 2, temperature: 1.1 });
    assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1, 2, 3]);
    assert.equal(new Set(whole.choices.map((choice) => choice.text)).size, 4);
    const single = await create({ prompt: prompts[1], temperature: 0 });
    const both = await create({ prompt: prompts, temperature: 0 });
    assert.equal(both.choices[1].text, single.choices[0].text);
    const chunks = await support.all(await create({ prompt: prompts, n: 2, temperature: 1.1,
      stream: true }));
    assert.deepEqual([0, 1, 2, 3].map((i) => textOf(chunks, i)),
      whole.choices.map((choice) => choice.text));
  });

  test('ids are a prompt', async () => {
    const { tokens } = await support.json('/tokenize', { content: 'Once upon a time' });
    const ids = tokens.map((token) => token.id ?? token);
    const whole = await create({ prompt: ids });
    assert.equal(whole.usage.prompt_tokens, ids.length);
    assert.equal(whole.choices[0].text, (await create({})).choices[0].text);
    const two = await create({ prompt: [ids, ids.slice(0, 2)] });
    assert.equal(two.choices.length, 2);
    assert.equal(two.choices[0].text, whole.choices[0].text);
  });

  test('echo and probabilities', async () => {
    const prompt = 'Once upon a time';
    assert.ok((await create({ echo: true })).choices[0].text.startsWith(prompt));
    const whole = await create({ echo: true, logprobs: 2, max_tokens: 4, temperature: 0 });
    const [choice] = whole.choices;
    const { tokens, token_logprobs: values, top_logprobs: top, text_offset: offsets } =
      choice.logprobs;
    assert.equal(tokens.join(''), choice.text);
    assert.ok(choice.text.startsWith(prompt));
    assert.equal(tokens.length, whole.usage.prompt_tokens + 4);
    assert.equal(values[0], null);
    assert.ok(values.slice(1).every((value) => value <= 0));
    assert.ok(top.slice(1).every((entry) => Object.keys(entry).length >= 2));
    let offset = 0;
    tokens.forEach((token, i) => {
      assert.equal(offsets[i], offset);
      offset += token.length;
    });
    const bare = await create({ logprobs: 1, max_tokens: 4, temperature: 0 });
    assert.deepEqual(bare.choices[0].logprobs.tokens, tokens.slice(-4));
    assert.deepEqual(bare.choices[0].logprobs.token_logprobs.map((x) => x.toFixed(4)),
      values.slice(-4).map((x) => x.toFixed(4)));
  });

  test('stops and refusals', async () => {
    const whole = await create({ temperature: 0 });
    const stop = whole.choices[0].text.trim().split(' ')[3];
    const cut = await create({ temperature: 0, stop: [stop] });
    assert.equal(cut.choices[0].finish_reason, 'stop');
    assert.equal(cut.choices[0].text, whole.choices[0].text.split(stop)[0]);
    const refuse = (fields, expected) => support.refused(() => create(fields),
      { is: sdk.BadRequestError, status: 400, ...expected });
    await refuse({ prompt: 'fox '.repeat(9000) }, { code: 'context_length_exceeded' });
    await refuse({ logprobs: 6 }, { param: 'logprobs' });
    await refuse({ suffix: 'x' }, { param: 'suffix' });
    await refuse({ prompt: [[1, -1]] }, { param: 'prompt' });
    await refuse({ prompt: [[1, 1 << 30]] }, {});
    await refuse({ no_such_field: 1 }, { code: 'unknown_parameter' });
  });
});
