#!/usr/bin/env python3
"""Write a model directory as Hugging Face publishes them, in floats, filled with random (but sane)
weights.

The shapes are the presets of random_shapes.py, those without linear attention; names, order of
dimensions and config.json are what published checkpoints have, only the numbers are noise.  FP8
has a scale for every 128 x 128 numbers; what published FP8 files leave in BF16 is BF16.  Standard
library only.

    make_random_floats.py --preset qwen3-30b-a3b --layers 2 --dtype FP8 --out DIRECTORY
"""

import argparse
import json
import math
import os
import random
import struct

import make_random_mlx as mlx
import random_shapes as shapes

TILE = 128
NEVER_FP8 = ("model.embed_tokens", "lm_head", ".mlp.gate")


def split_experts(m):
    """The modules, stacks of experts taken apart."""
    for name, shape, filling, *_ in mlx.modules(m, split_kv_b=False):
        if "switch_mlp" not in name:
            yield name, shape, filling
            continue
        for i in range(m["experts"]):
            yield name.replace("switch_mlp", f"experts.{i}"), shape[1:], filling


def picked(table, count, rng):
    """`count` numbers of two bytes, each one of 256."""
    low, high = (bytes(x[i] for x in table) for i in (0, 1))
    while count:
        picks = rng.randbytes(min(count, 1 << 22))
        out = bytearray(2 * len(picks))
        out[0::2] = picks.translate(low)
        out[1::2] = picks.translate(high)
        yield out
        count -= len(picks)


def small_f8(count, rng):
    """Bytes below 2, of either sign."""
    below = bytes(b & 0xbf for b in range(256))
    while count:
        picks = rng.randbytes(min(count, 1 << 22))
        yield picks.translate(below)
        count -= len(picks)


def f8_deviation():
    values = [(1 + b % 8 / 8) * 2.0 ** (b // 8 - 7) if b >= 8 else b * 2.0 ** -9 for b in range(64)]
    return math.sqrt(sum(v * v for v in values) / len(values))


def tensors(m, dtype, seed):
    """(name, type, shape, function that yields its bytes)"""
    for name, shape, filling in split_experts(m):
        rng, count = random.Random(f"{seed} {name}"), math.prod(shape)
        if filling[0] == "raw":
            full = name if name.endswith(mlx.NO_SUFFIX) else name + ".weight"
            yield full, filling[1], shape, lambda f=filling, c=count, r=rng: [
                mlx.numbers(f[1], c, f[2], f[3], r)]
            continue
        deviation = filling[1] / math.sqrt(shape[-1])
        if dtype == "FP8" and not name.endswith(NEVER_FP8):
            tiles = [-(-n // TILE) for n in shape]
            scale = struct.pack("<f", deviation / f8_deviation())
            yield name + ".weight", "F8_E4M3", shape, lambda c=count, r=rng: small_f8(c, r)
            yield (name + ".weight_scale_inv", "F32", tiles,
                   lambda s=scale, c=math.prod(tiles): [s * c])
            continue
        kind, reach = "BF16" if dtype == "FP8" else dtype, deviation * math.sqrt(3.0)
        table = [mlx.half(kind, reach * (2 * k / 255 - 1)) for k in range(256)]
        yield (name + ".weight", kind, shape, lambda t=table, c=count, r=rng: picked(t, c, r))


def write(directory, m, dtype, seed):
    text, eos, bos = mlx.tokenizer(m)
    config = mlx.config(m, None, eos, bos)
    del config["quantization"], config["quantization_config"]
    if dtype == "FP8":
        config["quantization_config"] = dict(quant_method="fp8", fmt="e4m3",
                                             activation_scheme="dynamic",
                                             weight_block_size=[TILE, TILE])
    os.makedirs(directory, exist_ok=True)
    for name, value in (("config.json", config), ("tokenizer.json", text)):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
            json.dump(value, f, indent=1, ensure_ascii=False)
    all_tensors = {name: rest for name, *rest in tensors(m, dtype, seed)}
    total = mlx.write_file(os.path.join(directory, "model.safetensors"), all_tensors, "pt")
    print(f"{directory}: {len(all_tensors)} tensors, {total} bytes")


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    plain = sorted(k for k, m in shapes.PRESETS.items() if m["arch"] not in shapes.HYBRID + ("gpt-oss",))
    ap.add_argument("--preset", choices=plain, required=True)
    ap.add_argument("--dtype", choices=("BF16", "F16", "FP8"), default="BF16")
    ap.add_argument("--out", required=True, metavar="DIRECTORY")
    ap.add_argument("--layers", type=int)
    ap.add_argument("--experts", type=int)
    ap.add_argument("--vocab", type=int)
    ap.add_argument("--seed", type=int, default=1)
    o = ap.parse_args()
    m = dict(shapes.PRESETS[o.preset])
    for key in ("layers", "experts", "vocab"):
        m[key] = getattr(o, key) or m[key]
    m["used"] = min(m["used"], m["experts"])
    if m.get("dense_lead", 0) >= m["layers"]:
        ap.error("no expert layer left")
    write(o.out, m, o.dtype, o.seed)


if __name__ == "__main__":
    main()
