#!/usr/bin/env python3
"""forecast.py: how near `moeflux plan` comes to what `moeflux bench` measures.

    bench/forecast.py [options] MODEL[@MEMORY]...

    MODEL             a checkpoint; "pebble": the embedded one; @10G: with --memory 10G
    -p N              tokens of the prompt; default 512
    -n N              tokens to generate; default 32
    -r N              rounds; default 5
    -t N              threads of both; default: one for every core
    --within PERCENT  of the median, for the verdict; default 25
    --under COMMAND   put before both programs, as in "chrt -f 10"
    --moeflux FILE    the program; default: build/moeflux
    --json            a line of JSON for each model instead of the table

Before each round of bench and after the last one the machine is measured anew (`plan --measure`),
and the ratio of a round is its speed to the mean of the forecasts beside it: a machine that others
use has the speed of the moment, which both see.  Shown are the medians over the rounds; the median of
the ratios counts.  Weights of tools/make_random_gguf.py choose their experts evenly, so the lower end
of a forecast's range is compared.  The status is 1 where a ratio is outside."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-p", type=int, default=512)
    parser.add_argument("-n", type=int, default=32)
    parser.add_argument("-r", type=int, default=5)
    parser.add_argument("-t", type=int)
    parser.add_argument("--within", type=float, default=25)
    parser.add_argument("--under", default="")
    parser.add_argument("--moeflux", default=str(HERE.parent / "build" / "moeflux"))
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def run(options, *words):
    """The program's JSON, its cache in a directory of this process."""
    command = [*options.under.split(), options.moeflux, *words, "--json"]
    if options.t:
        command += ["-t", str(options.t)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"forecast: {' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def forecast(options, model, memory):
    # In the middle of the tokens that bench generates.
    words = ["plan", "--measure", "-p", str(options.p), "-d", str(options.n // 2)]
    words += ["-c", str(max(options.p, options.n) + 1)]
    if memory:
        words += ["--memory", memory]
    if model:
        words.append(model)
    found = run(options, *words)["plans"][0]
    if not found["fits"]:
        sys.exit(f"forecast: {model}: {found['problem']}")
    return {"prompt": found["prompt"]["tokens_per_second"],
            "generate": found["generate"]["least"]["tokens_per_second"],
            "mode": found["expert_mode"]}


def measure(options, model, memory):
    """One round, after one that does not count."""
    words = ["bench", "-p", str(options.p), "-n", str(options.n), "-r", "1", "--no-ceilings"]
    if memory:
        words += ["--memory", memory]
    if model:
        words += ["-m", model]
    found = run(options, *words)
    return {"prompt": found["prefill_tokens_per_second"]["median"],
            "generate": found["decode_tokens_per_second"]["median"], "mode": found["expert_mode"]}


def compare(options, word):
    model, _, memory = word.partition("@")
    model = "" if model == "pebble" else model
    forecasts, rounds = [forecast(options, model, memory)], []
    for _ in range(options.r):
        rounds.append(measure(options, model, memory))
        forecasts.append(forecast(options, model, memory))
    out = {"model": word, "mode": rounds[0]["mode"], "planned_mode": forecasts[0]["mode"]}
    for what in ("prompt", "generate"):
        planned = [f[what] for f in forecasts]
        found = [r[what] for r in rounds]
        ratios = [r / statistics.mean(planned[i:i + 2]) for i, r in enumerate(found)]
        out[what] = {"forecasts": planned, "rounds": found, "ratios": ratios,
                     "forecast": statistics.median(planned), "found": statistics.median(found),
                     "ratio": statistics.median(ratios)}
    return out


def show(result, within):
    for what in ("prompt", "generate"):
        r = result[what]
        verdict = "" if abs(r["ratio"] - 1) <= within / 100 else "  outside"
        print(f"{pathlib.Path(result['model']).name:20} {result['mode']:9} {what:9}"
              f"{r['forecast']:8.1f} ({min(r['forecasts']):.1f} … {max(r['forecasts']):.1f})"
              f"{r['found']:9.1f} ({min(r['rounds']):.1f} … {max(r['rounds']):.1f})"
              f"{r['ratio']:7.2f} ({min(r['ratios']):.2f} … {max(r['ratios']):.2f}){verdict}",
              flush=True)


def main():
    options = arguments()
    outside = False
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_CACHE_HOME"] = directory
        if not options.json:
            print("model, experts, what: forecast, bench, ratio; medians and ranges")
        for word in options.models:
            result = compare(options, word)
            print(json.dumps(result)) if options.json else show(result, options.within)
            outside |= any(abs(result[what]["ratio"] - 1) > options.within / 100
                           for what in ("prompt", "generate"))
    sys.exit(outside)


main()
