#!/usr/bin/env python3
"""moeflux batch: requests of a file in shared steps, and what is left when it is ended early.

    batch.py PROGRAM
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

program = sys.argv[1]
home = tempfile.mkdtemp()


def path(name):
    return os.path.join(home, name)


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


def chat(custom_id, question, **body):
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0,
            "max_tokens": 24, **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def write(name, lines):
    with open(path(name), "w") as file:
        for line in lines:
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    return path(name)


def batch(source, target, *options):
    return subprocess.run([program, "batch", source, "-o", path(target), "-c", "256", *options],
                          capture_output=True, text=True)


def results(name):
    """By custom_id; every line is whole and every id is there once."""
    found = {}
    with open(path(name)) as file:
        for line in file:
            result = json.loads(line)
            check(line.endswith("\n"), "a line has no end")
            check(result["custom_id"] not in found, "a result is there twice")
            found[result["custom_id"]] = result
    return found


def answer(result):
    choice = result["response"]["body"]["choices"][0]
    return choice.get("text", choice.get("message", {}).get("content")), choice["finish_reason"]


questions = [chat(f"q{i}", f"What is the capital of {country}?", max_tokens=20 + i)
             for i, country in enumerate(["France", "Japan", "Italy", "Spain", "Norway", "Egypt",
                                          "China", "India", "Peru", "Chile"])]
schema = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}},
          "required": ["city"], "additionalProperties": False}
others = [
    {"custom_id": "raw", "method": "POST", "url": "/v1/completions",
     "body": {"prompt": "Once there was", "max_tokens": 6, "temperature": 0}},
    chat("form", "A city, please.", response_format={
        "type": "json_schema", "json_schema": {"name": "city", "schema": schema}}),
    chat("stop", "What is the capital of Japan?", stop=[" Tokyo"]),
    chat("hot", "hi", temperature=9),
    chat("many", "hi", n=99),
    chat("long", "word " * 400),
    {"custom_id": "where", "method": "POST", "url": "/v1/embeddings", "body": {}},
]

# All kinds of requests; those that are wrong have a sentence, the others an answer.
run = batch(write("in", questions + others), "out")
check(run.returncode == 1, "requests that fail are status 1: " + run.stderr)
found = results("out")
check(len(found) == len(questions) + len(others), "a result is missing")
check(answer(found["q1"]) == ("The capital of Japan is Tokyo.", "stop"), str(found["q1"]))
check(answer(found["raw"])[1] == "length", "a raw text ends at its limit")
check(json.loads(answer(found["form"])[0])["city"] in ("Rome", "Oslo"), str(found["form"]))
check(answer(found["stop"]) == ("The capital of Japan is", "stop"), str(found["stop"]))
usage = found["raw"]["response"]["body"]["usage"]
check(usage["completion_tokens"] == 6, str(usage))
for name, sentence in [("hot", "temperature"), ("many", '"n"'), ("long", "context"),
                       ("where", "url")]:
    response = found[name]["response"]
    check(response["status_code"] == 400, name + " is a bad request")
    check(sentence in response["body"]["error"]["message"], str(response))

# Again: everything is there.
run = batch(path("in"), "out")
check(run.returncode == 0 and "17 of 17" in run.stderr, run.stderr)

# One at a time gives the same answers.
expected = {name: answer(result) for name, result in found.items()
            if result["response"]["status_code"] == 200}
# A beginning that prompts have in common is read once.
head = " ".join("Rule %d: be brief and kind." % i for i in range(12))
shared = [chat("shared %d" % i, "Question %d?" % i) for i in range(4)]
for line in shared:
    line["body"]["messages"].insert(0, {"role": "system", "content": head})
run = batch(write("shared", shared), "shared.out", "--parallel", "4", "-c", "512")
check(run.returncode == 0, run.stderr)
usages = [r["response"]["body"]["usage"] for r in results("shared.out").values()]
cached = [u["prompt_tokens_details"]["cached_tokens"] for u in usages]
check(sum(c > 60 for c in cached) == 3, "the common beginning is read by more than one: %s" % cached)
run = batch(path("shared"), "off.out", "--parallel", "4", "-c", "512", "--cache", "off")
check(run.returncode == 0, run.stderr)
check({name: answer(r) for name, r in results("off.out").items()} ==
      {name: answer(r) for name, r in results("shared.out").items()}, "the cache changes answers")
check(all(r["response"]["body"]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
          for r in results("off.out").values()), "--cache off is no choice")

run = batch(write("good", [q for q in questions + others if q["custom_id"] in expected]), "single",
            "--parallel", "1", "-t", "1")
check(run.returncode == 0, run.stderr)
check({name: answer(r) for name, r in results("single").items()} == expected,
      "the answers depend on the others of a step")

# kill -9 and Ctrl-C at random moments; then the rest.
for turn, sign in enumerate([signal.SIGKILL] * 4 + [signal.SIGINT] * 2):
    target = f"killed{turn}"
    random.seed(turn)
    for _ in range(2):
        process = subprocess.Popen([program, "batch", path("good"), "-o", path(target), "-c", "256",
                                    "--parallel", "3"], stderr=subprocess.DEVNULL)
        time.sleep(0.1 + random.random())
        process.send_signal(sign)
        status = process.wait()
        check(status in (0, -9) or sign == signal.SIGINT and status in (130, -2), str(status))
    if turn == 0:
        with open(path(target), "a") as file:
            file.write('{"id":"batch_req_9","custom')
    run = batch(path("good"), target)
    check(run.returncode == 0, run.stderr)
    check({name: answer(r) for name, r in results(target).items()} == expected,
          "a run in parts gives other results")

# What cannot be a batch is refused before anything is written.
for lines, sentence in [(["{"], "line 1"), ([questions[0], questions[0]], "line 2"),
                        ([{"body": {}}], "custom_id"), ([""], "no requests")]:
    run = batch(write("wrong", lines), "nothing")
    check(run.returncode == 1 and sentence in run.stderr, run.stderr)
    check(not os.path.exists(path("nothing")), "a file was made")
run = batch(write("foreign", [chat("other", "hi")]), "out")
check(run.returncode == 1 and "not of these requests" in run.stderr, run.stderr)
check(len(results("out")) == 17, "the other batch lost results")

# Several answers to one line; the file of requests is none of results.
run = batch(write("two", [chat("two", "hi", n=2, max_tokens=3)]), "two.out")
check(run.returncode == 0, run.stderr)
check(len(results("two.out")["two"]["response"]["body"]["choices"]) == 2, "n is 2")
run = batch(path("two"), "two")
check(run.returncode == 1 and "not of these requests" in run.stderr, run.stderr)
check(subprocess.run([program, "batch", path("in")], capture_output=True).returncode == 2, "no -o")
print("batch: all right")
