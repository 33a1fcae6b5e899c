#!/usr/bin/env python3
"""Write a model directory as mlx-lm converts them, filled with random (but sane) weights.

The shapes are the presets of random_shapes.py; names, order of dimensions,
config.json, quantised modules and their overrides are what published MLX
checkpoints have, only the numbers are noise.  Standard library only.

    make_random_mlx.py --preset tiny-qwen3next --out DIRECTORY
    make_random_mlx.py --preset tiny-deepseek2 --bits 3 --group 128 --out DIRECTORY
    make_random_mlx.py --preset tiny-qwen3moe --shards 3 --scales F16 --out DIRECTORY

A quantised matrix has random bits, scales that spread around the one that gives
n inputs a standard deviation of gain/sqrt(n), and biases of -mean(q) * scale, so
every group is zero-mean.  The tokenizer is a byte-level BPE that can tokenise
any text.
"""

import argparse
import json
import math
import os
import random
import struct

import random_shapes as shapes

# --------------------------------------------------------------------------
# names: (name without .weight, shape with the fastest dimension last, filling)
# filling as in make_random_gguf, or ("raw", dtype, lo, hi): F32 or BF16 numbers
# in between, never quantised.  A trailing number is the bits of an override.


def modules(m, split_kv_b=True):
    a, e = m["arch"], m["embd"]
    prefix = {"qwen35moe": "language_model.", "gemma4": "language_model."}.get(a, "")
    gain = 1.0 if a == "gemma4" else math.sqrt(e)     # which scales it when it is used
    out = [(prefix + "model.embed_tokens", [m["vocab"], e], ("w", gain))]

    def norm(name, size, weight=1.0):
        out.append((name, [size], ("raw", "BF16", weight, weight)))

    def linear(name, rows, cols, gain=1.0, bits=None):
        out.append((name, [rows, cols], ("w", gain), bits))

    def swiglu(p, width, stack=None):
        lead = [stack] if stack else []
        for name in ("gate_proj", "up_proj"):
            out.append((p + name, lead + [width, e], ("w", 1.0)))
        out.append((p + "down_proj", lead + [e, width], ("w", shapes.OUT_GAIN)))

    for i in range(m["layers"]):
        p = f"{prefix}model.layers.{i}."
        norm(p + "input_layernorm", e)
        norm(p + "post_attention_layernorm", e)
        if a == "deepseek2":
            latent_attention(m, p + "self_attn.", linear, norm, out, split_kv_b)
        elif a in shapes.HYBRID and (i + 1) % m["interval"] != 0:
            linear_attention(m, p + "linear_attn.", linear, norm, out)
        else:
            (kv, d), twice = shapes.attention_heads(m, i), 2 if a in shapes.HYBRID else 1
            linear(p + "self_attn.q_proj", m["heads"] * d * twice, e)
            linear(p + "self_attn.k_proj", kv * d, e)
            if a != "gemma4" or shapes.has_window(m, i):
                linear(p + "self_attn.v_proj", kv * d, e)
            linear(p + "self_attn.o_proj", e, m["heads"] * d, shapes.ATT_GAIN)
            qk_norm = m.get("qk_norm", "heads")
            if qk_norm:
                whole = qk_norm == "whole"
                near = d ** -0.25 if a == "gemma4" else 1.0    # scores have no other scale
                norm(p + "self_attn.q_norm", d * (m["heads"] if whole else 1), near)
                norm(p + "self_attn.k_norm", d * (m["kv_heads"] if whole else 1), near)
            for name in "qkv" if m.get("bias") else "":
                out.append((p + f"self_attn.{name}_proj.bias",
                            [d * m["heads" if name == "q" else "kv_heads"]],
                            ("raw", "BF16", -0.5, 0.5)))
        if i < m.get("dense_lead", 0):
            swiglu(p + "mlp.", m["ff"])
            continue
        if a == "gemma4":
            for name in ("pre_feedforward", "pre_feedforward_2", "post_feedforward",
                         "post_feedforward_1", "post_feedforward_2"):
                part, _, number = name.partition("d_")
                norm(p + (part + "d_layernorm_" + number if number else name + "_layernorm"), e)
            out.append((p + "layer_scalar", [1], ("raw", "BF16", 0.5, 1.0)))
            linear(p + "router.proj", m["experts"], e, math.sqrt(e), bits=8)
            out.append((p + "router.scale", [e], ("raw", "BF16", 0.5, 1.5)))
            out.append((p + "router.per_expert_scale", [m["experts"]],
                        ("raw", "BF16", 0.5, 1.5)))
            swiglu(p + "experts.switch_glu.", m["ff_exp"], m["experts"])
            swiglu(p + "mlp.", m["ff"])
            continue
        if a == "minimax-m2":
            block = p + "block_sparse_moe."
            swiglu(block + "switch_mlp.", m["ff_exp"], m["experts"])
            linear(block + "gate", m["experts"], e, bits=8)
            out.append((block + "e_score_correction_bias", [m["experts"]],
                        ("raw", "F32", -0.01, 0.01)))
            continue
        swiglu(p + "mlp.switch_mlp.", m["ff_exp"], m["experts"])
        if a in ("deepseek2", "glm4moe"):
            spread = math.sqrt(3.0 / e)
            out.append((p + "mlp.gate", [m["experts"], e], ("raw", "BF16", -spread, spread)))
            if m["gating"] == 2:
                out.append((p + "mlp.gate.e_score_correction_bias", [m["experts"]],
                            ("raw", "F32", -0.01, 0.01)))
            swiglu(p + "mlp.shared_experts.", m["ff_exp"] * m["shared"])
        else:
            linear(p + "mlp.gate", m["experts"], e, bits=8)
        if a in shapes.HYBRID:
            swiglu(p + "mlp.shared_expert.", m["ff_shexp"])
            linear(p + "mlp.shared_expert_gate", 1, e, bits=8)
    norm(prefix + "model.norm", e)
    if a != "gemma4":
        linear(prefix + "lm_head", m["vocab"], e)
    return out


def latent_attention(m, p, linear, norm, out, split_kv_b):
    e, h, c, rot, n, dv = (m[k] for k in ("embd", "heads", "kv_lora", "n_rot", "nope", "v_dim"))
    if m["q_lora"]:
        linear(p + "q_a_proj", m["q_lora"], e)
        norm(p + "q_a_layernorm", m["q_lora"])
        linear(p + "q_b_proj", h * (n + rot), m["q_lora"])
    else:
        linear(p + "q_proj", h * (n + rot), e)
    linear(p + "kv_a_proj_with_mqa", c + rot, e)
    norm(p + "kv_a_layernorm", c)
    if split_kv_b:
        out.append((p + "embed_q", [h, c, n], ("w", 1.0)))
        out.append((p + "unembed_out", [h, dv, c], ("w", 1.0)))
    else:
        linear(p + "kv_b_proj", h * (n + dv), c)
    linear(p + "o_proj", e, h * dv, shapes.ATT_GAIN)


def linear_attention(m, p, linear, norm, out):
    e, d, hv = m["embd"], m["lin_dim"], m["lin_v_heads"]
    key, value = d * m["lin_k_heads"], d * hv
    if m["arch"] == "qwen3next":
        linear(p + "in_proj_qkvz", 2 * key + 2 * value, e)
        linear(p + "in_proj_ba", 2 * hv, e)
    else:
        linear(p + "in_proj_qkv", 2 * key + value, e)
        linear(p + "in_proj_z", value, e)
        linear(p + "in_proj_a", hv, e)
        linear(p + "in_proj_b", hv, e)
    out.append((p + "conv1d", [2 * key + value, m["conv"], 1], ("raw", "BF16", -0.8, 0.8)))
    out.append((p + "dt_bias", [hv], ("raw", "BF16", -4.0, -1.0)))
    out.append((p + "A_log", [hv], ("raw", "F32", math.log(0.5), math.log(8.0))))
    norm(p + "norm", d)
    linear(p + "out_proj", e, value, shapes.OUT_GAIN)


NO_SUFFIX = ("dt_bias", "A_log", "e_score_correction_bias", "_proj.bias", "layer_scalar",
             "router.scale", "router.per_expert_scale")

# --------------------------------------------------------------------------
# config.json and tokenizer.json


def config(m, quantization, eos, bos):
    a = m["arch"]
    common = dict(hidden_size=m["embd"], num_hidden_layers=m["layers"], vocab_size=m["vocab"],
                  num_attention_heads=m["heads"], rms_norm_eps=m["eps"], rope_theta=m["theta"],
                  max_position_embeddings=m["ctx"], moe_intermediate_size=m["ff_exp"],
                  num_experts_per_tok=m["used"], tie_word_embeddings=False, hidden_act="silu",
                  attention_bias=False, bos_token_id=bos, eos_token_id=eos, rope_scaling=None,
                  torch_dtype="bfloat16")
    if a == "deepseek2":
        own = dict(model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"],
                   num_key_value_heads=m["heads"], intermediate_size=m["ff"],
                   kv_lora_rank=m["kv_lora"], q_lora_rank=m["q_lora"] or None,
                   qk_nope_head_dim=m["nope"], qk_rope_head_dim=m["n_rot"],
                   v_head_dim=m["v_dim"], first_k_dense_replace=m["dense_lead"],
                   moe_layer_freq=1, n_routed_experts=m["experts"], n_shared_experts=m["shared"],
                   n_group=m.get("groups", 1), topk_group=m.get("groups_used", 1),
                   norm_topk_prob=m["norm"], routed_scaling_factor=m["scale"],
                   scoring_func="sigmoid" if m["gating"] == 2 else "softmax",
                   topk_method="noaux_tc" if m["gating"] == 2 else "greedy")
        if m["gating"] == 1:
            own.update(model_type="deepseek_v2", architectures=["DeepseekV2ForCausalLM"])
        if m.get("model_type") == "glm4_moe_lite":
            own.update(model_type="glm4_moe_lite", architectures=["Glm4MoeLiteForCausalLM"],
                       partial_rotary_factor=1.0, num_nextn_predict_layers=1)
            own.pop("scoring_func")
        if m.get("yarn"):
            scale = m["yarn"]["yarn_log_multiplier"] * 10
            own["rope_scaling"] = dict(type="yarn", factor=m["yarn"]["factor"], beta_fast=32,
                                       beta_slow=1, mscale=scale, mscale_all_dim=scale,
                                       original_max_position_embeddings=m["yarn"]["orig"])
    elif a == "glm4moe":
        own = dict(model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"],
                   num_key_value_heads=m["kv_heads"], head_dim=m["head_dim"],
                   intermediate_size=m["ff"], attention_bias=m["bias"],
                   use_qk_norm=m["qk_norm"] is not None,
                   partial_rotary_factor=m["n_rot"] / m["head_dim"],
                   first_k_dense_replace=m["dense_lead"], n_routed_experts=m["experts"],
                   n_shared_experts=m["shared"], n_group=1, topk_group=1,
                   norm_topk_prob=m["norm"], routed_scaling_factor=m["scale"],
                   num_nextn_predict_layers=1)
    elif a == "minimax-m2":
        own = dict(model_type="minimax_m2", architectures=["MiniMaxM2ForCausalLM"],
                   num_key_value_heads=m["kv_heads"], head_dim=m["head_dim"],
                   intermediate_size=m["ff_exp"], num_local_experts=m["experts"],
                   rotary_dim=m["n_rot"], scoring_func="sigmoid", use_qk_norm=True,
                   use_routing_bias=True, qk_norm_type="per_layer", shared_intermediate_size=0,
                   attn_type_list=[1] * m["layers"], num_mtp_modules=3)
        common.pop("moe_intermediate_size")
    elif a == "gemma4":
        own = dict(model_type="gemma4_text", num_key_value_heads=m["kv_heads"],
                   head_dim=m["head_dim"], global_head_dim=m["full_head_dim"],
                   num_global_key_value_heads=m["full_kv_heads"], attention_k_eq_v=True,
                   intermediate_size=m["ff"], num_experts=m["experts"], top_k_experts=m["used"],
                   enable_moe_block=True, hidden_activation="gelu_pytorch_tanh",
                   final_logit_softcapping=m["cap"], hidden_size_per_layer_input=0,
                   num_kv_shared_layers=0, sliding_window=m["window"],
                   layer_types=["sliding_attention" if shapes.has_window(m, i)
                                else "full_attention" for i in range(m["layers"])],
                   tie_word_embeddings=True, rope_parameters=dict(
                       full_attention=dict(rope_type="proportional", rope_theta=m["theta"],
                                           partial_rotary_factor=m["turning"]),
                       sliding_attention=dict(rope_type="default",
                                              rope_theta=m["window_theta"])))
        for unused in "hidden_act", "rope_theta", "rope_scaling", "num_experts_per_tok":
            common.pop(unused)
    else:
        own = dict(num_key_value_heads=m["kv_heads"], head_dim=m["head_dim"],
                   num_experts=m["experts"], norm_topk_prob=True, decoder_sparse_step=1,
                   mlp_only_layers=[], intermediate_size=m.get("ff", m["ff_exp"]))
    if a == "qwen3moe":
        own.update(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"])
    if a in shapes.HYBRID:
        own.update(full_attention_interval=m["interval"],
                   partial_rotary_factor=m["n_rot"] / m["head_dim"],
                   linear_conv_kernel_dim=m["conv"], linear_key_head_dim=m["lin_dim"],
                   linear_value_head_dim=m["lin_dim"], linear_num_key_heads=m["lin_k_heads"],
                   linear_num_value_heads=m["lin_v_heads"],
                   shared_expert_intermediate_size=m["ff_shexp"])
    if a == "qwen3next":
        own.update(model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"])
    result = {**common, **own}
    if a == "qwen35moe":
        result.update(model_type="qwen3_5_moe_text", rope_parameters=dict(
            rope_type="default", rope_theta=m["theta"], mrope_interleaved=True,
            mrope_section=m["sections"][:3], partial_rotary_factor=m["n_rot"] / m["head_dim"]))
        result = dict(model_type="qwen3_5_moe", tie_word_embeddings=False, text_config=result,
                      architectures=["Qwen3_5MoeForConditionalGeneration"])
    if a == "gemma4":
        result = dict(model_type="gemma4", tie_word_embeddings=True, text_config=result,
                      eos_token_id=eos, architectures=["Gemma4ForConditionalGeneration"])
    return {**result, "quantization": quantization, "quantization_config": quantization}


QWEN_SPLIT = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
              " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")


def tokenizer(m):
    """tokenizer.json, the end of text and the beginning, as numbers."""
    v = shapes.byte_pairs(m.get("vocabulary", m["arch"]), m["vocab"])
    tokens = v["tokens"]
    special = [i for i, t in enumerate(v["types"]) if t == 3]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=False, use_regex=False)
    split = dict(type="Split", pattern=dict(Regex=QWEN_SPLIT), behavior="Isolated", invert=False)
    return dict(
        version="1.0", truncation=None, padding=None, post_processor=None, normalizer=None,
        added_tokens=[dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False,
                           normalized=False, special=True) for i in special],
        pre_tokenizer=dict(type="Sequence", pretokenizers=[split, level]), decoder=level,
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                   end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                   ignore_merges=False, merges=[x.split(" ") for x in v["merges"]],
                   vocab={t: i for i, t in enumerate(tokens) if i not in special}),
    ), v["eos"], v["bos"]


# --------------------------------------------------------------------------
# data


def half(dtype, x):
    if dtype == "F16":
        return struct.pack("<e", x)
    return struct.pack("<I", (struct.unpack("<I", struct.pack("<f", x))[0] + 0x8000) & ~0xffff)[2:]


def numbers(dtype, count, lo, hi, rng):
    if lo == hi:
        one = struct.pack("<f", lo) if dtype == "F32" else half(dtype, lo)
        return one * count
    values = (rng.uniform(lo, hi) for _ in range(count))
    if dtype == "F32":
        return struct.pack(f"<{count}f", *values)
    return b"".join(half(dtype, x) for x in values)


class Writer:
    """Collects tensors as (dtype, shape, function that yields its bytes)."""

    def __init__(self, bits, group, scales, seed):
        self.bits, self.group, self.scales, self.seed = bits, group, scales, seed
        self.tensors, self.overrides = {}, {}

    def add(self, name, shape, filling, bits=None):
        count, cols = math.prod(shape), shape[-1]
        rng = random.Random(f"{self.seed} {name}")
        if filling[0] == "raw":
            suffix = "" if name.endswith(NO_SUFFIX) else ".weight"
            self.tensors[name + suffix] = (
                filling[1], shape, lambda: [numbers(filling[1], count, *filling[2:], rng)])
            return
        std = filling[1] / math.sqrt(cols)
        if cols % self.group:                   # rows that do not hold whole groups
            reach = std * math.sqrt(3.0)
            self.tensors[name + ".weight"] = (
                "BF16", shape, lambda: [numbers("BF16", count, -reach, reach, rng)])
            return
        width = bits or self.bits
        if width != self.bits:
            self.overrides[name] = dict(group_size=self.group, bits=width)
        self.add_quantised(name, shape, std, width, rng)

    def add_quantised(self, name, shape, std, width, rng):
        levels, groups = 1 << width, math.prod(shape) // self.group
        base = std / math.sqrt((levels ** 2 - 1) / 12)
        choices = [base * (0.75 + 0.5 * k / 255) for k in range(256)]
        tables = [[half(self.scales, x) for x in choices],
                  [half(self.scales, -x * (levels - 1) / 2) for x in choices]]
        pick = random.Random(rng.random())      # the same for scales and biases
        picks = pick.randbytes(min(groups, 1 << 20))

        def scattered(table):
            done = 0
            while done < groups:
                part = picks[:groups - done]
                out = bytearray(2 * len(part))
                out[0::2] = part.translate(bytes(x[0] for x in table))
                out[1::2] = part.translate(bytes(x[1] for x in table))
                yield out
                done += len(part)

        def noise():
            left = math.prod(shape) * width // 8
            while left:
                part = rng.randbytes(min(left, 1 << 22))
                yield part
                left -= len(part)

        lead, cols = shape[:-1], shape[-1]
        self.tensors[name + ".weight"] = ("U32", lead + [cols * width // 32], noise)
        for part, table in zip((".scales", ".biases"), tables):
            self.tensors[name + part] = (self.scales, lead + [cols // self.group],
                                         lambda table=table: scattered(table))


SIZES = {"U32": 4, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1}


def write_file(path, tensors, origin="mlx"):
    header, at = {"__metadata__": {"format": origin}}, 0
    order = sorted(tensors.items(), key=lambda t: (-SIZES[t[1][0]], t[0]))   # wide ones first
    for name, (dtype, shape, _) in order:
        size = math.prod(shape) * SIZES[dtype]
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + size])
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, (dtype, shape, data) in order:
            begin = f.tell()
            for piece in data():
                f.write(piece)
            assert f.tell() - begin == math.prod(shape) * SIZES[dtype], name
    return at


def write(directory, m, bits, group, scales, shards, seed, split_kv_b):
    writer = Writer(bits, group, scales, seed)
    for module in modules(m, split_kv_b):
        writer.add(*module)
    quantization = dict(group_size=group, bits=bits, mode="affine", **writer.overrides)
    text, eos, bos = tokenizer(m)
    os.makedirs(directory, exist_ok=True)
    for name, value in (("config.json", config(m, quantization, eos, bos)),
                        ("tokenizer.json", text)):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
            json.dump(value, f, indent=1, ensure_ascii=False)
    names, weight_map, total = list(writer.tensors), {}, 0
    for i in range(shards):
        mine = names[len(names) * i // shards:len(names) * (i + 1) // shards]
        file = ("model.safetensors" if shards == 1 else
                f"model-{i + 1:05d}-of-{shards:05d}.safetensors")
        total += write_file(os.path.join(directory, file), {n: writer.tensors[n] for n in mine})
        weight_map.update({n: file for n in mine})
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as f:
        json.dump(dict(metadata=dict(total_size=total), weight_map=weight_map), f, indent=1)
    print(f"{directory}: {len(names)} tensors, {total} bytes")


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    written = [name for name, m in shapes.PRESETS.items() if m["arch"] != "gpt-oss"]
    ap.add_argument("--preset", choices=sorted(written), required=True)
    ap.add_argument("--out", required=True, metavar="DIRECTORY")
    ap.add_argument("--bits", type=int, choices=(2, 3, 4, 5, 6, 8), default=4)
    ap.add_argument("--group", type=int, choices=(32, 64, 128), default=64)
    ap.add_argument("--scales", choices=("BF16", "F16"), default="BF16")
    ap.add_argument("--shards", type=int, default=1)
    ap.add_argument("--layers", type=int)
    ap.add_argument("--experts", type=int)
    ap.add_argument("--vocab", type=int)
    ap.add_argument("--kv-b", action="store_true",
                    help="keep kv_b_proj whole, as older DeepSeek conversions do")
    ap.add_argument("--seed", type=int, default=1)
    o = ap.parse_args()
    m = dict(shapes.PRESETS[o.preset])
    for key in ("layers", "experts", "vocab"):
        if getattr(o, key):
            m[key] = getattr(o, key)
    m["used"] = min(m["used"], m["experts"])
    if m.get("dense_lead", 0) >= m["layers"]:
        ap.error("no expert layer left")
    write(o.out, m, o.bits, o.group, o.scales, max(1, o.shards), o.seed, not o.kv_b)


if __name__ == "__main__":
    main()
