#include "support/plain_model.h"

#include <math.h>
#include <stdlib.h>

static const double epsilon = 1e-6, theta = 10000.0; /* as tiny_model writes them */

void plain_matrix(double *out, const float *w, size_t rows, size_t cols, const double *x)
{
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (size_t j = 0; j < cols; j++) sum += (double)w[i * cols + j] * x[j];
        out[i] = sum;
    }
}

void plain_rms_norm(double *out, const double *x, const float *w, double eps, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    double scale = 1.0 / sqrt(sum / (double)n + eps);
    for (size_t i = 0; i < n; i++) out[i] = x[i] * scale * (double)w[i];
}

double plain_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

double plain_silu(double x)
{
    return x * plain_sigmoid(x);
}

void plain_softmax(double *x, size_t n)
{
    double most = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, x[i]);
    for (size_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - most);
    for (size_t i = 0; i < n; i++) x[i] /= sum;
}

void plain_rope(double *head, size_t rotary, double base, uint32_t position)
{
    size_t half = rotary / 2;
    for (size_t i = 0; i < half; i++) {
        double angle = position * pow(base, -2.0 * (double)i / (double)rotary);
        double u = head[i], v = head[i + half];
        head[i] = u * cos(angle) - v * sin(angle);
        head[i + half] = u * sin(angle) + v * cos(angle);
    }
}

void plain_attend(double *out, const double *q, const double *keys, const double *values,
                  size_t stride, size_t count, size_t width)
{
    double *scores = calloc(count, sizeof *scores);
    if (!scores || count == 0) abort();
    for (size_t p = 0; p < count; p++) {
        scores[p] = 0;
        for (size_t i = 0; i < width; i++) scores[p] += q[i] * keys[p * stride + i];
        scores[p] /= sqrt((double)width);
    }
    plain_softmax(scores, count);
    for (size_t i = 0; i < width; i++) {
        out[i] = 0;
        for (size_t p = 0; p < count; p++) out[i] += scores[p] * values[p * stride + i];
    }
    free(scores);
}

/* Whether more than k - 1 others come before expert e. */
static size_t rank_of(const double *logits, size_t experts, size_t e)
{
    size_t before = 0;
    for (size_t i = 0; i < experts; i++)
        before += logits[i] > logits[e] || (logits[i] == logits[e] && i < e);
    return before;
}

void plain_route(uint32_t *ids, double *weights, const double *logits, size_t experts, size_t k)
{
    double p[PLAIN_EXPERTS_MAX], sum = 0;
    size_t count = 0;
    memcpy(p, logits, experts * sizeof *p);
    plain_softmax(p, experts);
    for (size_t e = 0; e < experts; e++) {
        if (rank_of(logits, experts, e) >= k) continue;
        ids[count] = (uint32_t)e;
        sum += weights[count++] = p[e];
    }
    for (size_t i = 0; i < k; i++) weights[i] /= sum;
}

void plain_delta_step(const struct plain_delta *d)
{
    for (size_t i = 0; i < d->values; i++) {
        double *row = d->state + i * d->keys, remembered = 0;
        for (size_t j = 0; j < d->keys; j++) remembered += (row[j] *= d->decay) * d->k[j];
        double change = d->strength * (d->v[i] - remembered);
        d->out[i] = 0;
        for (size_t j = 0; j < d->keys; j++) d->out[i] += (row[j] += change * d->k[j]) * d->q[j];
    }
}

void plain_ffn_run(double *out, const struct plain_ffn *ffn, const double *x)
{
    double *hidden = malloc(2 * ffn->hidden * sizeof *hidden), *up = hidden + ffn->hidden;
    if (!hidden) abort();
    plain_matrix(hidden, ffn->gate, ffn->hidden, ffn->width, x);
    plain_matrix(up, ffn->up, ffn->hidden, ffn->width, x);
    for (size_t i = 0; i < ffn->hidden; i++) hidden[i] = plain_silu(hidden[i]) * up[i];
    plain_matrix(out, ffn->down, ffn->width, ffn->hidden, hidden);
    free(hidden);
}

/* -------------------------------------------------------------- whole layers */

static double *new_doubles(size_t count)
{
    double *out = calloc(count + 1, sizeof *out);
    if (!out) abort();
    return out;
}

static size_t channels_of(const struct tiny_shape *s)
{
    return 2 * (size_t)s->key_heads * s->key_width + (size_t)s->value_heads * s->value_width;
}

void plain_model_init(struct plain_model *plain, struct tiny_model *tiny)
{
    const struct tiny_shape *s = &tiny->shape;
    if (s->kv_heads == 0 || s->heads % s->kv_heads || s->key_heads == 0 ||
        s->value_heads % s->key_heads)
        abort();
    *plain = (struct plain_model){ .tiny = tiny };
    plain->layers = calloc(s->layers, sizeof *plain->layers);
    if (!plain->layers) abort();
    for (uint32_t i = 0; i < s->layers; i++) {
        size_t cache = (size_t)s->context_length * s->kv_heads * s->head_width;
        plain->layers[i] = (struct plain_layer_state){
            .keys = new_doubles(cache),
            .values = new_doubles(cache),
            .conv = new_doubles((s->taps - 1) * channels_of(s)),
            .delta = new_doubles((size_t)s->value_heads * s->value_width * s->key_width),
        };
    }
    plain->trace.after_mixer = new_doubles(s->width);
    plain->trace.routed = new_doubles(s->width);
    plain->trace.shared = new_doubles(s->width);
    plain->trace.out = new_doubles(s->width);
}

void plain_model_free(struct plain_model *plain)
{
    for (uint32_t i = 0; i < plain->tiny->shape.layers; i++) {
        free(plain->layers[i].keys);
        free(plain->layers[i].values);
        free(plain->layers[i].conv);
        free(plain->layers[i].delta);
    }
    free(plain->layers);
    free(plain->trace.after_mixer);
    free(plain->trace.routed);
    free(plain->trace.shared);
    free(plain->trace.out);
}

#define NUMBERS(name) tiny_model_numbers(plain->tiny, "layers.%u." name, layer)

static void attention(struct plain_model *plain, uint32_t layer, double *mixed, const double *x)
{
    const struct tiny_shape *s = &plain->tiny->shape;
    struct plain_layer_state *state = &plain->layers[layer];
    size_t hw = s->head_width, kv = s->kv_heads * hw,
           rotary = (size_t)(s->rotary_factor * (double)hw);
    double *both = new_doubles(2 * s->heads * hw);
    double *k = state->keys + plain->position * kv, *v = state->values + plain->position * kv;
    plain_matrix(both, NUMBERS("self_attn.q_proj.weight"), 2 * s->heads * hw, s->width, x);
    plain_matrix(k, NUMBERS("self_attn.k_proj.weight"), kv, s->width, x);
    plain_matrix(v, NUMBERS("self_attn.v_proj.weight"), kv, s->width, x);
    for (uint32_t h = 0; h < s->kv_heads; h++) {
        plain_rms_norm(k + h * hw, k + h * hw, NUMBERS("self_attn.k_norm.weight"), epsilon, hw);
        plain_rope(k + h * hw, rotary, theta, plain->position);
    }
    for (uint32_t h = 0; h < s->heads; h++) {
        double *q = both + 2 * h * hw, *gate = q + hw, *out = mixed + h * hw;
        size_t kv_head = h * s->kv_heads / s->heads;
        plain_rms_norm(q, q, NUMBERS("self_attn.q_norm.weight"), epsilon, hw);
        plain_rope(q, rotary, theta, plain->position);
        plain_attend(out, q, state->keys + kv_head * hw, state->values + kv_head * hw, kv,
                     (size_t)plain->position + 1, hw);
        for (size_t i = 0; i < hw; i++) out[i] *= plain_sigmoid(gate[i]);
    }
    free(both);
}

/* The present input and the kept ones, then silu; the state moves on by one. */
static void convolve(double *out, double *state, const double *x, const float *w, size_t channels,
                     size_t taps)
{
    for (size_t c = 0; c < channels; c++) {
        double sum = (double)w[c * taps + taps - 1] * x[c];
        for (size_t j = 0; j + 1 < taps; j++)
            sum += (double)w[c * taps + j] * state[j * channels + c];
        out[c] = plain_silu(sum);
    }
    if (taps == 1) return;
    memmove(state, state + channels, (taps - 2) * channels * sizeof *state);
    memcpy(state + (taps - 2) * channels, x, channels * sizeof *state);
}

static void to_unit_length(double *x, double scale, size_t n)
{
    double sum = epsilon;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++) x[i] *= scale / sqrt(sum);
}

static void delta_net(struct plain_model *plain, uint32_t layer, double *mixed, const double *x)
{
    const struct tiny_shape *s = &plain->tiny->shape;
    size_t kw = s->key_width, vw = s->value_width, channels = channels_of(s);
    size_t values = s->value_heads * vw, all_keys = s->key_heads * kw;
    double *raw = new_doubles(2 * channels + values + 2 * s->value_heads);
    double *u = raw + channels, *z = u + channels, *b = z + values, *a = b + s->value_heads;
    plain_matrix(raw, NUMBERS("linear_attn.in_proj_qkv.weight"), channels, s->width, x);
    plain_matrix(z, NUMBERS("linear_attn.in_proj_z.weight"), values, s->width, x);
    plain_matrix(b, NUMBERS("linear_attn.in_proj_b.weight"), s->value_heads, s->width, x);
    plain_matrix(a, NUMBERS("linear_attn.in_proj_a.weight"), s->value_heads, s->width, x);
    convolve(u, plain->layers[layer].conv, raw, NUMBERS("linear_attn.conv1d.weight"), channels,
             s->taps);
    for (uint32_t h = 0; h < s->key_heads; h++) {
        to_unit_length(u + h * kw, 1.0 / sqrt((double)kw), kw);
        to_unit_length(u + all_keys + h * kw, 1.0, kw);
    }
    for (uint32_t h = 0; h < s->value_heads; h++) {
        size_t key_head = h * s->key_heads / s->value_heads;
        double dt = log1p(exp(a[h] + (double)NUMBERS("linear_attn.dt_bias")[h]));
        double rate = -exp((double)NUMBERS("linear_attn.A_log")[h]);
        plain_delta_step(&(struct plain_delta){ .out = mixed + h * vw,
                                                .state = plain->layers[layer].delta + h * vw * kw,
                                                .q = u + key_head * kw,
                                                .k = u + all_keys + key_head * kw,
                                                .v = u + 2 * all_keys + h * vw,
                                                .decay = exp(rate * dt),
                                                .strength = plain_sigmoid(b[h]),
                                                .keys = kw,
                                                .values = vw });
        double *out = mixed + h * vw;
        plain_rms_norm(out, out, NUMBERS("linear_attn.norm.weight"), epsilon, vw);
        for (size_t i = 0; i < vw; i++) out[i] *= plain_silu(z[h * vw + i]);
    }
    free(raw);
}

static void experts(struct plain_model *plain, uint32_t layer, double *x)
{
    const struct tiny_shape *s = &plain->tiny->shape;
    struct plain_trace *t = &plain->trace;
    double logits[PLAIN_EXPERTS_MAX], taken = INFINITY, left = -INFINITY;
    if (s->experts > PLAIN_EXPERTS_MAX) abort();
    plain_matrix(logits, NUMBERS("mlp.gate.weight"), s->experts, s->width, t->routed);
    plain_route(t->ids, t->weights, logits, s->experts, s->experts_per_token);
    for (uint32_t e = 0; e < s->experts; e++) {
        if (rank_of(logits, s->experts, e) < s->experts_per_token)
            taken = fmin(taken, logits[e]);
        else
            left = fmax(left, logits[e]);
    }
    t->gap = taken - left;
    double *answer = new_doubles(s->width);
    for (uint32_t i = 0; i < s->experts_per_token; i++) {
        struct plain_ffn ffn = { .width = s->width, .hidden = s->expert_width };
        ffn.gate = tiny_model_expert(plain->tiny, layer, t->ids[i], 0);
        ffn.up = tiny_model_expert(plain->tiny, layer, t->ids[i], 1);
        ffn.down = tiny_model_expert(plain->tiny, layer, t->ids[i], 2);
        plain_ffn_run(answer, &ffn, t->routed);
        for (size_t j = 0; j < s->width; j++) x[j] += t->weights[i] * answer[j];
    }
    free(answer);
    struct plain_ffn shared = { .gate = NUMBERS("mlp.shared_expert.gate_proj.weight"),
                                .up = NUMBERS("mlp.shared_expert.up_proj.weight"),
                                .down = NUMBERS("mlp.shared_expert.down_proj.weight"),
                                .width = s->width,
                                .hidden = s->shared_width };
    plain_ffn_run(t->shared, &shared, t->routed);
    plain_matrix(&t->shared_score, NUMBERS("mlp.shared_expert_gate.weight"), 1, s->width,
                 t->routed);
    for (size_t j = 0; j < s->width; j++) x[j] += plain_sigmoid(t->shared_score) * t->shared[j];
}

void plain_model_layer(struct plain_model *plain, uint32_t layer, double *x)
{
    const struct tiny_shape *s = &plain->tiny->shape;
    size_t width = s->width;
    bool full = (layer + 1) % s->interval == 0;
    size_t inner =
        full ? (size_t)s->heads * s->head_width : (size_t)s->value_heads * s->value_width;
    double *normed = new_doubles(width), *mixed = new_doubles(inner), *out = new_doubles(width);
    plain_rms_norm(normed, x, NUMBERS("input_layernorm.weight"), epsilon, width);
    if (full)
        attention(plain, layer, mixed, normed);
    else
        delta_net(plain, layer, mixed, normed);
    plain_matrix(out,
                 full ? NUMBERS("self_attn.o_proj.weight") : NUMBERS("linear_attn.out_proj.weight"),
                 width, inner, mixed);
    for (size_t i = 0; i < width; i++) x[i] += out[i];
    memcpy(plain->trace.after_mixer, x, width * sizeof *x);
    plain_rms_norm(plain->trace.routed, x, NUMBERS("post_attention_layernorm.weight"), epsilon,
                   width);
    experts(plain, layer, x);
    memcpy(plain->trace.out, x, width * sizeof *x);
    free(normed);
    free(mixed);
    free(out);
}

void plain_model_step(struct plain_model *plain, int32_t token, double *logits)
{
    const struct tiny_shape *s = &plain->tiny->shape;
    const float *embedding = tiny_model_numbers(plain->tiny, "embed_tokens.weight", 0);
    double *x = new_doubles(s->width);
    for (size_t i = 0; i < s->width; i++) x[i] = (double)embedding[(size_t)token * s->width + i];
    for (uint32_t layer = 0; layer < s->layers; layer++) plain_model_layer(plain, layer, x);
    plain_rms_norm(x, x, tiny_model_numbers(plain->tiny, "norm.weight", 0), epsilon, s->width);
    plain_matrix(logits, s->tied ? embedding : tiny_model_numbers(plain->tiny, "lm_head.weight", 0),
                 s->vocab_size, s->width, x);
    plain->position++;
    free(x);
}
