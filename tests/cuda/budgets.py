#!/usr/bin/env python3
"""A model gives the same bits with the backend cuda wherever its experts are, and however a prompt is cut.

    budgets.py PROGRAM CHECKPOINT OPTIONS...

PROGRAM finds its plugin beside itself: a device's, or the emulated one.  Each of OPTIONS is a word or
several, as in "--vram 700M --prompt-chunk 16"."""
import hashlib
import subprocess
import sys

program, checkpoint, *ways = sys.argv[1:]
TOKENS = ",".join(str(1 + 7 * i % 200) for i in range(70))


def run(*words):
    done = subprocess.run([program, *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=280)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def digests(way):
    common = ["-m", checkpoint, "--backend", "cuda", *way.split()]
    logits = run("logits", "--all", "--tokens", TOKENS, "-o", "/dev/stdout", *common)
    tokens = run("generate", "--tokens", "5,4,3", "-n", "12", "--ids", "--ignore-eos", *common)
    return hashlib.sha256(logits).hexdigest()[:12], tokens.decode().strip()


found = {way: digests(way) for way in ["", *ways]}
for way, (logits, tokens) in found.items():
    print(f"{logits} {tokens} {way or '(plain)'}")
sys.exit(len(set(found.values())) != 1)
