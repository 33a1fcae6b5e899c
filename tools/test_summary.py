#!/usr/bin/env python3
"""test_summary.py BUILD...: counts the tests of the last `meson test` in each directory.

A BUILD may also be a file of results like meson's testlog.json (tools/check.sh writes one).
A CMocka program counts as many tests as it runs; any other program counts as one.  The last
line is `N passed, N failed`, with `, N skipped` where some were.  Exit status 1 when a test
failed, or when nothing ran at all: no tests is not the same as no failures."""

import json
import re
import sys
from pathlib import Path

# CMocka writes "[ RUN      ] name" and then "[       OK ] name" (or FAILED, or SKIPPED).
CASE = re.compile(r"\[ +(RUN|OK|SKIPPED) +\] +[^\d\s]")


def count(test):
    """(passed, failed, skipped) of one program."""
    if test["result"] == "SKIP":
        return 0, 0, 1
    marks = CASE.findall(test.get("stdout", ""))
    started, passed, skipped = (marks.count(m) for m in ("RUN", "OK", "SKIPPED"))
    failed = started - passed - skipped  # the one that crashed has no verdict
    if test["result"] == "OK" and started > 0 and failed == 0:
        return passed, 0, skipped
    if test["result"] in ("OK", "EXPECTEDFAIL"):
        return 1, 0, 0
    return passed, max(failed, 1), skipped


def read_log(directory):
    log = Path(directory)
    if log.suffix != ".json":
        log = log / "meson-logs" / "testlog.json"
    try:
        return [json.loads(line) for line in log.read_text().splitlines()]
    except OSError:
        print(f"{directory}: no tests ran", file=sys.stderr)
        return [{"name": "build", "result": "FAIL"}]


def last_lines(text, limit=3):
    return [line for line in text.splitlines() if line.strip()][-limit:]


def main(directories):
    passed = failed = skipped = 0
    for directory in directories:
        for test in read_log(directory):
            counts = count(test)
            passed, failed, skipped = (a + b for a, b in zip((passed, failed, skipped), counts))
            if counts[1]:
                print(f"FAILED  {test['name']} ({directory}): {counts[1]}")
            if test["result"] == "SKIP":
                print(f"SKIPPED {test['name']} ({directory}):")
                for line in last_lines(test.get("stderr", "") or test.get("stdout", "")):
                    print(f"        {line}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["build"]))
