"""plain_gpt_oss.py: what gpt_oss does otherwise than the families of plain.py, and its files.

Its router is called mlp.gate here, and experts have names one by one, as those of the others."""

import math

FAMILY = "gpt_oss"
DEFAULTS = dict(norm_topk_prob=True, rope_theta=150000.0, partial_rotary_factor=1.0,
                rms_norm_eps=1e-5, sliding_window=128, attention_bias=True, use_qk_norm=False)
YARN = dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096, truncate=False)
LEVELS = [0, .5, 1, 1.5, 2, 3, 4, 6]
GGUF_NAMES = {"self_attn.sinks": "attn_sinks.weight",
              "post_attention_layernorm.weight": "post_attention_norm.weight"}


def has_window(c, n):
    types = c.get("layer_types")
    return types[n] == "sliding_attention" if types else n % 2 == 0


def product(gate, up):
    gate, up = min(gate, 7.0), max(min(up, 7.0), -7.0)
    return (up + 1) * gate / (1 + math.exp(-1.702 * gate))


# --------------------------------------------------------------------------
# files


def quantise(row):
    """Codes, scales and what they mean."""
    codes, scales, means = [], [], []
    for at in range(0, len(row), 32):
        part = row[at:at + 32]
        power = math.floor(math.log2(max(map(abs, part)))) - 2
        scales.append(power + 127)
        for x in part:
            best = min(range(8), key=lambda i: abs(LEVELS[i] * 2.0 ** power - abs(x)))
            codes.append(best | (8 if x < 0 else 0))
            means.append(math.copysign(LEVELS[best] * 2.0 ** power, x))
    return codes, scales, means


def quantise_words(rows):
    """As MLX stores it: words, bytes with scales, nothing, and what they mean."""
    parts = [quantise(row) for row in rows]
    codes = [c for row_codes, _, _ in parts for c in row_codes]
    words = bytes(a | b << 4 for a, b in zip(codes[0::2], codes[1::2]))
    return words, bytes(s for _, row, _ in parts for s in row), b"", [row for _, _, row in parts]


def read_blocks(blocks, scales):
    """Numbers of one group of 32 after the other."""
    out = []
    for i, scale in enumerate(scales):
        for byte in blocks[16 * i:16 * i + 16]:
            for code in byte & 15, byte >> 4:
                out.append(LEVELS[code & 7] * 2.0 ** (scale - 127) * (-1 if code & 8 else 1))
    return out


def experts_of(weights, stem):
    """Gate, up and down of all experts: what they are called, rows, and numbers of a bias."""
    count = sum(n.startswith(stem) and n.endswith("gate_proj.weight") for n in weights)
    return {part: [(f"{stem}{e}.{part}_proj.weight", weights[f"{stem}{e}.{part}_proj.weight"],
                    weights[f"{stem}{e}.{part}_proj.bias"]) for e in range(count)]
            for part in ("gate", "up", "down")}


def alternate(gate, up):
    return [x for pair in zip(gate, up) for x in pair]


def stored_experts(weights, stem, mxfp4):
    """Name -> numbers in lists; bytes of MXFP4, with which the weights become what they mean."""
    parts, out = experts_of(weights, stem), {}
    both = [(alternate(g[1], u[1]), alternate(g[2], u[2]), (g[0], u[0]))
            for g, u in zip(parts["gate"], parts["up"])]
    down = [(rows, bias, (name,)) for name, rows, bias in parts["down"]]
    for name, experts in ("gate_up_proj", both), ("down_proj", down):
        out[f"{stem}{name}_bias"] = [bias for _, bias, _ in experts]
        if not mxfp4:          # numbers of a column side by side
            out[stem + name] = [[list(column) for column in zip(*rows)] for rows, _, _ in experts]
            continue
        rows = [row for rows, _, _ in experts for row in rows]
        parts_of = [quantise(row) for row in rows]
        codes = [c for row_codes, _, _ in parts_of for c in row_codes]
        groups = len(rows[0]) // 32
        lead = [len(experts), len(rows) // len(experts), groups]
        blocks = bytes(a | b << 4 for a, b in zip(codes[0::2], codes[1::2]))
        out[f"{stem}{name}_blocks"] = ("U8", lead + [16], blocks)
        out[f"{stem}{name}_scales"] = ("U8", lead, bytes(s for _, row, _ in parts_of for s in row))
        means = iter([means for _, _, means in parts_of])
        for rows, _, names in experts:
            found = [next(means) for _ in rows]
            for i, own in enumerate(names):
                weights[own] = found[i::len(names)]
    return out
