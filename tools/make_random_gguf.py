#!/usr/bin/env python3
"""Write a GGUF of real model shapes filled with random (but sane) weights.

For timing inference engines and for comparing them on the same file, without
downloading real weights: every metadata key, tensor name, shape and
quantisation type is what a converted checkpoint has, only the numbers are
noise.  Standard library only; make_random_mlx.py writes the same shapes as an
MLX directory.

    make_random_gguf.py --preset qwen3-30b-a3b --out full.gguf
    make_random_gguf.py --preset tiny-gpt-oss --quant mxfp4 --out tiny.gguf
    make_random_gguf.py --preset tiny-qwen3moe --split 3 --out tiny.gguf
    make_random_gguf.py --preset deepseek-v3 --layers 6 --dry-run
    make_random_gguf.py --check some.gguf          # re-read what was written

How the noise is kept sane.  Quant blocks are random bytes whose fp16 scales
are then overwritten, so that a weight matrix with n inputs has standard
deviation gain/sqrt(n): unit-size activations stay unit-size through every
projection.  Q2_K/Q4_K/Q5_K blocks get equal scales and mins and
dmin = mean(q) * d, which makes every sub-block zero-mean; types whose levels
are not symmetric get scales of both signs.  Norm weights are 1.
Token embeddings have unit variance and projections back into the residual
stream a gain below 1, so the hidden state stays dominated by the token's own
random vector: the routers (independent noise, F32) then spread tokens almost
evenly over the experts.  That is the worst case for an expert cache; real
models reuse experts from token to token.  Softmax attention over noise returns
nearly the same average for every token; with a larger output gain that common
vector takes over in deep models and routing collapses onto few experts, hence
ATT_GAIN.

How it is kept fast.  Per (type, scale) one pool of a few MiB of blocks is made
and every tensor is stitched together from pool slices of random length at
random block offsets, written straight to the file.
"""

import argparse
import math
import os
import random
import struct
import sys
import time
from array import array

from random_shapes import (ATT_GAIN, DEFAULT_PRESET, HYBRID, OUT_GAIN, PRESETS,
                           attention_heads, byte_pairs, has_window)

# --------------------------------------------------------------------------
# GGUF constants

U16, U32, I32, F32KV, BOOL, STR, ARR = 2, 4, 5, 6, 7, 8, 9

#          ggml id, elements per block, bytes per block
TYPES = {
    "F32":    (0, 1, 4),
    "F16":    (1, 1, 2),
    "Q4_0":   (2, 32, 18),
    "Q4_1":   (3, 32, 20),
    "Q5_0":   (6, 32, 22),
    "Q5_1":   (7, 32, 24),
    "Q8_0":   (8, 32, 34),
    "Q2_K":   (10, 256, 84),
    "Q3_K":   (11, 256, 110),
    "Q4_K":   (12, 256, 144),
    "Q5_K":   (13, 256, 176),
    "Q6_K":   (14, 256, 210),
    "IQ4_NL": (20, 32, 18),
    "IQ4_XS": (23, 256, 136),
    "BF16":   (30, 1, 2),
    "MXFP4":  (39, 32, 17),
}
TYPE_BY_ID = {v[0]: k for k, v in TYPES.items()}

# q4_0, q4_k_m, mixed and gpt-oss's mxfp4 choose by tensor; the others give every matrix one type
FILE_TYPE = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8,
             "q5_1": 9, "q2_k": 10, "q3_k": 11, "q4_k": 14, "q4_k_m": 15,
             "q5_k": 16, "q6_k": 18, "iq4_nl": 25, "iq4_xs": 30, "bf16": 32,
             "mxfp4": 38, "mixed": 15}

LEVELS = [-127, -104, -83, -65, -49, -35, -22, -10,      # of IQ4_NL and IQ4_XS
          1, 13, 25, 38, 53, 69, 89, 113]
FP4 = [0, .5, 1, 1.5, 2, 3, 4, 6]

# --------------------------------------------------------------------------
# metadata


def metadata(m, quant, name, align):
    a = m["arch"]
    kv = [("general.architecture", STR, a),
          ("general.type", STR, "model"),
          ("general.name", STR, name),
          ("general.quantization_version", U32, 2),
          ("general.file_type", U32, FILE_TYPE[quant])]
    if align != 32:
        kv.append(("general.alignment", U32, align))

    def u(key, val):
        kv.append((f"{a}.{key}", U32, val))

    def f(key, val):
        kv.append((f"{a}.{key}", F32KV, val))

    u("block_count", m["layers"] + m.get("nextn", 0))
    u("context_length", m["ctx"])
    u("embedding_length", m["embd"])
    u("attention.head_count", m["heads"])
    f("attention.layer_norm_rms_epsilon", m["eps"])
    f("rope.freq_base", m["theta"])
    u("expert_count", m["experts"])
    u("expert_used_count", m["used"])
    u("expert_feed_forward_length", m["ff_exp"])
    if "ff" in m:
        u("feed_forward_length", m["ff"])

    if a == "gemma4":
        windows = [has_window(m, i) for i in range(m["layers"])]
        kv.append((f"{a}.attention.head_count_kv", ARR,
                   (I32, [attention_heads(m, i)[0] for i in range(m["layers"])])))
        kv.append((f"{a}.attention.sliding_window_pattern", ARR, (BOOL, windows)))
        u("attention.sliding_window", m["window"])
        u("attention.shared_kv_layers", 0)
        u("embedding_length_per_layer_input", 0)
        for part in "key", "value":
            u(f"attention.{part}_length", m["full_head_dim"])
            u(f"attention.{part}_length_swa", m["head_dim"])
        u("rope.dimension_count", m["full_head_dim"])
        u("rope.dimension_count_swa", m["head_dim"])
        f("rope.freq_base_swa", m["window_theta"])
        f("final_logit_softcapping", m["cap"])
    elif "head_dim" in m:
        u("attention.head_count_kv", m["kv_heads"])
        u("attention.key_length", m["head_dim"])
        u("attention.value_length", m["head_dim"])
    if a in HYBRID:
        u("expert_shared_feed_forward_length", m["ff_shexp"])
        u("rope.dimension_count", m["n_rot"])
        if a == "qwen35moe":
            kv.append((f"{a}.rope.dimension_sections", ARR, (I32, m["sections"])))
        u("full_attention_interval", m["interval"])
        u("ssm.conv_kernel", m["conv"])
        u("ssm.state_size", m["lin_dim"])
        u("ssm.group_count", m["lin_k_heads"])
        u("ssm.time_step_rank", m["lin_v_heads"])
        u("ssm.inner_size", m["lin_v_heads"] * m["lin_dim"])
    if a == "deepseek2":
        # MLA is stored as multi-query attention over the compressed latent
        u("attention.head_count_kv", 1)
        u("attention.key_length", m["kv_lora"] + m["n_rot"])
        u("attention.value_length", m["kv_lora"])
        u("attention.key_length_mla", m["nope"] + m["n_rot"])
        u("attention.value_length_mla", m["v_dim"])
        u("attention.kv_lora_rank", m["kv_lora"])
        # readers take "no q_lora" from the layer count alone (26/27 layers);
        # with another count the key must be there, 0 meaning none
        if m["q_lora"] or m["layers"] not in (26, 27):
            u("attention.q_lora_rank", m["q_lora"])
        u("rope.dimension_count", m["n_rot"])
        u("leading_dense_block_count", m["dense_lead"])
        u("expert_shared_count", m["shared"])
        f("expert_weights_scale", m["scale"])
        kv.append((f"{a}.expert_weights_norm", BOOL, m["norm"]))
        u("expert_gating_func", m["gating"])
        u("vocab_size", m["vocab"])
        if m.get("groups"):
            u("expert_group_count", m["groups"])
            u("expert_group_used_count", m["groups_used"])
        if m.get("nextn"):
            u("nextn_predict_layers", m["nextn"])
    if a == "gpt-oss":
        u("attention.sliding_window", m["window"])
    if a in ("glm4moe", "minimax-m2"):
        u("rope.dimension_count", m["n_rot"])
        u("expert_gating_func", m["gating"])
    if a == "glm4moe":
        u("leading_dense_block_count", m["dense_lead"])
        u("expert_shared_count", m["shared"])
        f("expert_weights_scale", m["scale"])
        kv.append((f"{a}.expert_weights_norm", BOOL, m["norm"]))
        u("nextn_predict_layers", m["nextn"])
    if m.get("yarn"):
        kv.append((f"{a}.rope.scaling.type", STR, "yarn"))
        f("rope.scaling.factor", m["yarn"]["factor"])
        u("rope.scaling.original_context_length", m["yarn"]["orig"])
        for key in "yarn_log_multiplier", "yarn_beta_fast", "yarn_beta_slow":
            if key in m["yarn"]:
                f(f"rope.scaling.{key}", m["yarn"][key])
    return kv + vocabulary(m.get("vocabulary", a), m["vocab"])


def vocabulary(kind, size):
    v = byte_pairs(kind, size)
    pre = {"qwen3moe": "qwen2", "qwen3next": "qwen2", "qwen35moe": "qwen35",
           "deepseek2": "deepseek-v3", "glm": "glm4", "minimax-m2": "minimax-m2",
           "gpt-oss": "gpt-4o",
           "gemma4": "qwen2"}[kind]     # Gemma's own way to cut texts is no byte-level BPE
    kv = [("tokenizer.ggml.model", STR, "gpt2"),
          ("tokenizer.ggml.pre", STR, pre),
          ("tokenizer.ggml.tokens", ARR, (STR, v["tokens"])),
          ("tokenizer.ggml.token_type", ARR, (I32, v["types"])),
          ("tokenizer.ggml.merges", ARR, (STR, v["merges"])),
          ("tokenizer.ggml.bos_token_id", U32, v["bos"]),
          ("tokenizer.ggml.eos_token_id", U32, v["eos"]),
          ("tokenizer.ggml.padding_token_id", U32, v["pad"]),
          ("tokenizer.ggml.add_bos_token", BOOL, False)]
    if kind == "glm":
        for key, token in ("eot", "<|user|>"), ("eom", "<|observation|>"):
            kv.append((f"tokenizer.ggml.{key}_token_id", U32, v["tokens"].index(token)))
    if kind not in ("deepseek2", "glm", "minimax-m2", "gemma4", "gpt-oss"):
        kv.append(("tokenizer.chat_template", STR,
                   "{% for m in messages %}<|im_start|>{{ m.role }}\n"
                   "{{ m.content }}<|im_end|>\n{% endfor %}"
                   "<|im_start|>assistant\n"))
    return kv


# --------------------------------------------------------------------------
# tensors: (name, shape with the fastest dimension first, filling)
# filling: ("ones",) | ("turning", pairs that turn) | ("w", gain) | ("gauss", std) | ("uniform", lo, hi)


def tensors(m):
    a, e = m["arch"], m["embd"]
    W, OUT, ATT = ("w", 1.0), ("w", OUT_GAIN), ("w", m.get("attention_gain", ATT_GAIN))
    ONE = ("ones",)
    router = ("gauss", 1.0 / math.sqrt(e))
    own = a == "gemma4"            # the embedding is scaled by sqrt(e), and is the head
    out = [("token_embd.weight", [e, m["vocab"]], W if own else ("w", math.sqrt(e)))]
    if own:
        half = m["full_head_dim"] // 2
        out.append(("rope_freqs.weight", [half], ("turning", int(m["turning"] * half))))

    def moe(p):
        x, fe = m["experts"], m["ff_exp"]
        out.append((p + "ffn_gate_inp.weight", [e, x], router))
        out.append((p + "ffn_gate_exps.weight", [e, fe, x], W))
        out.append((p + "ffn_up_exps.weight", [e, fe, x], W))
        out.append((p + "ffn_down_exps.weight", [fe, e, x], OUT))
        if a == "gpt-oss":
            for name, shape in (("gate_inp", [x]), ("gate_exps", [fe, x]), ("up_exps", [fe, x]),
                                ("down_exps", [e, x])):
                out.append((p + f"ffn_{name}.bias", shape, ("gauss", 0.3)))

    def gemma(p):
        x, fe, spread = m["experts"], m["ff_exp"], ("uniform", 0.5, 1.5)
        for norm in ("ffn_norm", "post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2",
                     "post_ffw_norm", "post_attention_norm"):
            out.append((p + norm + ".weight", [e], spread))
        out.append((p + "layer_output_scale.weight", [1], spread))
        out.append((p + "ffn_gate_inp.weight", [e, x], ("gauss", 1.0)))
        out.append((p + "ffn_gate_inp.scale", [e], spread))
        out.append((p + "ffn_gate_up_exps.weight", [e, 2 * fe, x], W))
        out.append((p + "ffn_down_exps.weight", [fe, e, x], OUT))
        out.append((p + "ffn_down_exps.scale", [x], spread))
        dense(p)

    def shared(p, fs):
        out.append((p + "ffn_gate_shexp.weight", [e, fs], W))
        out.append((p + "ffn_up_shexp.weight", [e, fs], W))
        out.append((p + "ffn_down_shexp.weight", [fs, e], OUT))

    def routed(p):
        moe(p)
        if m["gating"] == 2:
            out.append((p + "exp_probs_b.bias", [m["experts"]], ("gauss", 0.01)))
        if m.get("shared"):
            shared(p, m["ff_exp"] * m["shared"])

    def dense(p):
        out.append((p + "ffn_gate.weight", [e, m["ff"]], W))
        out.append((p + "ffn_up.weight", [e, m["ff"]], W))
        out.append((p + "ffn_down.weight", [m["ff"], e], OUT))

    for i in range(m["layers"] + m.get("nextn", 0)):
        p = f"blk.{i}."
        if i >= m["layers"]:       # for multi-token prediction
            out.append((p + "nextn.eh_proj.weight", [2 * e, e], W))
            for norm in "enorm", "hnorm", "shared_head_norm":
                out.append((p + f"nextn.{norm}.weight", [e], ONE))
        out.append((p + "attn_norm.weight", [e], ONE))
        if a == "deepseek2":
            h, kl, rot = m["heads"], m["kv_lora"], m["n_rot"]
            hk = m["nope"] + rot
            if m["q_lora"]:
                out.append((p + "attn_q_a.weight", [e, m["q_lora"]], W))
                out.append((p + "attn_q_a_norm.weight", [m["q_lora"]], ONE))
                out.append((p + "attn_q_b.weight", [m["q_lora"], h * hk], W))
            else:
                out.append((p + "attn_q.weight", [e, h * hk], W))
            out.append((p + "attn_kv_a_mqa.weight", [e, kl + rot], W))
            out.append((p + "attn_kv_a_norm.weight", [kl], ONE))
            out.append((p + "attn_k_b.weight", [m["nope"], kl, h], W))
            out.append((p + "attn_v_b.weight", [kl, m["v_dim"], h], W))
            out.append((p + "attn_output.weight", [h * m["v_dim"], e], ATT))
            out.append((p + "ffn_norm.weight", [e], ONE))
            (dense if i < m["dense_lead"] else routed)(p)
            continue

        linear = a in HYBRID and (i + 1) % m["interval"] != 0
        if linear:
            d, hv = m["lin_dim"], m["lin_v_heads"]
            key, val = d * m["lin_k_heads"], d * hv
            out.append((p + "attn_qkv.weight", [e, 2 * key + val], W))
            out.append((p + "attn_gate.weight", [e, val], W))
            out.append((p + "ssm_conv1d.weight", [m["conv"], 2 * key + val],
                        ("gauss", 0.5)))
            out.append((p + "ssm_dt.bias", [hv], ("uniform", -4.0, -1.0)))
            out.append((p + "ssm_a", [hv], ("uniform", -8.0, -0.5)))
            if a == "qwen3next":         # beta and alpha in one, grouped by k-head
                out.append((p + "ssm_ba.weight", [e, 2 * hv], W))
            else:
                out.append((p + "ssm_alpha.weight", [e, hv], W))
                out.append((p + "ssm_beta.weight", [e, hv], W))
            out.append((p + "ssm_norm.weight", [d], ONE))
            out.append((p + "ssm_out.weight", [val, e], OUT))
        else:
            h, (hkv, hd) = m["heads"], attention_heads(m, i)
            nq = h * hd * (2 if a in HYBRID else 1)        # query and its gate
            out.append((p + "attn_q.weight", [e, nq], W))
            out.append((p + "attn_k.weight", [e, hkv * hd], W))
            if a != "gemma4" or has_window(m, i):    # else values are keys
                out.append((p + "attn_v.weight", [e, hkv * hd], W))
            if m.get("bias"):
                for name, width in ("q", nq), ("k", hkv * hd), ("v", hkv * hd):
                    out.append((p + f"attn_{name}.bias", [width], ("gauss", 0.3)))
            qk_norm = m.get("qk_norm", "heads")
            if qk_norm:
                q, k = (h, hkv) if qk_norm == "whole" else (1, 1)
                near = hd ** -0.25     # of gemma4, whose scores have no other scale
                unit = ("uniform", 0.7 * near, 1.3 * near) if a == "gemma4" else ONE
                out.append((p + "attn_q_norm.weight", [q * hd], unit))
                out.append((p + "attn_k_norm.weight", [k * hd], unit))
            out.append((p + "attn_output.weight", [h * hd, e], ATT))
            if a == "gpt-oss":
                out.append((p + "attn_output.bias", [e], ("gauss", 0.1)))
                out.append((p + "attn_sinks.weight", [h], ("gauss", 1.0)))
        if a in HYBRID:
            out.append((p + "post_attention_norm.weight", [e], ONE))
            moe(p)
            out.append((p + "ffn_gate_inp_shexp.weight", [e], router))
            shared(p, m["ff_shexp"])
        elif a == "glm4moe":
            out.append((p + "post_attention_norm.weight", [e], ONE))
            (dense if i < m["dense_lead"] else routed)(p)
        elif a == "gemma4":
            gemma(p)
        else:
            norm = "post_attention_norm" if a == "gpt-oss" else "ffn_norm"
            out.append((p + norm + ".weight", [e], ONE))
            (routed if a == "minimax-m2" else moe)(p)

    out.append(("output_norm.weight", [e], ONE))
    if not own:
        out.append(("output.weight", [e, m["vocab"]], W))
    return out


def pick_type(name, shape, m, quant, attn_v_index):
    """The type a tensor gets; attn_v_index counts attn_v/attn_qkv tensors."""
    if (len(shape) < 2 or not name.endswith("weight") or
            "ffn_gate_inp." in name or "ssm_conv1d" in name):
        return "F32"
    if quant in ("f32", "f16", "bf16"):
        return quant.upper()
    layer = int(name.split(".")[1]) if name.startswith("blk.") else -1
    n = m["layers"]

    def more_bits(i, n):      # first and last eighth, every third in between
        return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2

    if quant == "q4_0":
        t = "Q6_K" if name == "output.weight" else "Q4_0"
    elif quant == "q4_k_m":
        t = "Q4_K"
        if name == "output.weight":
            t = "Q6_K"
        elif "attn_v.weight" in name or "attn_qkv.weight" in name:
            if more_bits(attn_v_index, n):
                t = "Q6_K"
            if m["experts"] == 8:
                t = "Q8_0"
        elif "attn_k.weight" in name and m["experts"] == 8:
            t = "Q8_0"
        elif "attn_output.weight" in name and m["experts"] == 8:
            t = "Q5_K"
        elif "ffn_down" in name and more_bits(layer, n):
            t = "Q6_K"
    elif quant == "mxfp4" and m["arch"] == "gpt-oss":     # as it is published
        t = "MXFP4" if "exps" in name else "Q8_0"
    elif quant == "mixed":    # every type somewhere, for loader tests
        if name == "token_embd.weight":
            t = "Q8_0"
        elif name == "output.weight":
            t = "Q6_K"
        elif "shexp" in name:
            t = ["BF16", "Q4_1"][layer % 2]
        elif "exps" in name:
            t = (["Q6_K", "Q5_K", "Q3_K", "MXFP4"] if "down" in name else
                 ["Q4_K", "Q4_0", "IQ4_XS", "Q2_K"])[layer % 4]
        else:
            t = ["Q8_0", "IQ4_NL", "Q5_1", "F16"][layer % 4]
    else:
        t = quant.upper()
    # rows that do not hold whole blocks
    if shape[0] % TYPES[t][1]:
        t = {"Q2_K": "IQ4_NL", "Q3_K": "IQ4_NL", "IQ4_XS": "IQ4_NL",
             "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}.get(t, "F16")
        if shape[0] % TYPES[t][1]:
            t = "F16"
    return t


# --------------------------------------------------------------------------
# random data


class Noise:
    def __init__(self, seed, pool_bytes):
        self.rng = random.Random(seed)
        self.pool_bytes = pool_bytes
        self.pools = {}
        n = 1 << 18
        g = self.rng.gauss
        self.gauss = array("f", (g(0.0, 1.0) for _ in range(n)))

    def pool(self, typ, std):
        key = (typ, round(math.log2(std) * 8))
        if key not in self.pools:
            self.pools[key] = memoryview(self.make(typ, std))
        return self.pools[key]

    def make(self, typ, std):
        bs = TYPES[typ][2]
        if typ in ("F32", "F16", "BF16"):
            src = array("f", (std * x for x in self.gauss))
            if typ == "F32":
                return src.tobytes()
            if typ == "F16":
                return struct.pack(f"<{len(src)}e", *src)
            raw = src.tobytes()
            out = bytearray(len(raw) // 2)
            out[0::2], out[1::2] = raw[2::4], raw[3::4]
            return bytes(out)

        n = self.pool_bytes // bs
        buf = bytearray(self.rng.randbytes(n * bs))
        pick = self.rng.randbytes(n)

        def half(at, values):
            """Overwrite the fp16 at byte `at` of every block."""
            enc = [struct.pack("<e", v) for v in values]
            buf[at::bs] = pick.translate(bytes(x[0] for x in enc))
            buf[at + 1::bs] = pick.translate(bytes(x[1] for x in enc))

        # 256 scales between 0.75 and 1.25 of the one wanted
        def spread(v):
            return [v * (0.75 + 0.5 * k / 255) for k in range(256)]

        def signed(v):         # the same, every second one negative
            return [x * (-1) ** k for k, x in enumerate(spread(v))]

        def rms(values):
            return math.sqrt(sum(x * x for x in values) / len(values))

        if typ == "Q2_K":
            d = std / (8.80 * math.sqrt(15 / 12))      # 8.80: rms of a 4-bit scale
            half(80, spread(d))
            half(82, spread(d * 1.5))
            twice = bytes((b & 15) * 17 for b in range(256))
            for j in range(16):                # min := scale
                buf[j::bs] = buf[j::bs].translate(twice)
        elif typ == "Q3_K":
            half(108, signed(std / (rms(range(-32, 32)) * rms(range(-4, 4)))))
        elif typ == "IQ4_NL":
            half(0, signed(std / rms(LEVELS)))
        elif typ == "IQ4_XS":
            half(0, signed(std / (rms(range(-32, 32)) * rms(LEVELS))))
        elif typ == "MXFP4":
            # a power of two for each block, two neighbours mixed to the wanted size
            want = std / rms(FP4)
            low = math.floor(math.log2(want))
            share = ((want / 2.0 ** low) ** 2 - 1) / 3
            buf[0::bs] = pick.translate(bytes(
                127 + low + (k < 256 * share) for k in range(256)))
        elif typ == "Q4_1":
            half(0, spread(std / 4.61))
            half(2, spread(-7.5 * std / 4.61))
        elif typ in ("Q4_K", "Q5_K"):
            levels = 16 if typ == "Q4_K" else 32
            mean, dev = (levels - 1) / 2, math.sqrt((levels ** 2 - 1) / 12)
            d = std / (36.5 * dev)             # 36.5: rms of a 6-bit scale
            half(0, spread(d))
            half(2, spread(d * mean))
            for j in range(4):                 # min := scale, all 8 sub-blocks
                buf[8 + j::bs] = buf[4 + j::bs]
            twice = bytes((b & 15) * 17 for b in range(256))
            for j in range(12, 16):
                buf[j::bs] = buf[j::bs].translate(twice)
        elif typ == "Q6_K":
            half(208, spread(std / (73.9 * 18.48)))
        elif typ == "Q8_0":
            # -128 is never produced by a quantiser
            buf = bytearray(buf.translate(bytes(
                129 if b == 128 else b for b in range(256))))
            half(0, spread(std / 73.6))
        elif typ == "Q4_0":
            half(0, spread(std / 4.64))
        elif typ == "Q5_0":
            half(0, spread(std / 9.25))
        elif typ == "Q5_1":
            half(0, spread(std / 9.23))
            half(2, spread(-15.5 * std / 9.23))
        return bytes(buf)

    def pieces(self, typ, shape, filling):
        """Yield the tensor's bytes."""
        elems, bs = TYPES[typ][1], TYPES[typ][2]
        count = math.prod(shape)
        size = count // elems * bs
        kind = filling[0]
        if kind == "ones":
            yield struct.pack("<f", 1.0) * count
            return
        if kind == "turning":
            yield struct.pack(f"<{count}f", *([1.0] * filling[1] + [1e30] * (count - filling[1])))
            return
        if kind == "uniform":
            lo, hi = filling[1:]
            yield array("f", (self.rng.uniform(lo, hi)
                              for _ in range(count))).tobytes()
            return
        std = filling[1] if kind == "gauss" else filling[1] / math.sqrt(shape[0])
        pool = self.pool(typ, std)
        blocks = len(pool) // bs
        # F32 noise (routers): short slices, so that no two rows are alike
        longest = 4096 if typ == "F32" else (1 << 20) // bs
        while size:
            at = self.rng.randrange(blocks // 2)
            take = self.rng.randrange(longest // 2, longest)
            take = min(take, blocks - at) * bs
            take = min(take, size)
            yield pool[at * bs:at * bs + take]
            size -= take


# --------------------------------------------------------------------------
# file


def enc_str(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def enc_value(t, v):
    if t == STR:
        return enc_str(v)
    if t == ARR:
        et, items = v
        head = struct.pack("<IQ", et, len(items))
        if et == STR:
            return head + b"".join(map(enc_str, items))
        kind = {I32: "i", BOOL: "?"}.get(et, "I")
        return head + struct.pack(f"<{len(items)}{kind}", *items)
    return struct.pack({U16: "<H", U32: "<I", I32: "<i", F32KV: "<f", BOOL: "<?"}[t], v)


def plan(m, quant):
    res, v = [], 0
    for name, shape, filling in tensors(m):
        t = pick_type(name, shape, m, quant, v)
        if "attn_v.weight" in name or "attn_qkv.weight" in name:
            v += 1
        size = math.prod(shape) // TYPES[t][1] * TYPES[t][2]
        res.append((name, shape, filling, t, size))
    return res


def up(x, a):
    return (x + a - 1) // a * a


def head_of(kv, todo, align):
    head = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(todo), len(kv)))
    for key, t, v in kv:
        head += enc_str(key) + struct.pack("<I", t) + enc_value(t, v)
    off = 0
    for tn, shape, _, t, size in todo:
        head += enc_str(tn) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", TYPES[t][0], off)
        off = up(off + size, align)
    head += bytes(up(len(head), align) - len(head))
    return head, off


def split_evenly(todo, count):
    """The tensors in `count` runs of about equal bytes."""
    total, done, parts = sum(t[4] for t in todo), 0, [[] for _ in range(count)]
    for t in todo:
        parts[min(count - 1, done * count // max(total, 1))].append(t)
        done += t[4]
    return parts


def write(path, m, quant, name, align, seed, pool_mib, drop, split):
    kv, todo = metadata(m, quant, name, align), plan(m, quant)
    noise = Noise(seed, pool_mib << 20)
    if split == 1:
        return write_part(path, kv, todo, align, noise, drop)
    stem = path[:-5] if path.endswith(".gguf") else path
    for i, part in enumerate(split_evenly(todo, split)):
        own = [("split.no", U16, i), ("split.count", U16, split),
               ("split.tensors.count", I32, len(todo))]
        if align != 32 and i > 0:
            own.append(("general.alignment", U32, align))
        write_part(f"{stem}-{i + 1:05d}-of-{split:05d}.gguf",
                   (kv if i == 0 else []) + own, part, align, noise, drop)


def write_part(path, kv, todo, align, noise, drop):
    head, data = head_of(kv, todo, align)
    total = len(head) + data
    start = shown = time.time()
    done = 0
    with open(path, "wb", buffering=0) as f:
        def put(b):
            b = memoryview(b)
            while len(b):
                b = b[f.write(b):]
        put(head)
        done += len(head)
        for tn, shape, filling, t, size in todo:
            n = 0
            for piece in noise.pieces(t, shape, filling):
                put(piece)
                n += len(piece)
            assert n == size, (tn, n, size)
            pad = up(n, align) - n
            if pad:
                put(bytes(pad))
            done += n + pad
            if time.time() - shown > 2:
                shown = time.time()
                print(f"\r{done / 1e9:7.2f} of {total / 1e9:.2f} GB, "
                      f"{done / 1e6 / (shown - start):.0f} MB/s",
                      end="", file=sys.stderr, flush=True)
        if drop:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert done == total
    sec = time.time() - start
    print(f"\r{path}: {total} bytes, {len(todo)} tensors, "
          f"{sec:.1f} s, {total / 1e6 / max(sec, 1e-3):.0f} MB/s",
          file=sys.stderr)


def show(m, quant):
    by, total, params, exps, active = {}, 0, 0, 0, 0
    for name, shape, _, t, size in plan(m, quant):
        c = math.prod(shape)
        by.setdefault(t, [0, 0, 0])
        by[t][0] += 1
        by[t][1] += c
        by[t][2] += size
        total += size
        params += c
        if "_exps." in name:
            exps += size
            active += size * m["used"] // m["experts"]
        elif name != "token_embd.weight":
            active += size
    for t, (k, c, s) in sorted(by.items(), key=lambda x: -x[1][2]):
        print(f"  {t:5s} {k:5d} tensors {c / 1e9:8.3f} G params {s / 1e9:8.3f} GB")
    print(f"  total {params / 1e9:.3f} G params, {total / 1e9:.3f} GB "
          f"({total / 2**30:.2f} GiB); routed experts {exps / 1e9:.3f} GB; "
          f"weights read per generated token {active / 1e9:.3f} GB")


# --------------------------------------------------------------------------
# reading back


def check(path):
    """Parse the file again and sample blocks of every tensor for sanity."""
    with open(path, "rb") as f:
        size = os.fstat(f.fileno()).st_size

        def rd(fmt):
            return struct.unpack("<" + fmt, f.read(struct.calcsize("<" + fmt)))

        def rstr():
            return f.read(rd("Q")[0]).decode()

        def rval(t):
            if t == STR:
                return rstr()
            if t == ARR:
                et, n = rd("IQ")
                return [rval(et) for _ in range(n)]
            return rd({U16: "H", U32: "I", I32: "i", F32KV: "f", BOOL: "?"}[t])[0]

        magic, ver, nt, nkv = rd("4sIQQ")
        assert magic == b"GGUF" and ver == 3
        kv = {}
        for _ in range(nkv):
            k = rstr()
            kv[k] = rval(rd("I")[0])
        infos = []
        for _ in range(nt):
            tn = rstr()
            nd = rd("I")[0]
            shape = rd(f"{nd}Q")
            t, off = rd("IQ")
            infos.append((tn, shape, TYPE_BY_ID[t], off))
        data = up(f.tell(), kv.get("general.alignment", 32))
        end = data
        halves = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q8_0": (0,),
                  "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2),
                  "F16": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
                  "IQ4_NL": (0,), "IQ4_XS": (0,)}
        for tn, shape, t, off in infos:
            _, elems, bs = TYPES[t]
            n = math.prod(shape) // elems
            if tn == "rope_freqs.weight":          # 1 or 1e30
                continue
            end = max(end, data + off + n * bs)
            for _ in range(16):
                f.seek(data + off + random.randrange(n) * bs)
                b = f.read(bs)
                vals = [struct.unpack_from("<e", b, o)[0]
                        for o in halves.get(t, ())]
                if t == "F32":
                    vals = [struct.unpack("<f", b)[0]]
                for v in vals:
                    assert math.isfinite(v) and abs(v) < 16, (tn, t, v)
        assert end <= size, (end, size)
    toks = kv.get("tokenizer.ggml.tokens", [])      # a later part has none
    assert len(set(toks)) == len(toks)
    print(f"{path}: {kv.get('general.architecture', 'a part')}, {nt} tensors, "
          f"{len(toks)} tokens, data at {data}, end {end}, size {size}: ok")


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--arch", choices=sorted(DEFAULT_PRESET),
                    help="take this architecture's default preset")
    ap.add_argument("--preset", choices=sorted(PRESETS))
    ap.add_argument("--quant", choices=sorted(FILE_TYPE), default="q4_k_m")
    ap.add_argument("--layers", type=int)
    ap.add_argument("--experts", type=int)
    ap.add_argument("--experts-used", type=int)
    ap.add_argument("--vocab", type=int, help="vocabulary size")
    ap.add_argument("--align", type=int, default=32,
                    help="tensor alignment in the file (e.g. 4096)")
    ap.add_argument("--split", type=int, default=1,
                    help="number of files, named OUT-00001-of-0000N.gguf")
    ap.add_argument("--attention-gain", type=float, default=ATT_GAIN,
                    help="of the projection behind attention (%(default)s)")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--pool-mib", type=int, default=4)
    ap.add_argument("--drop-cache", action="store_true",
                    help="fsync and drop the file from the page cache")
    ap.add_argument("--dry-run", action="store_true")
    ap.add_argument("--out")
    ap.add_argument("--check", metavar="FILE")
    o = ap.parse_args()
    if o.check:
        return check(o.check)
    preset = o.preset or DEFAULT_PRESET.get(o.arch or "")
    if not preset:
        ap.error("--preset or --arch is needed")
    m = dict(PRESETS[preset])
    m["attention_gain"] = o.attention_gain
    if o.arch and o.arch != m["arch"]:
        ap.error(f"preset {preset} is {m['arch']}, not {o.arch}")
    for key, val in (("layers", o.layers), ("experts", o.experts),
                     ("used", o.experts_used), ("vocab", o.vocab)):
        if val:
            m[key] = val
    m["used"] = min(m["used"], m["experts"])
    if m.get("dense_lead", 0) >= m["layers"]:
        ap.error("no expert layer left")
    if m.get("groups") and m["experts"] % m["groups"]:
        m.pop("groups")
    if o.align < 32 or o.align & (o.align - 1):
        ap.error("alignment must be a power of two, 32 or more")
    name = f"random {preset} {m['layers']}L {m['experts']}E"
    print(f"{name} {o.quant}")
    show(m, o.quant)
    if not o.dry_run:
        if not o.out:
            ap.error("--out is needed")
        write(o.out, m, o.quant, name, o.align, o.seed, o.pool_mib, o.drop_cache,
              max(1, o.split))


if __name__ == "__main__":
    main()
