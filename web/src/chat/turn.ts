/* One answer: the request, its stream, and what the message is after each piece. */
import { postJson, type Info } from '../api';
import { answerBegins, tell, type Answer } from '../answers';
import { readEvents } from '../sse';
import { requestFields, type Settings } from './settings';
import type { Call, Facts, Message } from './tree';

interface Delta {
  content?: string | null;
  reasoning_content?: string | null;
  tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

interface Chunk {
  id?: string;
  choices?: { delta?: Delta; finish_reason?: string | null }[];
  usage?: { prompt_tokens: number; completion_tokens: number;
    prompt_tokens_details?: { cached_tokens?: number } } | null;
  moeflux?: { prompt_seconds?: number; answer_seconds?: number; wait_seconds?: number; tokens?: number;
    cached?: { matched: number; resumed: number; replayed: number; why?: string } };
  error?: { message?: string };
}

/** The messages of a request from the path of a conversation. */
export function requestMessages(path: Message[], system: string): Record<string, unknown>[] {
  const messages: Record<string, unknown>[] = [];
  if (system.trim()) messages.push({ role: 'system', content: system });
  for (const message of path) {
    if (message.role === 'tool') {
      messages.push({ role: 'tool', tool_call_id: message.callId ?? '', content: message.text });
    } else if (message.role === 'user') {
      messages.push({ role: 'user', content: message.text });
    } else {
      const sent: Record<string, unknown> = { role: 'assistant', content: message.text };
      if (message.reasoning) sent.reasoning_content = message.reasoning;
      if (message.calls?.length) {
        sent.tool_calls = message.calls.map((call) =>
          ({ id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }));
      }
      messages.push(sent);
    }
  }
  return messages;
}

function addCalls(message: Message, pieces: NonNullable<Delta['tool_calls']>): void {
  message.calls ??= [];
  for (const piece of pieces) {
    const call: Call = message.calls[piece.index] ??= { id: '', name: '', arguments: '' };
    if (piece.id) call.id = piece.id;
    call.name += piece.function?.name ?? '';
    call.arguments += piece.function?.arguments ?? '';
  }
}

function factsOf(chunk: Chunk): Facts {
  const facts: Facts = {};
  const { usage, moeflux } = chunk;
  if (usage) {
    facts.prompt_tokens = usage.prompt_tokens;
    facts.answer_tokens = usage.completion_tokens;
    facts.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (moeflux?.answer_seconds !== undefined) facts.answer_s = moeflux.answer_seconds;
  if (moeflux?.prompt_seconds !== undefined) facts.prompt_s = moeflux.prompt_seconds;
  if (moeflux?.wait_seconds !== undefined) facts.wait_s = moeflux.wait_seconds;
  if (moeflux?.cached) {
    facts.cached = moeflux.cached.resumed;
    if (moeflux.cached.why) facts.why = moeflux.cached.why;
  }
  return facts;
}

/** The text of a chunk as a piece; `tokens`: how many the answer has with it.  Without that a chunk
 * counts as a token. */
function addPiece(answer: Answer, delta: Delta, tokens: number | undefined): void {
  const text = (delta.content ?? '') + (delta.reasoning_content ?? '') +
    (delta.tool_calls ?? []).map((call) => (call.function?.name ?? '') + (call.function?.arguments ?? '')).join('');
  const last = answer.pieces.at(-1);
  const index = last ? last.index + last.count : 0;
  if (!text) return;
  answer.pieces.push({ index, count: Math.max(0, (tokens ?? index + 1) - index), text, reasoning: Boolean(delta.reasoning_content) });
}

export interface Turn {
  message: Message;
  path: Message[];
  settings: Settings;
  info: Info | null;
  title: string;
  signal: AbortSignal;
  changed: () => void;
}

function applyChunk(turn: Turn, chunk: Chunk, answer: Answer | null): Answer | null {
  const { message } = turn;
  if (chunk.error) throw new Error(chunk.error.message ?? 'The server stopped the answer without a reason.');
  if (chunk.id && !message.request) {
    message.request = chunk.id;
    answer = answerBegins(chunk.id, turn.title);
  }
  const choice = chunk.choices?.[0];
  if (choice) {
    const delta = choice.delta ?? {};
    message.text += delta.content ?? '';
    if (delta.reasoning_content) message.reasoning = (message.reasoning ?? '') + delta.reasoning_content;
    if (delta.tool_calls) addCalls(message, delta.tool_calls);
    if (choice.finish_reason) message.finish = choice.finish_reason;
    if (answer) { addPiece(answer, delta, chunk.moeflux?.tokens); tell(answer); }
  }
  if (chunk.usage) message.facts = factsOf(chunk);
  return answer;
}

/** Fills `turn.message` until the answer ends, fails or is stopped; never throws. */
export async function runTurn(turn: Turn): Promise<void> {
  const { message, signal } = turn;
  let answer: Answer | null = null;
  try {
    const response = await postJson('/v1/chat/completions', {
      model: turn.info?.model.name ?? 'moeflux',
      messages: requestMessages(turn.path, turn.settings.system),
      stream: true, stream_options: { include_usage: true, include_tokens: true },
      ...requestFields(turn.settings, turn.info),
    }, signal);
    for await (const { data } of readEvents(response)) {
      if (data === '[DONE]') break;
      answer = applyChunk(turn, JSON.parse(data) as Chunk, answer);
      turn.changed();
    }
    if (!message.finish) throw new Error('The stream ended before the answer did.');
  } catch (error) {
    if (signal.aborted) message.finish = 'stopped';
    else {
      message.finish = 'error';
      message.error = error instanceof TypeError ? 'The server does not answer. Is it still running?' : (error as Error).message;
    }
  }
  if (answer) { answer.live = false; tell(answer); }
  turn.changed();
}
