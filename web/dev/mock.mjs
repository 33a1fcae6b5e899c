/* A server of invented answers and invented experts, for work on the page without a model:
 *   npm run build && npm run mock [port] [resident|empty|key]
 * It follows the interface of `moeflux serve` as far as the page uses it; the tests run against the
 * real one. */
import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { extname, join, normalize } from 'node:path';

const port = Number(process.argv[2] ?? 8080);
const kind = process.argv[3] ?? 'streamed';
const dist = join(import.meta.dirname, '../dist');
const rows = 40, columns = 128, chosen = 8, slots = 1400, began = Date.now();
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.txt': 'text/plain' };

const names = ['hit', 'ahead', 'late', 'demand', 'evicted', 'wasted'];
const totals = Object.fromEntries(names.map((name) => [name, 0]));
const present = new Map(); // cell → last use
const order = Array.from({ length: rows }, () => [...Array(columns).keys()].sort(() => Math.random() - 0.5));
let viewers = new Set(), pending = null, seq = 0, clock = 0;
const recent = [];
const running = [];

function fresh() {
  return { steps: 0, decode: 0, prompt: 0, events: new Map(), sums: Object.fromEntries(names.map((name) => [name, 0])), tokens: [] };
}
function note(row, expert, what) {
  const key = (row << 16 | expert) * 8 + what;
  pending.events.set(key, Math.min(255, (pending.events.get(key) ?? 0) + 1));
  pending.sums[names[what]]++;
  totals[names[what]]++;
}
function use(row, expert) {
  const cell = row * columns + expert;
  clock++;
  if (present.has(cell)) note(row, expert, 0);
  else {
    const dice = Math.random();
    note(row, expert, dice < 0.55 ? 1 : dice < 0.7 ? 2 : 3);
    if (Math.random() < 0.1) note(row, Math.floor(Math.random() * columns), 5);
    if (present.size >= slots) {
      const oldest = present.keys().next().value;
      present.delete(oldest);
      note(Math.floor(oldest / columns), oldest % columns, 4);
    }
  }
  present.delete(cell);
  present.set(cell, clock);
}
function step(request, index) {
  pending ??= fresh();
  const experts = new Uint16Array(rows * chosen);
  for (let row = 0; row < rows; row++) {
    const set = new Set();
    while (set.size < chosen) set.add(order[row][Math.floor(columns * Math.random() ** 3)]);
    [...set].sort((a, b) => a - b).forEach((expert, at) => { experts[row * chosen + at] = expert; use(row, expert); });
  }
  pending.steps++;
  pending.decode++;
  pending.tokens.push({ request, index, experts: Buffer.from(experts.buffer).toString('base64') });
}
function send(response, event, data) { response.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`); }
function frame() {
  const now = pending ?? fresh();
  const events = Buffer.alloc(now.events.size * 6);
  let at = 0;
  for (const [key, count] of now.events) {
    const cell = Math.floor(key / 8);
    events.writeUInt16LE(cell >> 16, at);
    events.writeUInt16LE(cell & 0xffff, at + 2);
    events[at + 4] = key % 8;
    events[at + 5] = count;
    at += 6;
  }
  const each = 1.7e6, s = now.steps;
  const wait = now.sums.demand * 0.0006 + now.sums.late * 0.0002;
  const data = { time: Date.now() - began, seq: seq++, steps: s, prompt_rows: now.prompt, decode_rows: now.decode,
    events: events.toString('base64'), sums: now.sums,
    bytes: { demand: now.sums.demand * each, ahead: (now.sums.ahead + now.sums.late) * each, wasted: now.sums.wasted * each },
    stages: { attention: s * 0.004, 'delta net': s * 0.006, router: s * 0.0008, 'expert wait': wait, experts: s * 0.009,
      'shared expert': s * 0.001, head: s * 0.002 }, present: present.size, tokens: now.tokens };
  pending = null;
  for (const viewer of viewers) send(viewer, 'frame', data);
}
setInterval(() => { if (pending) frame(); }, 100);
setInterval(() => { if (!pending && viewers.size) frame(); }, 1000);

const story = `# The lighthouse

On a **small rock** north of the harbour stood a lighthouse, and in it lived a keeper called *Ada*. She had three rules:

1. The lamp is lit before the sun is gone.
2. Every ship is written down.
   - name and flag
   - course
3. A letter is answered on the day it comes.

> "The sea keeps no diary," she said, "so somebody must."

One night the fog came. She reached for her little program:

\`\`\`c
/* How many seconds until the next flash. */
int until_flash(int now, int period)
{
    return period - now % period; // never zero
}
\`\`\`

| ship | flag | seen |
|:--|:--:|--:|
| Aurora | NO | 21:40 |
| Moeflux | DE | 22:05 |

See [the manual](https://example.org/lamp) and not [this](javascript:alert(1)), nor <b onclick="x()">that</b> or ![pixel](https://example.org/p.png). The end.`;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function chat(body, response, gone) {
  const id = `chatcmpl-${Math.random().toString(36).slice(2, 10)}`;
  const row = { id, dialect: 'chat', client: '127.0.0.1', state: 'reading', prompt_tokens: 412, read: 0, answer_tokens: 0,
    cached: { matched: 300, resumed: 256, replayed: 44, why: 'the last checkpoint before the change is at token 256' },
    wait_s: 0.002, prompt_s: 0, answer_s: 0, finish: null, started: Date.now() / 1000 };
  running.push(row);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const chunk = (delta, more = {}) => response.write(`data: ${JSON.stringify({ id, object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: null, ...more }] })}\n\n`);
  chunk({ role: 'assistant', content: '' });
  for (let read = 0; read < 412 && !gone.signal.aborted; read += 103) { row.read = read; await pause(60); }
  row.prompt_s = 0.24;
  row.state = 'answering';
  const start = Date.now();
  const last = body.messages.at(-1);
  const wantsTool = body.tools?.length && last.role === 'user';
  const pieces = [];
  if (body.chat_template_kwargs?.enable_thinking !== false)
    for (const word of 'The user wants a story. It should be short, have a list and some code in it. Let me begin.'.match(/\S+\s*/g)) pieces.push({ reasoning_content: word });
  if (last.content === 'fail') pieces.push({ error: true });
  if (wantsTool) {
    pieces.push({ tool_calls: [{ index: 0, id: 'call_1', type: 'function', function: { name: body.tools[0].function.name, arguments: '' } }] });
    for (const part of ['{"ci', 'ty": "', 'Ber', 'lin"}']) pieces.push({ tool_calls: [{ index: 0, function: { arguments: part } }] });
  } else {
    const text = last.role === 'tool' ? `The tool says: **${last.content}**.` : story;
    for (const word of text.match(/\s*\S{1,5}/g)) pieces.push({ content: word });
  }
  for (const [index, piece] of pieces.entries()) {
    if (gone.signal.aborted) break;
    if (piece.error) { response.write('data: {"error":{"message":"reading expert 3 of layer 7 failed: Input/output error"}}\n\n'); response.end(); return; }
    step(id, index);
    row.answer_tokens++;
    row.answer_s = (Date.now() - start) / 1000;
    chunk(piece);
    await pause(kind === 'fast' ? 5 : 30);
  }
  running.splice(running.indexOf(row), 1);
  row.state = 'ended';
  row.finish = gone.signal.aborted ? 'cancelled' : wantsTool ? 'tool_calls' : 'stop';
  recent.unshift(row);
  if (gone.signal.aborted) return;
  chunk({}, { finish_reason: row.finish });
  response.write(`data: ${JSON.stringify({ id, choices: [], usage: { prompt_tokens: 412, completion_tokens: pieces.length, total_tokens: 412 + pieces.length, prompt_tokens_details: { cached_tokens: 256 } },
    moeflux: { prompt_seconds: 0.24, answer_seconds: row.answer_s, wait_seconds: 0.002, cached: row.cached } })}\n\ndata: [DONE]\n\n`);
  response.end();
}

const json = (response, data, status = 200) => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(data));
};

const whatif = () => {
  const memory = Array.from({ length: 24 }, (_, at) => (at + 1) * 512 * 2 ** 20);
  return { memory, hit: memory.map((_, at) => 1 - Math.exp(-(at + 1) / 6)), belady: memory.map((_, at) => 1 - Math.exp(-(at + 1) / 4)),
    now: slots * 1.7e6, tokens: 1024 };
};

createServer((request, response) => {
  const path = request.url.split('?')[0];
  if (kind === 'key' && path.startsWith('/v1') && request.headers.authorization !== 'Bearer secret')
    return json(response, { error: { message: 'a key is needed' } }, 401);
  if (path === '/v1/moeflux/info') {
    return json(response, { version: '0.2.0', model: { name: 'mock-35b-a3b', family: 'qwen3_5_moe', vocab: 151936, context: 32768, trained_context: 262144 },
      layers: rows, moe_layers: [...Array(rows).keys()], experts: columns, experts_per_token: chosen, expert_bytes: 1.7e6,
      mode: kind === 'resident' ? 'resident' : 'streamed', threads: 8, kernels: 'avx512vnni', parallel: 16, queue: 64, cache: 'reuse',
      sampling: { temperature: 0.7, top_k: 20, top_p: 0.8 }, reasoning: true, tools: true });
  }
  if (path === '/v1/moeflux/experts') {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const bits = Buffer.alloc(rows * columns / 8);
    for (const cell of present.keys()) bits[cell >> 3] |= 1 << (cell & 7);
    send(response, 'map', { time: Date.now() - began, rows: [...Array(rows).keys()], columns, present: bits.toString('base64'), slots, totals });
    viewers.add(response);
    response.on('close', () => viewers.delete(response));
    return undefined;
  }
  if (path === '/v1/moeflux/requests') {
    return json(response, { running, waiting: [], recent: recent.slice(0, 50), batch: { rows: running.length, step_ms: running.length ? 31 : 0, tokens_per_second: running.length * 30 },
      cache: { mode: 'reuse', bytes: 48 * 2 ** 20, pages: 310, checkpoints: 12, requests: recent.length, asked: 412 * recent.length, matched: 300 * recent.length, resumed: 256 * recent.length } });
  }
  if (path === '/v1/moeflux/whatif') return kind === 'empty' ? json(response, { error: { message: 'No routes are recorded yet: ask for an answer first.' } }, 409) : json(response, whatif());
  if (path === '/v1/chat/completions') {
    let text = '';
    const gone = new AbortController();
    response.on('close', () => gone.abort());
    request.on('data', (part) => { text += part; });
    request.on('end', () => void chat(JSON.parse(text), response, gone));
    return undefined;
  }
  const file = join(dist, normalize(path === '/' ? '/index.html' : path));
  try {
    response.writeHead(200, { 'content-type': types[extname(file)] ?? 'application/octet-stream', 'content-security-policy': policy });
    response.end(readFileSync(file));
  } catch {
    if (!response.headersSent) response.writeHead(404);
    response.end();
  }
  return undefined;
}).listen(port, '127.0.0.1', function ready() { console.log(`mock at http://127.0.0.1:${this.address().port}`); });
