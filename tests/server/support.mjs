// What the tests of the server share: its address, raw requests, further servers, its metrics.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';

export const url = process.env.MOEFLUX_URL;
const program = process.env.MOEFLUX_PROGRAM;

// The tool that Pebble has learnt to call, and what it has learnt to say to such a result.
export const weather = {
  name: 'get_weather',
  description: 'Get the weather in a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
  },
};
export const weatherQuestion = 'What is the weather in Lisbon?';
export const weatherResult = '{"weather": "sunny", "temperature": 24}';
export const weatherAnswer = 'It is sunny in Lisbon, and the temperature is 24 degrees.';
export const sum = 'What is 27 + 45?'; // Pebble thinks before it answers 72
export const story = 'Tell me a story about a fox.';
// A seed with which, at a temperature of 0.9, the story is longer than tests ask for.
export const seed = 3;
// Tests in a describe() with this run beside each other, in shared steps of the engine.
export const beside = { concurrency: 6 };

// A schema whose one answer has characters of two to four bytes, in several scripts.
export const wideText = 'é ß Ω — 日本語 ни 🙂👩‍🚀 ‮ ﷽';
export const wideSchema = {
  type: 'object',
  properties: { word: { const: wideText }, n: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['word', 'n'],
  additionalProperties: false,
};

export function post(path, body, { headers = {}, signal, at = url } = {}) {
  return fetch(at + path, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
    signal,
  });
}

export async function json(path, body, more) {
  const reply = await post(path, body, more);
  const text = await reply.text();
  assert.equal(reply.status, 200, `${path}: ${text}`);
  return JSON.parse(text);
}

// Records of an event stream, as {event, data} with data parsed, in order; "[DONE]" as it is.
// Every record must be whole, in UTF-8 and JSON; comments are skipped and counted in `comments`.
export function records(bytes) {
  const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  assert.ok(text.endsWith('\n\n'), 'the last record ends with a blank line');
  const list = [];
  list.comments = 0;
  for (const record of text.slice(0, -2).split('\n\n')) {
    let event, data;
    for (const line of record.split('\n')) {
      if (line.startsWith(':')) list.comments++;
      else if (line.startsWith('event: ')) event = line.slice(7);
      else if (line.startsWith('data: ')) data = line.slice(6);
      else assert.fail(`a line of a record is ${JSON.stringify(line)}`);
    }
    if (data === undefined) continue;
    list.push({ event, data: data === '[DONE]' ? data : JSON.parse(data) });
  }
  return list;
}

export async function streamed(path, body, more) {
  const reply = await post(path, body, more);
  const bytes = Buffer.from(await reply.arrayBuffer());
  assert.equal(reply.status, 200, `${path}: ${bytes}`);
  assert.match(reply.headers.get('content-type'), /^text\/event-stream/);
  return records(bytes);
}

// Objects of a reply in lines of JSON (Ollama's streams).
export async function lines(path, body, more) {
  const reply = await post(path, body, more);
  const bytes = Buffer.from(await reply.arrayBuffer());
  assert.equal(reply.status, 200, `${path}: ${bytes}`);
  assert.match(reply.headers.get('content-type'), /^application\/x-ndjson/);
  const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  assert.ok(text.endsWith('\n'));
  return text.slice(0, -1).split('\n').map((line) => JSON.parse(line));
}

export async function metrics(at = url) {
  const reply = await fetch(`${at}/metrics`);
  assert.equal(reply.status, 200);
  const rows = (await reply.text()).split('\n').filter((line) => line && !line.startsWith('#'));
  return Object.fromEntries(rows.map((row) => {
    const space = row.lastIndexOf(' ');
    return [row.slice(0, space), Number(row.slice(space + 1))];
  }));
}

// Waits until no request is left; all pages must be free then, or the prefix cache's.
export async function idle(at = url, seconds = 10) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const now = await metrics(at);
    const pages = now.moeflux_pool_pages - now.moeflux_cache_pages;
    const requests = now.moeflux_requests_active;
    if (!pages && !requests) return now;
    assert.ok(Date.now() < deadline, `${requests} requests and ${pages} pages of theirs are left`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// Another server, with options of its own, while `use` runs.
export async function withServer(options, use) {
  const child = spawn(program, ['serve', '--port', '0', ...options],
    { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  try {
    child.stdout.setEncoding('utf8');
    let line = '';
    for await (const part of child.stdout) {
      line += part;
      if (line.includes('\n')) break;
    }
    const address = /at (http:\/\/\S+)/.exec(line);
    assert.ok(address, `the first line of serve is ${JSON.stringify(line)}`);
    await use(address[1]);
    child.kill('SIGTERM');
    assert.deepEqual(await ended, [0, null], 'exit status after SIGTERM');
  } finally {
    child.kill('SIGKILL');
    await ended;
  }
}

export async function all(iterable) {
  const list = [];
  for await (const item of iterable) list.push(item);
  return list;
}

// `call` must be refused by an error of the client with these members.
export async function refused(call, expected) {
  let error;
  try {
    await call();
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, `it was not refused; expected: ${JSON.stringify(expected)}`);
  for (const [name, value] of Object.entries(expected)) {
    if (value instanceof RegExp) assert.match(String(error[name]), value);
    else if (name === 'is') assert.ok(error instanceof value, `${error}`);
    else assert.equal(error[name], value, `${name} of ${error}`);
  }
  return error;
}
