/* The sampling panel: what is left empty is the server's own default. */
import { append, el } from '../dom';
import type { Info } from '../api';

export interface Settings {
  system: string;
  temperature: string;
  top_p: string;
  top_k: string;
  max_tokens: string;
  seed: string;
  thinking: boolean;
  tools: string;
}

const name = 'moeflux.settings';
const none: Settings = {
  system: '', temperature: '', top_p: '', top_k: '', max_tokens: '', seed: '', thinking: true, tools: '',
};

const exampleTools = `[{
  "type": "function",
  "function": {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
      "type": "object",
      "properties": { "city": { "type": "string" } },
      "required": ["city"]
    }
  }
}]`;

export function load(): Settings {
  try {
    const kept = JSON.parse(localStorage.getItem(name) ?? '{}') as Partial<Settings>;
    const settings: Record<string, unknown> = { ...none };
    for (const key of Object.keys(none))
      if (typeof kept[key as keyof Settings] === typeof none[key as keyof Settings]) settings[key] = kept[key as keyof Settings];
    return settings as unknown as Settings;
  } catch {
    return { ...none };
  }
}

function keep(settings: Settings): void {
  try { localStorage.setItem(name, JSON.stringify(settings)); } catch { /* full or refused: not kept */ }
}

/** Null, or what is wrong with the text of the tools. */
export function toolsProblem(text: string): string | null {
  if (!text.trim()) return null;
  try {
    return Array.isArray(JSON.parse(text)) ? null : 'Tools are a JSON array.';
  } catch (error) {
    return `The tools are no JSON: ${(error as Error).message}`;
  }
}

/** The fields of a request that the panel sets. */
export function requestFields(settings: Settings, info: Info | null): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const key of ['temperature', 'top_p', 'top_k', 'max_tokens', 'seed'] as const) {
    const value = settings[key].trim();
    if (value !== '' && Number.isFinite(Number(value))) fields[key] = Number(value);
  }
  if (settings.tools.trim() && !toolsProblem(settings.tools)) {
    const tools = JSON.parse(settings.tools) as unknown[];
    if (tools.length) fields.tools = tools;
  }
  if (info?.reasoning) fields.chat_template_kwargs = { enable_thinking: settings.thinking };
  return fields;
}

interface NumberField { key: 'temperature' | 'top_p' | 'top_k' | 'max_tokens' | 'seed'; label: string; hint: string;
  min?: number; max?: number; step: number | 'any' }

const numbers: NumberField[] = [
  { key: 'temperature', label: 'Temperature', hint: '0: always the likeliest token', min: 0, max: 2, step: 0.05 },
  { key: 'top_p', label: 'Top p', hint: 'the likeliest tokens that add up to p', min: 0, max: 1, step: 0.05 },
  { key: 'top_k', label: 'Top k', hint: 'of the k likeliest; 0: of all', min: 0, step: 1 },
  { key: 'max_tokens', label: 'Longest answer', hint: 'tokens', min: 1, step: 1 },
  { key: 'seed', label: 'Seed', hint: 'the same seed gives the same answer', min: 0, step: 1 },
];

export class SettingsPanel {
  readonly settings = load();
  readonly root = el('form', { class: 'settings', 'aria-label': 'Sampling',
                               onsubmit: (event: Event) => event.preventDefault() });

  constructor(private info: Info | null) { this.draw(); }

  setInfo(info: Info): void {
    this.info = info;
    this.draw();
  }

  private change(change: Partial<Settings>): void {
    Object.assign(this.settings, change);
    keep(this.settings);
  }

  private numberField(field: NumberField): HTMLElement {
    const standard = this.info?.sampling[field.key as 'temperature'];
    const input = el('input', {
      id: `set-${field.key}`, type: 'number', inputmode: 'decimal', min: field.min, max: field.max, step: field.step,
      placeholder: standard !== undefined ? String(Number(standard.toFixed(4))) : 'default',
      'aria-describedby': `hint-${field.key}`,
      oninput: () => this.change({ [field.key]: input.value }),
    });
    input.value = this.settings[field.key];
    return el('div', { class: 'field' }, el('label', { for: input.id }, field.label), input,
      el('small', { id: `hint-${field.key}` }, field.hint));
  }

  private toolsField(): HTMLElement {
    const problem = el('small', { class: 'problem', role: 'alert' });
    const text = el('textarea', { id: 'set-tools', rows: 7, spellcheck: 'false', class: 'mono',
      placeholder: 'a JSON array, as in the API', oninput: () => check() });
    const check = (): void => {
      this.change({ tools: text.value });
      problem.textContent = toolsProblem(text.value) ?? '';
    };
    text.value = this.settings.tools;
    problem.textContent = toolsProblem(text.value) ?? '';
    return el('div', { class: 'field wide' }, el('label', { for: text.id }, 'Tools'), text, problem,
      el('button', { type: 'button', class: 'link', onclick: () => { text.value = exampleTools; check(); } },
        'Insert an example'));
  }

  private draw(): void {
    const system = el('textarea', { id: 'set-system', rows: 3, placeholder: 'none',
      oninput: () => this.change({ system: system.value }) });
    system.value = this.settings.system;
    const thinking = el('input', { id: 'set-thinking', type: 'checkbox',
      onchange: () => this.change({ thinking: thinking.checked }) });
    thinking.checked = this.settings.thinking;
    this.root.textContent = '';
    append(this.root,
      el('div', { class: 'field wide' }, el('label', { for: system.id }, 'System prompt'), system),
      ...numbers.map((field) => this.numberField(field)),
      this.info?.reasoning && el('div', { class: 'field check' }, thinking, el('label', { for: thinking.id }, 'Thinking')),
      this.info?.tools !== false && this.toolsField(),
      el('button', { type: 'button', class: 'quiet', onclick: () => { this.change({ ...none }); this.draw(); } },
        'Back to the defaults'));
  }
}
