#!/usr/bin/env python3
"""moeflux batch --cache-dir: killed at random moments, its directory opens, and the answers are those
of runs without a cache.

    cache_runs.py PROGRAM
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

program = sys.argv[1]
home = tempfile.mkdtemp()
cache = os.path.join(home, "cache")
KILLS = 12
LIMIT = 3 << 20
random.seed(7)
HEAD = " ".join(f"Rule {i}: answer question {i % 9} in a short sentence." for i in range(30))


def check(condition, what):
    if not condition:
        sys.exit("FAILED: " + what)


def write(name, count):
    path = os.path.join(home, name)
    with open(path, "w") as file:
        for i in range(count):
            messages = [{"role": "system", "content": HEAD},
                        {"role": "user", "content": f"What is {i} and {i + 1}?"}]
            body = {"messages": messages, "temperature": 0, "max_tokens": 4}
            file.write(json.dumps({"custom_id": str(i), "method": "POST",
                                   "url": "/v1/chat/completions", "body": body}) + "\n")
    return path


def command(source, target, *options):
    return [program, "batch", source, "-o", os.path.join(home, target), "-c", "1024", "--parallel",
            "2", "-q", *options]


def answers(target):
    with open(os.path.join(home, target)) as file:
        lines = [json.loads(line) for line in file]
    return {line["custom_id"]: line["response"]["body"]["choices"][0]["message"] for line in lines}


def directory_bytes():
    if not os.path.isdir(cache):
        return 0
    names = [os.path.join(cache, name) for name in os.listdir(cache)]
    return sum(os.path.getsize(name) for name in names)


def moeflux_cache(*words):
    return subprocess.run([program, "cache", *words], capture_output=True, text=True)


options = ("--cache-dir", cache, "--cache-disk", str(LIMIT))
source = write("in.jsonl", 8)
subprocess.run(command(source, "plain.jsonl"), check=True)
plain = answers("plain.jsonl")
check(len(plain) == 8, "all requests are answered")

for i in range(KILLS):
    process = subprocess.Popen(command(source, f"killed{i}.jsonl", *options),
                               stderr=subprocess.DEVNULL)
    time.sleep(random.uniform(0.05, 2))
    process.kill()
    process.wait()
    check(directory_bytes() <= LIMIT, f"{directory_bytes()} bytes after kill {i}")

done = subprocess.run(command(source, "cached.jsonl", *options), capture_output=True, text=True)
check(done.returncode == 0 and done.stderr == "", done.stderr)
check(answers("cached.jsonl") == plain, "the answers are those without a cache")
found = json.loads(moeflux_cache("verify", cache, "--json").stdout)
check(found["damaged"] == 0 and found["missing"] == 0 and found["strangers"] == 0, str(found))
check(found["pages"] > 3, str(found))
check(directory_bytes() <= LIMIT, "the limit holds")

# A second process is told once, and answers all the same.
holder = subprocess.Popen(command(source, "holder.jsonl", *options), stderr=subprocess.DEVNULL)
deadline = time.time() + 20
while moeflux_cache("ls", cache).returncode == 0 and time.time() < deadline and \
        holder.poll() is None:
    time.sleep(0.01)
second = subprocess.run(command(source, "second.jsonl", *options), capture_output=True, text=True)
check(second.returncode == 0, second.stderr)
check(second.stderr.count("in use by another process") <= 1, second.stderr)
check(answers("second.jsonl") == plain, "answers beside another process")
check(holder.wait() == 0 and answers("holder.jsonl") == plain, "the first process answers")

# The same head after a restart: found on disk.
again = subprocess.run(command(source, "again.jsonl", "--stats-json", *options),
                       capture_output=True, text=True)
check(again.returncode == 0 and answers("again.jsonl") == plain, again.stderr)
print("ok", KILLS, "kills,", found["pages"], "pages,", found["checkpoints"], "checkpoints")
