/* delta.c: the CUDA kernel of the gated delta rule against double arithmetic, over the lengths of a
 * state's heads that models have, for spans of different lengths side by side.
 *
 * Built twice, as products.c is. */
#include "cuda/device_memory.h"

#include "backend/cuda/launch.h"
#include "base/common.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS_MAX = 40, SPANS = 2, HEADS_MAX = 4, KEYS_MAX = 256, VALUES_MAX = 128 };
enum { CHANNELS_MAX = 2048 };

static const struct cuda_delta shapes[] = {
    { .key_heads = 2, .value_heads = 4, .key_width = 128, .value_width = 128 },
    { .key_heads = 2, .value_heads = 4, .key_width = 64, .value_width = 64, .tiled = true },
    { .key_heads = 3, .value_heads = 3, .key_width = 24, .value_width = 40 },
    { .key_heads = 1, .value_heads = 2, .key_width = 256, .value_width = 20 },
};
static const uint32_t row_counts[][SPANS] = { { 1, 1 }, { 16, 3 }, { 37, 1 } };

static float mixed[ROWS_MAX * CHANNELS_MAX], strength[ROWS_MAX * HEADS_MAX];
static float decay[ROWS_MAX * HEADS_MAX], decay_weight[HEADS_MAX], dt_bias[HEADS_MAX];
static float states[SPANS][HEADS_MAX * VALUES_MAX * KEYS_MAX];

static uint32_t channels_of(const struct cuda_delta *s)
{
    return 2 * s->key_heads * s->key_width + s->value_heads * s->value_width;
}

/* Queries and keys of length 1, as they come from cuda_unit_norm. */
static void make_inputs(const struct cuda_delta *s)
{
    fill(mixed, COUNT_OF(mixed), 1);
    fill(strength, COUNT_OF(strength), 2);
    fill(decay, COUNT_OF(decay), 3);
    fill(dt_bias, COUNT_OF(dt_bias), 4);
    fill(&states[0][0], sizeof states / sizeof(float), 5);
    for (size_t h = 0; h < HEADS_MAX; h++) decay_weight[h] = -0.1f * (float)(h + 1);
    for (uint32_t row = 0; row < ROWS_MAX; row++) {
        for (uint32_t head = 0; head < 2 * s->key_heads; head++) {
            float *x = mixed + (size_t)row * channels_of(s) + (size_t)head * s->key_width, sum = 0;
            for (uint32_t i = 0; i < s->key_width; i++) sum += x[i] * x[i];
            for (uint32_t i = 0; i < s->key_width; i++) x[i] /= sqrtf(sum);
        }
    }
}

/* One row of one head: state ← γ state, then state += β (v - state k) kᵀ, and out = state q. */
static void step_in_double(double *out, double *state, const struct cuda_delta *s, uint32_t row,
                           uint32_t head)
{
    size_t at = (size_t)row * s->value_heads + head, all_keys = (size_t)s->key_heads * s->key_width;
    uint32_t key_head = s->tiled ? head % s->key_heads : head / (s->value_heads / s->key_heads);
    const float *q = mixed + (size_t)row * channels_of(s) + (size_t)key_head * s->key_width;
    const float *k = q + all_keys;
    const float *v =
        mixed + (size_t)row * channels_of(s) + 2 * all_keys + (size_t)head * s->value_width;
    double dt = log1p(exp((double)decay[at] + (double)dt_bias[head]));
    double keep = exp((double)decay_weight[head] * dt);
    double beta = 1.0 / (1.0 + exp(-(double)strength[at]));
    for (uint32_t value = 0; value < s->value_width; value++) {
        double *line = state + (size_t)value * s->key_width, known = 0.0;
        for (uint32_t i = 0; i < s->key_width; i++) {
            line[i] *= keep;
            known += line[i] * (double)k[i];
        }
        out[value] = 0.0;
        for (uint32_t i = 0; i < s->key_width; i++) {
            line[i] += beta * ((double)v[value] - known) * (double)k[i];
            out[value] += line[i] * (double)q[i];
        }
    }
}

static void check_near(double wanted, float found, const char *what, const struct cuda_delta *s,
                       uint32_t row)
{
    if (!(fabs((double)found - wanted) <= 2e-5))
        fail_msg("%s of row %u, heads of %u and %u: %g instead of %g", what, row, s->key_width,
                 s->value_width, (double)found, wanted);
}

static void check_span(const struct cuda_delta *s, const float *out, const float *state,
                       const float *before, uint32_t first, uint32_t count)
{
    static double expected[VALUES_MAX * KEYS_MAX];
    double line[VALUES_MAX];
    size_t size = (size_t)s->value_width * s->key_width;
    for (uint32_t head = 0; head < s->value_heads; head++) {
        for (size_t i = 0; i < size; i++) expected[i] = (double)before[head * size + i];
        for (uint32_t row = first; row < first + count; row++) {
            step_in_double(line, expected, s, row, head);
            for (uint32_t i = 0; i < s->value_width; i++)
                check_near(line[i], out[((size_t)row * s->value_heads + head) * s->value_width + i],
                           "the answer", s, row);
        }
        for (size_t i = 0; i < size; i++)
            check_near(expected[i], state[head * size + i], "the state", s, first + count - 1);
    }
}

static void check_shape(const struct cuda_delta *s, const uint32_t *counts)
{
    static float out[ROWS_MAX * HEADS_MAX * VALUES_MAX], after[HEADS_MAX * VALUES_MAX * KEYS_MAX];
    uint32_t rows = counts[0] + counts[1], first[SPANS] = { 0, counts[0] };
    size_t state_bytes = (size_t)s->value_heads * s->value_width * s->key_width * sizeof(float);
    size_t out_bytes = (size_t)rows * s->value_heads * s->value_width * sizeof(float);
    struct cuda_span spans[SPANS];
    void *memory[2 * SPANS];
    for (size_t i = 0; i < SPANS; i++) {
        memory[2 * i] = device_new(states[i], state_bytes, 0);
        memory[2 * i + 1] = device_new(NULL, state_bytes, 0);
        spans[i] = (struct cuda_span){ .first_row = first[i],
                                       .row_count = counts[i],
                                       .delta_in = memory[2 * i],
                                       .delta_out = memory[2 * i + 1] };
    }
    void *inputs[] = { device_new(mixed, (size_t)rows * channels_of(s) * sizeof *mixed, 0),
                       device_new(strength, (size_t)rows * s->value_heads * sizeof *strength, 0),
                       device_new(decay, (size_t)rows * s->value_heads * sizeof *decay, 0),
                       device_new(decay_weight, sizeof decay_weight, 0),
                       device_new(dt_bias, sizeof dt_bias, 0),
                       device_new(spans, sizeof spans, 0),
                       device_new(NULL, out_bytes, 0) };
    struct cuda_rows list = { .row_count = rows, .span_count = SPANS, .spans = inputs[5] };
    cuda_delta_rule(stream, inputs[6], inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], &list,
                    s);
    copy_back(out, inputs[6], out_bytes);
    for (size_t i = 0; i < SPANS; i++) {
        copy_back(after, spans[i].delta_out, state_bytes);
        check_span(s, out, after, states[i], first[i], counts[i]);
    }
    for (size_t i = 0; i < COUNT_OF(inputs); i++) device_free(inputs[i]);
    for (size_t i = 0; i < COUNT_OF(memory); i++) device_free(memory[i]);
}

static void delta_rule_is_near_double(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        make_inputs(&shapes[i]);
        for (size_t n = 0; n < COUNT_OF(row_counts); n++) check_shape(&shapes[i], row_counts[n]);
    }
}

int main(void)
{
    if (!open_device()) return 77;
    const struct CMUnitTest tests[] = { cmocka_unit_test(delta_rule_is_near_double) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
