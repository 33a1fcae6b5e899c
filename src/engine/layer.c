#include "engine/layer.h"

#include "base/status.h"

#include <math.h>

/* Added to the sum of squares when queries and keys of a delta net are normalised;
 * fixed by the architecture, not by the configuration. */
#define DELTA_NORM_EPSILON 1e-6f

static struct attention_shape attention_shape(const struct model_config *c)
{
    return (struct attention_shape){ .heads = c->heads,
                                     .kv_heads = c->kv_heads,
                                     .head_width = c->head_width,
                                     .rotary_width = c->rotary_width,
                                     .scale = (float)(1.0 / sqrt((double)c->head_width)) };
}

static struct delta_shape delta_shape(const struct model_config *c)
{
    return (struct delta_shape){ .key_heads = c->delta_key_heads,
                                 .value_heads = c->delta_value_heads,
                                 .key_width = c->delta_key_width,
                                 .value_width = c->delta_value_width,
                                 .taps = c->delta_taps };
}

static void build_start(struct graph *g, const struct model_config *c, const double *frequencies)
{
    struct attention_shape shape = attention_shape(c);
    op_embed(g, graph_shared(SHARED_X));
    op_rope_angles(g, graph_shared(SHARED_ANGLES), frequencies, &shape);
}

/* The end of every mixer: the residual, the norm that router and experts read, the router. */
static void build_residual_and_route(struct graph *g, const struct model_config *c, buffer mixed,
                                     enum slot out)
{
    buffer x = graph_shared(SHARED_X), routed = graph_shared(SHARED_ROUTED);
    op_add_project(g, x, mixed, out);
    op_rms_norm_into(g, routed, x, SLOT_FFN_NORM, c->norm_epsilon);
    op_route(g, op_project(g, routed, SLOT_ROUTER, c->experts));
}

/* Gated full attention: o = Wo · (attention ⊙ sigmoid(gate)). */
static void build_attention(struct graph *g, const struct model_config *c)
{
    struct attention_shape shape = attention_shape(c);
    uint32_t queries = c->heads * c->head_width, keys = c->kv_heads * c->head_width;
    buffer angles = graph_shared(SHARED_ANGLES);
    buffer q, gate;

    buffer normed = op_rms_norm(g, graph_shared(SHARED_X), SLOT_MIXER_NORM, c->norm_epsilon);
    buffer both = op_project(g, normed, SLOT_Q, 2 * queries);
    buffer k = op_project(g, normed, SLOT_K, keys);
    buffer v = op_project(g, normed, SLOT_V, keys);
    op_split_gate(g, &q, &gate, both, &shape);
    op_head_norm(g, q, SLOT_Q_NORM, c->norm_epsilon, c->heads, c->head_width);
    op_head_norm(g, k, SLOT_K_NORM, c->norm_epsilon, c->kv_heads, c->head_width);
    op_rope(g, q, angles, c->heads, &shape);
    op_rope(g, k, angles, c->kv_heads, &shape);
    op_kv_append(g, k, v, &shape);
    buffer heads = op_attend(g, q, &shape);
    buffer gated = op_sigmoid_multiply(g, heads, gate);
    build_residual_and_route(g, c, gated, SLOT_ATTENTION_OUT);
}

/* Gated delta net: S ← γS + β(v - γS·k)kᵀ per head, o = Wo · (norm(S·q) ⊙ silu(z)). */
static void build_delta(struct graph *g, const struct model_config *c)
{
    struct delta_shape shape = delta_shape(c);
    uint32_t values = c->delta_value_heads * c->delta_value_width;

    buffer normed = op_rms_norm(g, graph_shared(SHARED_X), SLOT_MIXER_NORM, c->norm_epsilon);
    buffer qkv = op_project(g, normed, SLOT_DELTA_QKV, config_delta_channels(c));
    buffer z = op_project(g, normed, SLOT_DELTA_Z, values);
    buffer b = op_project(g, normed, SLOT_DELTA_B, c->delta_value_heads);
    buffer a = op_project(g, normed, SLOT_DELTA_A, c->delta_value_heads);
    buffer mixed = op_conv(g, qkv, SLOT_DELTA_CONV, &shape);
    op_unit_norm(g, mixed, DELTA_NORM_EPSILON, &shape);
    buffer read = op_delta(g, mixed, b, a, &shape);
    buffer gated = op_gated_norm(g, read, z, SLOT_DELTA_NORM, c->norm_epsilon, &shape);
    build_residual_and_route(g, c, gated, SLOT_DELTA_OUT);
}

/* x += Σ weight·expert + sigmoid(scale)·shared expert; the routed ones have been run. */
static void build_experts(struct graph *g, const struct model_config *c)
{
    buffer routed = graph_shared(SHARED_ROUTED);
    buffer gate = op_project(g, routed, SLOT_SHARED_GATE, c->shared_width);
    buffer up = op_project(g, routed, SLOT_SHARED_UP, c->shared_width);
    buffer hidden = op_silu_multiply(g, gate, up);
    buffer shared = op_project(g, hidden, SLOT_SHARED_DOWN, c->width);
    buffer scale = op_project(g, routed, SLOT_SHARED_SCALE, 1);
    op_combine(g, graph_shared(SHARED_X), shared, scale);
}

static void build_head(struct graph *g, const struct model_config *c)
{
    buffer normed = op_rms_norm(g, graph_shared(SHARED_X), SLOT_FINAL_NORM, c->norm_epsilon);
    op_project_into(g, graph_shared(SHARED_LOGITS), normed, SLOT_HEAD);
}

/* theta^(-2i / rotary_width) */
static double *rope_frequencies(const struct model_config *c, struct arena *arena)
{
    uint32_t half = c->rotary_width / 2;
    double *frequencies = ARENA_NEW(arena, double, half);
    for (uint32_t i = 0; frequencies && i < half; i++)
        frequencies[i] = pow(c->rope_theta, -2.0 * i / c->rotary_width);
    return frequencies;
}

static void plan_recipe(struct recipes *all, struct recipe *recipe)
{
    buffers_plan(&recipe->plan, &recipe->graph);
    if (recipe->plan.total_width > all->scratch_width)
        all->scratch_width = recipe->plan.total_width;
}

mf_status recipes_build(struct recipes *out, const struct model_config *c, struct arena *arena,
                        mf_error *why)
{
    const double *frequencies = rope_frequencies(c, arena);
    if (!frequencies) return fail_memory(why, c->rotary_width * sizeof(double));
    *out = (struct recipes){ .widths = { [SHARED_X] = c->width,
                                         [SHARED_ROUTED] = c->width,
                                         [SHARED_ANGLES] = c->rotary_width,
                                         [SHARED_EXPERTS] = c->experts_per_token * c->width,
                                         [SHARED_LOGITS] = c->vocab_size } };
    graph_begin(&out->start.graph, "start", out->widths);
    graph_begin(&out->attention.graph, "attention", out->widths);
    graph_begin(&out->delta.graph, "delta net", out->widths);
    graph_begin(&out->experts.graph, "experts", out->widths);
    graph_begin(&out->head.graph, "head", out->widths);
    build_start(&out->start.graph, c, frequencies);
    build_attention(&out->attention.graph, c);
    build_delta(&out->delta.graph, c);
    build_experts(&out->experts.graph, c);
    build_head(&out->head.graph, c);

    struct recipe *all[] = { &out->start, &out->attention, &out->delta, &out->experts, &out->head };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        if (!graph_check(&all[i]->graph))
            return fail(why, MF_ERR_UNSUPPORTED, "the %s recipe is longer than a graph can be",
                        all[i]->graph.label);
        plan_recipe(out, all[i]);
    }
    return MF_OK;
}

const struct recipe *recipes_mixer(const struct recipes *recipes, enum mixer_kind kind)
{
    return kind == MIXER_ATTENTION ? &recipes->attention : &recipes->delta;
}
