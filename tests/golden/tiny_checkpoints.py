"""tiny_checkpoints.py: random weights for any config.json of the families, and the files that
people have them in: safetensors of Hugging Face, MLX and FP8, GGUF old and new.

Weights are what plain.py computes with.  A writer changes them as the published converters do; where
it stores fewer bits than f32 it changes the weights it was given to what the file then means."""

import json
import math
import random
import struct

from plain import COMMON, HYBRID, LATENT, SCORED, Model, family_of, gemma, gpt_oss

# --------------------------------------------------------------------------
# numbers


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_bits(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def bf16(x):
    return struct.unpack("<f", struct.pack("<I", bf16_bits(x) << 16))[0]


def flat(w):
    return [x for row in w for x in flat(row)] if w and isinstance(w[0], list) else w


def shape_of(w):
    return [len(w)] + shape_of(w[0]) if isinstance(w, list) else []


def pack(values, dtype):
    if dtype == "BF16":
        return struct.pack(f"<{len(values)}H", *map(bf16_bits, values))
    return struct.pack(f"<{len(values)}{'f' if dtype == 'F32' else 'e'}", *values)


def rounded(w, dtype):
    if isinstance(w[0], list):
        return [rounded(row, dtype) for row in w]
    if dtype == "BF16":
        return [bf16(x) for x in w]
    return list(struct.unpack(f"<{len(w)}e", struct.pack(f"<{len(w)}e", *w))) if dtype == "F16" else w


# --------------------------------------------------------------------------
# weights


def make_weights(config, seed):
    rng, out = random.Random(seed), {}
    model = Model(config, {})
    c, h = model.c, config.get("text_config", config)["hidden_size"]

    def add(name, rows, cols=None):
        size = 1.7 / math.sqrt(cols or 1)
        if cols is None:     # a vector
            out[name] = [f32(rng.gauss(0, 0.6)) for _ in range(rows)]
        else:
            out[name] = [[f32(rng.gauss(0, size)) for _ in range(cols)] for _ in range(rows)]

    def norm(name, count):   # w and 1 + w are both exact in bf16
        out[name] = [1 + rng.randint(-32, 32) / 64 for _ in range(count)]

    def swiglu(prefix, width):
        add(prefix + "gate_proj.weight", width, h)
        add(prefix + "up_proj.weight", width, h)
        add(prefix + "down_proj.weight", h, width)

    def attention(p):
        d = model.width
        add(p + "q_proj.weight", model.heads * d * (2 if model.family in HYBRID else 1), h)
        add(p + "k_proj.weight", model.kv_heads * d, h)
        add(p + "v_proj.weight", model.kv_heads * d, h)
        add(p + "o_proj.weight", h, model.heads * d)
        if model.family == "minimax_m2":
            norm(p + "q_norm.weight", model.heads * d)
            norm(p + "k_norm.weight", model.kv_heads * d)
        elif c.get("use_qk_norm", model.family != "glm4_moe"):
            norm(p + "q_norm.weight", d)
            norm(p + "k_norm.weight", d)
        if c.get("attention_bias"):
            add(p + "q_proj.bias", model.heads * d)
            add(p + "k_proj.bias", model.kv_heads * d)
            add(p + "v_proj.bias", model.kv_heads * d)
        if model.family == gpt_oss.FAMILY:
            if c["attention_bias"]:
                add(p + "o_proj.bias", h)
            add(p + "sinks", model.heads)

    def latent(p):
        nope, value, rank = c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        queries = model.heads * (nope + model.rotary)
        if c.get("q_lora_rank"):
            add(p + "q_a_proj.weight", c["q_lora_rank"], h)
            norm(p + "q_a_layernorm.weight", c["q_lora_rank"])
            add(p + "q_b_proj.weight", queries, c["q_lora_rank"])
        else:
            add(p + "q_proj.weight", queries, h)
        add(p + "kv_a_proj_with_mqa.weight", rank + model.rotary, h)
        norm(p + "kv_a_layernorm.weight", rank)
        add(p + "kv_b_proj.weight", model.heads * (nope + value), rank)
        add(p + "o_proj.weight", h, model.heads * value)
        if c.get("attention_bias"):
            if c.get("q_lora_rank"):
                add(p + "q_a_proj.bias", c["q_lora_rank"])
            add(p + "kv_a_proj_with_mqa.bias", rank + model.rotary)
            add(p + "o_proj.bias", h)

    def delta(p):
        hv = c["linear_num_value_heads"]
        values = hv * c["linear_value_head_dim"]
        channels = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + values
        add(p + "in_proj_qkv.weight", channels, h)
        add(p + "in_proj_z.weight", values, h)
        add(p + "in_proj_b.weight", hv, h)
        add(p + "in_proj_a.weight", hv, h)
        add(p + "conv1d.weight", channels, c["linear_conv_kernel_dim"])
        add(p + "A_log", hv)
        add(p + "dt_bias", hv)
        norm(p + "norm.weight", c["linear_value_head_dim"])
        add(p + "out_proj.weight", h, values)

    def experts(p):
        count = next(c[k] for k in ("num_experts", "num_local_experts", "n_routed_experts")
                     if c.get(k))
        add(p + "gate.weight", count, h)
        if model.family in SCORED:
            add(p + "gate.e_score_correction_bias", count)
        for e in range(count):
            swiglu(f"{p}experts.{e}.", c["moe_intermediate_size"])
        if model.family == gpt_oss.FAMILY:
            add(p + "gate.bias", count)
            for e in range(count):
                for part in "gate", "up", "down":
                    rows = h if part == "down" else c["moe_intermediate_size"]
                    add(f"{p}experts.{e}.{part}_proj.bias", rows)
        if c.get("shared_expert_intermediate_size"):
            swiglu(p + "shared_expert.", c["shared_expert_intermediate_size"])
            add(p + "shared_expert_gate.weight", 1, h)
        if c.get("n_shared_experts"):
            swiglu(p + "shared_experts.", c["n_shared_experts"] * c["moe_intermediate_size"])

    def gemma_layer(n, p):
        heads, d = gemma.heads(c, n)
        for name in "post_attention", "pre_feedforward", "post_feedforward":
            norm(f"{p}{name}_layernorm.weight", h)
        for name in "post_feedforward_layernorm_1", "post_feedforward_layernorm_2":
            norm(f"{p}{name}.weight", h)
        norm(p + "pre_feedforward_layernorm_2.weight", h)
        norm(p + "layer_scalar", 1)
        q = p + "self_attn."
        for name, rows in ("q", model.heads * d), ("k", heads * d), ("v", heads * d):
            if name != "v" or gemma.has_window(c, n) or not c["attention_k_eq_v"]:
                add(f"{q}{name}_proj.weight", rows, h)
        add(q + "o_proj.weight", h, model.heads * d)
        for name in "q", "k":       # scores have no other scale
            norm(f"{q}{name}_norm.weight", d)
            out[f"{q}{name}_norm.weight"] = [t / 2 for t in out[f"{q}{name}_norm.weight"]]
        swiglu(p + "mlp.", c["intermediate_size"])
        add(p + "router.proj.weight", c["num_experts"], h)
        norm(p + "router.scale", h)
        out[p + "router.scale"] = [4 * t for t in out[p + "router.scale"]]
        norm(p + "router.per_expert_scale", c["num_experts"])
        for e in range(c["num_experts"]):
            swiglu(f"{p}experts.{e}.", c["moe_intermediate_size"])

    out["embed_tokens.weight"] = [[f32(rng.gauss(0, 1)) for _ in range(h)]
                                  for _ in range(c["vocab_size"])]
    for n in range(model.layers):
        p = f"layers.{n}."
        if model.family == gemma.FAMILY:
            norm(p + "input_layernorm.weight", h)
            gemma_layer(n, p)
            continue
        norm(p + "input_layernorm.weight", h)
        norm(p + "post_attention_layernorm.weight", h)
        if model.family in LATENT:
            latent(p + "self_attn.")
        elif model.is_full(n):
            attention(p + "self_attn.")
        else:
            delta(p + "linear_attn.")
        if model.is_dense(n):
            swiglu(p + "mlp.", c["intermediate_size"])
        else:
            experts(p + "mlp.")
    norm("norm.weight", h)
    if not model.tied:
        add("lm_head.weight", c["vocab_size"], h)
    return out


# --------------------------------------------------------------------------
# safetensors


def published_name(config, name):
    """MiniMax's names of what plain.py calls mlp, and gpt-oss's of what it calls gate."""
    if family_of(config) == gpt_oss.FAMILY:
        return (name + ".").replace(".mlp.gate.", ".mlp.router.")[:-1]
    if family_of(config) != "minimax_m2":
        return name
    if ".experts." in name:
        for part, letter in ("gate_proj", "w1"), ("up_proj", "w3"), ("down_proj", "w2"):
            name = name.replace(part, letter)
    return name.replace("mlp.gate.e_score", "mlp.e_score").replace(".mlp.", ".block_sparse_moe.")


def write_safetensors(directory, config, tensors):
    """tensors: name -> (dtype, shape, bytes)"""
    header, offset = {}, 0
    tensors = {published_name(config, name): tensor for name, tensor in tensors.items()}
    if "quantization" in config:
        config["quantization"] = {published_name(config, name): value
                                  for name, value in config["quantization"].items()}
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)
    (directory / "config.json").write_text(json.dumps(config))


def is_zero_centred(family, name):
    return (family in HYBRID and name.endswith("norm.weight") and
            not name.endswith("linear_attn.norm.weight"))


def key_head_groups(c, parts, widths):
    """Rows of several matrices, dealt out by key head: widths[i] rows of parts[i] each time."""
    out = []
    for h in range(c["linear_num_key_heads"]):
        for part, width in zip(parts, widths):
            out += part[h * width:(h + 1) * width]
    return out


def fuse_next(config, weights):
    """qwen3_next's in_proj_qkvz and in_proj_ba."""
    c, out = {**COMMON, **config}, {}
    hk, dk = c["linear_num_key_heads"], c["linear_key_head_dim"]
    r, dv = c["linear_num_value_heads"] // hk, c["linear_value_head_dim"]
    for name, w in weights.items():
        stem = name.rsplit("in_proj_", 1)[0]
        if name.endswith("in_proj_qkv.weight"):
            keys = hk * dk
            parts = [w[:keys], w[keys:2 * keys], w[2 * keys:], weights[stem + "in_proj_z.weight"]]
            out[stem + "in_proj_qkvz.weight"] = key_head_groups(c, parts, [dk, dk, r * dv, r * dv])
        elif name.endswith("in_proj_b.weight"):
            parts = [w, weights[stem + "in_proj_a.weight"]]
            out[stem + "in_proj_ba.weight"] = key_head_groups(c, parts, [r, r])
        elif not name.endswith(("in_proj_z.weight", "in_proj_a.weight")):
            out[name] = w
    return out


def stack_experts(weights):
    """Qwen3.5's experts.gate_up_proj and experts.down_proj."""
    out = {}
    for name, w in weights.items():
        if ".experts." not in name:
            out[name] = w
        elif name.endswith("gate_proj.weight"):
            stem, expert, _, _ = name.rsplit(".", 3)
            up = weights[f"{stem}.{expert}.up_proj.weight"]
            out.setdefault(f"{stem}.gate_up_proj", []).append(w + up)
            down = weights[f"{stem}.{expert}.down_proj.weight"]
            out.setdefault(f"{stem}.down_proj", []).append(down)
    return out


def stack_gpt_oss(weights, mxfp4):
    stems = [n.split("0.gate_proj")[0] for n in weights if n.endswith(".experts.0.gate_proj.weight")]
    out = {}
    for stem in stems:
        out.update(gpt_oss.stored_experts(weights, stem, mxfp4))
    return {**{n: w for n, w in weights.items() if ".experts." not in n}, **out}


def write_hugging_face(directory, config, weights, prefix="model.", stacked=False, dtype="F32",
                       extra=None, mxfp4=False, **_):
    family = family_of(config)
    for name in weights:
        weights[name] = rounded(weights[name], dtype)
    stored = fuse_next(config, weights) if family == "qwen3_next" else weights
    if stacked:
        stored = stack_experts(stored)
    if family == gpt_oss.FAMILY:
        stored = stack_gpt_oss(weights, mxfp4)
    if mxfp4:
        config = {**config, "quantization_config": {"quant_method": "mxfp4"}}
    tensors = {}
    for name, w in stored.items():
        if isinstance(w, tuple):
            tensors[prefix + name] = w
            continue
        values, shape = flat(w), shape_of(w)
        if is_zero_centred(family, name):
            values = [x - 1 for x in values]
        if name.endswith("conv1d.weight"):
            shape = [shape[0], 1, shape[1]]
        full = name if name.startswith("lm_head") else prefix + name
        tensors[full] = (dtype, shape, pack(values, dtype))
    for name, shape in (extra or {}).items():
        tensors[name] = ("F32", shape, bytes(4 * math.prod(shape)))
    write_safetensors(directory, config, tensors)


# --------------------------------------------------------------------------
# MLX


def quantise_affine(w, bits, group):
    """Codes, scales and biases as bytes, and what they mean."""
    top, codes, scales, biases, meaning = (1 << bits) - 1, bytearray(), [], [], []
    for row in w:
        stream, shift, means = 0, 0, []
        for at in range(0, len(row), group):
            part = row[at:at + group]
            low, high = min(part), max(part)
            scale = max((high - low) / top, 1e-7)
            edge = low if abs(low) > abs(high) else high
            scale = scale if edge == low else -scale
            first = round(edge / scale)
            scale, bias = (edge / first, edge) if first else (scale, 0.0)
            scale, bias = bf16(scale), bf16(bias)
            scales.append(scale)
            biases.append(bias)
            for x in part:
                q = min(max(round((x - bias) / scale), 0), top)
                stream |= q << shift
                shift += bits
                means.append(q * scale + bias)
        codes += stream.to_bytes(shift // 8, "little")
        meaning.append(means)
    return bytes(codes), pack(scales, "BF16"), pack(biases, "BF16"), meaning


def write_mlx(directory, config, weights, prefix="model.", split_kv_b=False, bits=None, group=32,
              **_):
    """`bits` has those of a module by the end of its path, or "mxfp4"; "" is the default."""
    def entry_of(width, size):
        fp4 = width == "mxfp4"
        return {"group_size": size, "bits": 4, "mode": width} if fp4 else {
            "group_size": size, "bits": width}

    family, tensors = family_of(config), {}
    model = Model(config, {})
    config = {**config, "quantization": entry_of(bits[""], group)}
    head = prefix.removesuffix("model.")

    def put(name, matrices, names, stack):
        module = name.removesuffix(".weight")
        full = head + module if module == "lm_head" else prefix + module
        found = max((end for end in bits if module.endswith(end)), key=len)
        choice = bits[found]
        width, size = choice if isinstance(choice, tuple) else (choice, group)
        if len(matrices[0][0]) % size or not width:   # stays as it is
            values = [x for m in matrices for x in flat(m)]
            shape = shape_of(matrices if stack else matrices[0])
            tensors[full + ".weight"] = ("F32", shape, pack(values, "F32"))
            return
        if found:
            config["quantization"][full] = entry_of(width, size)
        fp4 = width == "mxfp4"
        parts = [gpt_oss.quantise_words(m) if fp4 else quantise_affine(m, width, size)
                 for m in matrices]
        for original, part in zip(names, parts):
            if original:
                weights[original] = part[3]
        rows, cols = len(matrices[0]), len(matrices[0][0])
        lead = [len(matrices)] if stack else []
        ends = [(".weight", "U32", cols // 8), (".scales", "U8", cols // 32)] if fp4 else [
            (".weight", "U32", cols * width // 32), (".scales", "BF16", cols // size),
            (".biases", "BF16", cols // size)]
        for i, (end, kind, columns) in enumerate(ends):
            tensors[full + end] = (kind, lead + [rows, columns], b"".join(p[i] for p in parts))
        return [part[3] for part in parts]

    def put_split_kv_b(name, w):
        """embed_q [heads][latent][nope], unembed_out [heads][value][latent]."""
        nope, value = model.c["qk_nope_head_dim"], model.c["v_head_dim"]
        blocks = [w[i:i + nope + value] for i in range(0, len(w), nope + value)]
        keys = [[list(column) for column in zip(*b[:nope])] for b in blocks]
        values = [b[nope:] for b in blocks]
        stem = name.removesuffix("kv_b_proj.weight")
        keys = put(stem + "embed_q.weight", keys, [], True) or keys
        values = put(stem + "unembed_out.weight", values, [], True) or values
        weights[name] = [row for k, v in zip(keys, values)
                         for row in [list(column) for column in zip(*k)] + v]

    for name, w in list(weights.items()):
        if name.endswith(".experts.0.gate_proj.weight"):
            stem = name.split("experts.0")[0]
            for part in ("gate", "up", "down"):
                end = f".{part}_proj.weight"
                names = [n for n in weights if n.startswith(stem + "experts.") and n.endswith(end)]
                own = {gemma.FAMILY: "experts.switch_glu",
                       gpt_oss.FAMILY: "experts"}.get(family, "switch_mlp")
                put(f"{stem}{own}{end}", [weights[n] for n in names], names, True)
                if family == gpt_oss.FAMILY:
                    rows = [weights[n.replace(".weight", ".bias")] for n in names]
                    tensors[f"{prefix}{stem}{own}.{part}_proj.bias"] = (
                        "F32", shape_of(rows), pack(flat(rows), "F32"))
        elif ".experts." in name:
            continue
        elif split_kv_b and name.endswith("kv_b_proj.weight"):
            put_split_kv_b(name, w)
        elif not isinstance(w[0], list) or name.endswith("conv1d.weight"):
            shape = shape_of(w) + ([1] if isinstance(w[0], list) else [])
            tensors[prefix + name] = ("F32", shape, pack(flat(w), "F32"))
        else:
            put(name, [w], [name], False)
    assert family != "qwen3_next"
    write_safetensors(directory, config, tensors)


# --------------------------------------------------------------------------
# FP8


def e4m3(code):
    sign, exponent, mantissa = code >> 7, code >> 3 & 15, code & 7
    size = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0 ** -9
    return -size if sign else size


def write_fp8(directory, config, weights, tile=(128, 128), scale_type="F32", strategy=None,
              **options):
    """Layer matrices but routers, as DeepSeek keeps them; with a strategy (channel or block) as
    compressed-tensors does."""
    rows_tile, cols_tile = tile
    levels = sorted((e4m3(code), code) for code in range(256) if code & 127 != 127)
    rng, tensors = random.Random(1), {}
    for name, w in weights.items():
        full = name if name.startswith("lm_head") else "model." + name
        matrix = isinstance(w[0], list) and name.startswith("layers.") and ".gate.weight" not in name
        if not matrix:
            tensors[full] = ("F32", shape_of(w), pack(flat(w), "F32"))
            continue
        rows, cols = shape_of(w)
        if strategy == "channel":
            rows_tile, cols_tile = 1, cols
        grid = [-(-rows // rows_tile), -(-cols // cols_tile)]
        scales = [[2.0 ** rng.randint(-6, -4) for _ in range(grid[1])] for _ in range(grid[0])]
        if scale_type in ("F32", "BF16"):
            scales = [rounded([f32(s * rng.uniform(0.7, 1.4)) for s in row], scale_type)
                      for row in scales]
        codes = bytearray()
        for r, row in enumerate(w):
            for k, x in enumerate(row):
                scale = scales[r // rows_tile][k // cols_tile]
                value, code = min(levels, key=lambda level: abs(level[0] - x / scale))
                codes.append(code)
                row[k] = value * scale
        tensors[full] = ("F8_E4M3", [rows, cols], bytes(codes))
        data = (pack(flat(scales), scale_type) if scale_type in ("F32", "BF16") else
                bytes(127 + int(math.log2(s)) for s in flat(scales)))
        tensors[full + ("_scale" if strategy else "_scale_inv")] = (scale_type, grid, data)
    quantization = {"quant_method": "fp8", "weight_block_size": list(tile)}
    if strategy:
        of_weights = {"num_bits": 8, "type": "float", "strategy": strategy, "symmetric": True,
                      "block_structure": list(tile) if strategy == "block" else None}
        quantization = {"quant_method": "compressed-tensors", "format": "float-quantized",
                        "config_groups": {"group_0": {"targets": ["Linear"],
                                                      "weights": of_weights}}}
    config = {**config, "quantization_config": quantization}
    write_safetensors(directory, config, tensors)


# --------------------------------------------------------------------------
# GGUF

U8, U16, I32, U32, F32KV, BOOL, STR, ARR, U64, F64KV = 0, 2, 5, 4, 6, 7, 8, 9, 10, 12
SCALARS = {U8: "<B", U16: "<H", U32: "<I", I32: "<i", F32KV: "<f", BOOL: "<B", U64: "<Q",
           F64KV: "<d"}
ARCHITECTURES = {"qwen3_moe": "qwen3moe", "qwen3_next": "qwen3next", "qwen3_5_moe": "qwen35moe",
                 "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
                 "glm4_moe": "glm4moe", "glm4_moe_lite": "deepseek2", "minimax_m2": "minimax-m2",
                 gemma.FAMILY: "gemma4", gpt_oss.FAMILY: "gpt-oss"}
GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.in_proj_qkvz": "ssm_in",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out", "mlp.gate": "ffn_gate_inp",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
for shared in ("mlp.shared_expert", "mlp.shared_experts"):
    for part in ("gate", "up", "down"):
        GGUF_NAMES[f"{shared}.{part}_proj"] = f"ffn_{part}_shexp"


GEMMA_NAMES = {
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "router.proj.weight": "ffn_gate_inp.weight", "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "layer_scalar": "layer_output_scale.weight",
}


def gguf_name(name, family):
    globals_ = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
                "lm_head.weight": "output.weight"}
    if name in globals_:
        return globals_[name]
    _, number, rest = name.split(".", 2)
    if family == gemma.FAMILY and rest in GEMMA_NAMES:
        return f"blk.{number}.{GEMMA_NAMES[rest]}"
    if family == gpt_oss.FAMILY and rest in gpt_oss.GGUF_NAMES:
        return f"blk.{number}.{gpt_oss.GGUF_NAMES[rest]}"
    special = {"linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
               "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
               "post_attention_layernorm.weight": "post_attention_norm.weight"
               if family in HYBRID or family == "glm4_moe" else "ffn_norm.weight"}
    module, kind = rest.rsplit(".", 1)
    end = special.get(rest) or f"{GGUF_NAMES[module]}.{kind}"
    return f"blk.{number}.{end}"


def tile_value_heads(c, weights):
    """Qwen3.5's files: value head j·Hk + kh holds head kh·r + j."""
    hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv, r = c["linear_key_head_dim"], c["linear_value_head_dim"], hv // hk
    order = [kh * r + j for j in range(r) for kh in range(hk)]
    wide = [h * dv + i for h in order for i in range(dv)]
    keys, out = 2 * hk * dk, dict(weights)
    for name, w in weights.items():
        if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            out[name] = w[:keys] + [w[keys + i] for i in wide]
        elif name.endswith("in_proj_z.weight"):
            out[name] = [w[i] for i in wide]
        elif name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")):
            out[name] = [w[i] for i in order]
        elif name.endswith("linear_attn.out_proj.weight"):
            out[name] = [[row[i] for i in wide] for row in w]
    return out


def split_kv_b(c, w):
    nope, value = c["qk_nope_head_dim"], c["v_head_dim"]
    blocks = [w[i:i + nope + value] for i in range(0, len(w), nope + value)]
    return ([[list(column) for column in zip(*b[:nope])] for b in blocks],
            [b[nope:] for b in blocks])


def gguf_tensors(config, weights, options):
    family = family_of(config)
    c = Model(config, {}).c
    if family == "qwen3_5_moe":
        weights = tile_value_heads(c, weights)
    if family == "qwen3_next":
        fused = fuse_next(c, weights)
        legacy = options.get("legacy_ssm_in")
        drop = ("in_proj_qkv.weight", "in_proj_z.weight") if legacy else ("in_proj_qkvz.weight",)
        weights = {n: w for n, w in {**weights, **fused}.items()
                   if not n.endswith(drop + ("in_proj_a.weight", "in_proj_b.weight"))}
    out = {}
    if family == gemma.FAMILY:
        last = gemma.frequencies(c, c["num_hidden_layers"] - 1)
        out["rope_freqs.weight"] = [1.0 if t else 1e30 for t in last]
    for name, w in weights.items():
        layer = name.split(".")[1]
        stem = name.split("experts.")[0] + "experts."
        if ".experts." in name:
            if not name.endswith(".experts.0.gate_proj.weight"):
                continue
            count = sum(n.startswith(stem) and n.endswith("gate_proj.weight") for n in weights)
            parts = {p: [weights[f"{stem}{e}.{p}_proj.weight"] for e in range(count)]
                     for p in ("gate", "up", "down")}
            if options.get("fused_gate_up"):
                both = [g + u for g, u in zip(parts.pop("gate"), parts.pop("up"))]
                parts["gate_up"] = both
            for part, stack in parts.items():
                out[f"blk.{layer}.ffn_{part}_exps.weight"] = stack
                if family == gpt_oss.FAMILY:
                    out[f"blk.{layer}.ffn_{part}_exps.bias"] = [
                        weights[f"{stem}{e}.{part}_proj.bias"] for e in range(count)]
        elif name.endswith("kv_b_proj.weight") and not options.get("legacy_kv_b"):
            keys, values = split_kv_b(c, w)
            out[f"blk.{layer}.attn_k_b.weight"] = keys
            out[f"blk.{layer}.attn_v_b.weight"] = values
        elif options.get("fused_qkv") and ".self_attn.q_proj." in name:
            others = [weights[name.replace("q_proj", f"{m}_proj")] for m in "kv"]
            out[f"blk.{layer}.attn_qkv.{name.rsplit('.', 1)[1]}"] = w + others[0] + others[1]
        elif options.get("fused_qkv") and (".k_proj." in name or ".v_proj." in name):
            continue
        elif name.endswith("A_log"):
            out[gguf_name(name, family)] = [f32(-math.exp(x)) for x in w]
        elif name.endswith("shared_expert_gate.weight"):
            out[gguf_name(name, family)] = w[0]
        else:
            out[gguf_name(name, family)] = w
    return out


def gemma_metadata(kv, c, options):
    layers, own = range(c["num_hidden_layers"]), c.get("rope_parameters") or {}
    windows = [int(gemma.has_window(c, n)) for n in layers]
    counts = [gemma.heads(c, n)[0] for n in layers]
    value = (U32, counts[0]) if len(set(counts)) == 1 else (ARR, (I32, counts))
    kv.append(("gemma4.attention.head_count_kv", *value))
    if not options.get("silent_pattern"):
        kv.append(("gemma4.attention.sliding_window_pattern", ARR, (BOOL, windows)))
    full = gemma.heads(c, c["num_hidden_layers"] - 1)[1]
    for key, number in (("attention.sliding_window", c["sliding_window"]),
                        ("attention.key_length", full), ("attention.value_length", full),
                        ("attention.key_length_swa", c["head_dim"]),
                        ("attention.value_length_swa", c["head_dim"]),
                        ("attention.shared_kv_layers", 0), ("rope.dimension_count", full),
                        ("rope.dimension_count_swa", c["head_dim"]),
                        ("embedding_length_per_layer_input", 0)):
        kv.append(("gemma4." + key, U32, number))
    for key, part, usual in (("freq_base", "full_attention", gemma.FULL),
                             ("freq_base_swa", "sliding_attention", gemma.WINDOW)):
        theta = {**usual, **own.get(part, {})}["rope_theta"]
        kv.append(("gemma4.rope." + key, F32KV, theta))
    if c.get("final_logit_softcapping"):
        kv.append(("gemma4.final_logit_softcapping", F32KV, c["final_logit_softcapping"]))


def gguf_metadata(config, options):
    family, model = family_of(config), Model(config, {})
    a, c, kv = ARCHITECTURES[family], model.c, []
    own = c.get("rope_parameters") or {}
    yarn = c.get("rope_scaling") or (own if own.get("rope_type") == "yarn" else None)

    def u(key, value):
        kv.append((f"{a}.{key}", U32, value))

    def f(key, value):
        kv.append((f"{a}.{key}", F32KV, value))

    kv.append(("general.architecture", STR, a))
    u("block_count", model.layers + options.get("nextn", 0))
    if options.get("nextn") and not options.get("silent_nextn"):
        u("nextn_predict_layers", options["nextn"])
    u("context_length", c.get("max_position_embeddings", 256))
    u("embedding_length", c["hidden_size"])
    u("attention.head_count", model.heads)
    f("attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
    if family == gemma.FAMILY:
        gemma_metadata(kv, c, options)
    else:
        f("rope.freq_base", own.get("rope_theta", c["rope_theta"]))
    u("expert_count", next(c[k] for k in ("num_experts", "num_local_experts", "n_routed_experts")
                           if c.get(k)))
    u("expert_used_count", c.get("num_experts_per_tok") or c["top_k_experts"])
    u("expert_feed_forward_length", c["moe_intermediate_size"])
    if c.get("intermediate_size"):
        u("feed_forward_length", c["intermediate_size"])
    if family in LATENT:
        rank, nope, value = c["kv_lora_rank"], c["qk_nope_head_dim"], c["v_head_dim"]
        if options.get("legacy_kv_b"):
            u("attention.head_count_kv", model.heads)
            u("attention.key_length", nope + model.rotary)
            u("attention.value_length", value)
        else:
            u("attention.head_count_kv", 1)
            u("attention.key_length", rank + model.rotary)
            u("attention.value_length", rank)
            u("attention.key_length_mla", nope + model.rotary)
            u("attention.value_length_mla", value)
        if c.get("q_lora_rank"):
            u("attention.q_lora_rank", c["q_lora_rank"])
        u("attention.kv_lora_rank", rank)
    elif family != gemma.FAMILY:
        u("attention.head_count_kv", model.kv_heads)
        u("attention.key_length", model.width)
        u("attention.value_length", model.width)
    if family == gpt_oss.FAMILY:
        u("attention.sliding_window", c["sliding_window"])
        yarn = yarn or gpt_oss.YARN
    if family in LATENT or family in SCORED:
        u("rope.dimension_count", model.rotary)
        if options.get("gating", True):
            u("expert_gating_func", 2 if family in SCORED else 1)
    if family in LATENT or family == "glm4_moe":
        u("leading_dense_block_count", c["first_k_dense_replace"])
        u("expert_shared_count", c.get("n_shared_experts") or 0)
        f("expert_weights_scale", c["routed_scaling_factor"])
        if c["norm_topk_prob"]:
            kv.append((f"{a}.expert_weights_norm", BOOL, 1))
        if (c.get("n_group") or 1) > 1 and c.get("topk_method") != "greedy":
            u("expert_group_count", c["n_group"])
            u("expert_group_used_count", c["topk_group"])
    if family in HYBRID:
        u("expert_shared_feed_forward_length", c["shared_expert_intermediate_size"])
        u("rope.dimension_count", model.rotary)
        u("ssm.conv_kernel", c["linear_conv_kernel_dim"])
        u("ssm.state_size", c["linear_key_head_dim"])
        u("ssm.group_count", c["linear_num_key_heads"])
        u("ssm.time_step_rank", c["linear_num_value_heads"])
        u("ssm.inner_size", c["linear_num_value_heads"] * c["linear_value_head_dim"])
        if c.get("layer_types"):
            recurrent = [int(t != "full_attention") for t in c["layer_types"]]
            kv.append((f"{a}.attention.recurrent_layers", ARR, (BOOL, recurrent)))
        else:
            u("full_attention_interval", c["full_attention_interval"])
    if yarn:
        kv.append((f"{a}.rope.scaling.type", STR, "yarn"))
        f("rope.scaling.factor", yarn["factor"])
        u("rope.scaling.original_context_length", yarn["original_max_position_embeddings"])
        for key in ("beta_fast", "beta_slow"):
            if key in yarn:
                f(f"rope.scaling.yarn_{key}", yarn[key])
        if yarn.get("attention_factor"):
            f("rope.scaling.yarn_attn_factor", yarn["attention_factor"])
        if yarn.get("mscale_all_dim") and family in LATENT:
            f("rope.scaling.yarn_log_multiplier", 0.1 * yarn["mscale_all_dim"])
    return kv + options.get("more_metadata", [])


def gguf_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(kind, value):
    if kind == STR:
        return gguf_text(value)
    if kind == ARR:
        inner, values = value
        return struct.pack("<IQ", inner, len(values)) + b"".join(gguf_value(inner, v)
                                                                 for v in values)
    return struct.pack(SCALARS[kind], value)


def write_gguf(directory, config, weights, version=3, alignment=32, dtype="F32", **options):
    """All in f32, matrices of layers in `dtype`."""
    for name, w in weights.items():
        if isinstance(w[0], list) and "conv1d" not in name and ".gate." not in name:
            weights[name] = rounded(w, dtype)
    tensors = gguf_tensors(config, weights, options)
    for name, shape in (options.get("extra") or {}).items():
        tensors[name] = [0.0] * shape[0] if len(shape) == 1 else [[0.0] * shape[1]] * shape[0]
    metadata = gguf_metadata(config, options)
    if alignment != 32:
        metadata.append(("general.alignment", U32, alignment))
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, kind, value in metadata:
        out += gguf_text(key) + struct.pack("<I", kind) + gguf_value(kind, value)
    offset, data = 0, []
    for name, w in tensors.items():
        small = (isinstance(w[0], list) and "conv1d" not in name and "ffn_gate_inp" not in name and
                 not name.endswith(".bias"))
        kind = dtype if small else "F32"
        shape = shape_of(w)[::-1]
        out += gguf_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        out += struct.pack("<IQ", {"F32": 0, "F16": 1, "BF16": 30}[kind], offset)
        data.append(pack(flat(w), kind))
        data[-1] += bytes(-len(data[-1]) % alignment)
        offset += len(data[-1])
    out += bytes(-len(out) % alignment)
    path = directory / "model.gguf"
    path.write_bytes(out + b"".join(data))
    return path
