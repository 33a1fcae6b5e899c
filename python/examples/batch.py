#!/usr/bin/env python3
"""batch.py MODEL [FILE]: a line of FILE is a question; all are answered together, each as it ends.

    printf 'What is the capital of France?\nName a colour.\n' | python3 batch.py models/pebble
"""
import sys

import moeflux


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    source = open(sys.argv[2], encoding="utf-8") if len(sys.argv) == 3 else sys.stdin
    with source, moeflux.Model(sys.argv[1], sequences=8) as model:
        questions = [line.strip() for line in source if line.strip()]
        for at, answer in model.batch_iter(questions, max_tokens=64,
                                           variables={"enable_thinking": False}):
            text = str(answer) if isinstance(answer, BaseException) else answer.content
            print(f"{at}\t{questions[at]}\t{text}", flush=True)
        numbers = model.request_statistics()
        rows = numbers["decode_rows"] + numbers["prompt_rows"]
        print(f"({rows} tokens in {numbers['steps']} steps)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
