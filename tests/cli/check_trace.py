"""Is this a trace that Perfetto can show?  check_trace.py FILE

The rules of the Trace Event Format that such a file uses, and ours: spans of a worker
nest, reads end after they begin, the first moment is 0.  Prints what was found.
"""
import collections
import json
import sys


def fail(event, text):
    sys.exit(f"{text}: {json.dumps(event)}")


def number(event, key):
    value = event.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
        fail(event, f"{key} is no time")
    return value


def check_nesting(worker, spans):
    """Sorted by begin, the longer first: each lies within the one that is open, or after it."""
    open_ends = []
    for begin, end, event in sorted(spans, key=lambda s: (s[0], -s[1])):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            fail(event, f"a span of worker {worker} ends after the one it lies in")
        open_ends.append(end)


def main(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    spans, reads, names = collections.defaultdict(list), {}, collections.Counter()
    first = None
    for event in trace["traceEvents"]:
        phase = event["ph"]
        names[phase, event["name"]] += 1
        if event["pid"] != 1 or not isinstance(event["tid"], int):
            fail(event, "no process or thread")
        if phase == "M":
            continue
        ts = number(event, "ts")
        first = ts if first is None else min(first, ts)
        if phase == "X":
            # whole nanoseconds, so that sums are exact
            begin, length = round(ts * 1000), round(number(event, "dur") * 1000)
            spans[event["tid"]].append((begin, begin + length, event))
            if not event["cat"] or not isinstance(event["args"], dict):
                fail(event, "no category or arguments")
        elif phase == "b":
            if reads.get(event["id"]):
                fail(event, "a read begins twice")
            reads[event["id"]] = event
        elif phase == "e":
            begun = reads.pop(event["id"], None)
            if not begun or begun["ts"] > ts or begun["name"] != event["name"]:
                fail(event, "a read ends that has not begun")
        elif phase == "C":
            if not isinstance(event["args"]["value"], int):
                fail(event, "a counter without a number")
        else:
            fail(event, "an unknown phase")
    if first != 0:
        sys.exit(f"the first moment is {first}")
    for worker, list_of in spans.items():
        check_nesting(worker, list_of)
    print(f"workers {len(spans)}")
    print(f"tokens {names['X', 'token']}")
    print(f"prompts {names['X', 'prompt']}")
    print(f"layers {names['X', 'layer']}")
    print(f"attends {names['X', 'attend']}")
    print(f"reads {sum(n for (p, _), n in names.items() if p == 'b')}")
    print(f"counters {'yes' if names['C', 'bytes read'] else 'no'}")
    print(f"dropped {trace['otherData']['dropped_events']}")


main(sys.argv[1])
