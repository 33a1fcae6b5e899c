#!/usr/bin/env python3
"""inspected.py PROGRAM SOURCE: what `moeflux inspect` says, against sums over the files' own headers, and
what a model and its files that do not fit together are told, at open and by inspect."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import tiny_checkpoints as tiny

QWEN = dict(model_type="qwen3_moe", hidden_size=32, num_hidden_layers=3, vocab_size=48,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6,
            num_experts_per_tok=2, moe_intermediate_size=16, intermediate_size=40,
            mlp_only_layers=[0], max_position_embeddings=256, norm_topk_prob=True)


class Test:
    def __init__(self, program, scratch):
        self.program, self.scratch, self.failed = program, pathlib.Path(scratch), 0

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        return done.stdout, done.stderr

    def inspect(self, path, *arguments):
        return json.loads(self.run("inspect", path, "--json", *arguments)[0])

    def expect(self, what, found, expected):
        good = found == expected
        self.failed += not good
        print(f"{what}: {found}" + ("" if good else f"   FAILED: {expected} was expected"))

    def make(self, writer, change=lambda weights: None, **options):
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        config = dict(QWEN)
        if writer is tiny.write_gguf:    # whose qwen3moe has no dense layers
            del config["mlp_only_layers"]
        weights = tiny.make_weights(config, 1)
        change(weights)
        return writer(directory, config, weights, **options) or directory, weights

    # ---------------------------------------------------------------- numbers

    def check_sums(self, what, path, weights):
        """Counted from the weights; in f32 each has four bytes, in MLX what the header says."""
        found = self.inspect(path)

        def numbers(part):
            return sum(len(tiny.flat(w)) for name, w in weights.items() if re.search(part, name))

        classes = found["classes"]
        for name, part in {
                "embedding": r"embed_tokens", "head": r"lm_head", "routers": r"mlp\.gate\.",
                "attention": r"self_attn\.[qkvo]_proj", "norms": r"norm\.weight",
                "dense layers": r"layers\.\d\.mlp\.(gate|up|down)_proj",
                "experts": r"\.experts\."}.items():
            self.expect(f"{what}, {name}", classes.get(name, {"parameters": 0})["parameters"],
                        numbers(part))
        total, experts = numbers(""), numbers(r"\.experts\.")
        self.expect(f"{what}, parameters", found["parameters"],
                    dict(total=total, experts=experts, active=total - experts + experts * 2 // 6))
        self.expect(f"{what}, bytes", sum(c["bytes"] for c in classes.values()), found["bytes"])
        token = found["bytes_per_token"]
        always = found["bytes"] - classes["experts"]["bytes"] - classes["embedding"]["bytes"]
        self.expect(f"{what}, bytes per token", (token["always"], token["experts"]),
                    (always + classes["embedding"]["bytes"] // 48,
                     classes["experts"]["bytes"] * 2 // 6))
        self.expect(f"{what}, state per token", token["state"], 3 * 2 * 2 * 16 * 2)

    def check_numbers(self):
        path, weights = self.make(tiny.write_hugging_face)
        self.check_sums("f32", path, weights)
        self.expect("f32, bytes", self.inspect(path)["bytes"],
                    4 * sum(len(tiny.flat(w)) for w in weights.values()))
        path, weights = self.make(tiny.write_gguf)
        self.check_sums("GGUF", path, weights)
        path, weights = self.make(tiny.write_mlx, bits={"": 4, "embed_tokens": 8, "mlp.gate": 3})
        self.check_sums("MLX", path, weights)
        formats = {name: list(c["formats"]) for name, c in self.inspect(path)["classes"].items()}
        self.expect("MLX, formats", formats, {
            "embedding": ["affine 8-bit"], "attention": ["affine 4-bit"], "head": ["affine 4-bit"],
            "routers": ["affine 3-bit"], "dense layers": ["F32", "affine 4-bit"],
            "norms": ["F32"], "experts": ["F32", "affine 4-bit"]})
        stored = (path / "model.safetensors").stat().st_size
        header = struct.unpack("<Q", (path / "model.safetensors").read_bytes()[:8])[0]
        self.expect("MLX, bytes", self.inspect(path)["bytes"], stored - 8 - header)

    def check_placement(self, path):
        """The plan is the one that a run has."""
        for memory, mode in (("1G", "resident"), ("14M", "streamed"), ("16M", "streamed"),
                             ("18M", "streamed")):
            place = self.inspect(path, "--memory", memory, "-c", 512)["placement"]
            _, stats = self.run("generate", "-m", path, "--tokens", "1,2", "-n", "2", "--ids",
                                "--temp", "0", "--memory", memory, "-c", 512, "--stats")
            found = re.search(r" mode +(\w+), (\d+) of 512 fit", stats)
            self.expect(f"mode with {memory}", (place["expert_mode"], found[1]), (mode, mode))
            self.expect(f"experts with {memory}", place["experts_in_memory"], int(found[2]))
        place = self.inspect(path, "--memory", "100K")["placement"]
        self.expect("too little memory", (place["fits"], "problem" in place), (False, True))
        place = self.inspect(path, "--memory", "900T")["placement"]
        self.expect("a vast memory", (place["fits"], place["experts_in_memory"]), (True, 512))

    # --------------------------------------------------------------- mismatch

    def check_refused(self, what, path, *words):
        _, said = self.run("logits", "-m", path, "--tokens", "1")
        shown = self.inspect(path)
        for word in words:
            self.expect(f"{what}: \"{word}\"", (word in said, word in shown.get("problem", "")),
                        (True, True))
        self.expect(f"{what}, supported", shown["supported"], False)

    def check_mismatch(self):
        def without(name):
            return lambda weights: weights.pop(name)

        def shorter(name):
            return lambda weights: weights.update({name: weights[name][:-1]})

        hf, gguf = tiny.write_hugging_face, tiny.write_gguf
        path, _ = self.make(hf, without("layers.1.mlp.gate.weight"))
        self.check_refused("a router is missing", path,
                           "model.layers.1.mlp.gate.weight is missing", "[6, 32] was expected")
        path, _ = self.make(hf, without("norm.weight"))
        self.check_refused("a norm is missing", path, "model.norm.weight is missing", "[32]")
        path, _ = self.make(hf, without("layers.2.mlp.experts.3.up_proj.weight"))
        self.check_refused("an expert is missing", path,
                           "model.layers.2.mlp.experts.3.up_proj.weight is missing", "[16, 32]")
        path, _ = self.make(hf, shorter("layers.1.self_attn.k_proj.weight"))
        self.check_refused("a matrix is short", path, "layers.1.self_attn.k_proj.weight is F32 "
                           "[31, 32]", "[32, 32]")
        path, _ = self.make(hf, shorter("layers.2.mlp.experts.0.down_proj.weight"))
        self.check_refused("an expert is short", path, "experts.0.down_proj.weight is F32 [31, 16]",
                           "[32, 16]")
        path, _ = self.make(gguf, shorter("layers.1.input_layernorm.weight"))
        self.check_refused("a norm of a GGUF is short", path, "blk.1.attn_norm.weight is F32 [31]",
                           "[32] were expected")
        path, _ = self.make(gguf, lambda weights: [weights.pop(name) for name in list(weights)
                                                   if name.startswith("layers.2.mlp.experts")])
        self.check_refused("experts of a GGUF are missing", path,
                           "blk.2.ffn_gate_exps.weight is missing", "[6, 16, 32] was expected")

    def check_unknown(self):
        extra = {"model.layers.0.self_attn.q_proj.bias": [64], "model.strange.weight": [3, 3],
                 "mtp.fc.weight": [4]}
        path, _ = self.make(tiny.write_hugging_face, extra=extra)
        shown = self.inspect(path)
        self.expect("unknown tensors", sorted(shown["unknown_tensors"]), sorted(extra)[:2])
        self.expect("known and not used", shown["classes"]["vision, prediction"]["tensors"], 1)
        table, _ = self.run("inspect", path)
        _, said = self.run("logits", "-m", path, "--tokens", "1")
        for name in sorted(extra)[:2]:
            self.expect(f"{name} is noted", (name in table, name in said), (True, True))
        self.expect("mtp.fc.weight is not", "mtp.fc.weight" in table + said, False)

    def check_alternating(self, path):
        """Gate and up in alternating rows of one tensor: each row counts once."""
        experts, width, hidden = 4 * 8, 64, 96
        weights = 3 * width * hidden * (4 + 8 / 32) / 8  # MXFP4 with a scale for 32 numbers
        found = self.inspect(path)["classes"]["experts"]["bytes"]
        self.expect("alternating rows", found, experts * (weights + 2 * (2 * hidden + width)))


def main():
    with tempfile.TemporaryDirectory() as scratch:
        test = Test(sys.argv[1], scratch)
        test.check_numbers()
        test.check_alternating(pathlib.Path(sys.argv[2]) / "tests/fixtures/golden/gpt_oss_mxfp4")
        test.check_placement(pathlib.Path(sys.argv[2]) / "models/pebble")
        test.check_mismatch()
        test.check_unknown()
    sys.exit(1 if test.failed else 0)


main()
