// The page in Debian's Chromium against a server that streams experts: a chat turn, stop, regenerate,
// edit, fork, tools, import, the map and its sums, pause and scrub, tokens and experts, the requests,
// a phone, dark colours, axe-core.  Screenshots go to $SHOTS.  Exit status 77: there is no Chromium,
// or this build has no page.
import assert from 'node:assert/strict';
import { accessSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { idle, metrics, story, sum, url, weather, weatherAnswer, weatherQuestion, weatherResult, withServer }
  from './support.mjs';

const chromiumPath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const shots = process.env.SHOTS ?? mkdtempSync(join(tmpdir(), 'page-'));

function skip(why) {
  console.error(`SKIPPED: ${why}`);
  process.exit(77);
}

try {
  accessSync(chromiumPath);
} catch {
  skip(`${chromiumPath} is missing: install the package chromium`);
}
const front = await (await fetch(url)).text();
if (!front.includes('/assets/')) skip('this build has the plain page: Node, npm or a registry was missing');

const { chromium } = await import('playwright-core');
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const wide = { width: 1440, height: 900 };
const phone = { width: 390, height: 844 };
const profile = mkdtempSync(join(tmpdir(), 'chromium-'));
let browser;
mkdirSync(shots, { recursive: true });

before(async () => {
  browser = await chromium.launch({
    executablePath: chromiumPath,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync', `--disk-cache-dir=${profile}`],
  });
});
after(async () => {
  await browser?.close();
  rmSync(profile, { recursive: true, force: true });
});

// A page of a browser without history; what it logs as an error or asks of other hosts fails the test.
async function visit(place, use, { viewport = wide, colorScheme = 'light', at = url, allowed = null, open = true, ...more } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, ...more });
  const page = await context.newPage();
  const problems = [];
  page.setDefaultTimeout(120000); // a slow machine is no failure
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !allowed?.test(message.text())) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).origin !== at) problems.push(`asks ${request.url()}`);
  });
  try {
    if (open) await page.goto(`${at}/#${place}`);
    await use(page);
    assert.deepEqual(problems, [], 'errors in the console');
  } catch (error) {
    await page.screenshot({ path: join(shots, 'failed.png') }).catch(() => {});
    throw error;
  } finally {
    await context.close();
  }
}

const shot = (page, name) => page.screenshot({ path: join(shots, `${name}.png`) });
const answers = (page) => page.locator('.message.assistant');
const lastAnswer = (page) => answers(page).last();
const finished = (page) => page.locator('.send:visible').waitFor();

async function ask(page, text) {
  await page.fill('#prompt', text);
  await page.press('#prompt', 'Enter');
}

async function setSampling(page, fields) {
  if (!await page.locator('.panel').isVisible()) await page.getByRole('button', { name: 'Sampling' }).click();
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === 'boolean') await page.setChecked(`#set-${name}`, value);
    else await page.fill(`#set-${name}`, value);
  }
}

// No finding that axe-core calls serious or critical.
async function accessible(page, where) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  const serious = violations.filter((one) => ['serious', 'critical'].includes(one.impact))
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
  assert.deepEqual(serious, [], `axe-core, ${where}`);
}

const noOverflow = async (page) =>
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than the screen');
const picture = (page, selector) => page.evaluate((name) => document.querySelector(name).toDataURL(), selector);

describe('files', () => {
  test('sizes and headers', async () => {
    const reply = await fetch(`${url}/`);
    const policy = reply.headers.get('content-security-policy');
    assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self';/);
    assert.doesNotMatch(policy, /unsafe/);
    assert.doesNotMatch(front, /<script(?![^>]*src="\/assets\/)|<style|style="|onload=/);
    const sizes = {};
    const wanted = [...front.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map((match) => match[1]);
    for (let path; (path = wanted.pop());) {
      if (sizes[path]) continue;
      const file = await fetch(url + path);
      assert.equal(file.status, 200, path);
      assert.match(file.headers.get('cache-control'), /immutable/);
      const text = await file.text();
      sizes[path] = text.length;
      for (const match of text.matchAll(/(?:import\()[`"']\.\/([^`"']+\.js)/g)) wanted.push(`/assets/${match[1]}`);
    }
    const scripts = Object.entries(sizes).filter(([path]) => path.endsWith('.js'));
    assert.ok(scripts.length >= 2, 'the expert views are a file of their own');
    const all = scripts.reduce((total, [, size]) => total + size, 0);
    assert.ok(all <= 150000, `${all} bytes of script, 150000 are the limit`);
    const experts = scripts.find(([path]) => path.includes('view'))[1];
    assert.ok(experts <= 60000, `${experts} bytes of script for the experts, 60000 are the limit`);
    const licences = await (await fetch(`${url}/assets/licenses.txt`)).text();
    assert.match(licences, /marked .*MIT/);
    const again = await fetch(`${url}/`, { headers: { 'If-None-Match': reply.headers.get('etag') } });
    assert.equal(again.status, 304);
    assert.equal((await fetch(`${url}/assets/../etc/passwd`)).status, 404);
  });
});

describe('chat', () => {
  test('a turn, again, edit, fork, and all of it after a reload', () => visit('chat', async (page) => {
    await setSampling(page, { max_tokens: '24', temperature: '0.9', seed: '3' });
    await ask(page, story);
    await finished(page);
    const first = await lastAnswer(page).locator('.markdown').innerText();
    assert.ok(first.length > 20, first);
    assert.match(await lastAnswer(page).locator('.facts').innerText(), /^\d+ tokens · [\d.]+ tokens\/s · prompt \d+ in .*cached/);

    await setSampling(page, { seed: '4' });
    await lastAnswer(page).getByRole('button', { name: 'Answer again' }).click();
    await finished(page);
    const second = await lastAnswer(page).locator('.markdown').innerText();
    assert.notEqual(second, first);
    assert.equal(await lastAnswer(page).locator('.siblings').innerText(), '2/2');
    await lastAnswer(page).getByRole('button', { name: 'The version before' }).click();
    assert.equal(await lastAnswer(page).locator('.markdown').innerText(), first);
    assert.equal(await lastAnswer(page).locator('.siblings').innerText(), '1/2');

    await page.locator('.message.user').getByRole('button', { name: 'Edit and send again' }).click();
    await page.fill('.edit', 'Tell me a story about a bear.');
    await page.press('.edit', 'Enter');
    await finished(page);
    assert.equal(await page.locator('.message.user .plain').innerText(), 'Tell me a story about a bear.');
    assert.equal(await page.locator('.message.user .siblings').innerText(), '2/2');
    assert.equal(await answers(page).count(), 1);

    await lastAnswer(page).getByRole('button', { name: /new conversation/ }).click();
    assert.equal(await page.locator('.conversations li .title').count(), 2);
    await page.reload();
    await page.locator('.message.assistant').waitFor();
    assert.equal(await page.locator('.conversations li .title').count(), 2);
    await accessible(page, 'chat');
    await shot(page, 'chat-wide-light');
  }));

  test('stop ends the answer here and in the server', () => visit('chat', async (page) => {
    await setSampling(page, { max_tokens: '1500', temperature: '0.9', seed: '3' });
    await ask(page, story);
    await page.locator('.message.live .markdown p').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await finished(page);
    assert.match(await lastAnswer(page).innerText(), /Stopped\./);
    await idle(url, 60);
    await ask(page, story);
    await page.locator('.message.live .markdown p').waitFor();
    await page.keyboard.press('Escape');
    await finished(page);
    assert.equal(await page.getByText('Stopped.').count(), 2);
    await idle(url, 60);
  }));

  test('reasoning is folded', () => visit('chat', async (page) => {
    await setSampling(page, { temperature: '0' });
    await ask(page, sum);
    await finished(page);
    const fold = lastAnswer(page).locator('details.reasoning');
    assert.equal(await fold.getAttribute('open'), null);
    assert.match(await fold.innerText(), /^Reasoning, \d+ words/);
    await fold.locator('summary').click();
    assert.match(await fold.locator('.reasoning-text').innerText(), /7/);
    assert.match(await lastAnswer(page).locator('.markdown').innerText(), /72/);
  }));

  test('a tool is called, its result typed in, and used', () => visit('chat', async (page) => {
    await setSampling(page, { temperature: '0', tools: '[{"type": ' });
    assert.match(await page.locator('.problem').innerText(), /no JSON/);
    await setSampling(page, { tools: JSON.stringify([{ type: 'function', function: weather }]) });
    assert.equal(await page.locator('.problem').innerText(), '');
    await ask(page, weatherQuestion);
    await finished(page);
    const card = page.locator('.call');
    assert.match(await card.locator('.call-head').innerText(), /get_weather/);
    assert.match(await card.locator('code').innerText(), /"city": "Lisbon"/);
    await accessible(page, 'a tool call');
    await shot(page, 'tool-wide-light');
    await page.getByLabel('Result of get_weather').fill(weatherResult);
    await page.getByRole('button', { name: 'Send the result' }).click();
    await finished(page);
    assert.equal(await lastAnswer(page).locator('.markdown').innerText(), weatherAnswer);
    assert.match(await card.locator('.result').innerText(), /sunny/);
  }));

  test('markup of a model stays text; export and import', () => visit('chat', async (page) => {
    const text = '<img src=x onerror=alert(1)> <script>alert(2)</script>\n\n![p](https://example.org/p.png)\n\n'
      + '[bad](javascript:alert(3)) [data](data:text/html,x) [good](https://example.org/) <https://example.org/auto>\n\n'
      + '| a | b |\n|:-:|--:|\n| 1 | 2 |\n\n```c\nint main(void) { return 0; }\n```\n\n- [x] done\n- open\n\n> said &amp; done';
    const conversation = { title: 'From a file', leaf: 'b', messages: {
      a: { parent: null, role: 'user', text: 'Hello' }, b: { parent: 'a', role: 'assistant', text } } };
    const choose = async (content) => {
      const chooser = page.waitForEvent('filechooser');
      await page.getByRole('button', { name: 'Import' }).click();
      await (await chooser).setFiles({ name: 'c.json', mimeType: 'application/json', buffer: Buffer.from(content) });
    };
    await choose('{"format": "other"}');
    await page.getByText('Nothing was imported: the file is no export of this page').waitFor();
    await choose(JSON.stringify({ format: 'moeflux-conversations', version: 1, conversations: [conversation] }));
    const body = lastAnswer(page).locator('.markdown');
    await body.locator('table').waitFor();
    assert.equal(await body.locator('img, script, iframe').count(), 0);
    const links = await body.locator('a').evaluateAll((list) => list.map((link) => [link.href, link.rel]));
    assert.deepEqual(links.map(([href]) => href), ['https://example.org/p.png', 'https://example.org/', 'https://example.org/auto']);
    assert.ok(links.every(([, rel]) => rel.includes('noopener')));
    assert.match(await body.innerText(), /<img src=x onerror=alert\(1\)>/);
    assert.match(await body.innerText(), /said & done/);
    assert.equal(await body.locator('.code-keyword').first().innerText(), 'int');
    const saved = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export', exact: true }).click();
    const exported = JSON.parse(readFileSync(await (await saved).path(), 'utf8'));
    assert.equal(exported.conversations[0].messages.b.text, text);
    await accessible(page, 'Markdown');
  }));
});

const kinds = { hit: 'requests_total{source="cache"}', ahead: 'requests_total{source="ahead"}',
  late: 'requests_total{source="late"}', demand: 'requests_total{source="demand"}', evicted: 'evictions_total',
  wasted: 'ahead_wasted_total' };

describe('experts', () => {
  test('the map changes, its sums are those of /metrics, time stands still and goes back', () => visit('both', async (page) => {
    await page.locator('.map-frame canvas').waitFor();
    await page.locator('.live-mark', { hasText: 'idle' }).waitFor();
    const before = await picture(page, '.map-frame canvas');
    await page.evaluate(() => { localStorage.setItem('moeflux.settings', '{"max_tokens":"60","temperature":"0.9","seed":"3"}'); });
    await page.reload();
    await page.locator('.live-mark', { hasText: 'idle' }).waitFor();
    await ask(page, story);
    await page.locator('.message.live .markdown p').waitFor();
    await page.locator('.live-mark.is-busy').waitFor();
    assert.notEqual(await picture(page, '.map-frame canvas'), before, 'the map changes during an answer');
    await shot(page, 'both-wide-light');
    await finished(page);
    await idle(url, 60);

    const expected = await metrics();
    for (const [kind, name] of Object.entries(kinds)) {
      await page.locator(`[data-kind="${kind}"][data-value="${expected[`moeflux_expert_${name}`]}"]`)
        .waitFor({ timeout: 30000 }).catch(async () => assert.fail(
          `${kind}: the page has ${await page.locator(`[data-kind="${kind}"]`).getAttribute('data-value')}, `
          + `/metrics ${expected[`moeflux_expert_${name}`]}`));
    }

    // Every token but the last one of the answer has been computed, so its experts are known.
    const tokens = page.locator('.token');
    assert.ok(await tokens.count() >= 30, `${await tokens.count()} pieces`);
    const known = await page.locator('.token.known').count();
    assert.ok(known >= await tokens.count() - 2, `${known} of ${await tokens.count()} pieces have experts`);

    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('.live-mark.is-paused').waitFor();
    const still = await picture(page, '.map-frame canvas');
    await ask(page, sum);
    await finished(page);
    assert.equal(await picture(page, '.map-frame canvas'), still, 'a paused map stands still');
    const places = await page.locator('.token').count();
    await page.getByRole('button', { name: 'Token' }).first().click();
    const selected = page.locator('.token[aria-selected="true"]');
    await selected.waitFor();
    const name = await selected.getAttribute('id');
    await page.getByRole('button', { name: 'Token' }).first().click();
    await page.waitForFunction((old) => document.querySelector('.token[aria-selected="true"]')?.id !== old, name);
    assert.ok(places > 0);
    const when = await page.locator('.when').innerText();
    const box = await page.locator('.timeline canvas').boundingBox();
    await page.mouse.click(box.x + box.width * 0.94, box.y + 60);
    await page.waitForFunction((old) => document.querySelector('.when').textContent !== old, when);
    await page.locator('#scrub').focus();
    await page.keyboard.press('Home');
    await page.locator('.when', { hasText: /[1-9][\d.]* s before/ }).waitFor();
    await page.getByRole('button', { name: 'Live' }).click();
    await page.locator('.when', { hasText: 'live' }).waitFor();
  }, { viewport: { width: 1680, height: 950 } }));

  test('a token leads to its experts, an expert to its tokens; the tables; what if', () => visit('chat', async (page) => {
    await setSampling(page, { max_tokens: '40', temperature: '0.9', seed: '3' });
    await ask(page, story);
    await finished(page);
    await lastAnswer(page).getByRole('button', { name: 'Experts' }).click();
    await page.locator('.token.known').first().waitFor();
    const dark = await picture(page, '.map-frame canvas');
    await page.locator('.token.known').nth(5).hover();
    await page.waitForFunction((old) => document.querySelector('.map-frame canvas').toDataURL() !== old, dark);
    await shot(page, 'token-wide-light');
    // The expert chosen most has tokens; the ones that chose it are marked in the text.
    await page.getByRole('button', { name: 'Table' }).click();
    const most = page.locator('.tables .table-frame').last();
    await most.locator('tbody tr').nth(59).waitFor();
    assert.equal(await most.locator('tbody tr').count(), 60);
    await accessible(page, 'tables');
    const used = (await most.locator('tbody tr td:nth-child(2)').allInnerTexts()).map(Number);
    assert.deepEqual(used, [...used].sort((a, b) => b - a), 'sorted by choices');
    await most.getByRole('button', { name: 'Expert', exact: true }).click();
    assert.equal(await most.locator('th[aria-sort="descending"]').innerText(), 'Expert ▾');
    await most.getByRole('button', { name: 'Chosen' }).click();
    await shot(page, 'table-wide-light');
    await most.locator('tbody button').first().click();
    await page.locator('.cell-facts', { hasText: /Layer \d+, expert \d+.*Chosen by \d+ token/s }).waitFor();
    assert.ok(await page.locator('.token.chosen').count() > 0);
    await page.locator('.map-frame canvas').focus();
    const facts = await page.locator('.cell-facts strong').innerText();
    await page.keyboard.press('ArrowRight');
    await page.waitForFunction((old) => document.querySelector('.cell-facts strong')?.textContent !== old, facts);

    await page.getByRole('button', { name: 'Reckon anew' }).click();
    const said = page.locator('.whatif output');
    await page.locator('.whatif output', { hasText: /no policy can do better than/ }).waitFor();
    const rates = [];
    for (const key of ['Home', 'End']) {
      await page.locator('#whatif').focus();
      await page.keyboard.press(key);
      rates.push((await said.innerText()).match(/([\d.]+)%/g).map(parseFloat));
    }
    assert.ok(rates[0][0] < rates[1][0], `more memory, more hits: ${rates}`);
    for (const [hit, bound] of rates) assert.ok(hit <= bound, `${hit}% is above Belady's bound ${bound}%`);
    await accessible(page, 'experts');
    await shot(page, 'experts-wide-light');
  }));

  test('with everything in memory the page says so', () => withServer([], async (at) => {
    await visit('experts', async (page) => {
      await page.getByText('Resident: every expert is in memory and nothing is read.').waitFor();
      await shot(page, 'resident-wide-light');
    }, { at });
  }));
});

describe('the rest', () => {
  test('requests say what came from the cache and why', () => visit('chat', async (page) => {
    await setSampling(page, { max_tokens: '8' });
    await ask(page, sum);
    await finished(page);
    const id = await lastAnswer(page).getAttribute('data-request');
    await page.getByRole('link', { name: 'Requests' }).click();
    const row = page.locator('tr', { hasText: id });
    await row.waitFor();
    assert.match(await row.innerText(), /ended/);
    assert.match(await row.locator('td').nth(3).innerText(), /^\d+ of \d+\s+\S/);
    await accessible(page, 'requests');
    await shot(page, 'requests-wide-light');
  }));

  test('a wide screen, in the dark', () => visit('both', async (page) => {
    await ask(page, 'What is the capital of France?');
    await finished(page);
    await page.locator('.token.known').first().waitFor();
    await accessible(page, 'dark, side by side');
    await noOverflow(page);
    await shot(page, 'both-wide-dark');
  }, { viewport: { width: 1680, height: 950 }, colorScheme: 'dark' }));

  test('a phone, in the dark', () => visit('chat', async (page) => {
    await shot(page, 'empty-phone-dark');
    await ask(page, 'What is the capital of France?');
    await finished(page);
    await noOverflow(page);
    await accessible(page, 'a phone: chat');
    await shot(page, 'chat-phone-dark');
    await page.getByRole('button', { name: 'Conversations' }).click();
    await page.getByRole('button', { name: 'New conversation' }).first().waitFor();
    await page.keyboard.press('Escape');
    for (const [place, ready] of [['Experts', '.map-frame canvas'], ['Requests', '.request-table']]) {
      await page.getByRole('link', { name: place }).click();
      await page.locator(ready).waitFor();
      await noOverflow(page);
      await accessible(page, `a phone: ${place}`);
      await shot(page, `${place.toLowerCase()}-phone-dark`);
    }
    const light = () => page.evaluate(() => {
      const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
      return red + green + blue > 384;
    });
    assert.equal(await light(), false, 'dark as the system');
    await page.getByRole('button', { name: /^Colours/ }).click();
    assert.equal(await light(), true, 'light as chosen');
    await page.reload();
    await page.getByRole('button', { name: 'Colours: light' }).waitFor();
    assert.equal(await light(), true, 'and kept');
  }, { viewport: phone, colorScheme: 'dark', hasTouch: true, isMobile: true }));

  test('with a key: the browser asks for it; in an address it is used, too; a wrong one is asked for again',
    () => withServer(['--api-key', 'secret'], async (at) => {
      assert.equal((await fetch(at)).status, 401);
      const capital = async (page) => {
        await page.locator('.server strong', { hasText: 'pebble' }).waitFor();
        await ask(page, 'What is the capital of France?');
        await finished(page);
        assert.match(await lastAnswer(page).locator('.markdown').innerText(), /\S/);
      };
      await visit('chat', capital, { at, httpCredentials: { username: 'page', password: 'secret' } });
      await visit('chat', async (page) => {
        await page.goto(`${at.replace('//', '//page:secret@')}/#chat`);
        await capital(page);
        assert.equal(await page.locator('.message').count(), 2);
        await page.evaluate(() => sessionStorage.setItem('moeflux.key', 'wrong'));
        await page.reload();
        await page.locator('#api-key').fill('secret');
        await accessible(page, 'the key');
        await page.getByRole('button', { name: 'Use it' }).click();
        await capital(page);
      }, { at, allowed: /status of 401|Failed to load module/, open: false });
    }));

  test('an error of the server is said', () => visit('chat', async (page) => {
    await ask(page, 'word '.repeat(6000));
    await finished(page);
    assert.match(await lastAnswer(page).locator('.error').innerText(), /context/);
  }, { allowed: /status of 400/ }));
});
