/* Markdown as it arrives.  marked splits the text into tokens; the elements are made here, one kind
 * at a time, so that HTML stays text, pictures become links, and only http and https lead anywhere.
 *
 * Streaming: every block but the last is final, and its elements are not touched again; the last
 * one is made anew with each piece. */
import { Lexer, type Token, type Tokens } from 'marked';
import { append, el, iconButton } from './dom';
import { highlight } from './highlight';

const longest = 400000; // characters; longer texts are shown as they are

const entities: Record<string, string> = {
  amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', reg: '®', hellip: '…',
  mdash: '—', ndash: '–', times: '×', middot: '·', rarr: '→', larr: '←', deg: '°', euro: '€',
};

function plainText(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([\da-fA-F]{1,6})|(\w{2,8}));/g, (whole, decimal, hex, name) => {
    if (name) return entities[name] ?? whole;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000) ? String.fromCodePoint(code) : '\ufffd';
  });
}

/** An address that a link may have, or null. */
export function safeAddress(address: string): string | null {
  if (!/^https?:\/\//i.test(address)) return null;
  try {
    const url = new URL(address);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}

function link(address: string, ...content: Node[]): Node {
  const safe = safeAddress(address);
  if (!safe) return el('span', { class: 'dead-link', title: `not followed: ${address.slice(0, 200)}` }, ...content);
  return el('a', { href: safe, rel: 'noopener noreferrer', target: '_blank' }, ...content);
}

function inline(tokens: Token[] | undefined): Node[] {
  return (tokens ?? []).map(inlineOne);
}

function inlineOne(token: Token): Node {
  switch (token.type) {
    case 'strong': return el('strong', {}, ...inline(token.tokens));
    case 'em': return el('em', {}, ...inline(token.tokens));
    case 'del': return el('del', {}, ...inline(token.tokens));
    case 'codespan': return el('code', {}, (token as Tokens.Codespan).text);
    case 'br': return el('br');
    case 'link': return link((token as Tokens.Link).href, ...inline(token.tokens));
    case 'image': {
      const image = token as Tokens.Image;
      return link(image.href, document.createTextNode(`[picture: ${image.text || 'no description'}]`));
    }
    case 'escape': return document.createTextNode((token as Tokens.Escape).text);
    case 'html': return document.createTextNode(token.raw);
    default:
      if ('tokens' in token && token.tokens?.length) return el('span', {}, ...inline(token.tokens));
      return document.createTextNode(plainText('text' in token ? String(token.text) : token.raw));
  }
}

export function codeBlock(code: string, language: string): HTMLElement {
  const text = el('code', {});
  highlight(text, code, language);
  const copy = iconButton('copy', 'Copy the code', () => {
    void navigator.clipboard?.writeText(text.textContent ?? '');
    copy.classList.add('done');
    setTimeout(() => copy.classList.remove('done'), 1200);
  });
  return el('div', { class: 'code-block', 'data-language': language },
    el('div', { class: 'code-head' }, el('span', {}, language || 'code'), copy),
    el('pre', { tabindex: 0 }, text));
}

function list(token: Tokens.List): HTMLElement {
  const items = token.items.map((item) => {
    const content = blocks(item.tokens.filter((part) => (part.type as string) !== 'checkbox'));
    return el('li', item.task ? { class: 'task' } : {},
      item.task && el('span', { class: 'task-mark', role: 'img', 'aria-label': item.checked ? 'done' : 'open' },
        item.checked ? '☑' : '☐'), ...content);
  });
  if (!token.ordered) return el('ul', {}, ...items);
  return el('ol', token.start !== 1 && token.start !== '' ? { start: token.start } : {}, ...items);
}

function table(token: Tokens.Table): HTMLElement {
  const cell = (tag: 'th' | 'td', data: Tokens.TableCell): HTMLElement =>
    el(tag, data.align ? { class: `align-${data.align}` } : {}, ...inline(data.tokens));
  return el('div', { class: 'table-frame', tabindex: 0, role: 'region', 'aria-label': 'Table' }, el('table', {},
    el('thead', {}, el('tr', {}, ...token.header.map((data) => cell('th', data)))),
    el('tbody', {}, ...token.rows.map((row) => el('tr', {}, ...row.map((data) => cell('td', data)))))));
}

function blocks(tokens: Token[]): Node[] {
  const nodes: Node[] = [];
  for (const token of tokens) {
    const node = block(token);
    if (node) nodes.push(node);
  }
  return nodes;
}

function block(token: Token): Node | null {
  switch (token.type) {
    case 'space': case 'def': return null;
    case 'code': return codeBlock((token as Tokens.Code).text, ((token as Tokens.Code).lang ?? '').split(/\s/)[0] ?? '');
    // The page has its own first headings: an answer's begin at the third level.
    case 'heading': return el(`h${Math.min(6, (token as Tokens.Heading).depth + 2)}` as 'h3',
      { 'data-depth': (token as Tokens.Heading).depth }, ...inline(token.tokens));
    case 'hr': return el('hr');
    case 'blockquote': return el('blockquote', {}, ...blocks(token.tokens ?? []));
    case 'list': return list(token as Tokens.List);
    case 'table': return table(token as Tokens.Table);
    case 'html': return el('p', { class: 'raw' }, token.raw.trimEnd());
    case 'paragraph': return el('p', {}, ...inline(token.tokens));
    case 'text': return el('span', {}, ...('tokens' in token && token.tokens ? inline(token.tokens)
      : [document.createTextNode(plainText((token as Tokens.Text).text))]));
    default: return inlineOne(token);
  }
}

function lex(text: string): Token[] | null {
  if (text.length > longest) return null;
  try {
    return new Lexer({ gfm: true }).lex(text);
  } catch {
    return null; // nested too deep, for one: shown as it is
  }
}

export function renderMarkdown(text: string): DocumentFragment {
  const fragment = document.createDocumentFragment();
  const tokens = lex(text);
  append(fragment, ...(tokens ? blocks(tokens) : [el('p', { class: 'raw' }, text)]));
  return fragment;
}

export class MarkdownStream {
  private text = '';
  private final = 0;                 // characters whose elements are final
  private tail: Node[] = [];         // the elements of the rest

  constructor(readonly root: HTMLElement) {}

  /** `text` is all there is so far. */
  update(text: string): void {
    text = text.replace(/\r\n?/g, '\n');
    if (!text.startsWith(this.text)) this.reset();
    this.text = text;
    const tokens = lex(text.slice(this.final));
    let last = tokens ? tokens.length - 1 : -1;
    while (last > 0 && tokens![last]!.type === 'space') last--;
    if (tokens && this.sameCode(tokens, last)) return;
    for (const node of this.tail) node.parentNode?.removeChild(node);
    if (!tokens) {
      this.tail = [el('p', { class: 'raw' }, text.slice(this.final))];
    } else {
      const done = tokens.slice(0, Math.max(0, last));
      append(this.root, ...blocks(done));
      this.final += done.reduce((sum, token) => sum + token.raw.length, 0);
      this.tail = blocks(tokens.slice(Math.max(0, last)));
    }
    append(this.root, ...this.tail);
  }

  /** The last block is a code block that grew: its scroll position and selection stay. */
  private sameCode(tokens: Token[], last: number): boolean {
    const token = tokens[last] as Tokens.Code | undefined;
    const old = this.tail[0];
    if (last !== 0 || token?.type !== 'code' || !(old instanceof HTMLElement)) return false;
    if (old.dataset.language !== (token.lang ?? '').split(/\s/)[0]) return false;
    const code = old.querySelector('code');
    if (!code || token.text.length < 8000) return false;
    code.textContent = token.text;
    return true;
  }

  private reset(): void {
    this.root.textContent = '';
    this.text = '';
    this.final = 0;
    this.tail = [];
  }

  /** All of it once more where a later line can change earlier ones (link definitions). */
  finish(text: string): void {
    this.update(text);
    if (!/^ {0,3}\[[^\]]+\]:/m.test(text)) return;
    this.reset();
    this.root.append(renderMarkdown(text));
  }
}
