#!/usr/bin/env python3
"""`moeflux serve --backend cuda`: the plugin is loaded although the server gives up its rights, and what it
answers is what the reference gives.

    serve.py PROGRAM MODEL"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "server"))
from served import Failed, Server, check  # noqa: E402


def answer(program, model, *options):
    with Server(program, "-m", model, "--kv", "f32", *options) as server:
        reply = server.json("POST", "/v1/completions", {
            "model": "pebble", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    return reply["choices"][0]["text"]


def main():
    program, model = sys.argv[1:]
    found = answer(program, model, "--backend", "cuda", "--kernels", "f32")
    expected = answer(program, model, "--backend", "reference")
    check(found == expected, f"cuda says {found!r}, the reference {expected!r}")
    print(f"both say {found!r}")


try:
    main()
except Failed as failed:
    sys.exit(str(failed))
