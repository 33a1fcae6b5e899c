#!/usr/bin/env python3
"""chat.py MODEL [QUESTION]: one answer as it is written, or a conversation in the terminal.

    python3 chat.py models/pebble "What is the capital of France?"
"""
import sys

import moeflux


def answer(model: moeflux.Model, talk: list) -> None:
    """Prints the answer piece by piece; Ctrl-C ends it and keeps what there is."""
    stream = model.stream(talk, variables={"enable_thinking": False})
    try:
        for event in stream:
            if isinstance(event, moeflux.Content):
                print(event.text, end="", flush=True)
    except KeyboardInterrupt:
        pass
    ended = stream.answer()
    print()
    talk.append(ended.message)
    speed = ended.answer_tokens / max(ended.answer_seconds, 1e-9)
    print(f"({ended.finish}: {ended.prompt_tokens} tokens read, {ended.answer_tokens} written, "
          f"{speed:.0f} per second)", file=sys.stderr)


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    # With a cache, a turn reads only what is new.
    with moeflux.Model(sys.argv[1], cache="reuse") as model:
        talk: list = []
        if len(sys.argv) == 3:
            answer(model, [{"role": "user", "content": sys.argv[2]}])
            return 0
        while True:
            try:
                talk.append({"role": "user", "content": input("> ")})
            except (EOFError, KeyboardInterrupt):
                return 0
            answer(model, talk)


if __name__ == "__main__":
    sys.exit(main())
