#include "engine/layer.h"

#include "base/status.h"
#include "model/families.h"

#include <math.h>

/* Fixed by the architectures, not by the configuration: what is added to the sum of
 * squares of a delta net's queries and keys, and to the mean of a latent's. */
#define DELTA_NORM_EPSILON  1e-6f
#define LATENT_NORM_EPSILON 1e-6f

/* What the builders of one model share. */
struct builder {
    const struct model_config *config;
    struct rope_shape rope;
};

static float score_scale(const struct model_config *c)
{
    return (float)(c->rope.score_multiplier / sqrt((double)c->head_width));
}

static void build_start(struct graph *g, const struct builder *b)
{
    op_embed(g, graph_shared(SHARED_X));
    op_rope_angles(g, graph_shared(SHARED_ANGLES), &b->rope);
}

/* Grouped-query attention; with an output gate o = Wo · (attention ⊙ sigmoid(gate)). */
static buffer build_attention(struct graph *g, const struct builder *b, buffer normed)
{
    const struct model_config *c = b->config;
    struct attention_shape shape = { c->heads, c->kv_heads, c->head_width, score_scale(c) };
    uint32_t queries = c->heads * c->head_width, keys = c->kv_heads * c->head_width;
    buffer angles = graph_shared(SHARED_ANGLES), gate = NO_BUFFER;

    buffer q = op_project(g, normed, WEIGHT_Q, c->output_gate ? 2 * queries : queries);
    buffer k = op_project(g, normed, WEIGHT_K, keys);
    buffer v = op_project(g, normed, WEIGHT_V, keys);
    if (c->output_gate) op_split_gate(g, &q, &gate, q, &shape);
    op_head_norm(g, q, WEIGHT_Q_NORM, c->norm_epsilon, c->heads, c->head_width);
    op_head_norm(g, k, WEIGHT_K_NORM, c->norm_epsilon, c->kv_heads, c->head_width);
    op_rope(g, q, angles, c->heads, c->head_width, &b->rope);
    op_rope(g, k, angles, c->kv_heads, c->head_width, &b->rope);
    op_kv_append(g, k, v, &shape);
    buffer heads = op_attend(g, q, &shape);
    return c->output_gate ? op_sigmoid_multiply(g, heads, gate) : heads;
}

/* Multi-head latent attention: the cache holds [latent | rotated key] for all heads. */
static buffer build_latent(struct graph *g, const struct builder *b, buffer normed)
{
    const struct model_config *c = b->config;
    struct latent_shape shape = { .heads = c->heads,
                                  .latent_width = c->latent_width,
                                  .nope_width = c->nope_width,
                                  .rope_width = c->rope.rotary_width,
                                  .value_width = c->value_width,
                                  .scale = score_scale(c) };
    struct rope_shape query_rope = b->rope;
    query_rope.offset = c->nope_width;
    buffer angles = graph_shared(SHARED_ANGLES), q;
    uint32_t queries = c->heads * c->head_width;

    if (c->query_rank > 0) {
        buffer narrow = op_project(g, normed, WEIGHT_Q_A, c->query_rank);
        buffer narrow_normed = op_rms_norm(g, narrow, WEIGHT_Q_A_NORM, LATENT_NORM_EPSILON);
        q = op_project(g, narrow_normed, WEIGHT_Q_B, queries);
    } else {
        q = op_project(g, normed, WEIGHT_Q, queries);
    }
    buffer kv = op_project(g, normed, WEIGHT_KV_A, c->latent_width + c->rope.rotary_width);
    op_rope(g, q, angles, c->heads, c->head_width, &query_rope);
    op_latent_append(g, kv, angles, WEIGHT_KV_A_NORM, LATENT_NORM_EPSILON, &b->rope);
    return op_latent_attend(g, q, &shape);
}

/* Gated delta net: S ← γS + β(v - γS·k)kᵀ per head, o = Wo · (norm(S·q) ⊙ silu(z)). */
static buffer build_delta(struct graph *g, const struct builder *b, buffer normed)
{
    const struct model_config *c = b->config;
    struct delta_shape shape = { .key_heads = c->delta_key_heads,
                                 .value_heads = c->delta_value_heads,
                                 .key_width = c->delta_key_width,
                                 .value_width = c->delta_value_width,
                                 .taps = c->delta_taps,
                                 .tiled = c->delta_heads_tiled };
    uint32_t values = c->delta_value_heads * c->delta_value_width;

    buffer qkv = op_project(g, normed, WEIGHT_DELTA_QKV, config_delta_channels(c));
    buffer z = op_project(g, normed, WEIGHT_DELTA_Z, values);
    buffer strength = op_project(g, normed, WEIGHT_DELTA_B, c->delta_value_heads);
    buffer decay = op_project(g, normed, WEIGHT_DELTA_A, c->delta_value_heads);
    buffer mixed = op_conv(g, qkv, WEIGHT_DELTA_CONV, &shape);
    op_unit_norm(g, mixed, DELTA_NORM_EPSILON, &shape);
    buffer read = op_delta(g, mixed, strength, decay, &shape);
    return op_gated_norm(g, read, z, WEIGHT_DELTA_NORM, c->norm_epsilon, &shape);
}

static void build_router(struct graph *g, const struct model_config *c, buffer normed)
{
    struct router_shape router = { .sigmoid = c->router == ROUTER_SIGMOID,
                                   .renormalise = c->renormalise,
                                   .scale = c->routed_scale,
                                   .groups = c->router_groups,
                                   .top_groups = c->router_top_groups };
    op_route(g, op_project(g, normed, WEIGHT_ROUTER, c->experts), &router);
}

/* A layer's norm and router on a residual stream that has not reached it yet. */
static void build_predict(struct graph *g, const struct builder *b)
{
    const struct model_config *c = b->config;
    g->stage = MF_STAGE_PREDICTION;
    build_router(g, c, op_rms_norm(g, graph_shared(SHARED_X), WEIGHT_FFN_NORM, c->norm_epsilon));
}

/* x += mixer(norm(x)); then the norm that feed-forward and router read, and the router. */
static void build_before(struct graph *g, const struct builder *b, enum mixer_kind mixer,
                         enum ffn_kind ffn)
{
    const struct model_config *c = b->config;
    static const mf_stage stages[MIXER_KINDS] = { [MIXER_ATTENTION] = MF_STAGE_ATTENTION,
                                                  [MIXER_LATENT] = MF_STAGE_LATENT_ATTENTION,
                                                  [MIXER_DELTA] = MF_STAGE_DELTA };
    buffer x = graph_shared(SHARED_X), routed = graph_shared(SHARED_ROUTED);
    g->stage = stages[mixer];
    buffer normed = op_rms_norm(g, x, WEIGHT_MIXER_NORM, c->norm_epsilon);
    if (mixer == MIXER_DELTA)
        op_add_project(g, x, build_delta(g, b, normed), WEIGHT_DELTA_OUT);
    else if (mixer == MIXER_LATENT)
        op_add_project(g, x, build_latent(g, b, normed), WEIGHT_ATTENTION_OUT);
    else
        op_add_project(g, x, build_attention(g, b, normed), WEIGHT_ATTENTION_OUT);
    g->stage = ffn == FFN_EXPERTS ? MF_STAGE_ROUTER : MF_STAGE_DENSE;
    op_rms_norm_into(g, routed, x, WEIGHT_FFN_NORM, c->norm_epsilon);
    if (ffn == FFN_EXPERTS) build_router(g, c, routed);
}

/* SwiGLU: silu(gate·x) ⊙ (up·x), before the last matrix. */
static buffer build_swiglu(struct graph *g, enum weight_id gate, enum weight_id up, uint32_t width)
{
    buffer routed = graph_shared(SHARED_ROUTED);
    buffer gates = op_project(g, routed, gate, width);
    buffer ups = op_project(g, routed, up, width);
    return op_silu_multiply(g, gates, ups);
}

/* x += Σ weight·expert + shared expert; the routed ones have been run. */
static void build_experts(struct graph *g, const struct builder *b)
{
    const struct model_config *c = b->config;
    buffer shared = NO_BUFFER, scale = NO_BUFFER;
    g->stage = MF_STAGE_SHARED_EXPERT;
    if (c->shared_width > 0) {
        buffer hidden = build_swiglu(g, WEIGHT_SHARED_GATE, WEIGHT_SHARED_UP, c->shared_width);
        shared = op_project(g, hidden, WEIGHT_SHARED_DOWN, c->width);
        if (c->shared_scaled)
            scale = op_project(g, graph_shared(SHARED_ROUTED), WEIGHT_SHARED_SCALE, 1);
    }
    g->stage = MF_STAGE_EXPERT_SUM;
    op_combine(g, graph_shared(SHARED_X), shared, scale);
}

static void build_dense(struct graph *g, const struct builder *b)
{
    g->stage = MF_STAGE_DENSE;
    buffer hidden = build_swiglu(g, WEIGHT_DENSE_GATE, WEIGHT_DENSE_UP, b->config->dense_width);
    op_add_project(g, graph_shared(SHARED_X), hidden, WEIGHT_DENSE_DOWN);
}

static void build_head(struct graph *g, const struct builder *b)
{
    g->stage = MF_STAGE_HEAD;
    buffer normed =
        op_rms_norm(g, graph_shared(SHARED_X), WEIGHT_FINAL_NORM, b->config->norm_epsilon);
    op_project_into(g, graph_shared(SHARED_LOGITS), normed, WEIGHT_HEAD);
}

/* ------------------------------------------------------------------- rope */

/* The rotary channel that turns `turns` times within the original context. */
static double yarn_channel(const struct rope_config *rope, double turns)
{
    const double two_pi = 6.28318530717958647692;
    return rope->rotary_width * log(rope->original_context / (two_pi * turns)) /
           (2 * log(rope->theta));
}

/* theta^(-2i / width).  YaRN divides the slow ones by its factor, leaves the fast ones,
 * and goes from one to the other in a ramp. */
static double *rope_frequencies(const struct rope_config *rope, struct arena *arena)
{
    uint32_t half = rope->rotary_width / 2;
    double *frequencies = ARENA_NEW(arena, double, half);
    double low = 0, high = 0;
    if (rope->factor > 1.0) {
        low = fmax(floor(yarn_channel(rope, rope->beta_fast)), 0);
        high = fmin(ceil(yarn_channel(rope, rope->beta_slow)), rope->rotary_width - 1.0);
        if (low == high) high += 0.001;
    }
    for (uint32_t i = 0; frequencies && i < half; i++) {
        double base = pow(rope->theta, -2.0 * i / rope->rotary_width);
        double ramp = rope->factor > 1.0 ? fmin(fmax((i - low) / (high - low), 0), 1) : 0;
        frequencies[i] = base * (1 - ramp) + base / rope->factor * ramp;
    }
    return frequencies;
}

/* ------------------------------------------------------------------ recipes */

static mf_status finish_recipe(struct recipes *all, struct recipe *recipe, mf_error *why)
{
    if (!graph_check(&recipe->graph))
        return fail(why, MF_ERR_UNSUPPORTED, "the %s recipe is longer than a graph can be",
                    recipe->graph.label);
    buffers_plan(&recipe->plan, &recipe->graph);
    if (recipe->plan.total_width > all->scratch_width)
        all->scratch_width = recipe->plan.total_width;
    return MF_OK;
}

/* The recipe before routing of a layer's kinds, unless it has been built. */
static mf_status build_kind(struct recipes *out, const struct builder *b, uint32_t layer,
                            mf_error *why)
{
    static const char *const labels[MIXER_KINDS] = { "attention", "latent attention", "delta net" };
    enum mixer_kind mixer = b->config->mixers[layer];
    enum ffn_kind ffn = b->config->ffns[layer];
    struct recipe *recipe = &out->before[mixer][ffn];
    if (recipe->graph.op_count > 0) return MF_OK;
    graph_begin(&recipe->graph, labels[mixer], out->widths);
    build_before(&recipe->graph, b, mixer, ffn);
    return finish_recipe(out, recipe, why);
}

size_t recipes_bytes(const struct model_config *config)
{
    return config->rope.rotary_width / 2 * sizeof(double);
}

mf_status recipes_build(struct recipes *out, const struct model_config *c, struct arena *arena,
                        mf_error *why)
{
    const double *frequencies = rope_frequencies(&c->rope, arena);
    if (!frequencies) return fail_memory(why, c->rope.rotary_width * sizeof(double));
    *out = (struct recipes){ .widths = { [SHARED_X] = c->width,
                                         [SHARED_ROUTED] = c->width,
                                         [SHARED_ANGLES] = c->rope.rotary_width,
                                         [SHARED_EXPERTS] = c->experts_per_token * c->width,
                                         [SHARED_LOGITS] = c->vocab_size } };
    struct builder b = { .config = c,
                         .rope = { .width = c->rope.rotary_width,
                                   .interleaved = c->rope.interleaved,
                                   .frequencies = frequencies,
                                   .multiplier = c->rope.multiplier } };
    const struct {
        struct recipe *recipe;
        const char *label;
        void (*build)(struct graph *g, const struct builder *b);
    } single[] = {
        { &out->start, "start", build_start },
        { &out->predict, "predict", build_predict },
        { &out->after[FFN_EXPERTS], "experts", build_experts },
        { &out->after[FFN_DENSE], "dense", build_dense },
        { &out->head, "head", build_head },
    };
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(single) && status == MF_OK; i++) {
        graph_begin(&single[i].recipe->graph, single[i].label, out->widths);
        single[i].build(&single[i].recipe->graph, &b);
        status = finish_recipe(out, single[i].recipe, why);
    }
    for (uint32_t layer = 0; layer < c->layer_count && status == MF_OK; layer++)
        status = build_kind(out, &b, layer, why);
    return status;
}
