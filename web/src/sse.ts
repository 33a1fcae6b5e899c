/* Server-sent events from a body that arrives in pieces: lines end in LF, CR or CRLF, comments
 * begin with a colon, several data lines are one text, an empty line ends the event.  EventSource
 * cannot send an Authorization header, so the page reads them itself. */

export interface ServerEvent { event: string; data: string }

export class EventParser {
  private rest = '';
  private name = '';
  private data: string[] = [];

  /** The events that are complete with this piece. */
  push(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    let text = this.rest + piece;
    // A CR at the end may be half of a CRLF: it waits for the next piece.
    const held = text.endsWith('\r') ? '\r' : '';
    if (held) text = text.slice(0, -1);
    const lines = text.split(/\r\n|\n|\r/);
    this.rest = (lines.pop() ?? '') + held;
    for (const line of lines) this.line(line, events);
    return events;
  }

  private line(line: string, events: ServerEvent[]): void {
    if (line === '') {
      if (this.data.length) events.push({ event: this.name || 'message', data: this.data.join('\n') });
      this.name = '';
      this.data = [];
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') this.data.push(value);
    else if (field === 'event') this.name = value;
  }
}

export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
