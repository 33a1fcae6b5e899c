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

# mean cosine of the logits that is asked for (of f32, whose logits are the reference's: the largest
# difference in parts of the largest logit), SHA-256 of the file, and its seed where that is not 1
CASES = {
    "qwen3moe-bf16": (0.9995, "ac2ac09527b9651480aeeda8bdb2916efa19e7562a8f19eee130ada70c7801b7"),
    "qwen3moe-q4_k_m": (0.99, "478b8e11fa6aa1b9de4343019b05197e6dce4ce924e1992f81e4c3f01edb13e4"),
    "qwen35moe-bf16": (0.9995, "e29925192d3c1825c7c5538004a955bbd5a41c4a3f02325a5b84c7453ed25e13"),
    "qwen35moe-q4_k_m": (0.99, "d0dfbaa777ce1e95a92b5b06f4dac085118f12b02d752e6c2c163ebca64ea507"),
    "deepseek2-bf16": (0.9995, "e39f5af514c937fb06df8d9d476fbcabfd2a035e66ae03ba5fe93ec30ba9c583"),
    "deepseek2-q4_k_m": (0.99, "b3c15dd8b755d272e33ac8b1a154000427c6d1c8f03900bf2a943e0c58c093ee"),
    "qwen3next-bf16": (0.9995, "f1b2eae81c31bf0f5b46b1103af0b55ca5e01028cc8e7783a57f1c23b9826b88"),
    "qwen3next-q4_k_m": (0.99, "49f8651a7d6449779404419347f6885486a1cb2d71249f03bf38a3307ce5c0c7"),
    "glm4moe-f32": (1e-5, "1988af54cf7cb9c24de0f48be3b60419618c1646728a381149929e7ace9c37ce", 3),
    "glm4moe-q4_k_m": (
        0.998, "e045151a5cf26bd82fc0b64c09997b991841b3dd3b3027a08491ec22db05f56b", 3),
    "glm4lite-f32": (1e-5, "bca216d6c3c2fee916ba86b23c71ea87c45da157eb2148fb36df6ce4ffbce910"),
    "glm4lite-q4_k_m": (0.998, "acd637b9b642a0566e23e4a88c0e85962b86c2a9487b1c7dd877586169b86065"),
    "minimax-m2-f32": (1e-5, "eac17c208968495bfc4b9a4ab669c7bc7c5c65a0c7b878ce9d94cca389b4a8cf"),
    "minimax-m2-q4_k_m": (
        0.998, "12264d6e222521e711e8468688bee30a2b4f08305b1c20c9a353ba022f4ff1c3"),
    "gpt-oss-f32": (1e-5, "16c5198182ccb546ff312ae1c32220e695ad4c409f045ba5432ab8c0a4f9fbb4"),
    "gpt-oss-mxfp4": (
        0.998, "e76cde67fc83ea08f1abbbf68a43829258bfa72888a4523b76b4622656e4e3ff", 2),
    "gemma4-f32": (1e-5, "55899373b3b19dba99f71a806a15827b625a285929e704bd57ea19e5d2addb86"),
    "gemma4-q4_k_m": (0.998, "6d66c94e4d7465804b0a789bc2830b87db8cb713badf2bf8ba78b2a4f8c6913d", 4),
}
# Of every architecture one, and of one both; --all checks every file.
QUICK = ("qwen3moe-bf16", "qwen3moe-q4_k_m", "qwen35moe-q4_k_m", "deepseek2-q4_k_m",
         "qwen3next-q4_k_m", "glm4moe-q4_k_m", "glm4lite-f32", "minimax-m2-q4_k_m",
         "gpt-oss-mxfp4", "gemma4-f32")


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
    architecture, quant = name.rsplit("-", 1)
    seed = CASES[name][2] if len(CASES[name]) > 2 else 1
    command = [sys.executable, source / "tools/make_random_gguf.py", "--preset",
               f"tiny-{architecture}", "--quant", quant, "--layers", "4", "--experts", "8",
               "--vocab", str(VOCABULARY), "--attention-gain", "0.5", "--seed", str(seed),
               "--out", path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(program, ties, source, name, directory):
    wanted, digest = CASES[name][:2]
    exact = name.endswith("-f32")
    path, out = directory / f"{name}.gguf", directory / "logits.f32"
    make_file(source, name, path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        print(f"{name}: the tool makes another file than the one whose logits are stored")
        return False
    similar, errors = [], []
    expected = rows((source / f"tests/fixtures/gguf/{name}.f32").read_bytes())
    for ids, reference in zip(prompts(), expected):
        subprocess.run([program, "logits", "-m", path, "--tokens", ",".join(map(str, ids)), "-o",
                        out, "--backend", "reference" if exact else "cpu"], check=True)
        found = next(rows(out.read_bytes()))
        similar.append(cosine(found, reference))
        errors.append(max(abs(a - b) for a, b in zip(found, reference)) /
                      max(map(abs, reference)))
    if exact:
        path.unlink()
        print(f"{name}: off by {max(errors):.1e}, {wanted} allowed", flush=True)
        return max(errors) <= wanted
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
