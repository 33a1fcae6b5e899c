/* Elements without a framework.  Text only ever enters as text nodes, so nothing that a model or a
 * server wrote can become markup. */

export type Child = Node | string | number | null | undefined | false;
type Handler = (event: never) => void;
export type Properties = Record<string, string | number | boolean | null | undefined | Handler>;

function set(element: Element, properties: Properties): void {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
}

export function append(parent: Node, ...children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, properties: Properties = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  set(element, properties);
  append(element, ...children);
  return element;
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.textContent = '';
  append(parent, ...children);
}

/* Paths in a box of 16 by 16, drawn as lines. */
const icons = {
  send: 'M8 13V3M3.5 7.5 8 3l4.5 4.5',
  stop: 'M4.5 4.5h7v7h-7z',
  copy: 'M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3',
  check: 'm3 8.5 3.5 3.5L13 4.5',
  edit: 'M3 13l.7-2.9 7.2-7.2 2.2 2.2-7.2 7.2z',
  again: 'M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3',
  fork: 'M4 3v4a2 2 0 0 0 2 2h5M4 3v10M11 6.500 13.500 9 11 11.500',
  trash: 'M3 4.500h10M6.500 4V2.500h3V4M4.500 4.500l.600 9h5.800l.600-9',
  plus: 'M8 3v10M3 8h10',
  menu: 'M2.500 4h11M2.500 8h11M2.500 12h11',
  sliders: 'M2 5h6M11 5h3M2 11h3M8 11h6M9.500 3.500v3M6.500 9.500v3',
  sun: 'M8 5.200A2.800 2.800 0 1 1 8 10.800 2.800 2.800 0 0 1 8 5.200zM8 1.500v1.300M8 13.200v1.300M1.500 8h1.300M13.200 8h1.300M3.400 3.400l.9.9M11.700 11.700l.9.9M12.600 3.400l-.9.9M4.300 11.700l-.9.9',
  moon: 'M13 9.600A5.500 5.500 0 1 1 6.400 3 4.400 4.400 0 0 0 13 9.600z',
  auto: 'M8 2.500A5.500 5.500 0 1 1 8 13.500 5.500 5.500 0 0 1 8 2.500zM8 2.500v11M9.500 3v10M11 3.600v8.800',
  down: 'M8 2.500v8M4.500 7.500 8 11l3.500-3.500M3 13.500h10',
  up: 'M8 11V3M4.500 6 8 2.500 11.500 6M3 13.500h10',
  left: 'M10 3.500 5.500 8 10 12.500',
  right: 'M6 3.500 10.500 8 6 12.500',
  play: 'M5 3.500v9l7-4.500z',
  pause: 'M5.500 3.500v9M10.500 3.500v9',
  close: 'm4 4 8 8M12 4l-8 8',
  experts: 'M2.500 2.500h4v4h-4zM9.500 9.500h4v4h-4zM9.500 2.500h4v4h-4zM2.500 9.500h4v4h-4z',
} as const;
export type Icon = keyof typeof icons;

export function icon(name: Icon): SVGElement {
  const space = 'http://www.w3.org/2000/svg';
  const picture = document.createElementNS(space, 'svg');
  set(picture, { viewBox: '0 0 16 16', class: 'icon', 'aria-hidden': 'true' });
  const path = document.createElementNS(space, 'path');
  path.setAttribute('d', icons[name]);
  picture.appendChild(path);
  return picture;
}

/** A button that shows a picture and says its name. */
export function iconButton(name: Icon, label: string, onclick: () => void,
                           properties: Properties = {}): HTMLButtonElement {
  return el('button', { type: 'button', class: 'icon-button', 'aria-label': label, title: label,
                        onclick, ...properties }, icon(name));
}

/** Says something to screen readers without moving anything on the screen. */
export function announce(text: string): void {
  const place = document.getElementById('announcer');
  if (place) place.textContent = text;
}

/** A line at the bottom for a few seconds: a notice of the page itself. */
export function notice(text: string): void {
  const place = document.getElementById('notices');
  if (!place) return;
  const line = el('p', { class: 'notice' }, text);
  place.append(line);
  setTimeout(() => line.remove(), 7000);
}
