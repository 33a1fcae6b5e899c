/* Requests to the server the page came from, with the key when it wants one. */

export interface Info {
  version: string;
  model: { name: string; family: string; vocab: number; context: number; trained_context: number };
  layers: number;
  moe_layers: number[];
  experts: number;
  experts_per_token: number;
  expert_bytes: number;
  mode: 'resident' | 'streamed' | 'mapped';
  threads: number;
  kernels: string;
  parallel: number;
  queue: number;
  cache: string;
  sampling: { temperature?: number; top_k?: number; top_p?: number };
  reasoning: boolean;
  tools: boolean;
}

/** What the server answered instead of what was asked for. */
export class ApiError extends Error {
  constructor(message: string, readonly status: number) { super(message); }
}

const keyName = 'moeflux.key';
let askForKey: (() => Promise<string | null>) | null = null;
let asking: Promise<string | null> | null = null;

/** `ask` shows a dialog; several requests that are refused at once share one. */
export function onMissingKey(ask: () => Promise<string | null>): void { askForKey = ask; }

async function once(path: string, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  const key = sessionStorage.getItem(keyName);
  if (key) headers.set('Authorization', `Bearer ${key}`);
  return fetch(path, { ...init, headers, cache: 'no-store' });
}

async function refusal(response: Response): Promise<ApiError> {
  let message = `The server answered ${response.status} ${response.statusText}`.trim();
  try {
    const body = await response.json() as { error?: { message?: string } };
    if (body.error?.message) message = body.error.message;
  } catch { /* not JSON: the status says what there is to say */ }
  return new ApiError(message, response.status);
}

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response = await once(path, init);
  if (response.status === 401 && askForKey) {
    asking ??= askForKey().finally(() => { asking = null; });
    const key = await asking;
    if (key) {
      sessionStorage.setItem(keyName, key);
      response = await once(path, init);
      if (response.status === 401) sessionStorage.removeItem(keyName);
    }
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return await (await request(path, { signal: signal ?? null })).json() as T;
}

export function postJson(path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  return request(path, {
    method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body), signal: signal ?? null,
  });
}
