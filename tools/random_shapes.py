"""What make_random_gguf.py and make_random_mlx.py share: shapes of published models, small
ones of the same families, and a vocabulary for them."""

import sys

# Of projections into the residual stream: of attention, of all others.
ATT_GAIN, OUT_GAIN = 0.1, 0.5

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
        yarn=dict(factor=40.0, orig=4096, log_mul=0.0707)),
    "deepseek-v3": dict(
        arch="deepseek2", layers=61, embd=7168, ff=18432, heads=128,
        q_lora=1536, kv_lora=512, nope=128, n_rot=64, v_dim=128, dense_lead=3,
        experts=256, used=8, groups=8, groups_used=4, shared=1, ff_exp=2048,
        vocab=129280, ctx=163840, theta=1e4, eps=1e-6, scale=2.5, norm=True,
        gating=2, yarn=dict(factor=40.0, orig=4096, log_mul=0.1)),
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
}
DEFAULT_PRESET = {"qwen3moe": "qwen3-30b-a3b", "qwen3next": "qwen3-next-80b-a3b",
                  "qwen35moe": "qwen3.5-35b-a3b", "deepseek2": "deepseek-v2-lite"}
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


def byte_pairs(arch, size):
    """A byte-level BPE of the wanted size that can tokenise any text.

    The 256 bytes, then every pair of bytes, then pairs plus a byte, until the
    vocabulary is full; each merged token has its merge rule.
    """
    special = (["<|begin_of_sentence|>", "<|end_of_sentence|>"]
               if arch == "deepseek2" else
               ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
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
    end = first + 1 if arch == "deepseek2" else first + 2
    return dict(tokens=tokens, merges=merges, types=types, bos=first, eos=end, pad=first)
