/* kernels: every kernel of every instruction set that runs here.
 *
 * The generic set must be near the same thing computed in double, and every other set must give
 * the generic one's bits: which set runs decides the speed and nothing else.  Lengths are
 * and are not multiples of a vector; what lies behind an output must stay as it was. */
#include "support/test.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENGTH_MAX = 1100, ROWS = 11, HEAD_MAX = 72, BEHIND = 16 };

static const size_t lengths[] = { 1,  2,  3,  7,   8,   9,   15,  16,   17,  31,
                                  32, 33, 64, 100, 127, 128, 129, 1024, 1030 };

static float first[ROWS * LENGTH_MAX], second[ROWS * LENGTH_MAX], third[LENGTH_MAX];

static float next_number(uint64_t *random, float width)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return ((float)(*random >> 40) / (float)(1 << 23) - 1.0f) * width;
}

/* ------------------------------------------------------------ ops along a row */

/* Writes out_count(n) numbers; reads first, second and third, which have n each. */
struct row_op {
    const char *name;
    void (*run)(const struct kernels *k, float *out, size_t n);
    void (*plain)(double *out, size_t n);
    double tolerance; /* of the largest magnitude that enters a result */
    double (*magnitude)(size_t n);
};

static void copy(float *out, const float *in, size_t n)
{
    memcpy(out, in, n * sizeof *out);
}

static double largest_first(size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)first[i]));
    return largest;
}

static double sum_of_magnitudes(size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs((double)first[i] * (double)second[i]);
    return sum;
}

static double one(size_t n)
{
    (void)n;
    return 1;
}

static void run_dot(const struct kernels *k, float *out, size_t n)
{
    memset(out, 0, n * sizeof *out);
    out[0] = k->dot(first, second, n);
}

static void plain_dot(double *out, size_t n)
{
    for (size_t i = 1; i < n; i++) out[i] = 0;
    out[0] = 0;
    for (size_t i = 0; i < n; i++) out[0] += (double)first[i] * (double)second[i];
}

static void run_add_scaled(const struct kernels *k, float *out, size_t n)
{
    copy(out, first, n);
    k->add_scaled(out, second, -0.7f, n);
}

static void plain_add_scaled(double *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (double)first[i] + (double)-0.7f * (double)second[i];
}

static void run_rms_norm(const struct kernels *k, float *out, size_t n)
{
    k->rms_norm(out, first, second, 1e-6f, n);
}

static void run_rms_norm_in_place(const struct kernels *k, float *out, size_t n)
{
    copy(out, first, n);
    k->rms_norm(out, out, second, 1e-6f, n);
}

static void plain_rms_norm(double *out, size_t n)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)first[i] * (double)first[i];
    double factor = 1 / sqrt(squares / (double)n + (double)1e-6f);
    for (size_t i = 0; i < n; i++) out[i] = (double)first[i] * factor * (double)second[i];
}

static void run_unit_norm(const struct kernels *k, float *out, size_t n)
{
    copy(out, first, n);
    k->unit_norm(out, 0.25f, 1e-6f, n);
}

static void plain_unit_norm(double *out, size_t n)
{
    double squares = (double)1e-6f;
    for (size_t i = 0; i < n; i++) squares += (double)first[i] * (double)first[i];
    for (size_t i = 0; i < n; i++) out[i] = (double)first[i] * 0.25 / sqrt(squares);
}

static void run_exp_shifted(const struct kernels *k, float *out, size_t n)
{
    copy(out, third, n);
    k->exp_shifted(out, 20.0f, n);
}

static void plain_exp_shifted(double *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = exp((double)third[i] - 20);
}

static void run_softmax(const struct kernels *k, float *out, size_t n)
{
    copy(out, third, n);
    k->softmax(out, n);
}

static void plain_softmax(double *out, size_t n)
{
    double largest = (double)third[0], sum = 0;
    for (size_t i = 1; i < n; i++) largest = fmax(largest, (double)third[i]);
    for (size_t i = 0; i < n; i++) sum += exp((double)third[i] - largest);
    for (size_t i = 0; i < n; i++) out[i] = exp((double)third[i] - largest) / sum;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void run_silu(const struct kernels *k, float *out, size_t n)
{
    copy(out, third, n);
    k->silu(out, n);
}

static void plain_silu(double *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (double)third[i] * sigmoid((double)third[i]);
}

static double largest_third(size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)third[i]));
    return largest;
}

static void run_silu_multiply(const struct kernels *k, float *out, size_t n)
{
    copy(out, third, n);
    k->silu_multiply(out, out, first, n);
}

static void plain_silu_multiply(double *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)third[i] * sigmoid((double)third[i]) * (double)first[i];
}

static double largest_product(size_t n)
{
    return largest_third(n) * largest_first(n);
}

static void run_sigmoid_multiply(const struct kernels *k, float *out, size_t n)
{
    k->sigmoid_multiply(out, first, third, n);
}

static void plain_sigmoid_multiply(double *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (double)first[i] * sigmoid((double)third[i]);
}

/* One rounding is 6e-8; sums of n keep 16 running sums, so their error grows slowly. */
static const struct row_op row_ops[] = {
    { "dot", run_dot, plain_dot, 5e-7, sum_of_magnitudes },
    { "add_scaled", run_add_scaled, plain_add_scaled, 2e-7, largest_first },
    { "rms_norm", run_rms_norm, plain_rms_norm, 1e-6, largest_first },
    { "rms_norm in place", run_rms_norm_in_place, plain_rms_norm, 1e-6, largest_first },
    { "unit_norm", run_unit_norm, plain_unit_norm, 5e-7, one },
    { "exp_shifted", run_exp_shifted, plain_exp_shifted, 3e-7, one },
    { "softmax", run_softmax, plain_softmax, 5e-7, one },
    { "silu", run_silu, plain_silu, 3e-7, largest_third },
    { "silu_multiply", run_silu_multiply, plain_silu_multiply, 5e-7, largest_product },
    { "sigmoid_multiply", run_sigmoid_multiply, plain_sigmoid_multiply, 5e-7, largest_first },
};

static struct machine machine;

static const struct kernels *generic_set(void)
{
    const struct kernels *generic = kernels_select(&machine, "generic");
    assert_non_null(generic);
    return generic;
}

/* A message that names the case, where `condition` does not hold. */
static void hold(bool condition, const char *op, const char *set, size_t n)
{
    if (!condition) fail_msg("%s of the %s set, length %zu", op, set, n);
}

static void run_guarded(float *out, const struct row_op *op, const struct kernels *k, size_t n)
{
    for (size_t i = 0; i < n + BEHIND; i++) out[i] = 12345.0f;
    op->run(k, out, n);
    for (size_t i = n; i < n + BEHIND; i++) hold(out[i] == 12345.0f, op->name, k->name, n);
}

static void generic_rows_are_near_doubles(void **state)
{
    (void)state;
    const struct kernels *generic = generic_set();
    for (size_t o = 0; o < COUNT_OF(row_ops); o++) {
        for (size_t l = 0; l < COUNT_OF(lengths); l++) {
            static float got[LENGTH_MAX + BEHIND];
            static double want[LENGTH_MAX];
            size_t n = lengths[l];
            run_guarded(got, &row_ops[o], generic, n);
            row_ops[o].plain(want, n);
            double allowed = row_ops[o].tolerance * row_ops[o].magnitude(n);
            for (size_t i = 0; i < n; i++)
                hold(fabs((double)got[i] - want[i]) <= allowed, row_ops[o].name, "generic", n);
        }
    }
}

static void every_set_has_the_generic_bits(void **state)
{
    (void)state;
    const struct kernels *generic = generic_set(), *set;
    for (size_t s = 0; (set = kernels_at(&machine, s)) != NULL; s++) {
        printf("set %s\n", set->name);
        for (size_t o = 0; o < COUNT_OF(row_ops); o++) {
            for (size_t l = 0; l < COUNT_OF(lengths); l++) {
                static float got[LENGTH_MAX + BEHIND], want[LENGTH_MAX + BEHIND];
                size_t n = lengths[l];
                run_guarded(want, &row_ops[o], generic, n);
                run_guarded(got, &row_ops[o], set, n);
                hold(memcmp(got, want, n * sizeof *got) == 0, row_ops[o].name, set->name, n);
            }
        }
    }
}

/* ------------------------------------------------------------------- products */

/* However many rows are asked for together, each product has the bits of `dot`. */
static void a_block_of_products_is_its_products(void **state)
{
    (void)state;
    const struct kernels *set, *generic = generic_set();
    for (size_t s = 0; (set = kernels_at(&machine, s)) != NULL; s++) {
        for (size_t l = 0; l < COUNT_OF(lengths); l++) {
            size_t n = lengths[l];
            for (size_t w_rows = 1; w_rows <= ROWS; w_rows++) {
                size_t x_rows = 1 + (w_rows * 7 + l) % ROWS;
                float out[ROWS][ROWS + 1], *outs[ROWS];
                const float *xs[ROWS];
                for (size_t j = 0; j < x_rows; j++) {
                    xs[j] = second + j * n;
                    outs[j] = out[j];
                    out[j][w_rows] = 12345.0f;
                }
                set->dot_block(&(struct dot_block){ first, xs, outs, w_rows, x_rows, n });
                for (size_t j = 0; j < x_rows; j++) {
                    for (size_t i = 0; i < w_rows; i++)
                        hold(out[j][i] == generic->dot(first + i * n, xs[j], n), "dot_block",
                             set->name, n);
                    hold(out[j][w_rows] == 12345.0f, "dot_block", set->name, n);
                }
            }
        }
    }
}

/* ----------------------------------------------------------------- delta rule */

struct head {
    float out[HEAD_MAX], state_out[HEAD_MAX * HEAD_MAX];
};

static void run_delta(struct head *head, const struct kernels *k, size_t keys, size_t values)
{
    k->delta_step(&(struct delta_step){ .out = head->out,
                                        .state_out = head->state_out,
                                        .state_in = first,
                                        .q = second,
                                        .k = second + HEAD_MAX,
                                        .v = second + 2 * HEAD_MAX,
                                        .decay = 0.9f,
                                        .strength = 0.6f,
                                        .keys = keys,
                                        .values = values });
}

static void expect_delta(const struct head *head, size_t keys, size_t values)
{
    const float *q = second, *k = second + HEAD_MAX, *v = second + 2 * HEAD_MAX;
    for (size_t i = 0; i < values; i++) {
        double read = 0, out = 0, scale = 0;
        for (size_t j = 0; j < keys; j++)
            read += (double)0.9f * (double)first[i * keys + j] * (double)k[j];
        for (size_t j = 0; j < keys; j++) {
            double cell = (double)0.9f * (double)first[i * keys + j] +
                          (double)0.6f * ((double)v[i] - read) * (double)k[j];
            out += cell * (double)q[j];
            scale += fabs(cell * (double)q[j]) + fabs(cell);
            hold(fabs((double)head->state_out[i * keys + j] - cell) <= 1e-6 * (1 + fabs(read)),
                 "delta_step state", "generic", keys);
        }
        hold(fabs((double)head->out[i] - out) <= 2e-6 * (scale + fabs(read)), "delta_step",
             "generic", keys);
    }
}

static void delta_steps_agree(void **state)
{
    (void)state;
    static const size_t shapes[][2] = { { 16, 16 }, { 64, 64 }, { 72, 5 }, { 7, 33 }, { 1, 1 } };
    static struct head got, want;
    const struct kernels *set, *generic = generic_set();
    for (size_t c = 0; c < COUNT_OF(shapes); c++) {
        size_t keys = shapes[c][0], values = shapes[c][1];
        run_delta(&want, generic, keys, values);
        expect_delta(&want, keys, values);
        for (size_t s = 0; (set = kernels_at(&machine, s)) != NULL; s++) {
            run_delta(&got, set, keys, values);
            hold(memcmp(got.out, want.out, values * sizeof(float)) == 0, "delta_step", set->name,
                 keys);
            hold(memcmp(got.state_out, want.state_out, keys * values * sizeof(float)) == 0,
                 "delta_step state", set->name, keys);
        }
    }
}

/* ------------------------------------------------------------------ formats */

/* Rows of random bytes (with finite scales): what a set reads is what the format's definition
 * reads, from any address. */
static void tuned_readers_agree_with_the_definition(void **state)
{
    (void)state;
    enum { COLS = 256, ROW_COUNT = 3 };
    static const uint32_t groups[] = { 16, 32, 64, 128 };
    static uint8_t bytes[ROW_COUNT * COLS * 8 + 1];
    static uint16_t scales[ROW_COUNT * COLS], biases[ROW_COUNT * COLS];
    uint64_t random = 3;
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(next_number(&random, 128) + 128);
    for (size_t i = 0; i < COUNT_OF(scales); i++) {
        scales[i] = bf16_from_f32(next_number(&random, 0.1f));
        biases[i] = bf16_from_f32(next_number(&random, 1.0f));
    }
    const struct kernels *set;
    size_t compared = 0;
    for (size_t s = 0; (set = kernels_at(&machine, s)) != NULL; s++) {
        for (unsigned f = 0; f < FORMAT_COUNT; f++) {
            if (!set->dequantise[f]) continue;
            for (size_t g = 0; g < COUNT_OF(groups); g++) {
                uint64_t row_bytes;
                assert_true(format_row_bytes(&row_bytes, (enum format)f, COLS));
                struct weight weight = { .format = (enum format)f,
                                         .scale_format = FORMAT_BF16,
                                         .group_rows = 1,
                                         .group_cols = groups[g],
                                         .rows = ROW_COUNT,
                                         .cols = COLS,
                                         .values = bytes + 1,
                                         .scales = (const uint8_t *)scales,
                                         .biases = (const uint8_t *)biases,
                                         .row_bytes = row_bytes,
                                         .scale_row_bytes = COLS / groups[g] * 2 };
                for (uint64_t row = 0; row < ROW_COUNT; row++) {
                    float got[COLS], want[COLS];
                    weight_dequantise_row(want, &weight, row);
                    kernels_dequantise(set, got, &weight, row);
                    hold(memcmp(got, want, sizeof got) == 0, format_info((enum format)f)->name,
                         set->name, groups[g]);
                    compared++;
                }
            }
        }
    }
    assert_true(compared > 0);
}

static int prepare(void **state)
{
    (void)state;
    uint64_t random = 1;
    machine_probe(&machine);
    for (size_t i = 0; i < COUNT_OF(first); i++) first[i] = next_number(&random, 2.0f);
    for (size_t i = 0; i < COUNT_OF(second); i++) second[i] = next_number(&random, 1.0f);
    for (size_t i = 0; i < COUNT_OF(third); i++) third[i] = next_number(&random, 15.0f);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generic_rows_are_near_doubles),
        cmocka_unit_test(every_set_has_the_generic_bits),
        cmocka_unit_test(a_block_of_products_is_its_products),
        cmocka_unit_test(delta_steps_agree),
        cmocka_unit_test(tuned_readers_agree_with_the_definition),
    };
    return cmocka_run_group_tests_name("kernels", tests, prepare, NULL);
}
