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
    struct rope_shape rope, window_rope;
};

static bool has(const struct builder *b, enum weight_id id)
{
    return family_has_weight(b->config->family, id);
}

static float score_scale(const struct builder *b, const struct rope_config *rope,
                         uint32_t head_width)
{
    double fixed = b->config->score_scale;
    return (float)(rope->score_multiplier * (fixed > 0 ? fixed : 1 / sqrt((double)head_width)));
}

static void build_start(struct graph *g, const struct builder *b)
{
    const struct model_config *c = b->config;
    op_embed(g, graph_shared(SHARED_X), c->embedding_scaled ? sqrtf((float)c->width) : 1.0f);
    op_rope_angles(g, graph_shared(SHARED_ANGLES), &b->rope);
    if (b->config->window.positions > 0)
        op_rope_angles(g, graph_shared(SHARED_WINDOW_ANGLES), &b->window_rope);
}

/* A projection's bias, where the model has one. */
static void build_bias(struct graph *g, const struct builder *b, buffer a, enum weight_id id)
{
    if (b->config->attention_bias && family_has_weight(b->config->family, id))
        op_add_bias(g, a, id);
}

/* The norm of queries or keys: of each head, or of all heads as one. */
static void build_qk_norm(struct graph *g, const struct builder *b, buffer a, enum weight_id id,
                          uint32_t heads, uint32_t head_width)
{
    const struct model_config *c = b->config;
    bool whole = c->qk_norm == QK_NORM_WHOLE;
    if (c->qk_norm != QK_NORM_NONE)
        op_head_norm(g, a, id, c->norm_epsilon, whole ? 1 : heads,
                     whole ? heads * head_width : head_width);
}

/* Grouped-query attention; with an output gate o = Wo · (attention ⊙ sigmoid(gate)). */
static buffer build_attention(struct graph *g, const struct builder *b, enum mixer_kind mixer,
                              buffer normed)
{
    const struct model_config *c = b->config;
    struct attention_sizes a = config_attention(c, mixer);
    struct attention_shape shape = { .heads = a.heads,
                                     .kv_heads = a.kv_heads,
                                     .head_width = a.head_width,
                                     .window = a.window,
                                     .sinks = c->family->sinks,
                                     .scale = score_scale(b, a.rope, a.head_width) };
    const struct rope_shape *rope = mixer == MIXER_WINDOW ? &b->window_rope : &b->rope;
    uint32_t queries = a.heads * a.head_width, keys = a.kv_heads * a.head_width;
    buffer angles = graph_shared(mixer == MIXER_WINDOW ? SHARED_WINDOW_ANGLES : SHARED_ANGLES);
    buffer gate = NO_BUFFER;

    buffer q = op_project(g, normed, WEIGHT_Q, c->output_gate ? 2 * queries : queries);
    buffer k = op_project(g, normed, WEIGHT_K, keys);
    buffer v = a.values_are_keys ? op_copy(g, k) : op_project(g, normed, WEIGHT_V, keys);
    build_bias(g, b, q, WEIGHT_Q_BIAS);
    build_bias(g, b, k, WEIGHT_K_BIAS);
    build_bias(g, b, v, WEIGHT_V_BIAS);
    if (c->output_gate) op_split_gate(g, &q, &gate, q, &shape);
    build_qk_norm(g, b, q, WEIGHT_Q_NORM, a.heads, a.head_width);
    build_qk_norm(g, b, k, WEIGHT_K_NORM, a.kv_heads, a.head_width);
    if (c->value_norm) op_head_norm(g, v, NO_WEIGHT, c->norm_epsilon, a.kv_heads, a.head_width);
    op_rope(g, q, angles, a.heads, a.head_width, rope);
    op_rope(g, k, angles, a.kv_heads, a.head_width, rope);
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
                                  .scale = score_scale(b, &c->rope, c->head_width) };
    struct rope_shape query_rope = b->rope;
    query_rope.offset = c->nope_width;
    buffer angles = graph_shared(SHARED_ANGLES), q;
    uint32_t queries = c->heads * c->head_width;

    if (c->query_rank > 0) {
        buffer narrow = op_project(g, normed, WEIGHT_Q_A, c->query_rank);
        build_bias(g, b, narrow, WEIGHT_Q_A_BIAS);
        buffer narrow_normed = op_rms_norm(g, narrow, WEIGHT_Q_A_NORM, LATENT_NORM_EPSILON);
        q = op_project(g, narrow_normed, WEIGHT_Q_B, queries);
    } else {
        q = op_project(g, normed, WEIGHT_Q, queries);
    }
    buffer kv = op_project(g, normed, WEIGHT_KV_A, c->latent_width + c->rope.rotary_width);
    build_bias(g, b, kv, WEIGHT_KV_A_BIAS);
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

/* The router of a layer, whose experts read `routed`, on the stream x. */
static void build_router(struct graph *g, const struct builder *b, buffer x, buffer routed)
{
    const struct model_config *c = b->config;
    struct router_shape router = { .sigmoid = c->router == ROUTER_SIGMOID,
                                   .renormalise = c->renormalise,
                                   .scale = c->routed_scale,
                                   .scaled = has(b, WEIGHT_EXPERT_SCALE),
                                   .groups = c->router_groups,
                                   .top_groups = c->router_top_groups };
    buffer normed = has(b, WEIGHT_ROUTER_NORM)
                        ? op_rms_norm(g, x, WEIGHT_ROUTER_NORM, c->norm_epsilon)
                        : routed;
    buffer logits = op_project(g, normed, WEIGHT_ROUTER, c->experts);
    if (has(b, WEIGHT_ROUTER_ADDENDS)) op_add_bias(g, logits, WEIGHT_ROUTER_ADDENDS);
    op_route(g, logits, &router);
}

/* A layer's norm and router on a residual stream that has not reached it yet. */
static void build_predict(struct graph *g, const struct builder *b)
{
    buffer x = graph_shared(SHARED_X), routed = NO_BUFFER;
    g->stage = MF_STAGE_PREDICTION;
    if (!has(b, WEIGHT_ROUTER_NORM))
        routed = op_rms_norm(g, x, WEIGHT_FFN_NORM, b->config->norm_epsilon);
    build_router(g, b, x, routed);
}

/* x += Wo·heads, normalised first where the family has a norm for it. */
static void build_residual(struct graph *g, const struct builder *b, buffer heads)
{
    buffer x = graph_shared(SHARED_X);
    if (!has(b, WEIGHT_MIXER_POST_NORM)) {
        op_add_project(g, x, heads, WEIGHT_ATTENTION_OUT);
        return;
    }
    buffer mixed = op_project(g, heads, WEIGHT_ATTENTION_OUT, b->config->width);
    op_add_rms_norm(g, x, mixed, WEIGHT_MIXER_POST_NORM, b->config->norm_epsilon);
}

/* x += mixer(norm(x)); then the norm that feed-forward and router read, and the router. */
static void build_before(struct graph *g, const struct builder *b, enum mixer_kind mixer,
                         enum ffn_kind ffn)
{
    const struct model_config *c = b->config;
    static const mf_stage stages[MIXER_KINDS] = { [MIXER_ATTENTION] = MF_STAGE_ATTENTION,
                                                  [MIXER_LATENT] = MF_STAGE_LATENT_ATTENTION,
                                                  [MIXER_DELTA] = MF_STAGE_DELTA,
                                                  [MIXER_WINDOW] = MF_STAGE_ATTENTION };
    buffer x = graph_shared(SHARED_X), routed = graph_shared(SHARED_ROUTED);
    g->stage = stages[mixer];
    buffer normed = op_rms_norm(g, x, WEIGHT_MIXER_NORM, c->norm_epsilon);
    if (mixer == MIXER_DELTA)
        op_add_project(g, x, build_delta(g, b, normed), WEIGHT_DELTA_OUT);
    else if (mixer == MIXER_LATENT)
        op_add_project(g, x, build_latent(g, b, normed), WEIGHT_ATTENTION_OUT);
    else
        build_residual(g, b, build_attention(g, b, mixer, normed));
    if (mixer != MIXER_DELTA) build_bias(g, b, x, WEIGHT_ATTENTION_OUT_BIAS);
    g->stage = ffn == FFN_EXPERTS ? MF_STAGE_ROUTER : MF_STAGE_DENSE;
    op_rms_norm_into(g, routed, x, WEIGHT_FFN_NORM, c->norm_epsilon);
    if (ffn == FFN_EXPERTS) build_router(g, b, x, routed);
}

/* act(gate·x) ⊙ (up·x), before the last matrix. */
static buffer build_hidden(struct graph *g, const struct builder *b, buffer normed,
                           const enum weight_id pair[2], uint32_t width)
{
    buffer gates = op_project(g, normed, pair[0], width);
    buffer ups = op_project(g, normed, pair[1], width);
    return op_activate(g, gates, ups, b->config->activation);
}

static buffer build_shared(struct graph *g, const struct builder *b, buffer normed)
{
    static const enum weight_id pair[2] = { WEIGHT_SHARED_GATE, WEIGHT_SHARED_UP };
    buffer hidden = build_hidden(g, b, normed, pair, b->config->shared_width);
    return op_project(g, hidden, WEIGHT_SHARED_DOWN, b->config->width);
}

/* x = (x + norm(norm(Σ weight·expert) + norm(shared expert))) · scale */
static void build_normed_experts(struct graph *g, const struct builder *b)
{
    const struct model_config *c = b->config;
    buffer x = graph_shared(SHARED_X);
    buffer shared = build_shared(g, b, op_rms_norm(g, x, WEIGHT_SHARED_NORM, c->norm_epsilon));
    buffer sum = op_rms_norm(g, shared, WEIGHT_SHARED_POST_NORM, c->norm_epsilon);
    g->stage = MF_STAGE_EXPERT_SUM;
    op_add_rms_norm(g, sum, op_sum_experts(g, c->width), WEIGHT_EXPERTS_POST_NORM, c->norm_epsilon);
    op_add_rms_norm(g, x, sum, WEIGHT_FFN_POST_NORM, c->norm_epsilon);
    op_scale(g, x, WEIGHT_LAYER_SCALE);
}

/* x += Σ weight·expert + shared expert; the routed ones have been run. */
static void build_experts(struct graph *g, const struct builder *b)
{
    const struct model_config *c = b->config;
    buffer routed = graph_shared(SHARED_ROUTED), shared = NO_BUFFER, scale = NO_BUFFER;
    g->stage = MF_STAGE_SHARED_EXPERT;
    if (has(b, WEIGHT_EXPERTS_POST_NORM)) {
        build_normed_experts(g, b);
        return;
    }
    if (c->shared_width > 0) {
        shared = build_shared(g, b, routed);
        if (c->shared_scaled) scale = op_project(g, routed, WEIGHT_SHARED_SCALE, 1);
    }
    g->stage = MF_STAGE_EXPERT_SUM;
    op_combine(g, graph_shared(SHARED_X), shared, scale);
}

static void build_dense(struct graph *g, const struct builder *b)
{
    static const enum weight_id pair[2] = { WEIGHT_DENSE_GATE, WEIGHT_DENSE_UP };
    g->stage = MF_STAGE_DENSE;
    buffer hidden = build_hidden(g, b, graph_shared(SHARED_ROUTED), pair, b->config->dense_width);
    op_add_project(g, graph_shared(SHARED_X), hidden, WEIGHT_DENSE_DOWN);
}

static void build_head(struct graph *g, const struct builder *b)
{
    g->stage = MF_STAGE_HEAD;
    buffer normed =
        op_rms_norm(g, graph_shared(SHARED_X), WEIGHT_FINAL_NORM, b->config->norm_epsilon);
    op_project_into(g, graph_shared(SHARED_LOGITS), normed, WEIGHT_HEAD);
    if (b->config->logit_cap > 0)
        op_soft_cap(g, graph_shared(SHARED_LOGITS), (float)b->config->logit_cap);
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
        low = yarn_channel(rope, rope->beta_fast);
        high = yarn_channel(rope, rope->beta_slow);
        low = fmax(rope->untruncated ? low : floor(low), 0);
        high = fmin(rope->untruncated ? high : ceil(high), rope->rotary_width - 1.0);
        if (low == high) high += 0.001;
    }
    for (uint32_t i = 0; frequencies && i < half; i++) {
        double base = pow(rope->theta, -2.0 * i / rope->rotary_width);
        double ramp = rope->factor > 1.0 ? fmin(fmax((i - low) / (high - low), 0), 1) : 0;
        frequencies[i] = base * (1 - ramp) + base / rope->factor * ramp;
        if (rope->proportional && i >= rope->turning) frequencies[i] = 0;
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
    static const char *const labels[MIXER_KINDS] = { "attention", "latent attention", "delta net",
                                                     "window attention" };
    enum mixer_kind mixer = b->config->mixers[layer];
    enum ffn_kind ffn = b->config->ffns[layer];
    struct recipe *recipe = &out->before[mixer][ffn];
    if (recipe->graph.op_count > 0) return MF_OK;
    graph_begin(&recipe->graph, labels[mixer], out->widths);
    build_before(&recipe->graph, b, mixer, ffn);
    return finish_recipe(out, recipe, why);
}

static size_t frequency_bytes(uint32_t rotary_width)
{
    return align_up(rotary_width / 2 * sizeof(double), CACHE_LINE);
}

size_t recipes_bytes(const struct model_config *config)
{
    size_t bytes = frequency_bytes(config->rope.rotary_width);
    if (config->window.positions > 0) bytes += frequency_bytes(config->window.rope.rotary_width);
    return bytes;
}

static mf_status shape_rope(struct rope_shape *out, const struct rope_config *rope,
                            struct arena *arena, mf_error *why)
{
    const double *frequencies = rope_frequencies(rope, arena);
    if (!frequencies) return fail_memory(why, rope->rotary_width * sizeof(double));
    *out = (struct rope_shape){ .width = rope->rotary_width,
                                .interleaved = rope->interleaved,
                                .frequencies = frequencies,
                                .multiplier = rope->multiplier };
    return MF_OK;
}

mf_status recipes_build(struct recipes *out, const struct model_config *c, struct arena *arena,
                        mf_error *why)
{
    bool window = c->window.positions > 0;
    *out = (struct recipes){ .widths = { [SHARED_X] = c->width,
                                         [SHARED_ROUTED] = c->width,
                                         [SHARED_ANGLES] = c->rope.rotary_width,
                                         [SHARED_WINDOW_ANGLES] =
                                             window ? c->window.rope.rotary_width : 0,
                                         [SHARED_EXPERTS] = c->experts_per_token * c->width,
                                         [SHARED_LOGITS] = c->vocab_size } };
    struct builder b = { .config = c };
    mf_status status = shape_rope(&b.rope, &c->rope, arena, why);
    if (status == MF_OK && window) status = shape_rope(&b.window_rope, &c->window.rope, arena, why);
    if (status != MF_OK) return status;
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
    for (size_t i = 0; i < COUNT_OF(single) && status == MF_OK; i++) {
        graph_begin(&single[i].recipe->graph, single[i].label, out->widths);
        single[i].build(&single[i].recipe->graph, &b);
        status = finish_recipe(out, single[i].recipe, why);
    }
    for (uint32_t layer = 0; layer < c->layer_count && status == MF_OK; layer++)
        status = build_kind(out, &b, layer, why);
    return status;
}
