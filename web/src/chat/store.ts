/* Conversations in IndexedDB, with limits.  Where the browser refuses it (private windows), they
 * live as long as the page. */
import type { Conversation } from './tree';

export const limits = { conversations: 200, bytesEach: 4 << 20, bytesImport: 64 << 20 };

let database: IDBDatabase | null = null;
export let persistent = false;

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('IndexedDB failed'));
  });
}

function table(mode: IDBTransactionMode): IDBObjectStore {
  return database!.transaction('conversations', mode).objectStore('conversations');
}

/** All that is kept, newest first. */
export async function open(): Promise<Conversation[]> {
  try {
    const request = indexedDB.open('moeflux', 1);
    request.onupgradeneeded = () => request.result.createObjectStore('conversations', { keyPath: 'id' });
    database = await done(request);
    persistent = true;
    const all = await done(table('readonly').getAll()) as Conversation[];
    return all.sort((a, b) => b.changed - a.changed);
  } catch {
    return [];
  }
}

export function sizeOf(conversation: Conversation): number {
  return JSON.stringify(conversation).length;
}

/** Throws a sentence where the conversation is over its limit or the browser has no room. */
export async function save(conversation: Conversation): Promise<void> {
  if (sizeOf(conversation) > limits.bytesEach)
    throw new Error(`This conversation is over ${limits.bytesEach >> 20} MiB and is not kept: export it or fork it earlier.`);
  if (!database) return;
  try {
    await done(table('readwrite').put(conversation));
  } catch (error) {
    throw new Error(`The browser did not keep the conversation: ${String(error)}`);
  }
}

export async function remove(id: string): Promise<void> {
  if (database) await done(table('readwrite').delete(id));
}
