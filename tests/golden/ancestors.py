#!/usr/bin/env python3
"""ancestors.py PROGRAM CONTEXT SOURCE: the ancestors' layout gives the bits of the MLX original.

tools/make_ancestors.py makes it in a temporary directory from checkpoints of the source tree."""
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

TEXT = "Once upon a time, there wasn't a fox in 2024:\n\n  <|im_start|>“It’s late,” <think>é</think>"
GOLDEN = ["qwen3_moe_mlx4", "qwen3_5_moe_mlx4", "deepseek_v3_mlx4"]


class Test:
    def __init__(self, program, context, source, scratch):
        self.program, self.context, self.source, self.scratch = program, context, source, scratch
        self.failed = 0

    def run(self, *arguments, text=None, code=0):
        """What the program prints: data, or its complaint where it should fail."""
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True,
                              input=None if text is None else text.encode())
        if done.returncode != code:
            sys.exit(f"{arguments}: exit {done.returncode}, {done.stderr.decode()}")
        return done.stderr if code else done.stdout

    def pack(self, model, *options):
        out = pathlib.Path(tempfile.mkdtemp(dir=self.scratch)) / "packed"
        subprocess.run([sys.executable, self.source / "tools/make_ancestors.py", *options, model, out],
                       check=True)
        return out

    def expect(self, what, found, expected):
        good = found == expected
        self.failed += not good
        print(f"{what}: {'the same' if good else 'DIFFERENT'}")
        if not good:
            print(f"    found    {str(found)[:300]}\n    expected {str(expected)[:300]}")

    def compare(self, what, model, other):
        """All logits of a prompt, and greedy tokens after it."""
        ids = ",".join(str(i * i % 500) for i in range(70))
        for name, arguments in {
                "logits": ["--tokens", ids, "--all", "-o", "/dev/stdout"],
                "generate": ["--tokens", ids, "-n", "12", "--temp", "0", "--ids", "--ignore-eos"],
        }.items():
            self.expect(f"{what}, {name}", self.run(name, "-m", model, *arguments),
                        self.run(name, "-m", other, *arguments))

    def compare_context(self, what, packed, other, bits):
        """The ancestors' call set, whose paths are given one by one."""
        artifacts = packed / "artifacts"
        done = subprocess.run([self.context, artifacts / "model_weights.bin",
                               artifacts / "model_weights.json", artifacts / "vocab.bin",
                               packed / "root", bits], capture_output=True)
        ids = ",".join(str(i * i) for i in range(1, 21))
        self.expect(f"{what}, context", done.stdout,
                    self.run("logits", "-m", other, "--tokens", ids, "-o", "/dev/stdout"))
        self.expect(f"{what}, its name", done.stderr, b"packed\n")

    def two_bit_mlx(self, model):
        """An MLX checkpoint whose experts have the 2 bits of make_ancestors.py --two-bit."""
        import make_ancestors
        out = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        tensors = make_ancestors.read_tensors(model)
        config = json.loads((model / "config.json").read_text())
        for number, layer in make_ancestors.split_experts(tensors)[0].items():
            count = layer["gate_proj.weight"][1][0]
            experts = [make_ancestors.two_bit_expert(make_ancestors.one_expert(layer, x))
                       for x in range(count)]
            for part in zip(*experts):
                name, dtype, shape, _ = part[0]
                full = next(n for n in tensors if f"layers.{number}.mlp.switch_mlp.{name}" in n)
                tensors[full] = (dtype, [count, *shape], b"".join(p[3] for p in part))
                if dtype == "U32":
                    module = full.removesuffix(".weight")
                    config["quantization"][module] = {"bits": 2, "group_size": 64}
        header, offset = {}, 0
        for name, (dtype, shape, data) in tensors.items():
            header[name] = {"dtype": dtype, "shape": shape,
                            "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
        text = json.dumps(header).encode()
        with open(out / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, _, data in tensors.values():
                file.write(data)
        (out / "config.json").write_text(json.dumps(config))
        return out

    def check_golden(self, name):
        model = self.source / "tests/fixtures/golden" / name
        packed, two_bit = self.pack(model), self.pack(model, "--two-bit")
        two_bit_mlx = self.two_bit_mlx(model)
        self.compare(f"{name}, 4 bits", packed, model)
        self.compare(f"{name}, 2 bits", two_bit, two_bit_mlx)
        # Both beside each other: 4 bits unless 2 are asked for.
        (two_bit / "root/packed_experts_2bit").rename(packed / "root/packed_experts_2bit")
        self.compare(f"{name}, both", packed, model)
        self.compare_context(f"{name}, both, 4 bits", packed, model, "4")
        self.compare_context(f"{name}, both, 2 bits", packed, two_bit_mlx, "2")

    def check_pebble(self):
        model = self.source / "models/pebble"
        packed = self.pack(model, "--binary-tokenizer")
        self.compare("pebble, 4 bits", packed, model)
        ids = self.run("tokenize", "-m", model, text=TEXT)
        self.expect("pebble, tokenizer.bin", self.run("tokenize", "-m", packed, text=TEXT), ids)
        (packed / "artifacts/tokenizer.bin").unlink()
        found = self.run("detokenize", "-m", packed, "--tokens", ids.decode().strip())
        self.expect("pebble, vocab.bin", found, TEXT.encode())
        found = self.run("tokenize", "-m", packed, text=TEXT, code=1)
        self.expect("pebble, vocab.bin does not encode", b"decode" in found, True)
        (packed / "artifacts/vocab.bin").unlink()
        found = self.run("tokenize", "-m", packed, text=TEXT, code=1)
        self.expect("pebble, no tokenizer", b"has no tokenizer" in found, True)
        shutil.rmtree(packed / "root/packed_experts")
        found = self.run("logits", "-m", packed, "--tokens", "1", code=1)
        self.expect("pebble, no experts", b"has no packed_experts" in found, True)


def main():
    program, context, source = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    sys.path.insert(0, str(source / "tools"))
    with tempfile.TemporaryDirectory() as scratch:
        test = Test(program, context, source, scratch)
        test.check_pebble()
        for name in GOLDEN:
            test.check_golden(name)
    sys.exit(1 if test.failed else 0)


main()
