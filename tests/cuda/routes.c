/* routes.c: the CUDA kernels' router, buckets of pairs, weighted sums and norms against double
 * arithmetic, for as many experts as models have.
 *
 * Built twice, as products.c is. */
#include "cuda/device_memory.h"

#include "backend/cuda/launch.h"
#include "base/common.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS_MAX = 70, EXPERTS_MAX = 512, PER_ROW_MAX = 10 };

struct shape {
    uint32_t experts, per_row, groups, top_groups;
    bool sigmoid, renormalise;
    float scale;
};

static const struct shape shapes[] = {
    { 128, 8, 1, 1, false, true, 1.0f }, { 512, 10, 1, 1, false, true, 1.0f },
    { 16, 4, 4, 2, true, true, 2.5f },   { 256, 8, 8, 4, true, true, 2.5f },
    { 60, 4, 1, 1, false, false, 1.0f },
};
static const uint32_t row_counts[] = { 1, 3, ROWS_MAX };

static float logits[ROWS_MAX * EXPERTS_MAX], bias[EXPERTS_MAX];

/* ------------------------------------------------------------------------------------- choices */

/* Scores, and what experts are chosen by: that and the bias, -HUGE_VAL outside the best groups. */
static void score(double *scores, double *choice, const struct shape *s, const float *row)
{
    double sum = 0.0;
    for (uint32_t e = 0; e < s->experts; e++) {
        scores[e] = s->sigmoid ? 1.0 / (1.0 + exp(-(double)row[e])) : exp((double)row[e]);
        sum += scores[e];
    }
    for (uint32_t e = 0; e < s->experts; e++) {
        if (!s->sigmoid) scores[e] /= sum;
        choice[e] = scores[e] + (s->sigmoid ? (double)bias[e] : 0.0);
    }
}

/* The best of a group, with `two` and the next one. */
static double group_score(const double *choice, uint32_t count, bool two)
{
    uint32_t best = 0;
    double second = -HUGE_VAL;
    for (uint32_t i = 1; i < count; i++) best = choice[i] > choice[best] ? i : best;
    for (uint32_t i = 0; i < count; i++) second = i == best ? second : fmax(second, choice[i]);
    return choice[best] + (two ? second : 0.0);
}

static void keep_groups(double *choice, const struct shape *s)
{
    uint32_t size = s->experts / s->groups;
    double group[EXPERTS_MAX];
    for (uint32_t g = 0; g < s->groups; g++)
        group[g] = group_score(choice + g * size, size, s->sigmoid);
    for (uint32_t g = 0; g < s->groups; g++) {
        uint32_t better = 0;
        for (uint32_t other = 0; other < s->groups; other++) better += group[other] > group[g];
        for (uint32_t i = 0; better >= s->top_groups && i < size; i++)
            choice[g * size + i] = -HUGE_VAL;
    }
}

/* The experts of a row in ascending id, with their weights. */
static void choose(uint32_t *ids, double *weights, const struct shape *s, const float *row)
{
    double scores[EXPERTS_MAX], choice[EXPERTS_MAX], sum = 0.0;
    uint32_t count = 0;
    score(scores, choice, s, row);
    if (s->groups > 1) keep_groups(choice, s);
    for (uint32_t e = 0; e < s->experts; e++) {
        uint32_t better = 0;
        for (uint32_t other = 0; other < s->experts; other++) better += choice[other] > choice[e];
        if (better >= s->per_row || choice[e] < -1e30) continue;
        assert_true(count < s->per_row);
        ids[count] = e;
        weights[count++] = scores[e];
        sum += scores[e];
    }
    assert_int_equal(count, s->per_row);
    for (uint32_t i = 0; i < count; i++)
        weights[i] *= (s->renormalise ? 1.0 / sum : 1.0) * (double)s->scale;
}

/* The chosen experts of all rows, on the device. */
struct routes {
    uint32_t *experts;
    float *weights;
    uint32_t row_count;
};

static struct routes route(const struct shape *s, uint32_t row_count)
{
    size_t pairs = (size_t)row_count * s->per_row;
    float *rows = device_new(logits, row_count * s->experts * sizeof *logits, 0);
    float *device_bias = device_new(bias, s->experts * sizeof *bias, 0);
    struct cuda_router router = { .sigmoid = s->sigmoid,
                                  .renormalise = s->renormalise,
                                  .scale = s->scale,
                                  .bias = s->sigmoid ? device_bias : NULL,
                                  .groups = s->groups,
                                  .top_groups = s->top_groups };
    struct routes out = { device_new(NULL, pairs * sizeof(uint32_t), 0),
                          device_new(NULL, pairs * sizeof(float), 0), row_count };
    cuda_route(stream, out.experts, out.weights, s->per_row, rows, row_count, s->experts, &router);
    finish();
    device_free(rows);
    device_free(device_bias);
    return out;
}

static void check_routes(const struct shape *s, const struct routes *routes, uint32_t *experts)
{
    static float weights[ROWS_MAX * PER_ROW_MAX];
    size_t pairs = (size_t)routes->row_count * s->per_row;
    copy_back(experts, routes->experts, pairs * sizeof *experts);
    copy_back(weights, routes->weights, pairs * sizeof *weights);
    for (uint32_t r = 0; r < routes->row_count; r++) {
        uint32_t ids[PER_ROW_MAX];
        double wanted[PER_ROW_MAX];
        choose(ids, wanted, s, logits + r * s->experts);
        for (uint32_t i = 0; i < s->per_row; i++) {
            size_t pair = (size_t)r * s->per_row + i;
            if (experts[pair] != ids[i] ||
                !(fabs((double)weights[pair] - wanted[i]) <= 1e-5 * wanted[i]))
                fail_msg(
                    "%u of %u experts: choice %u of row %u is %u with %g instead of %u with %g",
                    s->per_row, s->experts, i, r, experts[pair], (double)weights[pair], ids[i],
                    wanted[i]);
        }
    }
}

/* Every used expert once, in ascending id, with its pairs in ascending order; then empty slots. */
static void check_buckets(const struct shape *s, const struct routes *routes,
                          const uint32_t *experts)
{
    static struct cuda_expert table[EXPERTS_MAX], found[EXPERTS_MAX];
    static uint32_t pairs[ROWS_MAX * PER_ROW_MAX];
    uint32_t count = routes->row_count * s->per_row,
             slots = count < s->experts ? count : s->experts;
    for (uint32_t e = 0; e < s->experts; e++) table[e].gate.rows = 1000 + e; /* tells them apart */
    struct cuda_expert *device_table = device_new(table, s->experts * sizeof *table, 0);
    struct cuda_expert *out = device_new(NULL, slots * sizeof *out, 0);
    uint32_t *device_pairs = device_new(NULL, count * sizeof *pairs, 0);
    cuda_bucket(stream, out, slots, device_pairs, device_table, s->experts, routes->experts,
                routes->row_count, s->per_row);
    copy_back(found, out, slots * sizeof *found);
    copy_back(pairs, device_pairs, count * sizeof *pairs);
    uint32_t slot = 0;
    for (uint32_t e = 0; e < s->experts; e++) {
        uint32_t used = 0;
        for (uint32_t pair = 0; pair < count; pair++) {
            if (experts[pair] != e) continue;
            assert_true(slot < slots);
            assert_int_equal(found[slot].gate.rows, 1000 + e);
            assert_true(used < found[slot].pair_count);
            assert_int_equal(pairs[found[slot].pairs - device_pairs + used], pair);
            used++;
        }
        if (used > 0) assert_int_equal(found[slot++].pair_count, used);
    }
    while (slot < slots) assert_int_equal(found[slot++].pair_count, 0);
    device_free(device_table);
    device_free(out);
    device_free(device_pairs);
}

static void routes_and_buckets(void **state)
{
    static uint32_t experts[ROWS_MAX * PER_ROW_MAX];
    (void)state;
    fill(logits, COUNT_OF(logits), 3);
    for (size_t i = 0; i < COUNT_OF(logits); i++) logits[i] *= 6.0f;
    fill(bias, COUNT_OF(bias), 4);
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        for (size_t n = 0; n < COUNT_OF(row_counts); n++) {
            struct routes routes = route(&shapes[i], row_counts[n]);
            check_routes(&shapes[i], &routes, experts);
            check_buckets(&shapes[i], &routes, experts);
            device_free(routes.experts);
            device_free(routes.weights);
        }
    }
}

/* ---------------------------------------------------------------------------------- sums, norms */

enum { WIDTH_MAX = 2048 };
static const uint32_t widths[] = { 48, 96, 1000, WIDTH_MAX };
static float a[ROWS_MAX * WIDTH_MAX], b[ROWS_MAX * WIDTH_MAX], found[ROWS_MAX * WIDTH_MAX];

static void check_near(double wanted, float x, double bound, const char *what, uint32_t width)
{
    if (!(fabs((double)x - wanted) <= bound))
        fail_msg("%s, %u wide: %g instead of %g", what, width, (double)x, wanted);
}

static void norms_are_near_double(void **state)
{
    (void)state;
    fill(a, COUNT_OF(a), 21);
    fill(b, WIDTH_MAX, 22);
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
        uint32_t width = widths[w];
        size_t bytes = 3 * width * sizeof *a;
        float *device_a = device_new(a, bytes, 0), *weight = device_new(b, width * sizeof *b, 0);
        float *out = device_new(a, bytes, 0);
        cuda_add_rms_norm(stream, out, device_a, weight, 1e-6f, 3, width);
        copy_back(found, out, bytes);
        for (uint32_t r = 0; r < 3; r++) {
            double squares = 0.0;
            for (uint32_t i = 0; i < width; i++) squares += pow((double)a[r * width + i], 2);
            for (uint32_t i = 0; i < width; i++) {
                double x = (double)a[r * width + i];
                check_near(x + x / sqrt(squares / width + 1e-6) * (double)b[i],
                           found[r * width + i], 1e-5, "a norm", width);
            }
        }
        device_free(device_a);
        device_free(weight);
        device_free(out);
    }
}

static void weighted_sums_are_near_double(void **state)
{
    static float answers[3 * PER_ROW_MAX * WIDTH_MAX], weights[3 * PER_ROW_MAX];
    const uint32_t rows = 3, per_row = 8;
    (void)state;
    fill(answers, COUNT_OF(answers), 31);
    fill(weights, COUNT_OF(weights), 32);
    fill(a, COUNT_OF(a), 33);
    fill(b, COUNT_OF(b), 34);
    for (size_t w = 0; w < COUNT_OF(widths); w++) {
        uint32_t width = widths[w];
        size_t bytes = rows * width * sizeof *a;
        float *device_answers = device_new(answers, rows * per_row * width * sizeof *answers, 0);
        float *device_weights = device_new(weights, rows * per_row * sizeof *weights, 0);
        float *shared = device_new(b, bytes, 0),
              *scale = device_new(weights, rows * sizeof *weights, 0);
        float *out = device_new(a, bytes, 0);
        cuda_combine(stream, out, device_answers, device_weights, per_row, shared, scale, rows,
                     width, true);
        copy_back(found, out, bytes);
        for (size_t i = 0; i < (size_t)rows * width; i++) {
            size_t r = i / width, column = i % width;
            double wanted = (double)a[i] + (double)b[i] / (1.0 + exp(-(double)weights[r]));
            for (uint32_t k = 0; k < per_row; k++)
                wanted += (double)weights[r * per_row + k] *
                          (double)answers[(r * per_row + k) * width + column];
            check_near(wanted, found[i], 1e-5, "a sum of experts", width);
        }
        device_free(device_answers);
        device_free(device_weights);
        device_free(shared);
        device_free(scale);
        device_free(out);
    }
}

int main(void)
{
    if (!open_device()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_and_buckets),
        cmocka_unit_test(norms_are_near_double),
        cmocka_unit_test(weighted_sums_are_near_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
