/* A conversation is a tree of messages: editing a question or asking again adds a sibling, and what
 * was there stays.  What one sees is the path from the root to `leaf`. */

export interface Call { id: string; name: string; arguments: string }

export interface Facts {
  answer_tokens?: number;
  prompt_tokens?: number;
  answer_s?: number;
  prompt_s?: number;
  wait_s?: number;
  cached?: number;
  why?: string;
}

export interface Message {
  id: string;
  parent: string | null;
  role: 'user' | 'assistant' | 'tool';
  text: string;
  reasoning?: string;
  calls?: Call[];
  callId?: string;      // of a tool's result
  request?: string;     // the server's name of the answer
  finish?: string;      // stop, length, tool_calls; stopped: by the reader; error
  error?: string;
  facts?: Facts;
}

export interface Conversation {
  id: string;
  title: string;
  created: number;
  changed: number;
  leaf: string | null;
  messages: Record<string, Message>;
}

export function newId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, '0')).join('');
}

export function newConversation(): Conversation {
  const now = Date.now();
  return { id: newId(), title: '', created: now, changed: now, leaf: null, messages: {} };
}

export function path(conversation: Conversation, leaf = conversation.leaf): Message[] {
  const messages: Message[] = [];
  const seen = new Set<string>();
  for (let id = leaf; id !== null && !seen.has(id);) {
    const message: Message | undefined = conversation.messages[id];
    if (!message) break;
    seen.add(id);
    messages.unshift(message);
    id = message.parent;
  }
  return messages;
}

export function add(conversation: Conversation, parent: string | null,
                    fields: Omit<Message, 'id' | 'parent'>): Message {
  const message: Message = { id: newId(), parent, ...fields };
  conversation.messages[message.id] = message;
  conversation.leaf = message.id;
  conversation.changed = Date.now();
  if (!conversation.title && message.role === 'user') conversation.title = titleOf(message.text);
  return message;
}

function titleOf(text: string): string {
  const line = text.trim().split('\n', 1)[0]!.replace(/\s+/g, ' ');
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}

/** Messages that answer the same one, oldest first; `message` is among them. */
export function siblings(conversation: Conversation, message: Message): Message[] {
  return Object.values(conversation.messages)
    .filter((other) => other.parent === message.parent && other.role === message.role
      && (message.role !== 'tool' || other.callId === message.callId));
}

/** Shows `message`, and the newest that follows it. */
export function show(conversation: Conversation, message: Message): void {
  let leaf = message;
  for (;;) {
    const children = Object.values(conversation.messages).filter((other) => other.parent === leaf.id);
    if (!children.length) break;
    leaf = children[children.length - 1]!;
  }
  conversation.leaf = leaf.id;
}

/** A conversation of its own that ends with `message`. */
export function fork(conversation: Conversation, message: Message): Conversation {
  const copy = newConversation();
  copy.title = conversation.title ? `${conversation.title} (fork)` : '';
  for (const old of path(conversation, message.id)) copy.messages[old.id] = structuredClone(old);
  copy.leaf = message.id;
  return copy;
}

/* Import: what a file says is checked field by field, as it may come from anywhere. */

const isText = (value: unknown): value is string => typeof value === 'string';
const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function messageFrom(value: unknown, id: string): Message {
  if (!isRecord(value)) throw new Error(`message "${id}" is no object`);
  const { role, text, parent } = value;
  if (role !== 'user' && role !== 'assistant' && role !== 'tool')
    throw new Error(`message "${id}" has the role ${JSON.stringify(role)}; user, assistant and tool are known`);
  if (!isText(text)) throw new Error(`message "${id}" has no text`);
  const message: Message = { id, parent: isText(parent) ? parent : null, role, text };
  if (isText(value.reasoning)) message.reasoning = value.reasoning;
  if (isText(value.callId)) message.callId = value.callId;
  if (isText(value.request)) message.request = value.request;
  if (isText(value.finish)) message.finish = value.finish;
  if (isText(value.error)) message.error = value.error;
  if (Array.isArray(value.calls)) {
    message.calls = value.calls.filter(isRecord).map((call) =>
      ({ id: String(call.id ?? ''), name: String(call.name ?? ''), arguments: String(call.arguments ?? '') }));
  }
  if (isRecord(value.facts)) {
    const facts: Record<string, unknown> = {};
    for (const name of ['answer_tokens', 'prompt_tokens', 'answer_s', 'prompt_s', 'wait_s', 'cached'])
      if (typeof value.facts[name] === 'number') facts[name] = value.facts[name];
    if (isText(value.facts.why)) facts.why = value.facts.why;
    message.facts = facts as Facts;
  }
  return message;
}

export function conversationFrom(value: unknown): Conversation {
  if (!isRecord(value) || !isRecord(value.messages)) throw new Error('a conversation has an object "messages"');
  const conversation = newConversation();
  conversation.title = isText(value.title) ? value.title.slice(0, 200) : '';
  if (typeof value.created === 'number') conversation.created = value.created;
  if (typeof value.changed === 'number') conversation.changed = value.changed;
  const entries: [string, Message][] = Object.entries(value.messages).map(([id, data]) => [id, messageFrom(data, id)]);
  conversation.messages = Object.fromEntries(entries);
  conversation.leaf = isText(value.leaf) && Object.hasOwn(conversation.messages, value.leaf) ? value.leaf
    : entries.at(-1)?.[0] ?? null;
  return conversation;
}

export const exportFormat = 'moeflux-conversations';

export function exportText(conversations: Conversation[]): string {
  return JSON.stringify({ format: exportFormat, version: 1, conversations }, null, 1);
}

export function importText(text: string): Conversation[] {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value) || value.format !== exportFormat || !Array.isArray(value.conversations))
    throw new Error(`the file is no export of this page: it has no "format": "${exportFormat}"`);
  if (value.version !== 1) throw new Error(`the export has version ${String(value.version)}; this page reads version 1`);
  return value.conversations.map(conversationFrom);
}
