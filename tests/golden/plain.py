"""plain.py: the families in a page of arithmetic each, one number after the other, in double.

Written from the equations alone and sharing nothing with the library: what both agree on is right.
`Model(config, weights).run(ids)` gives the logits of every position.  `config` is a config.json;
`weights` has the names of Hugging Face without prefix, a matrix as a list of rows, norms as the
factor that is applied, the delta net's projections apart (in_proj_qkv, _z, _b, _a), experts one by
one, routers mlp.gate; MiniMax's block_sparse_moe is called mlp here too, its w1, w3, w2 gate_proj,
up_proj, down_proj.
Standard library only.
"""

import math
from operator import mul

import plain_gemma as gemma
import plain_gpt_oss as gpt_oss

DEFAULTS = {
    "qwen3_moe": dict(norm_topk_prob=False, rope_theta=1e4, partial_rotary_factor=1.0),
    "qwen3_next": dict(norm_topk_prob=True, rope_theta=1e7, partial_rotary_factor=0.25),
    "qwen3_5_moe": dict(norm_topk_prob=True, rope_theta=1e7, partial_rotary_factor=0.25),
    "deepseek_v2": dict(norm_topk_prob=False, rope_theta=1e4, first_k_dense_replace=0,
                        routed_scaling_factor=1.0, topk_method="greedy"),
    "deepseek_v3": dict(norm_topk_prob=True, rope_theta=1e4, first_k_dense_replace=3,
                        routed_scaling_factor=2.5),
    "glm4_moe": dict(norm_topk_prob=True, rope_theta=1e6, partial_rotary_factor=0.5,
                     first_k_dense_replace=1, routed_scaling_factor=1.0, n_shared_experts=1),
    "glm4_moe_lite": dict(norm_topk_prob=True, rope_theta=1e6, first_k_dense_replace=1,
                          routed_scaling_factor=1.8, n_shared_experts=1),
    "minimax_m2": dict(norm_topk_prob=True, rope_theta=5e6, partial_rotary_factor=0.5),
    gemma.FAMILY: dict(gemma.DEFAULTS),
    gpt_oss.FAMILY: dict(gpt_oss.DEFAULTS),
}
COMMON = dict(rms_norm_eps=1e-6, full_attention_interval=4, mlp_only_layers=[],
              decoder_sparse_step=1, linear_conv_kernel_dim=4, rope_interleave=True)
HYBRID = ("qwen3_next", "qwen3_5_moe")
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
SCORED = ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "minimax_m2")    # experts by a sigmoid


def family_of(config):
    return {"qwen3_5_moe_text": "qwen3_5_moe", "kimi_k2": "deepseek_v3",
            "minimax": "minimax_m2",
            "gemma4_text": gemma.FAMILY}.get(config["model_type"], config["model_type"])


def dot(a, b):
    return sum(map(mul, a, b))


def matrix(w, x):
    return [dot(row, x) for row in w]


def rms(x, w, eps):
    scale = (dot(x, x) / len(x) + eps) ** -0.5
    return [a * scale * b for a, b in zip(x, w)]


def sigmoid(t):
    return 1 / (1 + math.exp(-t)) if t > 0 else math.exp(t) / (1 + math.exp(t))


def silu(t):
    return t * sigmoid(t)


def softmax(x):
    most = max(x)
    e = [math.exp(t - most) for t in x]
    total = sum(e)
    return [t / total for t in e]


class Model:
    def __init__(self, config, weights):
        self.family = family_of(config)
        inner = config.get("text_config", config)
        self.c = {**COMMON, **DEFAULTS[self.family], **inner}
        if self.family in ("minimax_m2", gpt_oss.FAMILY):
            self.c["moe_intermediate_size"] = self.c["intermediate_size"]
        self.tied = inner.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
        self.w = weights
        self.layers = self.c["num_hidden_layers"]
        self.heads = self.c["num_attention_heads"]
        self.kv_heads = self.c.get("num_key_value_heads", self.heads)
        self.smallest_gap = math.inf
        self.position, self.states = 0, [[] for _ in range(self.layers)]
        self.parts = {}
        if self.family != gemma.FAMILY:
            self.set_rope()

    # ------------------------------------------------------------------ shapes

    def is_full(self, layer):
        if self.family not in HYBRID:
            return True
        if self.c.get("layer_types"):
            return self.c["layer_types"][layer] == "full_attention"
        return (layer + 1) % self.c["full_attention_interval"] == 0

    def is_dense(self, layer):
        if self.c.get("mlp_layer_types"):
            return self.c["mlp_layer_types"][layer] == "dense"
        if self.family in LATENT or self.family == "glm4_moe":
            return layer < self.c["first_k_dense_replace"]
        return (layer in self.c["mlp_only_layers"] or
                (layer + 1) % self.c["decoder_sparse_step"] != 0)

    # -------------------------------------------------------------------- rope

    def set_rope(self):
        c = self.c
        own = c.get("rope_parameters") or {}
        theta = own.get("rope_theta", c["rope_theta"])
        if self.family in LATENT:
            self.rotary = c["qk_rope_head_dim"]
        else:
            self.width = c.get("head_dim") or c["hidden_size"] // self.heads
            part = own.get("partial_rotary_factor", c["partial_rotary_factor"])
            self.rotary = c.get("rotary_dim") or int(self.width * part)
        half = self.rotary // 2
        self.frequencies = [theta ** (-2 * i / self.rotary) for i in range(half)]
        self.multiplier, self.sharper = 1.0, 1.0
        scaling = c.get("rope_scaling") or own
        if self.family == gpt_oss.FAMILY and not scaling:
            scaling = gpt_oss.YARN
        if scaling.get("rope_type", scaling.get("type", "default")) == "yarn":
            self.set_yarn(scaling, theta)

    def set_yarn(self, y, theta):
        factor = y["factor"]
        original = (y.get("original_max_position_embeddings") or
                    self.c["max_position_embeddings"])

        def channel(turns):
            return self.rotary * math.log(original / (2 * math.pi * turns)) / (2 * math.log(theta))

        def m(scale, c):
            return 1.0 if scale <= 1 else 0.1 * c * math.log(scale) + 1

        low, high = channel(y.get("beta_fast", 32)), channel(y.get("beta_slow", 1))
        if y.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.rotary - 1)
        if low == high:
            high += 0.001
        for i, base in enumerate(self.frequencies):
            ramp = min(max((i - low) / (high - low), 0), 1)
            self.frequencies[i] = base * (1 - ramp) + base / factor * ramp
        a, b = y.get("mscale"), y.get("mscale_all_dim")
        self.multiplier = m(factor, a) / m(factor, b) if a and b else m(factor, 1)
        if y.get("attention_factor"):
            self.multiplier = y["attention_factor"]
        if b and self.family in LATENT:
            self.sharper = m(factor, b) ** 2

    def rope(self, x, position, interleaved):
        """The first `rotary` numbers of x turn."""
        out, half = list(x), self.rotary // 2
        for i, frequency in enumerate(self.frequencies):
            cos = math.cos(position * frequency) * self.multiplier
            sin = math.sin(position * frequency) * self.multiplier
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
            out[a] = x[a] * cos - x[b] * sin
            out[b] = x[a] * sin + x[b] * cos
        return out

    # ---------------------------------------------------------------- products

    def multiply(self, w, x):
        """A product that tuned arithmetic may round; those of routers and gates it may not."""
        return matrix(w, x)

    def project(self, w, module, x):
        """With the module's bias, if it has one."""
        y, bias = self.multiply(w[module + ".weight"], x), w.get(module + ".bias")
        return [a + b for a, b in zip(y, bias)] if bias else y

    def remember(self, x):
        """What attention keeps of a position."""
        return x

    # ------------------------------------------------------------------ mixers

    def attend(self, q, keys, values, scale, sink=None):
        """A sink is a score without a value."""
        p = softmax([dot(q, k) * scale for k in keys] + ([] if sink is None else [sink]))
        return [dot(p, column) for column in zip(*values)]

    def normed(self, x, w):
        """A head, or all together; where there is no weight, as it is."""
        return rms(x, w, self.c["rms_norm_eps"]) if w else x

    def attention(self, n, x, position, state):
        w, d = self.layer_weights(n, "self_attn."), self.width
        gated = self.family in HYBRID
        q, k, v = (self.project(w, f"{m}_proj", x) for m in "qkv")
        q_norm, k_norm = w.get("q_norm.weight"), w.get("k_norm.weight")
        if self.family == "minimax_m2":
            q, k, q_norm, k_norm = self.normed(q, q_norm), self.normed(k, k_norm), None, None
        q = [q[i:i + d * (1 + gated)] for i in range(0, len(q), d * (1 + gated))]
        k = [self.rope(self.normed(k[i:i + d], k_norm), position, False)
             for i in range(0, len(k), d)]
        v = [v[i:i + d] for i in range(0, len(v), d)]
        state.append(([self.remember(t) for t in k], [self.remember(t) for t in v]))
        out, sinks = [], w.get("sinks")
        if self.family == gpt_oss.FAMILY and gpt_oss.has_window(self.c, n):
            state = state[-self.c["sliding_window"]:]
        for h, query in enumerate(q):
            g = h // (self.heads // self.kv_heads)
            turned = self.rope(self.normed(query[:d], q_norm), position, False)
            head = self.attend(turned, [s[0][g] for s in state], [s[1][g] for s in state], d ** -0.5,
                               sinks[h] if sinks else None)
            if gated:
                head = [a * sigmoid(b) for a, b in zip(head, query[d:])]
            out += head
        return self.project(w, "o_proj", out)

    def latent(self, n, x, position, state):
        w, c = self.layer_weights(n, "self_attn."), self.c
        nope, value, rank = c["qk_nope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        if c.get("q_lora_rank"):
            narrow = rms(self.project(w, "q_a_proj", x), w["q_a_layernorm.weight"], 1e-6)
            q = self.multiply(w["q_b_proj.weight"], narrow)
        else:
            q = self.multiply(w["q_proj.weight"], x)
        both = self.project(w, "kv_a_proj_with_mqa", x)
        latent = self.remember(rms(both[:rank], w["kv_a_layernorm.weight"], 1e-6))
        shared = self.remember(self.rope(both[rank:], position, c["rope_interleave"]))
        kv = self.multiply(w["kv_b_proj.weight"], latent)
        state.append(([kv[i:i + nope] + shared for i in range(0, len(kv), nope + value)],
                      [kv[i + nope:i + nope + value] for i in range(0, len(kv), nope + value)]))
        scale = (nope + self.rotary) ** -0.5 * self.sharper
        out = []
        for h in range(self.heads):
            query = q[h * (nope + self.rotary):(h + 1) * (nope + self.rotary)]
            query = query[:nope] + self.rope(query[nope:], position, c["rope_interleave"])
            out += self.attend(query, [s[0][h] for s in state], [s[1][h] for s in state], scale)
        return self.project(w, "o_proj", out)

    def delta(self, n, x, state):
        w, c = self.layer_weights(n, "linear_attn."), self.c
        hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        taps = c["linear_conv_kernel_dim"]
        u, z = (self.multiply(w[f"in_proj_{m}.weight"], x) for m in ("qkv", "z"))
        b, a = (matrix(w[f"in_proj_{m}.weight"], x) for m in "ba")
        if not state:
            state += [[[0.0] * len(u)] * (taps - 1), [[[0.0] * dk for _ in range(dv)]
                                                      for _ in range(hv)]]
        window = state[0] + [u]
        state[0] = window[1:]
        u = [silu(dot(w["conv1d.weight"][i], [row[i] for row in window])) for i in range(len(u))]

        def unit(v, scale):
            length = (dot(v, v) + 1e-6) ** -0.5 * scale
            return [t * length for t in v]

        out = []
        for h in range(hv):
            kh = h // (hv // hk)
            q = unit(u[kh * dk:(kh + 1) * dk], dk ** -0.5)
            k = unit(u[(hk + kh) * dk:(hk + kh + 1) * dk], 1)
            v = u[2 * hk * dk + h * dv:2 * hk * dk + (h + 1) * dv]
            dt = a[h] + w["dt_bias"][h]
            dt = dt if dt > 20 else math.log1p(math.exp(dt))
            decay, beta = math.exp(-math.exp(w["A_log"][h]) * dt), sigmoid(b[h])
            s = state[1][h]
            for i in range(dv):
                row = [decay * t for t in s[i]]
                change = beta * (v[i] - dot(row, k))
                s[i] = [t + change * kj for t, kj in zip(row, k)]
            o = rms(matrix(s, q), w["norm.weight"], c["rms_norm_eps"])
            out += [t * silu(g) for t, g in zip(o, z[h * dv:(h + 1) * dv])]
        return self.multiply(w["out_proj.weight"], out)

    # ------------------------------------------------------------ feed-forward

    def swiglu(self, prefix, x):
        gate, up = (self.project(self.w, f"{prefix}{part}_proj", x) for part in ("gate", "up"))
        product = gpt_oss.product if self.family == gpt_oss.FAMILY else lambda g, u: silu(g) * u
        inner = [product(g, u) for g, u in zip(gate, up)]
        return self.project(self.w, prefix + "down_proj", inner)

    def best(self, scores, count):
        """Indices of the greatest, the lower first of equals; the gap to the next is noted."""
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        if count < len(order):
            gap = scores[order[count - 1]] - scores[order[count]]
            self.smallest_gap = min(self.smallest_gap, gap)
        return order[:count]

    def route(self, n, x):
        c, logits = self.c, matrix(self.w[f"layers.{n}.mlp.gate.weight"], x)
        bias = self.w.get(f"layers.{n}.mlp.gate.bias")
        if bias:
            logits = [a + b for a, b in zip(logits, bias)]
        k, deepseek = c["num_experts_per_tok"], self.family in LATENT or self.family in SCORED
        if self.family in SCORED:
            scores = [sigmoid(t) for t in logits]
            choice = [s + b for s, b in
                      zip(scores, self.w[f"layers.{n}.mlp.gate.e_score_correction_bias"])]
            worst, group_score = -math.inf, lambda g: sum(sorted(g)[-2:])
        else:
            scores = softmax(logits)
            choice, worst, group_score = list(scores), 0.0, max
        groups = (c.get("n_group") or 1) if deepseek else 1
        if c.get("topk_method") == "greedy":
            groups = 1
        if groups > 1:
            size = len(choice) // groups
            marks = [group_score(choice[i * size:(i + 1) * size]) for i in range(groups)]
            kept = self.best(marks, c["topk_group"])
            choice = [t if i // size in kept else worst for i, t in enumerate(choice)]
        ids = self.best(choice, k)
        weights = [scores[i] for i in ids]
        if c["norm_topk_prob"] or self.family == "qwen3_5_moe":
            total = sum(weights) + (1e-20 if deepseek else 0)
            weights = [t / total for t in weights]
        scale = c.get("routed_scaling_factor", 1.0) if deepseek else 1.0
        return [(i, t * scale) for i, t in zip(ids, weights)]

    def feed_forward(self, n, x):
        prefix = f"layers.{n}.mlp."
        if self.is_dense(n):
            return self.swiglu(prefix, x)
        out = [0.0] * len(x)
        for expert, weight in self.route(n, x):
            answer = self.swiglu(f"{prefix}experts.{expert}.", x)
            out = [a + weight * b for a, b in zip(out, answer)]
        if prefix + "shared_expert.gate_proj.weight" in self.w:
            scale = sigmoid(dot(self.w[prefix + "shared_expert_gate.weight"][0], x))
            answer = self.swiglu(prefix + "shared_expert.", x)
            out = [a + scale * b for a, b in zip(out, answer)]
        if prefix + "shared_experts.gate_proj.weight" in self.w:
            out = [a + b for a, b in zip(out, self.swiglu(prefix + "shared_experts.", x))]
        return out

    # ------------------------------------------------------------------- whole

    def layer_weights(self, n, part):
        prefix = f"layers.{n}.{part}"
        if prefix not in self.parts:
            self.parts[prefix] = {name[len(prefix):]: w for name, w in self.w.items()
                                  if name.startswith(prefix)}
        return self.parts[prefix]

    def mix(self, n, x, position, state):
        if self.family in LATENT:
            return self.latent(n, x, position, state)
        if self.is_full(n):
            return self.attention(n, x, position, state)
        return self.delta(n, x, state)

    def run(self, ids):
        """Logits of these tokens, which come after those of earlier calls."""
        eps, out = self.c["rms_norm_eps"], []
        head = self.w["embed_tokens.weight" if self.tied else "lm_head.weight"]
        for token in ids:
            x = list(self.w["embed_tokens.weight"][token])
            if self.family == gemma.FAMILY:
                x = [t * len(x) ** 0.5 for t in x]
            for n in range(self.layers):
                if self.family == gemma.FAMILY:
                    x = gemma.layer(self, n, x)
                    continue
                normed = rms(x, self.w[f"layers.{n}.input_layernorm.weight"], eps)
                mixed = self.mix(n, normed, self.position, self.states[n])
                x = [a + b for a, b in zip(x, mixed)]
                normed = rms(x, self.w[f"layers.{n}.post_attention_layernorm.weight"], eps)
                x = [a + b for a, b in zip(x, self.feed_forward(n, normed))]
            self.position += 1
            logits = matrix(head, rms(x, self.w["norm.weight"], eps))
            out.append(gemma.capped(self.c, logits))
        return out
