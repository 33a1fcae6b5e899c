#!/usr/bin/env python3
"""Turn a 4-bit MLX checkpoint into the layout of the project's ancestors.

    make_ancestors.py models/pebble OUT             experts of 4 bits, the same weights
    make_ancestors.py --two-bit models/pebble OUT   experts made over into 2 bits
    make_ancestors.py --binary-tokenizer …          tokenizer.bin and vocab.bin, no tokenizer.json

    OUT/mlx/                                config.json and what lies beside it
    OUT/artifacts/model_weights.bin|json    every tensor but the experts, and its manifest
    OUT/artifacts/tokenizer.bin, vocab.bin
    OUT/root/packed_experts[_2bit]/layer_NN.bin, layout.json

src/checkpoint/ancestors.h and src/tokenizer/load_ancestors.c draw the files.  Standard library only.
"""

import argparse
import json
import mmap
import os
import pathlib
import re
import shutil
import struct
import sys

from random_shapes import byte_alphabet

GROUP = 64
PARTS = [f"{m}_proj.{p}" for m in ("gate", "up", "down") for p in ("weight", "scales", "biases")]
EXPERT = re.compile(r"(?:language_model\.)?model\.layers\.(\d+)\.mlp\.switch_mlp\.(.+)$")
SKIPPED = re.compile(r"visual\.|vision_tower\.|mtp\.")

# --------------------------------------------------------------------------
# tensors: name -> (dtype, shape, bytes)


def read_tensors(directory):
    out = {}
    for path in sorted(directory.glob("model*.safetensors")):
        with open(path, "rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(bytes(data[8:8 + size]))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            out[name] = (entry["dtype"], entry["shape"], data[8 + size + begin:8 + size + end])
    return out


def split_experts(tensors):
    """{layer: {part: tensor}} and the rest."""
    layers, rest = {}, {}
    for name, tensor in tensors.items():
        found = EXPERT.match(name)
        if found:
            layers.setdefault(int(found[1]), {})[found[2]] = tensor
        elif not SKIPPED.search(name):
            rest[name.removeprefix("language_model.")] = tensor
    return layers, rest


def one_expert(layer, expert):
    """The nine parts of an expert: [(name, dtype, shape, bytes)]."""
    parts = []
    for name in PARTS:
        dtype, shape, data = layer[name]
        size = len(data) // shape[0]
        parts.append((name, dtype, shape[1:], bytes(data[expert * size:(expert + 1) * size])))
    return parts


# --------------------------------------------------------------------------
# 2 bits


def from_bf16(data):
    wide = bytearray(2 * len(data))
    wide[2::4], wide[3::4] = data[0::2], data[1::2]
    return struct.unpack(f"<{len(data) // 2}f", wide)


def to_bf16(values):
    out = bytearray()
    for value in values:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        out += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return bytes(out)


def two_bit_matrix(codes, scales, biases):
    """Of every group the least value and a third of the span: 4 levels for 16."""
    out, steps, floors = bytearray(), [], []
    for i, (scale, bias) in enumerate(zip(from_bf16(scales), from_bf16(biases))):
        packed = codes[32 * i:32 * i + 32]
        values = [(byte >> shift & 15) * scale + bias for byte in packed for shift in (0, 4)]
        floor = min(values)
        step = (max(values) - floor) / 3 or 1e-7
        steps.append(step)
        floors.append(floor)
        levels = [min(3, max(0, round((value - floor) / step))) for value in values]
        for a, b, c, d in zip(*[iter(levels)] * 4):
            out.append(a | b << 2 | c << 4 | d << 6)
    return bytes(out), to_bf16(steps), to_bf16(floors)


def two_bit_expert(parts):
    out = []
    for i in range(0, len(parts), 3):
        data = two_bit_matrix(*(part[3] for part in parts[i:i + 3]))
        for (name, dtype, shape, _), new in zip(parts[i:i + 3], data):
            rows, cols = shape
            out.append((name, dtype, [rows, cols // 2 if dtype == "U32" else cols], new))
    return out


# --------------------------------------------------------------------------
# files


def write_weights(directory, rest, config):
    entries, offset = {}, 0
    with open(directory / "model_weights.bin", "wb") as file:
        for name in sorted(rest):
            dtype, shape, data = rest[name]
            data = bytes(data)
            if name.endswith("linear_attn.A_log") and dtype == "BF16":
                dtype, data = "F32", struct.pack(f"<{len(data) // 2}f", *from_bf16(data))
            file.write(bytes(-offset % 64))
            offset += -offset % 64
            entries[name] = {"offset": offset, "size": len(data), "shape": shape, "dtype": dtype}
            if dtype == "U32":
                groups = rest[name.removesuffix("weight") + "scales"][1][-1]
                entries[name]["bits"] = shape[-1] * 32 // (groups * GROUP)
            file.write(data)
            offset += len(data)
    manifest = {"model": config.get("model_type"), "num_tensors": len(entries),
                "config": config.get("text_config", config), "tensors": entries}
    (directory / "model_weights.json").write_text(json.dumps(manifest, indent=1))


def write_experts(directory, layers, two_bit):
    directory.mkdir(parents=True)
    components, experts = [], 0
    for number, layer in sorted(layers.items()):
        experts = layer[PARTS[0]][1][0]
        with open(directory / f"layer_{number:02d}.bin", "wb") as file:
            for x in range(experts):
                parts = one_expert(layer, x)
                if two_bit:
                    parts = two_bit_expert(parts)
                offset, components = 0, []
                for name, dtype, shape, data in parts:
                    components.append({"name": name, "offset": offset, "size": len(data),
                                       "dtype": dtype, "shape": shape})
                    offset += len(data)
                    file.write(data)
    (directory / "layout.json").write_text(json.dumps({
        "expert_size": offset, "num_layers": max(layers) + 1, "num_experts": experts,
        "components": components, "moe_layers": sorted(layers)}, indent=1))


def text_record(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<H", len(data)) + data


def write_tokenizer(directory, tokenizer):
    model = tokenizer["model"]
    vocab = sorted((i, token) for token, i in model["vocab"].items())
    merges = [m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"]]
    added = sorted((t["id"], t["content"]) for t in tokenizer["added_tokens"])
    with open(directory / "tokenizer.bin", "wb") as file:
        file.write(b"BPET" + struct.pack("<4I", 1, len(vocab), len(merges), len(added)))
        for i, token in vocab:
            file.write(struct.pack("<I", i) + text_record(token))
        for left, right in merges:
            file.write(text_record(left) + text_record(right))
        for i, token in added:
            file.write(struct.pack("<I", i) + text_record(token))

    byte_of = {character: byte for byte, character in enumerate(byte_alphabet())}
    raw = {i: bytes(byte_of[c] for c in token) for i, token in vocab}
    raw.update((i, token.encode()) for i, token in added)
    with open(directory / "vocab.bin", "wb") as file:
        file.write(struct.pack("<2I", max(raw) + 1, max(raw)))
        for i in range(max(raw) + 1):
            file.write(text_record(raw.get(i, b"")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--two-bit", action="store_true")
    parser.add_argument("--binary-tokenizer", action="store_true")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    config = json.loads((options.model / "config.json").read_text())
    quantization = config.get("quantization", {})
    if (quantization.get("bits"), quantization.get("group_size")) != (4, GROUP):
        sys.exit(f"{options.model} is not an MLX checkpoint of 4 bits in groups of {GROUP}")
    layers, rest = split_experts(read_tensors(options.model))
    for directory in ("mlx", "artifacts"):
        os.makedirs(options.out / directory)
    for path in options.model.iterdir():
        texts = path.suffix in (".json", ".jinja") and ".index." not in path.name
        if texts and not (options.binary_tokenizer and path.name == "tokenizer.json"):
            shutil.copyfile(path, options.out / "mlx" / path.name)
    if options.binary_tokenizer:
        tokenizer = json.loads((options.model / "tokenizer.json").read_text())
        write_tokenizer(options.out / "artifacts", tokenizer)
    write_weights(options.out / "artifacts", rest, config)
    name = "packed_experts_2bit" if options.two_bit else "packed_experts"
    write_experts(options.out / "root" / name, layers, options.two_bit)


if __name__ == "__main__":
    main()
