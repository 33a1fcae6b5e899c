/* The list of conversations: open, rename by its first question, delete, export, import. */
import { append, el, icon, iconButton, notice } from '../dom';
import { limits, persistent } from './store';
import { exportText, importText, type Conversation } from './tree';

export interface SidebarActions {
  open(conversation: Conversation): void;
  begin(): void;
  remove(conversation: Conversation): void;
  imported(conversations: Conversation[]): void;
}

function download(name: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  el('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export class Sidebar {
  readonly root = el('nav', { class: 'sidebar', 'aria-label': 'Conversations' });
  private readonly list = el('ul', { class: 'conversations' });
  private readonly search = el('input', { type: 'search', 'aria-label': 'Search the conversations',
    placeholder: 'Search', oninput: () => this.draw(this.conversations, this.current) });
  private conversations: Conversation[] = [];
  private current: Conversation | null = null;

  constructor(private readonly actions: SidebarActions) {
    const file = el('input', { type: 'file', accept: 'application/json,.json', hidden: true, 'aria-label': 'File to import',
      onchange: () => void this.importFile(file) });
    append(this.root,
      el('button', { type: 'button', class: 'new', onclick: () => actions.begin() }, icon('plus'), 'New conversation'),
      this.search, this.list,
      el('div', { class: 'sidebar-foot' },
        el('button', { type: 'button', class: 'quiet', onclick: () => this.exportAll() }, icon('down'), 'Export'),
        el('button', { type: 'button', class: 'quiet', onclick: () => file.click() }, icon('up'), 'Import'), file));
  }

  private exportAll(): void {
    if (!this.conversations.length) { notice('There is no conversation to export.'); return; }
    download('moeflux-conversations.json', exportText(this.conversations));
  }

  private async importFile(input: HTMLInputElement): Promise<void> {
    const file = input.files?.[0];
    input.value = '';
    if (!file) return;
    try {
      if (file.size > limits.bytesImport) throw new Error(`the file is over ${limits.bytesImport >> 20} MiB`);
      this.actions.imported(importText(await file.text()));
    } catch (error) {
      notice(`Nothing was imported: ${(error as Error).message}`);
    }
  }

  draw(conversations: Conversation[], current: Conversation | null): void {
    this.conversations = conversations;
    this.current = current;
    const wanted = this.search.value.trim().toLowerCase();
    this.list.textContent = '';
    for (const conversation of conversations) {
      if (wanted && !this.matches(conversation, wanted)) continue;
      const title = conversation.title || 'Untitled';
      this.list.append(el('li', { class: conversation === current ? 'current' : '' },
        el('button', { type: 'button', class: 'title', 'aria-current': conversation === current ? 'true' : null,
          onclick: () => this.actions.open(conversation) }, title),
        iconButton('down', `Export “${title}”`, () => download('moeflux-conversation.json', exportText([conversation]))),
        iconButton('trash', `Delete “${title}”`, () => this.actions.remove(conversation))));
    }
    if (!this.list.childElementCount)
      this.list.append(el('li', { class: 'empty' }, wanted ? 'Nothing found.' : 'None yet.'));
    if (!persistent && conversations.length)
      this.list.append(el('li', { class: 'empty' }, 'This browser keeps them only until the page is closed.'));
  }

  private matches(conversation: Conversation, wanted: string): boolean {
    return conversation.title.toLowerCase().includes(wanted) ||
      Object.values(conversation.messages).some((message) => message.text.toLowerCase().includes(wanted));
  }
}
