"""What versus.sh needs to read and to say.

    versus.py parse moeflux|llama-bench < output of that program
        prints "kind tokens depth tokens/s", a line per test
    versus.py report table|json MODEL THREADS PEER < "round engine kind tokens depth tokens/s" lines
        prints medians, and the ratios of neighbours
"""
import json
import statistics
import sys


def parse_moeflux(text):
    for test in json.loads(text)["tests"]:
        yield test["kind"], test["tokens"], test["depth"], test["tokens_per_second"]["median"]


def parse_llama_bench(text):
    """`-o json` is an array, `-o jsonl` an object per line; n_depth came with time.

    A test with both a prompt and generated tokens measures their sum: it is neither.
    """
    text = text.strip()
    tests = json.loads(text) if text.startswith("[") else map(json.loads, text.splitlines())
    for test in tests:
        prompt, count = test["n_prompt"], test["n_gen"]
        if (prompt > 0) == (count > 0):
            continue
        samples = test.get("samples_ts") or [test["avg_ts"]]
        kind = "prefill" if prompt > 0 else "decode"
        yield kind, prompt or count, test.get("n_depth", 0), statistics.median(samples)


PARSERS = {"moeflux": parse_moeflux, "llama-bench": parse_llama_bench}


def parse(engine):
    try:
        lines = list(PARSERS[engine](sys.stdin.read()))
    except (ValueError, KeyError, TypeError) as problem:
        sys.exit(f"versus: {engine}: {type(problem).__name__}: {problem}")
    if not lines:
        sys.exit(f"versus: {engine}: no test in its output")
    for kind, tokens, depth, rate in lines:
        print(kind, tokens, depth, f"{rate:.9g}")


def read_samples(stream):
    """{(kind, tokens, depth): {engine: {round: rate}}}"""
    tests = {}
    for line in stream:
        number, engine, kind, tokens, depth, rate = line.split()
        rates = tests.setdefault((kind, int(tokens), int(depth)), {}).setdefault(engine, {})
        rates[int(number)] = float(rate)
    return tests


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def compare(tests, peer):
    order = lambda key: (key[2], key[0] != "prefill", key[1])
    for key in sorted(tests, key=order):
        ours, theirs = tests[key].get("moeflux", {}), tests[key].get(peer, {})
        rounds = sorted(set(ours) & set(theirs))
        if not rounds:
            sys.exit(f"versus: {key[0]} {key[1]} at depth {key[2]} was measured by one engine only")
        yield {
            "kind": key[0],
            "tokens": key[1],
            "depth": key[2],
            "moeflux": spread([ours[r] for r in rounds]),
            "peer": spread([theirs[r] for r in rounds]),
            "ratio": spread([ours[r] / theirs[r] for r in rounds]),
            "ratios": [ours[r] / theirs[r] for r in rounds],
        }


def report(form, model, threads, peer):
    rows = list(compare(read_samples(sys.stdin), peer))
    if form == "json":
        print(json.dumps({"model": model, "threads": int(threads), "peer": peer, "tests": rows}))
        return
    rounds = len(rows[0]["ratios"])
    print(f"{model}, {threads} threads, {rounds} round{'s' if rounds > 1 else ''} in turns; tokens/s\n")
    print(f"{'test':<14} {'depth':>6} {'moeflux':>10} {peer:>12} {'ratio':>8}   smallest … largest")
    for row in rows:
        name, ratio = f"{row['kind']} {row['tokens']}", row["ratio"]
        print(
            f"{name:<14} {row['depth']:>6} {row['moeflux']['median']:>10.2f} "
            f"{row['peer']['median']:>12.2f} {ratio['median']:>8.2f}   "
            f"{ratio['min']:.2f} … {ratio['max']:.2f}"
        )


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "parse" and sys.argv[2] in PARSERS:
        parse(sys.argv[2])
    elif len(sys.argv) == 6 and sys.argv[1] == "report":
        report(*sys.argv[2:])
    else:
        sys.exit(__doc__)
