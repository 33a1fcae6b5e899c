/* The tokens of the last answers as text, for the views that link tokens and experts.  The server
 * numbers an answer's tokens from 0, in the same order in which they arrive here. */

/** The text of `count` tokens from `index` on. */
export interface Piece { index: number; count: number; text: string; reasoning: boolean }
export interface Answer { request: string; title: string; pieces: Piece[]; live: boolean }

const most = 20;
const answers = new Map<string, Answer>();
const listeners = new Set<(answer: Answer) => void>();

export function answerBegins(request: string, title: string): Answer {
  const answer: Answer = { request, title, pieces: [], live: true };
  answers.set(request, answer);
  for (const old of answers.keys()) {
    if (answers.size <= most) break;
    answers.delete(old);
  }
  tell(answer);
  return answer;
}

export function tell(answer: Answer): void {
  for (const listener of listeners) listener(answer);
}

export function answerOf(request: string): Answer | undefined { return answers.get(request); }
export function allAnswers(): Answer[] { return [...answers.values()]; }
export function onAnswers(listener: (answer: Answer) => void): void { listeners.add(listener); }
