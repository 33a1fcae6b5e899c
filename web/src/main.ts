/* The frame round the views: which one is shown, the colours, the key, what the server is. */
import './style/base.css';
import './style/chat.css';
import './style/experts.css';
import { getJson, onMissingKey, type Info } from './api';
import { bytes } from './format';
import { ChatView } from './chat/view';
import { append, el, icon, iconButton, notice, replace, type Icon } from './dom';
import { RequestsView } from './requests';
import type { ExpertsView } from './experts/view';

type Place = 'chat' | 'experts' | 'requests' | 'both';
type Theme = 'auto' | 'light' | 'dark';

const themes: Record<Theme, { icon: Icon; label: string; next: Theme }> = {
  auto: { icon: 'auto', label: 'Colours: as the system', next: 'light' },
  light: { icon: 'sun', label: 'Colours: light', next: 'dark' },
  dark: { icon: 'moon', label: 'Colours: dark', next: 'auto' },
};

function keptTheme(): Theme {
  try {
    const kept = localStorage.getItem('moeflux.theme');
    return kept === 'light' || kept === 'dark' ? kept : 'auto';
  } catch {
    return 'auto';
  }
}

function themeButton(changed: () => void): HTMLButtonElement {
  let theme = keptTheme();
  const apply = (): void => {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    replace(button, icon(themes[theme].icon));
    button.setAttribute('aria-label', themes[theme].label);
    button.title = themes[theme].label;
    changed();
  };
  const button = iconButton('auto', '', () => {
    theme = themes[theme].next;
    try { localStorage.setItem('moeflux.theme', theme); } catch { /* not kept */ }
    apply();
  });
  apply();
  return button;
}

/** Asks for the server's key; null when it is not given. */
function askForKey(): Promise<string | null> {
  return new Promise((resolve) => {
    const field = el('input', { id: 'api-key', type: 'password', autocomplete: 'off' });
    const end = (key: string | null): void => { dialog.remove(); resolve(key); };
    const dialog = el('dialog', { 'aria-label': 'Key', oncancel: () => end(null) },
      el('h2', {}, 'This server wants a key'),
      el('p', {}, 'It was started with --api-key. The key is kept until this tab is closed.'),
      el('label', { for: 'api-key' }, 'Key'), field,
      el('div', { class: 'row' },
        el('button', { type: 'button', class: 'primary', onclick: () => end(field.value.trim() || null) }, 'Use it'),
        el('button', { type: 'button', class: 'quiet', onclick: () => end(null) }, 'Cancel')));
    field.addEventListener('keydown', (event) => { if (event.key === 'Enter') end(field.value.trim() || null); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

const chat = new ChatView();
const requests = new RequestsView();
const expertsFrame = el('div', { class: 'experts-frame', id: 'experts' });
let experts: ExpertsView | null = null;
let info: Info | null = null;
let place: Place = 'chat';
let wanted: string | null = null; // the answer whose experts are to be shown

const links = (['chat', 'experts', 'requests'] as const).map((name) =>
  el('a', { href: `#${name}`, 'data-place': name }, name[0]!.toUpperCase() + name.slice(1)));
const both = el('a', { href: '#both', class: 'both', 'data-place': 'both', title: 'Chat and experts side by side' }, 'Side by side');
const server = el('p', { class: 'server', role: 'status' }, 'connecting…');

async function loadExperts(): Promise<ExpertsView> {
  const { ExpertsView } = await import('./experts/view');
  if (!experts) {
    experts = new ExpertsView();
    expertsFrame.append(experts.root);
    if (info) experts.setInfo(info);
  }
  return experts;
}

async function openExperts(): Promise<void> {
  const experts = await loadExperts().catch(() => null);
  if (!experts) {
    notice('The server did not give the file of this view: load the page again.');
    return;
  }
  experts.setShown(place === 'experts' || place === 'both');
  if (wanted) { experts.showAnswer(wanted); wanted = null; }
}

function go(): void {
  const name = location.hash.slice(1);
  place = name === 'experts' || name === 'requests' || name === 'both' ? name : 'chat';
  document.body.dataset.place = place;
  for (const link of [...links, both]) {
    if (link.dataset.place === place) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = `${place === 'both' ? 'Chat and experts' : place[0]!.toUpperCase() + place.slice(1)} · moeflux`;
  requests.setShown(place === 'requests');
  if (place === 'experts' || place === 'both') void openExperts();
  else experts?.setShown(false);
}

async function meet(): Promise<void> {
  try {
    info = await getJson<Info>('/v1/moeflux/info');
    replace(server, el('strong', {}, info.model.name),
      el('span', { class: 'server-more' }, ` · ${info.mode} · ${bytes(info.expert_bytes)} an expert · ${info.threads} threads`));
    server.title = `${info.model.family}, moeflux ${info.version}, kernels ${info.kernels}, context ${info.model.context}`;
    chat.setInfo(info);
    experts?.setInfo(info);
  } catch (error) {
    server.textContent = error instanceof TypeError ? 'no answer' : (error as Error).message;
    setTimeout(() => void meet(), 3000);
  }
}

function start(): void {
  const main = el('main', { id: 'main' }, chat.root, expertsFrame, requests.root);
  append(document.body,
    el('a', { class: 'skip', href: '#main', onclick: (event: Event) => {
      event.preventDefault();
      document.querySelector<HTMLElement>('#prompt, h1')?.focus();
    } }, 'To the content'),
    el('header', { class: 'top' },
      el('span', { class: 'brand' }, el('span', { class: 'glyph', 'aria-hidden': 'true' }, ...Array.from({ length: 9 }, () => el('i'))),
        el('span', { class: 'brand-name' }, 'moeflux')),
      el('nav', { class: 'tabs', 'aria-label': 'Views' }, ...links, both),
      server, themeButton(() => experts?.recolour())),
    main,
    el('div', { id: 'announcer', class: 'unseen', role: 'status', 'aria-live': 'polite' }),
    el('div', { id: 'notices', role: 'status' }));
  chat.onShowExperts = (request) => {
    wanted = request;
    if (location.hash === '#both') void openExperts();
    else location.hash = '#experts';
  };
  chat.beforeAnswer = async () => {
    // The answer does not depend on it.
    const feed = await loadExperts().then((view) => view.feed, () => null);
    await feed?.answerBegins();
    return () => feed?.answerEnds();
  };
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => experts?.recolour());
  addEventListener('hashchange', go);
  onMissingKey(askForKey);
  go();
  void meet();
}

// Of an address with a name and password in it (http://x:KEY@host/) requests cannot be made; the
// browser knows them by now.
const here = new URL(document.baseURI);
if (here.username || here.password) location.replace(`${location.origin}/${location.hash}`);
else start();
