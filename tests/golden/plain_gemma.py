"""plain_gemma.py: what gemma4 does otherwise than the families of plain.py.

Its names in weights are those of Hugging Face without prefix, experts one by one
(layers.0.experts.3.gate_proj.weight)."""

import math

import plain

FAMILY = "gemma4"
DEFAULTS = dict(sliding_window=1024, head_dim=256, global_head_dim=512, attention_k_eq_v=False,
                hidden_activation="gelu_pytorch_tanh")
FULL = dict(rope_theta=1e6, partial_rotary_factor=0.25)
WINDOW = dict(rope_theta=1e4)


def has_window(c, n):
    types = c.get("layer_types") or ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention"
                                     for i in range(c["num_hidden_layers"])]
    return types[n] == "sliding_attention" and n != c["num_hidden_layers"] - 1


def heads(c, n):
    """Heads of keys and the width of one, in a layer."""
    own = (c.get("per_layer_config") or {}).get(str(n), {})
    if has_window(c, n):
        return c["num_key_value_heads"], c["head_dim"]
    count = c.get("num_global_key_value_heads") if c["attention_k_eq_v"] else None
    return (own.get("num_key_value_heads", count or c["num_key_value_heads"]),
            own.get("head_dim", c["global_head_dim"]))


def frequencies(c, n):
    own, width = c.get("rope_parameters") or {}, heads(c, n)[1]
    if has_window(c, n):
        theta = {**WINDOW, **own.get("sliding_attention", {})}["rope_theta"]
        return [theta ** (-2 * i / width) for i in range(width // 2)]
    r = {**FULL, **own.get("full_attention", {})}
    turning = int(r["partial_rotary_factor"] * width / 2)
    return [r["rope_theta"] ** (-2 * i / width) if i < turning else 0.0 for i in range(width // 2)]


def turn(x, position, table):
    out, half = list(x), len(x) // 2
    for i, frequency in enumerate(table):
        cos, sin = math.cos(position * frequency), math.sin(position * frequency)
        out[i] = x[i] * cos - x[i + half] * sin
        out[i + half] = x[i] * sin + x[i + half] * cos
    return out


def gelu(t):
    return 0.5 * t * (1 + math.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t ** 3)))


def geglu(model, prefix, x):
    gate = model.multiply(model.w[prefix + "gate_proj.weight"], x)
    up = model.multiply(model.w[prefix + "up_proj.weight"], x)
    return model.multiply(model.w[prefix + "down_proj.weight"],
                          [gelu(g) * u for g, u in zip(gate, up)])


def attention(model, n, x):
    w, c = model.layer_weights(n, "self_attn."), model.c
    eps, position, state = c["rms_norm_eps"], model.position, model.states[n]
    (count, d), table = heads(c, n), frequencies(c, n)
    q, k = (model.multiply(w[f"{m}_proj.weight"], x) for m in "qk")
    same = c["attention_k_eq_v"] and not has_window(c, n)
    v = k if same else model.multiply(w["v_proj.weight"], x)
    q, k, v = ([m[i:i + d] for i in range(0, len(m), d)] for m in (q, k, v))
    k = [turn(plain.rms(t, w["k_norm.weight"], eps), position, table) for t in k]
    v = [plain.rms(t, [1.0] * d, eps) for t in v]
    state.append(([model.remember(t) for t in k], [model.remember(t) for t in v]))
    seen = state[-c["sliding_window"]:] if has_window(c, n) else state
    out = []
    for h, query in enumerate(q):
        g = h // (model.heads // count)
        query = turn(plain.rms(query, w["q_norm.weight"], eps), position, table)
        out += model.attend(query, [s[0][g] for s in seen], [s[1][g] for s in seen], 1.0)
    return model.multiply(w["o_proj.weight"], out)


def route(model, n, h):
    w, c = model.layer_weights(n, "router."), model.c
    scale = len(h) ** -0.5
    x = plain.rms(h, [t * scale for t in w["scale"]], c["rms_norm_eps"])
    scores = plain.softmax(plain.matrix(w["proj.weight"], x))
    ids = model.best(scores, c["top_k_experts"])
    total = sum(scores[i] for i in ids)
    return [(i, scores[i] / total * w["per_expert_scale"][i]) for i in ids]


def layer(model, n, x):
    w, eps = model.layer_weights(n, ""), model.c["rms_norm_eps"]

    def norm(name, t):
        return plain.rms(t, w[name + "_layernorm.weight"], eps)

    def norm_of(name, number, t):
        return plain.rms(t, w[f"{name}_layernorm_{number}.weight"], eps)

    a = norm("post_attention", attention(model, n, norm("input", x)))
    h = [s + t for s, t in zip(x, a)]
    d = geglu(model, f"layers.{n}.mlp.", norm("pre_feedforward", h))
    e, inner = [0.0] * len(h), norm_of("pre_feedforward", 2, h)
    for expert, weight in route(model, n, h):
        answer = geglu(model, f"layers.{n}.experts.{expert}.", inner)
        e = [s + weight * t for s, t in zip(e, answer)]
    both = [s + t for s, t in zip(norm_of("post_feedforward", 1, d),
                                  norm_of("post_feedforward", 2, e))]
    scale = w["layer_scalar"][0]
    return [(s + t) * scale for s, t in zip(h, norm("post_feedforward", both))]


def capped(c, logits):
    cap = c.get("final_logit_softcapping")
    return [cap * math.tanh(t / cap) for t in logits] if cap else logits
