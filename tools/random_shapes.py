"""What make_random_gguf.py and make_random_mlx.py share: shapes of published models, small
ones of the same families, and a vocabulary for them."""

import math
import sys

# Of projections into the residual stream: of attention, of all others.
ATT_GAIN, OUT_GAIN = 0.1, 0.5



def turns_at(channel):
    """YaRN's beta of a channel of 64, with gpt-oss's base: a little towards the middle, so that
    rounding ends there."""
    middle = 1 - 3e-6 if channel < 13 else 1 + 3e-6
    return 4096 / (2 * math.pi * 150000 ** (2 * channel / 64)) * middle


GPT_OSS_YARN = dict(factor=32.0, orig=4096, yarn_beta_fast=32.0, yarn_beta_slow=1.0)
PRESETS = {
    "qwen3-30b-a3b": dict(
        arch="qwen3moe", layers=48, embd=2048, ff=6144, heads=32, kv_heads=4,
        head_dim=128, experts=128, used=8, ff_exp=768, vocab=151936,
        ctx=40960, theta=1e6, eps=1e-6),
    "qwen3-235b-a22b": dict(
        arch="qwen3moe", layers=94, embd=4096, ff=12288, heads=64, kv_heads=4,
        head_dim=128, experts=128, used=8, ff_exp=1536, vocab=151936,
        ctx=40960, theta=1e6, eps=1e-6),
    "qwen3-next-80b-a3b": dict(
        arch="qwen3next", layers=48, embd=2048, heads=16, kv_heads=2,
        head_dim=256, n_rot=64, interval=4,
        lin_k_heads=16, lin_v_heads=32, lin_dim=128, conv=4,
        experts=512, used=10, ff_exp=512, ff_shexp=512, vocab=151936,
        ctx=262144, theta=1e7, eps=1e-6),
    "qwen3.5-35b-a3b": dict(
        arch="qwen35moe", layers=40, embd=2048, heads=16, kv_heads=2,
        head_dim=256, n_rot=64, sections=[11, 11, 10, 0], interval=4,
        lin_k_heads=16, lin_v_heads=32, lin_dim=128, conv=4,
        experts=256, used=8, ff_exp=512, ff_shexp=512, vocab=248320,
        ctx=262144, theta=1e7, eps=1e-6),
    "deepseek-v2-lite": dict(
        arch="deepseek2", layers=27, embd=2048, ff=10944, heads=16,
        q_lora=0, kv_lora=512, nope=128, n_rot=64, v_dim=128, dense_lead=1,
        experts=64, used=6, shared=2, ff_exp=1408, vocab=102400,
        ctx=163840, theta=1e4, eps=1e-6, scale=1.0, norm=False, gating=1,
        yarn=dict(factor=40.0, orig=4096, yarn_log_multiplier=0.0707)),
    "deepseek-v3": dict(
        arch="deepseek2", layers=61, embd=7168, ff=18432, heads=128,
        q_lora=1536, kv_lora=512, nope=128, n_rot=64, v_dim=128, dense_lead=3,
        experts=256, used=8, groups=8, groups_used=4, shared=1, ff_exp=2048,
        vocab=129280, ctx=163840, theta=1e4, eps=1e-6, scale=2.5, norm=True,
        gating=2, yarn=dict(factor=40.0, orig=4096, yarn_log_multiplier=0.1)),
    "glm-4.5-air": dict(
        arch="glm4moe", vocabulary="glm", layers=46, nextn=1, embd=4096, ff=10944, heads=96,
        kv_heads=8, head_dim=128, n_rot=64, bias=True, qk_norm=None, dense_lead=1,
        experts=128, used=8, shared=1, ff_exp=1408, vocab=151552,
        ctx=131072, theta=1e6, eps=1e-5, scale=1.0, norm=True, gating=2),
    "glm-4.7-flash": dict(
        arch="deepseek2", vocabulary="glm", model_type="glm4_moe_lite", layers=47, embd=2048,
        ff=10240, heads=20, q_lora=768, kv_lora=512, nope=192, n_rot=64, v_dim=256, dense_lead=1,
        experts=64, used=4, shared=1, ff_exp=1536, vocab=154880,
        ctx=202752, theta=1e6, eps=1e-5, scale=1.8, norm=True, gating=2),
    "minimax-m2": dict(
        arch="minimax-m2", layers=62, embd=3072, ff=1536, heads=48, kv_heads=8,
        head_dim=128, n_rot=64, qk_norm="whole", experts=256, used=8, ff_exp=1536,
        vocab=200064, ctx=196608, theta=5e6, eps=1e-6, gating=2),
    "gemma4-26b-a4b": dict(
        arch="gemma4", layers=30, embd=2816, ff=2112, heads=16, kv_heads=8, head_dim=256,
        full_kv_heads=2, full_head_dim=512, turning=0.25, interval=6, window=1024,
        experts=128, used=8, ff_exp=704, vocab=262144,
        ctx=262144, theta=1e6, window_theta=1e4, eps=1e-6, cap=30.0),
    "gpt-oss-20b": dict(
        arch="gpt-oss", layers=24, embd=2880, ff=2880, heads=64, kv_heads=8, head_dim=64,
        bias=True, qk_norm=None, window=128, experts=32, used=4, ff_exp=2880, vocab=201088,
        ctx=131072, theta=150000.0, eps=1e-5, yarn=GPT_OSS_YARN),
    "gpt-oss-120b": dict(
        arch="gpt-oss", layers=36, embd=2880, ff=2880, heads=64, kv_heads=8, head_dim=64,
        bias=True, qk_norm=None, window=128, experts=128, used=4, ff_exp=2880, vocab=201088,
        ctx=131072, theta=150000.0, eps=1e-5, yarn=GPT_OSS_YARN),
    "tiny-qwen3moe": dict(
        arch="qwen3moe", layers=4, embd=512, ff=1024, heads=8, kv_heads=2,
        head_dim=64, experts=16, used=4, ff_exp=256, vocab=2048,
        ctx=4096, theta=1e6, eps=1e-6),
    "tiny-qwen3next": dict(
        arch="qwen3next", layers=8, embd=512, heads=4, kv_heads=2,
        head_dim=256, n_rot=64, interval=4,
        lin_k_heads=2, lin_v_heads=4, lin_dim=128, conv=4,
        experts=16, used=4, ff_exp=256, ff_shexp=256, vocab=2048,
        ctx=4096, theta=1e7, eps=1e-6),
    "tiny-qwen35moe": dict(
        arch="qwen35moe", layers=8, embd=512, heads=4, kv_heads=2,
        head_dim=256, n_rot=64, sections=[11, 11, 10, 0], interval=4,
        lin_k_heads=2, lin_v_heads=4, lin_dim=128, conv=4,
        experts=16, used=4, ff_exp=256, ff_shexp=256, vocab=2048,
        ctx=4096, theta=1e7, eps=1e-6),
    "tiny-deepseek2": dict(
        arch="deepseek2", layers=4, embd=512, ff=1024, heads=4,
        q_lora=256, kv_lora=512, nope=128, n_rot=64, v_dim=128, dense_lead=1,
        experts=16, used=4, shared=1, ff_exp=256, vocab=2048,
        ctx=4096, theta=1e4, eps=1e-6, scale=1.0, norm=True, gating=2),
    "tiny-glm4moe": dict(
        arch="glm4moe", vocabulary="glm", layers=4, nextn=1, embd=512, ff=1024, heads=8,
        kv_heads=2, head_dim=64, n_rot=32, bias=True, qk_norm="heads", dense_lead=1,
        experts=16, used=4, shared=1, ff_exp=256, vocab=2048,
        ctx=4096, theta=1e6, eps=1e-5, scale=2.5, norm=True, gating=2),
    "tiny-glm4lite": dict(
        arch="deepseek2", vocabulary="glm", model_type="glm4_moe_lite", layers=4, nextn=1,
        embd=512, ff=1024, heads=4, q_lora=256, kv_lora=512, nope=192, n_rot=64, v_dim=256,
        dense_lead=1, experts=16, used=4, shared=1, ff_exp=256, vocab=2048,
        ctx=4096, theta=1e6, eps=1e-5, scale=1.8, norm=True, gating=2),
    "tiny-minimax-m2": dict(
        arch="minimax-m2", layers=4, embd=512, ff=256, heads=8, kv_heads=2,
        head_dim=64, n_rot=32, qk_norm="whole", experts=16, used=4, ff_exp=256, vocab=2048,
        ctx=4096, theta=5e6, eps=1e-6, gating=2),
    "tiny-gemma4": dict(
        arch="gemma4", layers=4, embd=512, ff=768, heads=8, kv_heads=4, head_dim=64,
        full_kv_heads=2, full_head_dim=128, turning=0.25, interval=2, window=32,
        experts=16, used=4, ff_exp=256, vocab=2048,
        ctx=4096, theta=1e6, window_theta=1e4, eps=1e-6, cap=30.0),
    # YaRN's ramp goes from channel 8 to channel 18: rounding its ends changes nothing
    "tiny-gpt-oss": dict(
        arch="gpt-oss", layers=4, embd=512, ff=256, heads=8, kv_heads=2, head_dim=64,
        bias=True, qk_norm=None, window=16, experts=16, used=4, ff_exp=256, vocab=2048,
        ctx=131072, theta=150000.0, eps=1e-5,
        yarn=dict(factor=32.0, orig=4096, yarn_beta_fast=turns_at(8), yarn_beta_slow=turns_at(18))),
}
DEFAULT_PRESET = {"qwen3moe": "qwen3-30b-a3b", "qwen3next": "qwen3-next-80b-a3b",
                  "qwen35moe": "qwen3.5-35b-a3b", "deepseek2": "deepseek-v2-lite",
                  "glm4moe": "glm-4.5-air", "minimax-m2": "minimax-m2",
                  "gemma4": "gemma4-26b-a4b", "gpt-oss": "gpt-oss-20b"}
HYBRID = ("qwen3next", "qwen35moe")      # linear attention, a full layer now and then


def byte_alphabet():
    """The printable stand-ins that byte-level BPE uses for the 256 bytes."""
    keep = (list(range(33, 127)) + list(range(161, 173)) +
            list(range(174, 256)))
    out, extra = [], 0
    for b in range(256):
        if b in keep:
            out.append(chr(b))
        else:
            out.append(chr(256 + extra))
            extra += 1
    return out


def has_window(m, layer):
    """Whether a layer of gemma4 sees a window of positions; the last one never does."""
    return (layer + 1) % m["interval"] != 0 and layer != m["layers"] - 1


def attention_heads(m, layer):
    """Heads of keys and the width of one, in a layer."""
    full = m["arch"] == "gemma4" and not has_window(m, layer)
    return ((m["full_kv_heads"], m["full_head_dim"]) if full
            else (m["kv_heads"], m["head_dim"]))


# Special tokens of a vocabulary: the first begins a text.
SPECIALS = {
    "deepseek2": ["<|begin_of_sentence|>", "<|end_of_sentence|>"],
    "glm": ["[gMASK]", "<|endoftext|>", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
            "<|observation|>"],
    "minimax-m2": ["]~!b[", "[e~[", "]~b]"],
    "gemma4": ["<bos>", "<eos>", "<|turn>", "<turn|>"],
    "gpt-oss": ["<|startoftext|>", "<|endoftext|>", "<|constrain|>", "<|channel|>", "<|start|>",
                "<|end|>", "<|message|>", "<|call|>", "<|return|>"],
}
ENDS = ("<|end_of_sentence|>", "<|endoftext|>", "[e~[", "<|im_end|>",
        "<turn|>", "<|return|>")     # of a text: the last


def byte_pairs(kind, size):
    """A byte-level BPE of the wanted size that can tokenise any text.

    The 256 bytes, then every pair of bytes, then pairs plus a byte, until the
    vocabulary is full; each merged token has its merge rule.
    """
    special = SPECIALS.get(kind, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    if size < 256 + len(special):
        sys.exit(f"vocabulary of {size} is too small for byte-level BPE")
    room = size - len(special)
    base = byte_alphabet()
    # letters, digits and blanks first, so that small vocabularies merge text
    order = sorted(range(256), key=lambda b: (
        not (97 <= b <= 122 or b == 32), not (65 <= b <= 90 or 48 <= b <= 57), b))
    tokens, merges = list(base), []

    def fill():
        for x in order:
            for y in order:
                if len(tokens) == room:
                    return
                tokens.append(base[x] + base[y])
                merges.append(base[x] + " " + base[y])
        for pair in tokens[256:256 + 65536]:
            for z in order:
                if len(tokens) == room:
                    return
                tokens.append(pair + base[z])
                merges.append(pair + " " + base[z])

    fill()
    first = len(tokens)
    tokens += special
    types = [1] * first + [3] * len(special)
    end = first + max(i for i, t in enumerate(special) if t in ENDS)
    return dict(tokens=tokens, merges=merges, types=types, bos=first, eos=end, pad=first)
