#!/usr/bin/env python3
"""gguf_peer.py PROGRAM TIES SOURCE: GGUF files against another engine's logits.

tests/fixtures/gguf/README.md says how those were made.  The random files are made anew in a
temporary directory; only the numbers are kept."""
import hashlib
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

VOCABULARY = 512
PROMPTS = 20

# mean cosine of the logits that is asked for, and SHA-256 of the file
CASES = {
    "qwen3moe-bf16": (0.9995, "ac2ac09527b9651480aeeda8bdb2916efa19e7562a8f19eee130ada70c7801b7"),
    "qwen3moe-q4_k_m": (0.99, "478b8e11fa6aa1b9de4343019b05197e6dce4ce924e1992f81e4c3f01edb13e4"),
    "qwen35moe-bf16": (0.9995, "e29925192d3c1825c7c5538004a955bbd5a41c4a3f02325a5b84c7453ed25e13"),
    "qwen35moe-q4_k_m": (0.99, "d0dfbaa777ce1e95a92b5b06f4dac085118f12b02d752e6c2c163ebca64ea507"),
    "deepseek2-bf16": (0.9995, "e39f5af514c937fb06df8d9d476fbcabfd2a035e66ae03ba5fe93ec30ba9c583"),
    "deepseek2-q4_k_m": (0.99, "b3c15dd8b755d272e33ac8b1a154000427c6d1c8f03900bf2a943e0c58c093ee"),
    "qwen3next-bf16": (0.9995, "f1b2eae81c31bf0f5b46b1103af0b55ca5e01028cc8e7783a57f1c23b9826b88"),
    "qwen3next-q4_k_m": (0.99, "49f8651a7d6449779404419347f6885486a1cb2d71249f03bf38a3307ce5c0c7"),
}
# Of every architecture one, and of one both; --all checks every file.
QUICK = ("qwen3moe-bf16", "qwen3moe-q4_k_m", "qwen35moe-q4_k_m", "deepseek2-q4_k_m",
         "qwen3next-q4_k_m")


def prompts():
    state = 12345
    for p in range(PROMPTS):
        ids = []
        for _ in range(4 + 3 * p):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            ids.append((state >> 8) % 500)
        yield ids


def rows(data):
    return struct.iter_unpack(f"<{VOCABULARY}f", data)


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def make_file(source, name, path):
    architecture, quant = name.split("-")
    command = [sys.executable, source / "tools/make_random_gguf.py", "--preset",
               f"tiny-{architecture}", "--quant", quant, "--layers", "4", "--experts", "8",
               "--vocab", str(VOCABULARY), "--attention-gain", "0.5", "--out", path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(program, ties, source, name, directory):
    wanted, digest = CASES[name]
    path, out = directory / f"{name}.gguf", directory / "logits.f32"
    make_file(source, name, path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        print(f"{name}: the tool makes another file than the one whose logits are stored")
        return False
    similar = []
    expected = rows((source / f"tests/fixtures/gguf/{name}.f32").read_bytes())
    for ids, reference in zip(prompts(), expected):
        subprocess.run([program, "logits", "-m", path, "--tokens", ",".join(map(str, ids)), "-o",
                        out], check=True)
        similar.append(cosine(next(rows(out.read_bytes())), reference))
    mean = sum(similar) / len(similar)
    print(f"{name}: mean cosine {mean:.6f}, lowest {min(similar):.6f}, {wanted} asked for",
          flush=True)
    # a single low one has to be a tie between experts
    explained = subprocess.run([ties, path, source / f"tests/fixtures/gguf/{name}.f32"])
    path.unlink()
    return mean >= wanted and explained.returncode == 0


def main():
    program, ties, source = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    names = [name for name in CASES if "--all" in sys.argv or name in QUICK]
    with tempfile.TemporaryDirectory() as directory:
        results = [check(program, ties, source, name, pathlib.Path(directory)) for name in names]
    sys.exit(0 if all(results) else 1)


main()
