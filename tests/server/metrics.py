#!/usr/bin/env python3
"""GET /metrics: the text is Prometheus' form, docs/server.md lists its names, and its numbers agree
with each other and with what was asked.

    metrics.py PROGRAM SOURCE_ROOT"""
import os
import re
import sys

import served
from served import check

SAMPLE = re.compile(r'(moeflux_[a-z_]+)(?:\{([a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*)\})? (\S+)')


def families(text):
    """{name: (kind, labels)} of a page whose lines are all of Prometheus' form."""
    found, now = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            now = line.split()[2]
            check(now not in found, f"{now} has two families")
            check(len(line.split(" ", 3)) == 4, f"{now} has no help")
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            check(name == now and kind in ("counter", "gauge", "histogram"), f"the line {line!r}")
            found[name] = (kind, set())
        else:
            match = SAMPLE.fullmatch(line)
            check(match, f"the line {line!r}")
            name, labels, value = match.groups()
            check(float(value) >= 0, f"{line!r} is negative")
            kind, known = found[now]
            own = re.sub("_(bucket|sum|count)$", "", name) if kind == "histogram" else name
            check(own == now, f"{name} is a sample of {now}")
            known.update(label.split("=")[0] for label in (labels or "").split(",") if label)
    return found


def documented(root):
    """{name: labels} of the table in docs/server.md."""
    with open(os.path.join(root, "docs/server.md")) as file:
        text = file.read().partition("\n## Metrics\n")[2]
    found = {}
    for line in text.splitlines():
        for name, labels in re.findall(r"`(moeflux_[a-z_]+)(?:\{([a-z, ]+)\})?`",
                                       line.split("|")[1] if line.startswith("|") else ""):
            found[name] = set(labels.replace(" ", "").split(",")) - {""}
    return found


def histogram(metrics, name, label=""):
    """(sum, count), with buckets that only grow up to the count."""
    rows = [value for key, value in metrics.items()
            if key.startswith(f"moeflux_{name}_bucket") and label in key]
    tail = f"{{{label}}}" if label else ""
    count = metrics[f"moeflux_{name}_count{tail}"]
    check(rows == sorted(rows) and rows[-1] == count, f"buckets of {name}: {rows}, count {count}")
    return metrics[f"moeflux_{name}_sum{tail}"], count


def total(metrics, name):
    return sum(value for key, value in metrics.items() if key.startswith(f"moeflux_{name}{{"))


def stages(metrics):
    return {key.split('"')[1]: value for key, value in metrics.items()
            if key.startswith("moeflux_step_seconds{")}


def grown(after, before):
    return {key: value - before.get(key, 0) for key, value in after.items()}


def check_sums(metrics):
    """Figures of different sources that are the same."""
    rows, steps = histogram(metrics, "step_rows")
    check(steps == metrics["moeflux_steps_total"], f"{steps} steps with rows")
    check(rows == total(metrics, "step_rows_total"), f"{rows} rows of steps")
    union, steps = histogram(metrics, "union_experts")
    asked = total(metrics, "expert_requests_total")
    check(steps == metrics["moeflux_steps_total"], f"{steps} steps with experts")
    check(abs(union * LAYERS - asked) < 1e-3, f"{union * LAYERS} experts of steps, {asked} asked")
    check(total(metrics, "prefix_tokens_total") == metrics["moeflux_prompt_tokens_total"],
          "tokens of prompts are not those that the cache had, and had not")
    histogram(metrics, "expert_wait_seconds")
    for kind in ("interactive", "background"):
        histogram(metrics, "queue_seconds", f'class="{kind}"')
    for name in ("time_to_first_token", "inter_token", "request"):
        histogram(metrics, f"{name}_seconds")


LAYERS = PER_TOKEN = 0


def tests():
    global LAYERS, PER_TOKEN
    program, root = os.path.realpath(sys.argv[1]), sys.argv[2]
    with served.Server(program, "--memory", "30M") as server:
        info = server.json("GET", "/v1/moeflux/info")
        LAYERS, PER_TOKEN = len(info["moe_layers"]), info["experts_per_token"]
        found = families(server.ask("GET", "/metrics")[2].decode())
        known = documented(root)
        check({name: labels - {"le"} for name, (_, labels) in found.items()} == known,
              f"/metrics and docs/server.md differ in {sorted(set(found) ^ set(known))}, or in labels "
              f"of {[n for n in found if n in known and found[n][1] - {'le'} != known[n]]}")
        check_sums(server.metrics())

        # One answer alone: every step of its tokens uses as many experts of a layer as a token has.
        server.chat("Say a word.", max_tokens=2, temperature=0, ignore_eos=True)
        before = server.metrics()
        server.chat("Say a word.", max_tokens=40, temperature=0, ignore_eos=True)
        server.wait_idle()
        change = grown(server.metrics(), before)
        decoded = change['moeflux_step_rows_total{phase="decode"}']
        check(decoded == 39, f"40 tokens took {decoded} steps of one row")
        check(change[f'moeflux_union_experts_bucket{{le="{PER_TOKEN}"}}'] >= decoded,
              f"steps of one row used more than {PER_TOKEN} experts of a layer")
        spent = {stage: value for stage, value in stages(change).items() if value > 0}
        check({"attention", "router", "experts", "head", "other"} <= spent.keys(),
              f"seconds by stage: {spent}")
        seconds = change["moeflux_request_seconds_sum"]
        check(sum(spent.values()) <= seconds, f"stages {sum(spent.values())} s of {seconds} s")
        check(sum(spent.values()) - spent["other"] >= 0.3 * sum(spent.values()),
              f"most of the time is in no stage: {spent}")
        check_sums(server.metrics())

        # The same prompt again: the model has recurrent layers, which resume at checkpoints.
        again = grown(server.metrics(), before)
        check(again['moeflux_prefix_tokens_total{outcome="checkpoint"}'] > 0
              and again['moeflux_prefix_tokens_total{outcome="kv"}'] == 0,
              f"the prefix cache gave {again}")

        # Several prompts at a time.
        server.json("POST", "/v1/completions", {
            "model": "pebble", "prompt": ["The fox ran", "Once upon a time", "A list:"] * 4,
            "max_tokens": 12, "temperature": 1.0, "seed": 1, "ignore_eos": True})
        server.wait_idle()
        both = server.metrics()
        check_sums(both)
        rows = grown(both, before)['moeflux_step_rows_bucket{le="1"}']
        check(rows < grown(both, before)["moeflux_steps_total"], "12 prompts had no step together")


served.main(tests)
