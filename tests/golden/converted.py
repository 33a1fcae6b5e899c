#!/usr/bin/env python3
"""converted.py PROGRAM SOURCE: a converted model gives the bits of what it was made from.

Checkpoints of the source tree and of $MOEFLUX_FIXTURES, and random ones of many formats, go
through `moeflux convert`; logits, tokens, ids and texts are compared with the original's, the
source is taken away first, and the packed one is converted once more."""
import array
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tiny_checkpoints as tiny

TEXT = "Once upon a time, there wasn't a fox in 2024:\n\n  <|im_start|>“It’s late,” <think>é</think>"
IDS = ",".join(str(i * i % 250) for i in range(40))
CONVERSATION = '{"messages":[{"role":"user","content":"Hello <|im_end|> there"}]}'


class Test:
    def __init__(self, program, source, scratch):
        self.program, self.source, self.scratch = program, source, pathlib.Path(scratch)
        self.failed = 0

    def run(self, *arguments, text=None, code=0):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True,
                              input=None if text is None else text.encode())
        if done.returncode != code:
            sys.exit(f"{arguments}: exit {done.returncode}, {done.stderr.decode()}")
        return done.stderr if code else done.stdout

    def expect(self, what, found, expected):
        if found == expected:
            return
        self.failed += 1
        print(f"{what}: DIFFERENT\n    found    {found[:300]!r}\n    expected {expected[:300]!r}")

    def tool(self, name, *arguments):
        subprocess.run([sys.executable, self.source / "tools" / name, *map(str, arguments)],
                       check=True, stdout=subprocess.DEVNULL)

    def answers(self, model, tokenizer):
        """What a model says, by command."""
        out = {
            "logits": self.run("logits", "-m", model, "--tokens", IDS, "--all", "-o", "-"),
            "generate": self.run("generate", "-m", model, "--tokens", IDS, "-n", 8, "--temp", 0,
                                 "--ids", "--ignore-eos"),
        }
        if tokenizer:
            ids = self.run("tokenize", "-m", model, text=TEXT)
            out["tokenize"] = ids
            out["detokenize"] = self.run("detokenize", "-m", model, "--tokens",
                                         ids.decode().strip())
            out["template"] = subprocess.run([self.program, "template", "-m", model],
                                             input=CONVERSATION.encode(), capture_output=True).stdout
        return out

    def least_memory(self, model):
        """A budget that makes the experts stream; refused ones say what is needed."""
        shown = json.loads(self.run("inspect", model, "--json", "-c", 64))
        place = shown["placement"]
        per_expert = (shown["bytes"] - place["resident_bytes"]) // max(place["experts"], 1)
        return place["resident_bytes"] + place["sequence_bytes"] + (64 << 20) + 24 * per_expert

    def check(self, what, model, tokenizer=False):
        packed, again = self.scratch / "packed", self.scratch / "again"
        for path in (packed, again):
            shutil.rmtree(path, ignore_errors=True)
        before = self.answers(model, tokenizer)
        self.expect(f"{what}, convert", self.run("convert", model, packed, "--verify"), b"")
        away = self.scratch / "away"
        if self.scratch in model.parents:
            model.rename(away)
        for name, found in self.answers(packed, tokenizer).items():
            self.expect(f"{what}, {name}", found, before[name])
        found = self.run("logits", "-m", packed, "--tokens", IDS, "--all", "-o", "-", "-c", 64,
                         "--memory", self.least_memory(packed))
        self.expect(f"{what}, streamed", found, before["logits"])
        self.run("convert", packed, again)
        for path in packed.iterdir():
            if path.name != "moeflux.json":
                self.expect(f"{what}, again, {path.name}", (again / path.name).read_bytes(),
                            path.read_bytes())
        if away.exists():
            away.rename(model)
        print(f"{what}: done")

    def check_golden(self, directory):
        for model in sorted(directory.glob("*/")):
            self.check(model.name, model)

    def check_gguf(self, preset, quant, *more):
        path = self.scratch / f"{preset}-{quant}.gguf"
        self.tool("make_random_gguf.py", "--preset", preset, "--quant", quant, "--experts", 8,
                  "--vocab", 512, "--layers", 4, "--pool-mib", 1, "--out", path, *more)
        self.check(f"{preset} {quant}", path, tokenizer=True)
        path.unlink()

    def check_split(self):
        base = self.scratch / "split"
        base.mkdir()
        self.tool("make_random_gguf.py", "--preset", "tiny-qwen3moe", "--quant", "q4_k_m",
                  "--experts", 8, "--vocab", 512, "--layers", 2, "--pool-mib", 1, "--split", 3,
                  "--out", base / "s.gguf")
        first = base / "s-00001-of-00003.gguf"
        before = self.answers(first, True)
        packed = self.scratch / "packed"
        shutil.rmtree(packed, ignore_errors=True)
        self.run("convert", first, packed, "--verify")
        shutil.rmtree(base)
        for name, found in self.answers(packed, True).items():
            self.expect(f"split, {name}", found, before[name])
        print("split: done")

    def check_mlx(self, preset, bits, *more):
        path = self.scratch / f"mlx-{bits}"
        self.tool("make_random_mlx.py", "--preset", preset, "--bits", bits, "--experts", 8,
                  "--vocab", 512, "--layers", 4, "--out", path, *more)
        self.check(f"{preset} mlx {bits} bits", path, tokenizer=True)
        shutil.rmtree(path)

    def check_mlx_fp4(self):
        config = dict(model_type="gpt_oss", hidden_size=32, num_hidden_layers=3, vocab_size=256,
                      num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                      num_local_experts=6, num_experts_per_tok=2, intermediate_size=32,
                      sliding_window=9, max_position_embeddings=256)
        path = self.scratch / "mlx-mxfp4"
        path.mkdir()
        tiny.write_mlx(path, config, tiny.make_weights(config, 1),
                       bits={"": "mxfp4", "mlp.gate": 8, "o_proj": 8})
        self.check("mlx mxfp4", path)
        shutil.rmtree(path)

    def check_requantised(self, what):
        """Fewer bits, other logits: how far off, against the spread of the logits."""
        packed, model = self.scratch / "packed", self.scratch / "bf16.gguf"
        self.tool("make_random_gguf.py", "--preset", what, "--quant", "bf16", "--experts", 8,
                  "--vocab", 512, "--layers", 4, "--pool-mib", 1, "--out", model)

        def logits(path):
            found = array.array("f", self.run("logits", "-m", path, "--tokens", IDS, "-o", "-"))
            mean = sum(found) / len(found)
            return [x - mean for x in found]

        before = logits(model)
        size = sum(x * x for x in before)
        last = 0
        for experts, rest, most in (("q8", "bf16", 0.01), ("q8", "q8", 0.03), ("q4", "q8", 0.1),
                                    ("q3", "q8", 0.2), ("q2", "q8", 0.35)):
            shutil.rmtree(packed, ignore_errors=True)
            self.run("convert", model, packed, "--experts", experts, "--rest", rest, "--verify")
            after = logits(packed)
            off = (sum((a - b) ** 2 for a, b in zip(after, before)) / size) ** 0.5
            print(f"    {what}, experts {experts}, rest {rest}: {off:.4f}")
            self.expect(f"{what}, {experts}, {rest}", last < off < most, True)
            if rest == "q8":
                last = off

    def check_ancestors(self):
        for options in [], ["--binary-tokenizer"], ["--two-bit"]:
            path = self.scratch / "ancestors"
            self.tool("make_ancestors.py", *options, self.source / "models/pebble", path)
            self.check(f"ancestors {options}", path, tokenizer=True)
            shutil.rmtree(path)


def main():
    program, source = sys.argv[1], pathlib.Path(sys.argv[2])
    # Every conversion syncs often, which says nothing here and takes long on a busy disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as scratch:
        test = Test(program, source, scratch)
        test.check("pebble", source / "models/pebble", tokenizer=True)
        test.check_golden(source / "tests/fixtures/golden")
        for preset in "tiny-qwen3next", "tiny-deepseek2":
            test.check_gguf(preset, "mixed")
        test.check_gguf("tiny-qwen3moe", "q4_k_m")
        test.check_split()
        test.check_requantised("tiny-qwen3next")
        test.check_mlx("tiny-qwen35moe", 3)
        test.check_mlx_fp4()
        if "--all" in sys.argv:
            fixtures = pathlib.Path(os.environ.get("MOEFLUX_FIXTURES", "/nonexistent")) / "golden"
            test.check_golden(fixtures)
            for case in sorted(fixtures.with_name("golden2").glob("*/")):
                test.check(case.name, case)
            for preset in ("tiny-qwen3moe", "tiny-qwen35moe", "tiny-glm4moe", "tiny-glm4lite",
                           "tiny-minimax-m2", "tiny-gemma4"):
                test.check_gguf(preset, "mixed")
            test.check_gguf("tiny-gpt-oss", "mxfp4")
            for quant in "bf16", "q8_0", "q5_1", "iq4_xs":
                test.check_gguf("tiny-qwen3moe", quant)
            test.check_requantised("tiny-deepseek2")
            for preset, bits in (("tiny-deepseek2", 8), ("tiny-qwen3next", 6), ("tiny-glm4moe", 4),
                                 ("tiny-minimax-m2", 5)):
                test.check_mlx(preset, bits)
        test.check_ancestors()
    sys.exit(1 if test.failed else 0)


main()
