#!/usr/bin/env python3
"""Small random GGUF models of every family and format: the tokens of the backend cuda, with prompts and cache
in f32, are those of the reference.

    gguf.py PROGRAM SOURCE"""
import subprocess
import sys
import tempfile
from pathlib import Path

program, source = sys.argv[1:]
FAMILIES = ["deepseek2", "gemma4", "glm4lite", "glm4moe", "minimax-m2", "qwen35moe", "qwen3moe", "qwen3next"]
FORMATS = ["q2_k", "q3_k", "q4_0", "q4_1", "q5_0", "q5_1", "q6_k", "q8_0", "iq4_nl", "iq4_xs", "mixed"]
MODELS = ([(family, "q4_k_m") for family in FAMILIES] + [("gpt-oss", "mxfp4")] +
          [("qwen3moe", form) for form in FORMATS])


def tokens(model, *options):
    done = subprocess.run([program, "generate", "-m", model, "--kv", "f32", "--tokens", "5,4,3", "-n", "6",
                           "--ids", "--ignore-eos", *options], capture_output=True, text=True, timeout=200)
    return done.stdout.strip() or f"status {done.returncode}: {done.stderr.strip()}"


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for family, form in MODELS:
            model = Path(directory, "model.gguf")
            subprocess.run([sys.executable, Path(source, "tools/make_random_gguf.py"), "--preset", f"tiny-{family}",
                            "--quant", form, "--out", model], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            found, expected = tokens(model, "--backend", "cuda", "--kernels", "f32"), tokens(
                model, "--backend", "reference")
            failed += found != expected
            print(f"{'ok    ' if found == expected else 'FAILED'} {family} {form}: {found}"
                  + ("" if found == expected else f", expected {expected}"), flush=True)
    return failed > 0


sys.exit(main())
