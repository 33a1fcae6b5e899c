/* probe: every dump point against the same thing computed in double from the
 * checkpoint's numbers (support/plain_model.h), on shapes that are and are not
 * multiples of anything, with the plain and the best kernels, in exact arithmetic. */
#include "support/test.h"

#include "compat/probe.h"
#include "support/plain_model.h"
#include "support/tiny_engine.h"

#include <math.h>
#include <stdlib.h>

/* Of the largest number of the result: f32 sums of up to some hundred terms. */
#define OP_TOLERANCE 2e-6

enum { ROWS_MAX = 80, CONTEXT = 200 };

struct bench {
    struct tiny_engine t;
    struct probe *probe;
    const struct tiny_shape *shape;
    struct backend *backend;
    uint32_t full, delta; /* a layer of each kind */
    uint64_t random;
};

/* `kernels`: a set's name, NULL for the best one. */
static void bench_open(struct bench *b, const struct tiny_shape *shape, const char *kernels)
{
    mf_error why = { 0 };
    *b = (struct bench){ .full = shape->interval - 1, .delta = 0, .random = 7 };
    tiny_engine_open(
        &b->t, shape,
        &(mf_engine_options){ .struct_size = sizeof(mf_engine_options), .thread_count = 2 });
    b->shape = &b->t.tiny.shape;
    tiny_must(backend_cpu_new(&b->backend, &b->t.heap.allocator, b->t.engine->pool,
                              kernels_select(&b->t.engine->machine, kernels), true, &why),
              &why);
    struct forward_parts parts = tiny_parts(&b->t);
    parts.backend = b->backend;
    parts.kv_format = KV_DEFAULT; /* the one of that backend */
    tiny_must(probe_new(&b->probe, &b->t.heap.allocator, &parts,
                        (struct probe_sizes){ ROWS_MAX, CONTEXT }, &why),
              &why);
}

static void bench_close(struct bench *b)
{
    probe_free(b->probe);
    b->backend->functions->free(b->backend);
    tiny_engine_close(&b->t);
}

typedef void (*bench_check)(struct bench *b);

static void on_every_shape(bench_check check)
{
    const struct tiny_shape *const shapes[] = { &tiny_standard, &tiny_odd, &tiny_affine };
    static const char *const kernels[] = { "generic", NULL };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        for (size_t j = 0; j < COUNT_OF(kernels); j++) {
            struct bench b;
            bench_open(&b, shapes[i], kernels[j]);
            check(&b);
            bench_close(&b);
        }
    }
}

/* Random numbers as f32, and the same as double. */
struct twin {
    float *f;
    double *d;
    size_t count;
};

static struct twin twin_new(struct bench *b, size_t count, double size)
{
    struct twin t = { malloc((count + 1) * sizeof(float)), malloc((count + 1) * sizeof(double)),
                      count };
    assert_true(t.f && t.d);
    for (size_t i = 0; i < count; i++) {
        b->random = b->random * 6364136223846793005u + 1442695040888963407u;
        t.f[i] = (float)(size * ((double)(b->random >> 40) * 0x1p-23 - 1.0));
        t.d[i] = (double)t.f[i];
    }
    return t;
}

static void twin_free(struct twin *t)
{
    free(t->f);
    free(t->d);
}

static mf_numbers in(const struct twin *t)
{
    return (mf_numbers){ t->f, t->count };
}

static mf_floats out(struct twin *t)
{
    return (mf_floats){ t->f, t->count };
}

/* f within `tolerance` of the largest of d. */
static void check_close(const char *what, const float *f, const double *d, size_t count,
                        double tolerance)
{
    double most = 0, error = 0;
    for (size_t i = 0; i < count; i++) {
        double off = fabs((double)f[i] - d[i]);
        most = fmax(most, fabs(d[i]));
        if (!(off <= error)) error = off;
    }
    if (!(error <= tolerance * most))
        fail_msg("%s: off by %g of %g, %g is allowed", what, error, most, tolerance * most);
}

static void check_cosine(const char *what, const float *f, const double *d, size_t count)
{
    double product = 0, ff = 0, dd = 0;
    for (size_t i = 0; i < count; i++) {
        product += (double)f[i] * d[i];
        ff += (double)f[i] * (double)f[i];
        dd += d[i] * d[i];
    }
    double cosine = product / sqrt(ff * dd);
    if (!(cosine >= 0.9999)) fail_msg("%s: cosine %.6f", what, cosine);
}

static const float *numbers_of(struct bench *b, const char *name, uint32_t layer)
{
    return tiny_model_numbers(&b->t.tiny, name, layer);
}

/* ---------------------------------------------------------- single operations */

static void check_embed(struct bench *b)
{
    mf_error why = { 0 };
    size_t width = b->shape->width;
    const int32_t tokens[] = { 0, (int32_t)b->shape->vocab_size - 1, 3, 3 };
    float found[4 * 64];
    tiny_must(probe_embed((mf_floats){ found, 4 * width }, b->probe, tokens, 4, &why), &why);
    const float *table = numbers_of(b, "embed_tokens.weight", 0);
    for (size_t i = 0; i < 4; i++) /* the same bits */
        assert_memory_equal(found + i * width, table + (size_t)tokens[i] * width,
                            width * sizeof(float));
}

static void check_norms(struct bench *b)
{
    static const struct {
        enum weight_id id;
        const char *name;
    } norms[] = { { WEIGHT_MIXER_NORM, "layers.%u.input_layernorm.weight" },
                  { WEIGHT_FFN_NORM, "layers.%u.post_attention_layernorm.weight" },
                  { WEIGHT_FINAL_NORM, "norm.weight" } };
    mf_error why = { 0 };
    size_t width = b->shape->width;
    for (size_t i = 0; i < COUNT_OF(norms); i++) {
        struct twin x = twin_new(b, 3 * width, 4.0), y = twin_new(b, 3 * width, 1.0);
        tiny_must(probe_norm(out(&y), b->probe, 1, norms[i].id, in(&x), &why), &why);
        for (size_t r = 0; r < 3; r++)
            plain_rms_norm(y.d + r * width, x.d + r * width, numbers_of(b, norms[i].name, 1), 1e-6,
                           width);
        check_close("norm", y.f, y.d, y.count, OP_TOLERANCE);
        twin_free(&x);
        twin_free(&y);
    }
}

static void check_head_norm(struct bench *b)
{
    mf_error why = { 0 };
    size_t width = b->shape->head_width, count = 2 * (size_t)b->shape->heads * width;
    struct twin x = twin_new(b, count, 3.0);
    tiny_must(probe_head_norm(out(&x), b->probe, b->full, WEIGHT_Q_NORM, &why), &why);
    for (size_t i = 0; i < count; i += width)
        plain_rms_norm(x.d + i, x.d + i,
                       numbers_of(b, "layers.%u.self_attn.q_norm.weight", b->full), 1e-6, width);
    check_close("head norm", x.f, x.d, count, OP_TOLERANCE);
    twin_free(&x);
}

static void check_rope(struct bench *b)
{
    mf_error why = { 0 };
    static const uint32_t positions[] = { 0, 1, 63, 1000003 };
    size_t width = b->shape->head_width, heads = b->shape->kv_heads;
    size_t rotary = (size_t)(b->shape->rotary_factor * (double)width);
    struct twin x = twin_new(b, 4 * heads * width, 2.0), before = twin_new(b, x.count, 1.0);
    memcpy(before.d, x.d, x.count * sizeof *x.d);
    mf_probe_positions where = { positions, 4, true };
    tiny_must(probe_rope(out(&x), b->probe, b->full, where, &why), &why);
    for (size_t i = 0; i < 4 * heads; i++) {
        double *head = x.d + i * width, *old = before.d + i * width;
        plain_rope(head, rotary, 10000.0, positions[i / heads]);
        for (size_t c = 0; c < width; c++) {
            /* four units in the last place of the pair that turns */
            size_t pair = c < rotary / 2 ? c + rotary / 2 : c < rotary ? c - rotary / 2 : c;
            double most = fmax(fabs(old[c]), fabs(old[pair]));
            double unit = (double)nextafterf((float)most, INFINITY) - (double)(float)most;
            double error = fabs((double)x.f[i * width + c] - head[c]);
            if (!(error <= 4 * unit)) fail_msg("rope: channel %zu is off by %g", c, error / unit);
        }
    }
    twin_free(&x);
    twin_free(&before);
}

/* `positions` keys, the last `rows` of which also ask. */
static void check_attend_at(struct bench *b, size_t positions, size_t rows, double size,
                            double absolute)
{
    mf_error why = { 0 };
    const struct tiny_shape *s = b->shape;
    size_t width = s->head_width, kv = s->kv_heads * width, all = s->heads * width;
    struct twin q = twin_new(b, rows * all, 2.0), k = twin_new(b, positions * kv, 1.0);
    struct twin v = twin_new(b, positions * kv, size), y = twin_new(b, rows * all, 1.0);
    mf_probe_attention args = { in(&q), in(&k), in(&v) };
    tiny_must(probe_attend(out(&y), b->probe, b->full, &args, &why), &why);
    for (size_t i = 0; i < rows * s->heads; i++) {
        size_t row = i / s->heads, kv_head = i % s->heads / (s->heads / s->kv_heads);
        plain_attend(y.d + i * width, q.d + i * width, k.d + kv_head * width, v.d + kv_head * width,
                     kv, positions - rows + row + 1, width);
    }
    check_cosine("attention", y.f, y.d, y.count);
    double error = 0;
    for (size_t i = 0; i < y.count; i++) error = fmax(error, fabs((double)y.f[i] - y.d[i]));
    if (!(error <= absolute)) fail_msg("attention over %zu is off by %g", positions, error);
    twin_free(&q);
    twin_free(&k);
    twin_free(&v);
    twin_free(&y);
}

static void check_attend(struct bench *b)
{
    check_attend_at(b, 1, 1, 0.1, 0.0); /* one position: its value, bit for bit */
    check_attend_at(b, 5, 2, 0.1, 1.5e-8);
    check_attend_at(b, 64, 64, 1.0, 5e-7);
    check_attend_at(b, 80, 7, 1.0, 5e-7); /* over a page's edge */
}

static void check_gate(struct bench *b)
{
    mf_error why = { 0 };
    size_t count = 3 * (size_t)b->shape->heads * b->shape->head_width;
    struct twin x = twin_new(b, count, 2.0), g = twin_new(b, count, 8.0), y = twin_new(b, count, 1);
    tiny_must(probe_gate(out(&y), b->probe, b->full, in(&x), in(&g), &why), &why);
    for (size_t i = 0; i < count; i++) y.d[i] = x.d[i] * plain_sigmoid(g.d[i]);
    check_close("gate", y.f, y.d, count, OP_TOLERANCE);
    twin_free(&x);
    twin_free(&g);
    twin_free(&y);
}

static void check_project(struct bench *b)
{
    mf_error why = { 0 };
    size_t width = b->shape->width, vocab = b->shape->vocab_size;
    struct twin x = twin_new(b, 37 * width, 1.0), y = twin_new(b, 37 * vocab, 1.0);
    tiny_must(probe_lm_head(out(&y), b->probe, in(&x), &why), &why);
    for (size_t r = 0; r < 37; r++)
        plain_matrix(y.d + r * vocab, numbers_of(b, "lm_head.weight", 0), vocab, width,
                     x.d + r * width);
    check_close("lm head", y.f, y.d, y.count, OP_TOLERANCE);
    twin_free(&y);
    y = twin_new(b, 37 * width, 1.0);
    size_t inner = (size_t)b->shape->heads * b->shape->head_width;
    struct twin h = twin_new(b, 37 * inner, 1.0);
    tiny_must(probe_project(out(&y), b->probe, b->full, WEIGHT_ATTENTION_OUT, in(&h), &why), &why);
    for (size_t r = 0; r < 37; r++)
        plain_matrix(y.d + r * width, numbers_of(b, "layers.%u.self_attn.o_proj.weight", b->full),
                     width, inner, h.d + r * inner);
    check_close("o_proj", y.f, y.d, y.count, OP_TOLERANCE);
    twin_free(&x);
    twin_free(&y);
    twin_free(&h);
}

static void check_route(struct bench *b)
{
    enum { ROWS = 40 };
    mf_error why = { 0 };
    size_t width = b->shape->width, k = b->shape->experts_per_token, experts = b->shape->experts;
    struct twin x = twin_new(b, ROWS * width, 2.0);
    uint32_t ids[ROWS * 8];
    float weights[ROWS * 8];
    mf_probe_routes found = { ids, weights, ROWS * k };
    tiny_must(probe_route(found, b->probe, 1, in(&x), &why), &why);
    for (size_t r = 0; r < ROWS; r++) {
        double logits[PLAIN_EXPERTS_MAX], expected[PLAIN_EXPERTS_MAX];
        uint32_t expected_ids[PLAIN_EXPERTS_MAX];
        plain_matrix(logits, numbers_of(b, "layers.%u.mlp.gate.weight", 1), experts, width,
                     x.d + r * width);
        plain_route(expected_ids, expected, logits, experts, k);
        assert_memory_equal(ids + r * k, expected_ids, k * sizeof *ids);
        check_close("route weights", weights + r * k, expected, k, OP_TOLERANCE);
    }
    twin_free(&x);
}

/* Experts that are all alike, even no numbers: the first ones, each of them once. */
static void check_ties(struct bench *b)
{
    static const float rows[] = { 0.0f, NAN };
    mf_error why = { 0 };
    size_t width = b->shape->width, k = b->shape->experts_per_token;
    float x[512], weights[8];
    uint32_t ids[8];
    assert_true(width <= COUNT_OF(x) && k <= COUNT_OF(ids));
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        mf_probe_routes found = { ids, weights, k };
        for (size_t i = 0; i < width; i++) x[i] = rows[r];
        tiny_must(probe_route(found, b->probe, 1, (mf_numbers){ x, width }, &why), &why);
        for (size_t i = 0; i < k; i++) assert_int_equal(ids[i], i);
    }
}

/* Rows at once and rows one by one leave the same numbers and the same state. */
static void check_conv(struct bench *b)
{
    enum { ROWS = 9 };
    mf_error why = { 0 };
    const struct tiny_shape *s = b->shape;
    size_t channels =
        2 * (size_t)s->key_heads * s->key_width + (size_t)s->value_heads * s->value_width;
    size_t taps = s->taps, kept = (taps - 1) * channels;
    const float *w = numbers_of(b, "layers.%u.linear_attn.conv1d.weight", b->delta);
    struct twin x = twin_new(b, ROWS * channels, 2.0), state = twin_new(b, kept, 2.0);
    struct twin y = twin_new(b, x.count, 1.0), single = twin_new(b, x.count, 1.0);
    struct twin stepped = twin_new(b, kept, 1.0);
    memcpy(stepped.f, state.f, kept * sizeof(float));
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < channels; c++) {
            double sum = 0;
            for (size_t j = 0; j < taps; j++) {
                size_t at = r + j; /* in kept inputs, then rows */
                sum +=
                    (double)w[c * taps + j] * (at < taps - 1 ? state.d[at * channels + c]
                                                             : x.d[(at - taps + 1) * channels + c]);
            }
            y.d[r * channels + c] = plain_silu(sum);
        }
        tiny_must(probe_conv((mf_floats){ single.f + r * channels, channels }, out(&stepped),
                             b->probe, b->delta, (mf_numbers){ x.f + r * channels, channels },
                             &why),
                  &why);
    }
    tiny_must(probe_conv(out(&y), out(&state), b->probe, b->delta, in(&x), &why), &why);
    check_close("conv", y.f, y.d, y.count, OP_TOLERANCE);
    assert_memory_equal(y.f, single.f, y.count * sizeof(float));
    assert_memory_equal(state.f, stepped.f, kept * sizeof(float));
    assert_memory_equal(state.f, x.f + (ROWS - taps + 1) * channels, kept * sizeof(float));
    twin_free(&x);
    twin_free(&y);
    twin_free(&state);
    twin_free(&single);
    twin_free(&stepped);
}

static void check_unit_norm(struct bench *b)
{
    mf_error why = { 0 };
    const struct tiny_shape *s = b->shape;
    size_t width = s->key_width, values = (size_t)s->value_heads * s->value_width;
    size_t channels = 2 * (size_t)s->key_heads * width + values;
    struct twin x = twin_new(b, 2 * channels, 2.0);
    tiny_must(probe_unit_norm(out(&x), b->probe, b->delta, &why), &why);
    for (size_t r = 0; r < 2; r++) {
        for (size_t h = 0; h < 2 * s->key_heads; h++) {
            double *head = x.d + r * channels + h * width, sum = 1e-6;
            double scale = h < s->key_heads ? 1.0 / sqrt((double)width) : 1.0;
            for (size_t i = 0; i < width; i++) sum += head[i] * head[i];
            for (size_t i = 0; i < width; i++) head[i] *= scale / sqrt(sum);
        }
    }
    check_close("unit norm", x.f, x.d, x.count, OP_TOLERANCE); /* values are left alone */
    twin_free(&x);
}

static void check_delta(struct bench *b)
{
    enum { ROWS = 12 };
    mf_error why = { 0 };
    const struct tiny_shape *s = b->shape;
    size_t kw = s->key_width, vw = s->value_width, heads = s->value_heads;
    size_t all_keys = s->key_heads * kw, channels = 2 * all_keys + heads * vw;
    struct twin mixed = twin_new(b, ROWS * channels, 1.0), beta = twin_new(b, ROWS * heads, 3.0);
    struct twin alpha = twin_new(b, ROWS * heads, 3.0), state = twin_new(b, heads * vw * kw, 1.0);
    struct twin y = twin_new(b, ROWS * heads * vw, 1.0);
    /* keys of length below one, as the norm before leaves them: the recurrence is stable */
    for (size_t i = 0; i < mixed.count; i++) mixed.d[i] = (double)(mixed.f[i] /= (float)kw);
    for (size_t i = 0; i < ROWS * heads; i++) {
        size_t r = i / heads, h = i % heads, key_head = h / (heads / s->key_heads);
        const double *row = mixed.d + r * channels;
        double dt = log1p(
            exp(alpha.d[i] + (double)numbers_of(b, "layers.%u.linear_attn.dt_bias", b->delta)[h]));
        double rate = -exp((double)numbers_of(b, "layers.%u.linear_attn.A_log", b->delta)[h]);
        plain_delta_step(&(struct plain_delta){ .out = y.d + i * vw,
                                                .state = state.d + h * vw * kw,
                                                .q = row + key_head * kw,
                                                .k = row + all_keys + key_head * kw,
                                                .v = row + 2 * all_keys + h * vw,
                                                .decay = exp(rate * dt),
                                                .strength = plain_sigmoid(beta.d[i]),
                                                .keys = kw,
                                                .values = vw });
    }
    mf_probe_recurrence args = { in(&mixed), in(&beta), in(&alpha) };
    tiny_must(probe_delta(out(&y), out(&state), b->probe, b->delta, &args, &why), &why);
    check_close("delta", y.f, y.d, y.count, OP_TOLERANCE);
    check_close("delta state", state.f, state.d, state.count, OP_TOLERANCE);
    twin_free(&mixed);
    twin_free(&beta);
    twin_free(&alpha);
    twin_free(&state);
    twin_free(&y);
}

static void check_gated_norm(struct bench *b)
{
    mf_error why = { 0 };
    size_t width = b->shape->value_width, count = 2 * (size_t)b->shape->value_heads * width;
    struct twin x = twin_new(b, count, 2.0), g = twin_new(b, count, 5.0), y = twin_new(b, count, 1);
    tiny_must(probe_gated_norm(out(&y), b->probe, b->delta, in(&x), in(&g), &why), &why);
    for (size_t i = 0; i < count; i += width)
        plain_rms_norm(y.d + i, x.d + i,
                       numbers_of(b, "layers.%u.linear_attn.norm.weight", b->delta), 1e-6, width);
    for (size_t i = 0; i < count; i++) y.d[i] *= plain_silu(g.d[i]);
    check_close("gated norm", y.f, y.d, count, OP_TOLERANCE);
    twin_free(&x);
    twin_free(&g);
    twin_free(&y);
}

/* -------------------------------------------------------------------- experts */

static struct plain_ffn expert_of(struct bench *b, uint32_t layer, uint32_t expert)
{
    return (struct plain_ffn){ .gate = tiny_model_expert(&b->t.tiny, layer, expert, 0),
                               .up = tiny_model_expert(&b->t.tiny, layer, expert, 1),
                               .down = tiny_model_expert(&b->t.tiny, layer, expert, 2),
                               .width = b->shape->width,
                               .hidden = b->shape->expert_width };
}

static void check_expert(struct bench *b)
{
    enum { ROWS = 35 };
    mf_error why = { 0 };
    size_t width = b->shape->width;
    for (uint32_t e = 0; e < b->shape->experts; e++) {
        struct twin x = twin_new(b, ROWS * width, 2.0), y = twin_new(b, ROWS * width, 1.0);
        tiny_must(probe_expert(out(&y), b->probe, 1, e, in(&x), &why), &why);
        struct plain_ffn ffn = expert_of(b, 1, e);
        for (size_t r = 0; r < ROWS; r++) plain_ffn_run(y.d + r * width, &ffn, x.d + r * width);
        check_close("expert", y.f, y.d, y.count, OP_TOLERANCE);
        twin_free(&x);
        twin_free(&y);
    }
}

/* The bytes of one array of one expert in the checkpoint. */
static const uint8_t *file_bytes(struct bench *b, unsigned part, const char *ending,
                                 uint32_t expert, size_t *bytes)
{
    static const char *const parts[] = { "gate_proj", "up_proj", "down_proj" };
    char name[128];
    if (b->shape->layout == TINY_STACKED) {
        snprintf(name, sizeof name, "layers.%%u.mlp.switch_mlp.%s%s", parts[part], ending);
    } else if (b->shape->layout == TINY_SEPARATE) {
        snprintf(name, sizeof name, "layers.%%u.mlp.experts.%u.%s%s", expert, parts[part], ending);
        struct tiny_tensor *t = tiny_model_find(&b->t.tiny, name, 1);
        *bytes = t->byte_count;
        return t->bytes;
    } else {
        bool down = part == 2;
        struct tiny_tensor *t = tiny_model_find(
            &b->t.tiny,
            down ? "layers.%u.mlp.experts.down_proj" : "layers.%u.mlp.experts.gate_up_proj", 1);
        *bytes = t->byte_count / b->shape->experts / (down ? 1 : 2);
        return t->bytes + (down ? expert : 2 * expert + part) * *bytes;
    }
    struct tiny_tensor *t = tiny_model_find(&b->t.tiny, name, 1);
    *bytes = t->byte_count / b->shape->experts;
    return t->bytes + expert * *bytes;
}

static void check_expert_bytes(struct bench *b)
{
    static const char *const endings[] = { ".weight", ".scales", ".biases" };
    mf_error why = { 0 };
    size_t size = probe_expert_size(b->probe, 1), arrays = b->shape->group ? 3 : 1;
    uint8_t *found = malloc(size);
    for (uint32_t e = 0; e < b->shape->experts; e++) {
        size_t at = 0;
        tiny_must(probe_expert_bytes(found, size, b->probe, 1, e, &why), &why);
        for (unsigned i = 0; i < 3 * arrays; i++) {
            size_t bytes;
            const uint8_t *expected =
                file_bytes(b, (unsigned)(i / arrays), endings[i % arrays], e, &bytes);
            assert_memory_equal(found + at, expected, bytes);
            at += bytes;
        }
        assert_int_equal(at, size);
    }
    assert_int_equal(probe_expert_bytes(found, size - 1, b->probe, 1, 0, &why), MF_ERR_BUFFER_SIZE);
    free(found);
}

static void check_experts(struct bench *b)
{
    enum { ROWS = 11 };
    mf_error why = { 0 };
    size_t width = b->shape->width, k = b->shape->experts_per_token;
    uint32_t ids[ROWS * 8];
    float weights[ROWS * 8];
    struct twin x = twin_new(b, ROWS * width, 2.0), routed = twin_new(b, ROWS * width, 1.0);
    double *answer = calloc(width, sizeof *answer);
    struct plain_ffn shared = {
        .gate = numbers_of(b, "layers.%u.mlp.shared_expert.gate_proj.weight", 1),
        .up = numbers_of(b, "layers.%u.mlp.shared_expert.up_proj.weight", 1),
        .down = numbers_of(b, "layers.%u.mlp.shared_expert.down_proj.weight", 1),
        .width = width,
        .hidden = b->shape->shared_width
    };
    for (size_t r = 0; r < ROWS; r++) {
        double score, *row = x.d + r * width;
        const double *from = routed.d + r * width;
        for (size_t i = 0; i < k; i++) {
            /* any k of the experts, and any weights: the combination does not normalise */
            ids[r * k + i] = (uint32_t)(i + (b->shape->experts - k) * (r % 2));
            weights[r * k + i] = 0.25f * (float)(i + 1) - 0.1f * (float)r;
            struct plain_ffn ffn = expert_of(b, 1, ids[r * k + i]);
            plain_ffn_run(answer, &ffn, from);
            for (size_t j = 0; j < width; j++) row[j] += (double)weights[r * k + i] * answer[j];
        }
        plain_ffn_run(answer, &shared, from);
        plain_matrix(&score, numbers_of(b, "layers.%u.mlp.shared_expert_gate.weight", 1), 1, width,
                     from);
        for (size_t j = 0; j < width; j++) row[j] += plain_sigmoid(score) * answer[j];
    }
    mf_probe_combination args = { in(&routed), ids, weights };
    tiny_must(probe_experts(out(&x), b->probe, 1, &args, &why), &why);
    check_close("experts", x.f, x.d, x.count, OP_TOLERANCE);
    ids[1 % (ROWS * k)] = b->shape->experts;
    assert_int_equal(probe_experts(out(&x), b->probe, 1, &args, &why), MF_ERR_ARGUMENT);
    free(answer);
    twin_free(&x);
    twin_free(&routed);
}

/* --------------------------------------------------------------------- layers */

static void check_trace(const struct bench *b, const mf_probe_step *io, const struct plain_trace *t,
                        size_t row)
{
    size_t width = b->shape->width, k = b->shape->experts_per_token, at = row * width;
    check_close("after_mixer", io->after_mixer.values + at, t->after_mixer, width, 1e-5);
    check_close("routed", io->routed.values + at, t->routed, width, 1e-5);
    check_close("shared", io->shared.values + at, t->shared, width, 1e-5);
    if (!(fabs((double)io->shared_score.values[row] - t->shared_score) <= 1e-5))
        fail_msg("shared score %g, %g was expected", (double)io->shared_score.values[row],
                 t->shared_score);
    assert_memory_equal(io->routes.experts + row * k, t->ids, k * sizeof *t->ids);
    check_close("weights", io->routes.weights + row * k, t->weights, k, 1e-5);
    check_close("out", io->out.values + at, t->out, width, 1e-5);
    check_cosine("out", io->out.values + at, t->out, width);
}

static mf_status run_layer(const mf_probe_step *io, struct probe *probe, uint32_t layer,
                           int64_t position, mf_error *why)
{
    mf_probe_step step = *io;
    step.layer = layer;
    step.position = position;
    return probe_layer(&step, probe, why);
}

/* 30 rows of a layer, in calls of `step` rows, against the layer in double. */
static void check_layer_in_steps(struct bench *b, uint32_t layer, mf_mixer mixer, size_t step)
{
    enum { ROWS = 30 };
    mf_error why = { 0 };
    size_t width = b->shape->width, k = b->shape->experts_per_token;
    struct plain_model plain;
    plain_model_init(&plain, &b->t.tiny);
    struct twin x = twin_new(b, ROWS * width, 1.0);
    float *arrays = malloc((4 * width + 1 + k) * ROWS * sizeof *arrays);
    uint32_t *ids = malloc(ROWS * k * sizeof *ids);
    for (size_t at = 0; at < ROWS; at += step) {
        size_t rows = ROWS - at < step ? ROWS - at : step, n = rows * width;
        mf_probe_step io = { .mixer = mixer,
                             .x = { x.f + at * width, n },
                             .out = { arrays, n },
                             .after_mixer = { arrays + n, n },
                             .routed = { arrays + 2 * n, n },
                             .shared = { arrays + 3 * n, n },
                             .shared_score = { arrays + 4 * n, rows },
                             .routes = { ids, arrays + 4 * n + rows, rows * k } };
        tiny_must(run_layer(&io, b->probe, layer, (int64_t)at, &why), &why);
        for (size_t r = 0; r < rows; r++) {
            plain_model_layer(&plain, layer, x.d + (at + r) * width);
            plain.position++;
            check_trace(b, &io, &plain.trace, r);
        }
    }
    free(ids);
    free(arrays);
    twin_free(&x);
    plain_model_free(&plain);
}

static void check_layers(struct bench *b)
{
    static const size_t steps[] = { 1, 7, 30 };
    for (size_t i = 0; i < COUNT_OF(steps); i++) {
        check_layer_in_steps(b, b->delta, MF_MIXER_DELTA, steps[i]);
        check_layer_in_steps(b, b->full, MF_MIXER_ATTENTION, steps[i]);
    }
}

/* ------------------------------------------------------------------- refusals */

static void check_wrong_kinds(struct bench *b)
{
    mf_error why = { 0 };
    float some[4096] = { 0 };
    mf_floats any = { some, 64 };
    mf_numbers same = { some, 64 };
    mf_probe_attention attention = { same, same, same };
    mf_probe_recurrence recurrence = { same, same, same };
    mf_probe_positions where = { (uint32_t[]){ 0 }, 1, false };
    struct probe *p = b->probe;
    uint32_t full = b->full, delta = b->delta;
    assert_int_equal(probe_head_norm(any, p, delta, WEIGHT_Q_NORM, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_rope(any, p, delta, where, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_attend(any, p, delta, &attention, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_gate(any, p, delta, same, same, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_project(any, p, delta, WEIGHT_Q, same, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "layer 0 is a gated delta net"));
    assert_int_equal(probe_conv(any, any, p, full, same, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_unit_norm(any, p, full, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_delta(any, any, p, full, &recurrence, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_gated_norm(any, p, full, same, same, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_project(any, p, full, WEIGHT_DELTA_OUT, same, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "is full attention"));

    mf_probe_step io = { .mixer = MF_MIXER_DELTA,
                         .x = { some, b->shape->width },
                         .out = { some, b->shape->width } };
    assert_int_equal(run_layer(&io, p, full, 0, &why), MF_ERR_ARGUMENT);
    io.mixer = MF_MIXER_ATTENTION;
    assert_int_equal(run_layer(&io, p, delta, 0, &why), MF_ERR_ARGUMENT);
    assert_string_equal(why.text, "layer 0 is a gated delta net, not full attention");
}

static void check_wrong_lengths(struct bench *b)
{
    mf_error why = { 0 };
    static float some[65536];
    size_t width = b->shape->width;
    struct probe *p = b->probe;
    mf_numbers row = { some, width };
    uint32_t ids[64];
    const int32_t token = 0, unknown = (int32_t)b->shape->vocab_size, negative = -1;
#define REFUSED(call) assert_int_equal((call), MF_ERR_BUFFER_SIZE)
    for (size_t count = width - 1; count <= width + 1; count += 2) {
        mf_floats off = { some, count };
        mf_numbers odd = { some, count };
        REFUSED(probe_embed(off, p, &token, 1, &why));
        REFUSED(probe_norm(off, p, 0, WEIGHT_FFN_NORM, row, &why));
        REFUSED(probe_norm((mf_floats){ some, width }, p, 0, WEIGHT_FFN_NORM, odd, &why));
        REFUSED(probe_project(off, p, 0, WEIGHT_SHARED_DOWN, row, &why));
        REFUSED(probe_lm_head(off, p, row, &why));
        REFUSED(probe_expert(off, p, 0, 0, row, &why));
        REFUSED(probe_route((mf_probe_routes){ ids, some, 1 + count }, p, 0, row, &why));
        REFUSED(run_layer(&(mf_probe_step){ .mixer = MF_MIXER_DELTA, .x = odd, .out = off }, p,
                          b->delta, 0, &why));
        REFUSED(run_layer(&(mf_probe_step){ .mixer = MF_MIXER_DELTA, .x = row, .out = off }, p,
                          b->delta, 0, &why));
        REFUSED(run_layer(
            &(mf_probe_step){
                .mixer = MF_MIXER_DELTA, .x = row, .out = { some, width }, .routed = off },
            p, b->delta, 0, &why));
    }
    size_t many = (ROWS_MAX + 1) * width; /* more rows than the probe has room for */
    REFUSED(probe_norm((mf_floats){ some, many }, p, 0, WEIGHT_FFN_NORM, (mf_numbers){ some, many },
                       &why));
    REFUSED(
        probe_norm((mf_floats){ some, 0 }, p, 0, WEIGHT_FFN_NORM, (mf_numbers){ some, 0 }, &why));
#undef REFUSED
    mf_floats one = { some, width };
    assert_int_equal(probe_embed(one, p, &unknown, 1, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_embed(one, p, &negative, 1, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_expert(one, p, 0, b->shape->experts, row, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_expert(one, p, b->shape->layers, 0, row, &why), MF_ERR_ARGUMENT);
    assert_int_equal(probe_norm(one, p, b->shape->layers, WEIGHT_FFN_NORM, row, &why),
                     MF_ERR_ARGUMENT);
}

static void check_positions(struct bench *b)
{
    mf_error why = { 0 };
    static float some[ROWS_MAX * 64];
    size_t width = b->shape->width;
    mf_probe_step io = { .mixer = MF_MIXER_ATTENTION,
                         .x = { some, ROWS_MAX * width },
                         .out = { some, ROWS_MAX * width } };
    struct probe *p = b->probe;
    assert_int_equal(run_layer(&io, p, b->full, -1, &why), MF_ERR_ARGUMENT);
    assert_int_equal(run_layer(&io, p, b->full, 5, &why), MF_ERR_ARGUMENT);
    assert_int_equal(run_layer(&io, p, b->shape->layers, 0, &why), MF_ERR_ARGUMENT);
    tiny_must(run_layer(&io, p, b->full, 0, &why), &why);
    assert_int_equal(run_layer(&io, p, b->full, 1, &why), MF_ERR_ARGUMENT);
    tiny_must(run_layer(&io, p, b->full, ROWS_MAX, &why), &why);
    /* 160 of 200 are taken, 80 more do not fit */
    assert_int_equal(run_layer(&io, p, b->full, 2 * ROWS_MAX, &why), MF_ERR_CONTEXT_FULL);
    tiny_must(run_layer(&io, p, b->full, 0, &why), &why);
}

#define ON_EVERY_SHAPE(test, check)                                                                \
    static void test(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        on_every_shape(check);                                                                     \
    }
ON_EVERY_SHAPE(embed_agrees_with_double, check_embed)
ON_EVERY_SHAPE(norms_agree_with_double, check_norms)
ON_EVERY_SHAPE(head_norm_agrees_with_double, check_head_norm)
ON_EVERY_SHAPE(rope_agrees_with_double, check_rope)
ON_EVERY_SHAPE(attend_agrees_with_double, check_attend)
ON_EVERY_SHAPE(gate_agrees_with_double, check_gate)
ON_EVERY_SHAPE(project_agrees_with_double, check_project)
ON_EVERY_SHAPE(route_agrees_with_double, check_route)
ON_EVERY_SHAPE(ties_between_experts_go_to_the_lower_id, check_ties)
ON_EVERY_SHAPE(conv_agrees_with_double, check_conv)
ON_EVERY_SHAPE(unit_norm_agrees_with_double, check_unit_norm)
ON_EVERY_SHAPE(delta_agrees_with_double, check_delta)
ON_EVERY_SHAPE(gated_norm_agrees_with_double, check_gated_norm)
ON_EVERY_SHAPE(expert_agrees_with_double, check_expert)
ON_EVERY_SHAPE(expert_bytes_are_those_of_the_file, check_expert_bytes)
ON_EVERY_SHAPE(experts_agree_with_double, check_experts)
ON_EVERY_SHAPE(layers_agree_with_double, check_layers)
ON_EVERY_SHAPE(a_layer_of_another_kind_is_refused, check_wrong_kinds)
ON_EVERY_SHAPE(buffers_of_another_length_are_refused, check_wrong_lengths)
ON_EVERY_SHAPE(a_layer_continues_at_its_own_position_only, check_positions)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embed_agrees_with_double),
        cmocka_unit_test(norms_agree_with_double),
        cmocka_unit_test(head_norm_agrees_with_double),
        cmocka_unit_test(rope_agrees_with_double),
        cmocka_unit_test(attend_agrees_with_double),
        cmocka_unit_test(gate_agrees_with_double),
        cmocka_unit_test(project_agrees_with_double),
        cmocka_unit_test(route_agrees_with_double),
        cmocka_unit_test(ties_between_experts_go_to_the_lower_id),
        cmocka_unit_test(conv_agrees_with_double),
        cmocka_unit_test(unit_norm_agrees_with_double),
        cmocka_unit_test(delta_agrees_with_double),
        cmocka_unit_test(gated_norm_agrees_with_double),
        cmocka_unit_test(expert_agrees_with_double),
        cmocka_unit_test(expert_bytes_are_those_of_the_file),
        cmocka_unit_test(experts_agree_with_double),
        cmocka_unit_test(layers_agree_with_double),
        cmocka_unit_test(a_layer_of_another_kind_is_refused),
        cmocka_unit_test(buffers_of_another_length_are_refused),
        cmocka_unit_test(a_layer_continues_at_its_own_position_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
