/* kernels: numbers that are special, results that replace inputs, tiles of any size, and the
 * scalar functions against the C library's.  conformance/kernels.c has the table of cases. */
#include "support/test.h"

#include "kernels/kernels.h"
#include "kernels/scalar_math.h"

#include <math.h>
#include <stdlib.h>

static struct machine machine;
static const struct kernels *generic;
static const float epsilon = 1e-6f;

/* Rows of numbers of every size, the same every time. */
static void fill(float *row, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        row[i] = (float)((double)(seed >> 40) * 0x1p-23 - 1.0);
        if (i % 5 == 4) row[i] *= 1e6f;
    }
}

static void check_bits(const char *what, const char *set, const float *found, const float *expected,
                       size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&found[i], &expected[i], sizeof(float)) != 0)
            fail_msg("%s: %s gives %a for number %zu of %zu, %a was expected", what, set,
                     (double)found[i], i, n, (double)expected[i]);
}

/* ------------------------------------------------------------ special numbers */

/* exp over its whole range, seen through a softmax of two. */
static void exp_is_good_to_two_units(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 1; i < 23450; i++) {
        double x = -87.0 + 0.00371 * i;
        /* softmax of { 0, x }: 1 / (1 + e) and e / (1 + e), whose quotient is e */
        float pair[2] = { 0.0f, (float)x };
        double exact = exp((double)pair[1]);
        generic->softmax(pair, 2);
        double found = (double)pair[1] / (double)pair[0];
        worst = fmax(worst, fabs(found - exact) / exact);
    }
    print_message("    exp: %.2f units in the last place\n", worst / 0x1p-23);
    /* two units of exp, and a rounding in each of the two products */
    assert_true(worst <= 3 * 0x1p-23);
}

/* Floats from the smallest to NaNs, 61 of every 2^18: neighbours of the same size, so that rows
 * without a number that is near the ends of exp's range occur as well as those with one. */
static void exp_has_the_same_bits_everywhere(void **state)
{
    enum { ROW = 61 };
    (void)state;
    for (uint64_t begin = 0; begin < 1ull << 32; begin += 1 << 18) {
        float x[ROW], expected[ROW], found[ROW];
        for (uint32_t i = 0; i < ROW; i++) {
            uint32_t bits = (uint32_t)begin + i * 4099;
            memcpy(&x[i], &bits, sizeof bits);
        }
        if (isnan(x[ROW - 1])) continue; /* of these each set may have its own */
        memcpy(expected, x, sizeof x);
        generic->exp_shifted(expected, 0.0f, ROW);
        for (size_t s = 0; kernels_at(&machine, s); s++) {
            const struct kernels *k = kernels_at(&machine, s);
            memcpy(found, x, sizeof x);
            k->exp_shifted(found, 0.0f, ROW);
            check_bits("exp", k->name, found, expected, ROW);
        }
    }
}

static void gates_reach_their_ends(void **state)
{
    (void)state;
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        const struct kernels *k = kernels_at(&machine, i);
        float x[] = { 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f };
        const float gate[] = { 200.0f, -200.0f, INFINITY, -INFINITY, NAN, 0.0f };
        k->sigmoid_multiply(x, x, gate, 6);
        assert_true(x[0] == 1.0f && x[1] == 0.0f && x[2] == 1.0f && x[3] == 0.0f);
        assert_true(isnan(x[4]) && x[5] == 0.5f);
        float s[] = { 200.0f, -200.0f, NAN, 0.0f };
        k->silu(s, 4);
        assert_true(s[0] == 200.0f && s[1] == 0.0f && isnan(s[2]) && s[3] == 0.0f);
    }
}

static void softmax_handles_special_rows(void **state)
{
    (void)state;
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        const struct kernels *k = kernels_at(&machine, i);
        for (size_t n = 1; n <= 70; n++) {
            float equal[70], masked[70], empty[70], poisoned[70];
            for (size_t j = 0; j < n; j++) {
                equal[j] = -1e30f;
                masked[j] = j == n / 2 ? -5.0f : -INFINITY;
                empty[j] = -INFINITY;
                poisoned[j] = j == n - 1 ? NAN : 1.0f;
            }
            k->softmax(equal, n);
            k->softmax(masked, n);
            k->softmax(empty, n);
            k->softmax(poisoned, n);
            for (size_t j = 0; j < n; j++) {
                assert_true(equal[j] == 1.0f / (float)n);
                assert_true(masked[j] == (j == n / 2 ? 1.0f : 0.0f));
                assert_true(isnan(empty[j]) && isnan(poisoned[j])); /* visible, not hidden */
            }
        }
        k->softmax(NULL, 0);
    }
}

static void norms_of_zeroes_are_zero(void **state)
{
    (void)state;
    float zeroes[70] = { 0 }, weights[70], out[70];
    for (size_t i = 0; i < 70; i++) weights[i] = 2.0f;
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        const struct kernels *k = kernels_at(&machine, i);
        k->rms_norm(out, zeroes, weights, epsilon, 70);
        k->unit_norm(zeroes, 1.0f, epsilon, 70);
        for (size_t j = 0; j < 70; j++) assert_true(out[j] == 0.0f && zeroes[j] == 0.0f);
    }
}

static void infinite_activations_stay_visible(void **state)
{
    (void)state;
    for (size_t s = 0; kernels_at(&machine, s); s++) {
        struct integer_unit unit;
        float x[UNIT] = { 0 };
        x[40] = INFINITY;
        x[100] = NAN;
        x[200] = 1e-44f;
        kernels_at(&machine, s)->make_units(&unit, x, UNIT, UNIT_ORDER_ROW);
        for (int i = 0; i < UNIT / 32; i++)
            assert_int_equal(isnan(unit.scales[i]) != 0, i == 40 / 32 || i == 100 / 32);
    }
}

enum { INTEGER_ROWS = 20, INTEGER_COLS = 320, INTEGER_X = 19 };

/* Rows of Q8_0: a scale of about 2^-5 and 32 numbers. */
static struct weight some_weights(uint8_t *values, size_t bytes)
{
    float numbers[INTEGER_ROWS * INTEGER_COLS * 2];
    fill(numbers, bytes, 9);
    for (size_t i = 0; i < bytes; i++) values[i] = (uint8_t)(int)(numbers[i] * 127.0f);
    for (size_t i = 0; i < bytes; i += 34) memcpy(values + i, &(uint16_t){ 0x2801 }, 2);
    return (struct weight){ .format = FORMAT_Q8_0,
                            .rows = INTEGER_ROWS,
                            .cols = INTEGER_COLS,
                            .values = values,
                            .row_bytes = INTEGER_COLS / 32 * 34 };
}

static void multiply_integers(float *out, const struct kernels *k, const struct weight *w,
                              const float *x)
{
    const struct matrix_unit *matrix = kernels_matrix(k, w);
    size_t words = kernels_pack_words(k, INTEGER_COLS);
    const float *rows[INTEGER_X];
    float *results[INTEGER_X];
    uint16_t *packs = aligned_alloc(64, 2 * PACK_ROWS * words * sizeof *packs);
    void *room = aligned_alloc(64, align_up(matrix_room(INTEGER_COLS), 64));
    for (size_t j = 0; j < INTEGER_X; j++) {
        rows[j] = x + j * INTEGER_COLS;
        results[j] = out + j * INTEGER_ROWS;
    }
    for (size_t j = 0; j < INTEGER_X; j += PACK_ROWS)
        matrix->make_pack(packs + j * words, rows + j, min_size(PACK_ROWS, INTEGER_X - j),
                          INTEGER_COLS);
    matrix->multiply(&(struct matrix_product){
        .from = { { w, 0, INTEGER_ROWS, 32 }, { w, 16, INTEGER_ROWS, 32 } },
        .rows = INTEGER_ROWS,
        .packs = packs,
        .x_rows = INTEGER_X,
        .out = results,
        .room = room });
    free(packs);
    free(room);
}

/* Much nearer than bf16, which the table of cases allows: activations keep 16 bits of the largest
 * of 32.  A row that is spoilt spoils no other. */
static void prompts_in_integers_keep_16_bits(void **state)
{
    (void)state;
    static uint8_t values[INTEGER_ROWS * INTEGER_COLS / 32 * 34];
    static float x[INTEGER_X * INTEGER_COLS], out[INTEGER_X * INTEGER_ROWS], row[INTEGER_COLS];
    struct weight w = some_weights(values, sizeof values);
    fill(x, COUNT_OF(x), 8);
    memset(x, 0, INTEGER_COLS * sizeof *x);
    x[2 * INTEGER_COLS + 50] = NAN;
    x[3 * INTEGER_COLS + 60] = -INFINITY;
    for (size_t s = 0; kernels_at(&machine, s); s++) {
        const struct kernels *k = kernels_at(&machine, s);
        if (!k->integer_matrix) continue;
        multiply_integers(out, k, &w, x);
        for (size_t i = 0; i < COUNT_OF(out); i++) {
            const float *xs = x + i / INTEGER_ROWS * INTEGER_COLS;
            double expected = 0, bound = 0;
            weight_dequantise_row(row, &w, i % INTEGER_ROWS);
            for (size_t c = 0; c < INTEGER_COLS; c++) {
                expected += (double)row[c] * (double)xs[c];
                bound += fabs((double)row[c]) * 1e6 * 0.51 / 32767; /* the largest is 1e6 */
            }
            if (i / INTEGER_ROWS == 2 || i / INTEGER_ROWS == 3)
                assert_true(isnan(out[i]));
            else if (i / INTEGER_ROWS == 0)
                assert_true(out[i] == 0.0f);
            else
                assert_true(fabs((double)out[i] - expected) <= bound);
        }
    }
}

static void half_floats_end_where_the_format_says(void **state)
{
    (void)state;
    static const float x[] = {
        0.0f,  -0.0f,   65504.0f, 65519.9f,   65520.0f, 1e30f, -1e30f, 1e-8f,
        3e-8f, 2.9e-8f, 6e-8f,    1.0009766f, 6.1e-5f,  NAN,   1e-5f,  5.0f
    };
    for (size_t s = 0; kernels_at(&machine, s); s++) {
        uint16_t out[COUNT_OF(x)];
        kernels_at(&machine, s)->attend->store_f16(out, 1, x, COUNT_OF(x));
        for (size_t i = 0; i < COUNT_OF(x); i++) {
            float found = f32_from_f16(out[i]), expected = f32_from_f16(f16_from_f32(x[i]));
            if (isnan(x[i]))
                assert_true(isnan(found));
            else
                assert_memory_equal(&found, &expected, sizeof found);
        }
    }
}

/* What is stored comes back within half a step of its group's scale, and all sets store the same. */
static void q8_numbers_are_near_and_the_same_everywhere(void **state)
{
    (void)state;
    enum { WIDTH = 77, GROUPS = 3 };
    static float x[WIDTH];
    static int8_t first[ATTEND_TILE * (WIDTH + 2 * GROUPS)];
    fill(x, WIDTH, 9);
    for (size_t c = 0; c < WIDTH; c++) /* a group of small numbers beside others */
        x[c] *= c / Q8_GROUP == 1 ? 1e-10f : 1e-6f;
    for (size_t s = 0; kernels_at(&machine, s); s++)
        for (int by_channel = 0; by_channel < 2; by_channel++) {
            const struct attend_kernels *attend = kernels_at(&machine, s)->attend;
            static int8_t memory[sizeof first];
            static uint16_t wide[ATTEND_TILE * WIDTH];
            struct q8_tile tile = { memory, WIDTH, by_channel };
            memset(memory, 0, sizeof memory);
            for (size_t p = 0; p < ATTEND_TILE; p++) attend->store_q8(&tile, p, x);
            attend->widen_q8(wide, &tile);
            if (s == 0 && by_channel) memcpy(first, memory, sizeof first);
            if (s > 0 && by_channel) assert_memory_equal(memory, first, sizeof first);
            for (size_t i = 0; i < ATTEND_TILE * WIDTH; i++) {
                size_t c = by_channel ? i / ATTEND_TILE : i % WIDTH, group = c / Q8_GROUP;
                float most = 0;
                for (size_t j = group * Q8_GROUP; j < min_size(WIDTH, (group + 1) * Q8_GROUP); j++)
                    most = fmaxf(most, fabsf(x[j]));
                float step = most / 127 * (1 + 0x1p-10f) + 0x1p-24f;
                if (!(fabsf(f32_from_f16(wide[i]) - x[c]) <= 0.505f * step + most * 0x1p-11f))
                    fail_msg("%s, channel %zu: %g became %g", kernels_at(&machine, s)->name, c,
                             (double)x[c], (double)f32_from_f16(wide[i]));
            }
        }
}

static void q8_numbers_that_are_not_finite_stay_so(void **state)
{
    (void)state;
    enum { WIDTH = 64 };
    for (size_t s = 0; kernels_at(&machine, s); s++)
        for (int kind = 0; kind < 3; kind++) {
            const struct attend_kernels *attend = kernels_at(&machine, s)->attend;
            static int8_t memory[ATTEND_TILE * (WIDTH + 4)];
            static uint16_t wide[ATTEND_TILE * WIDTH];
            struct q8_tile tile = { memory, WIDTH, false };
            float x[WIDTH] = { 0 };
            x[40] = kind == 0 ? NAN : kind == 1 ? INFINITY : 0.0f;
            attend->store_q8(&tile, 0, x);
            attend->widen_q8(wide, &tile);
            for (size_t c = 0; c < WIDTH; c++)
                assert_true(kind < 2 && c >= 32 ? isnan(f32_from_f16(wide[c])) : wide[c] == 0);
        }
}

/* A product's bits do not depend on the tile that it is computed in. */
static void a_block_is_made_of_dots(void **state)
{
    (void)state;
    enum { N = 77, MANY = 21 };
    static float w[N * MANY], x[N * MANY];
    fill(w, COUNT_OF(w), 5);
    fill(x, COUNT_OF(x), 6);
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        const struct kernels *k = kernels_at(&machine, i);
        for (size_t w_rows = 1; w_rows <= MANY; w_rows++) {
            for (size_t x_rows = 1; x_rows <= MANY; x_rows++) {
                const float *rows[MANY];
                float results[MANY][MANY], *out[MANY];
                for (size_t j = 0; j < x_rows; j++) {
                    rows[j] = x + j * N;
                    out[j] = results[j];
                }
                k->dot_block(&(struct dot_block){ w, rows, out, w_rows, x_rows, N });
                for (size_t j = 0; j < x_rows * w_rows; j++) {
                    float expected = generic->dot(w + j % w_rows * N, rows[j / w_rows], N);
                    check_bits("dot_block", k->name, &results[j / w_rows][j % w_rows], &expected,
                               1);
                }
            }
        }
    }
}

/* Outputs that are inputs, where the header allows it. */
static void results_may_replace_inputs(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 70; n++) {
        float a[70], b[70], apart[70], same[70];
        fill(a, n, n);
        fill(b, n, n + 100);
        for (size_t i = 0; kernels_at(&machine, i); i++) {
            const struct kernels *k = kernels_at(&machine, i);
#define CHECK_ALIAS(call_apart, call_same, from)                                                   \
    call_apart;                                                                                    \
    memcpy(same, from, n * sizeof(float));                                                         \
    call_same;                                                                                     \
    check_bits(#call_same, k->name, same, apart, n)
            CHECK_ALIAS(k->rms_norm(apart, a, b, epsilon, n),
                        k->rms_norm(same, same, b, epsilon, n), a);
            for (int act = 0; act < ACTIVATION_COUNT; act++) {
                CHECK_ALIAS(k->gate_multiply[act](apart, a, b, n),
                            k->gate_multiply[act](same, same, b, n), a);
                CHECK_ALIAS(k->gate_multiply[act](apart, a, b, n),
                            k->gate_multiply[act](same, a, same, n), b);
            }
            CHECK_ALIAS(k->sigmoid_multiply(apart, a, b, n), k->sigmoid_multiply(same, same, b, n),
                        a);
            CHECK_ALIAS(k->sigmoid_multiply(apart, a, b, n), k->sigmoid_multiply(same, a, same, n),
                        b);
#undef CHECK_ALIAS
        }
    }
}

/* A step of the delta rule in place has the bits of one that writes elsewhere. */
static void a_state_may_be_replaced(void **state)
{
    (void)state;
    enum { KEYS = 32, VALUES = 23 };
    static _Alignas(CACHE_LINE) float before[VALUES * KEYS], apart[VALUES * KEYS],
        same[VALUES * KEYS];
    float q[KEYS], k[KEYS], v[VALUES], out[VALUES], again[VALUES];
    fill(before, COUNT_OF(before), 1);
    fill(q, KEYS, 2);
    fill(k, KEYS, 3);
    fill(v, VALUES, 4);
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        struct delta_step step = { out, apart, before, q, k, v, 0.9f, 0.7f, KEYS, VALUES };
        kernels_at(&machine, i)->delta->step(&step);
        memcpy(same, before, sizeof same);
        step.state_in = step.state_out = same;
        step.out = again;
        kernels_at(&machine, i)->delta->step(&step);
        check_bits("a step", kernels_at(&machine, i)->name, again, out, VALUES);
        check_bits("its state", kernels_at(&machine, i)->name, same, apart, VALUES * KEYS);
    }
}

/* -------------------------------------------------------------- scalar_math */

/* Relative error against the C library, in units of 2^-52. */
static double units(double found, double exact)
{
    return exact == 0.0 ? (found == 0.0 ? 0.0 : HUGE_VAL) : fabs((found - exact) / exact) * 0x1p52;
}

static void scalars_agree_with_libm(void **state)
{
    (void)state;
    double worst_exp = 0, worst_log = 0, worst_sigmoid = 0, worst_softplus = 0;
    for (int i = 0; i < 37735; i++) {
        double x = -700.0 + 0.0371 * i;
        worst_exp = fmax(worst_exp, units(scalar_exp(x), exp(x)));
        worst_sigmoid = fmax(worst_sigmoid, units(scalar_sigmoid(x), 1.0 / (1.0 + exp(-x))));
        double softplus = x > 30.0 ? x + log1p(exp(-x)) : log1p(exp(x));
        worst_softplus = fmax(worst_softplus, fabs(scalar_softplus(x) - softplus) / softplus);
    }
    for (int i = 0; i < 30000; i++) { /* -0.9999 … 2, small ones, large ones */
        double x = i < 8000    ? -0.9999 + 0.000375 * i
                   : i < 16000 ? exp(-41.0 + 0.0045 * (i - 8000))
                               : exp(0.001 * (i - 16000));
        worst_log =
            fmax(worst_log, fabs(scalar_log1p(x) - log1p(x)) / fmax(fabs(log1p(x)), 0x1p-62));
    }
    print_message("    exp %.1f, sigmoid %.1f units; softplus %.1e, log1p %.1e relative\n",
                  worst_exp, worst_sigmoid, worst_softplus, worst_log);
    assert_true(worst_exp <= 4 && worst_sigmoid <= 6);
    assert_true(worst_log <= 4e-15);
    assert_true(worst_softplus <= 1.1e-10); /* beyond 20 it is x: e^-20 / 20 */
}

static void scalar_functions_hold_at_the_ends_of_their_range(void **state)
{
    (void)state;
    assert_true(scalar_exp(0.0) == 1.0 && scalar_exp(-INFINITY) == 0.0);
    assert_true(isinf(scalar_exp(710.0)) && isinf(scalar_exp(INFINITY)) && isnan(scalar_exp(NAN)));
    assert_true(scalar_sigmoid(0.0) == 0.5 && scalar_sigmoid(INFINITY) == 1.0);
    assert_true(scalar_sigmoid(-INFINITY) == 0.0 && isnan(scalar_sigmoid(NAN)));
    assert_true(scalar_softplus(1000.0) == 1000.0 && scalar_softplus(-1000.0) == 0.0);
    assert_true(isnan(scalar_softplus(NAN)) && scalar_log1p(0.0) == 0.0);
}

static void angles_agree_with_libm(void **state)
{
    (void)state;
    double sine, cosine, near = 0, far = 0;
    for (int i = 0; i < 115600; i++) {
        double x = -1000.0 + 0.0173 * i;
        scalar_sincos(&sine, &cosine, x);
        near = fmax(near, fmax(fabs(sine - sin(x)), fabs(cosine - cos(x))));
    }
    for (int i = 0; i < 46000; i++) {
        double x = 1e3 * exp(0.0003 * i); /* up to 1e9 */
        scalar_sincos(&sine, &cosine, x);
        far = fmax(far, fmax(fabs(sine - sin(x)), fabs(cosine - cos(x))));
    }
    print_message("    sin and cos: %.1e near zero, %.1e up to 1e9\n", near, far);
    assert_true(near <= 4e-16 && far <= 4e-16);
    scalar_sincos(&sine, &cosine, 0.0);
    assert_true(sine == 0.0 && cosine == 1.0);
}

static void sets_are_found_by_name(void **state)
{
    (void)state;
    assert_ptr_equal(kernels_select(&machine, NULL), kernels_at(&machine, 0));
    assert_ptr_equal(kernels_select(&machine, "generic"), generic);
    assert_null(kernels_select(&machine, "sse9"));
    size_t count = 0;
    for (; kernels_at(&machine, count); count++)
        assert_ptr_equal(kernels_select(&machine, kernels_at(&machine, count)->name),
                         kernels_at(&machine, count));
    assert_ptr_equal(kernels_at(&machine, count - 1), generic);
    struct machine bare = { 0 }; /* a CPU that can do nothing special */
    assert_ptr_equal(kernels_select(&bare, NULL), generic);
    assert_null(kernels_at(&bare, 1));
}

int main(void)
{
    machine_probe(&machine);
    generic = kernels_select(&machine, "generic");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinite_activations_stay_visible),
        cmocka_unit_test(prompts_in_integers_keep_16_bits),
        cmocka_unit_test(half_floats_end_where_the_format_says),
        cmocka_unit_test(q8_numbers_are_near_and_the_same_everywhere),
        cmocka_unit_test(q8_numbers_that_are_not_finite_stay_so),
        cmocka_unit_test(a_state_may_be_replaced),
        cmocka_unit_test(sets_are_found_by_name),
        cmocka_unit_test(a_block_is_made_of_dots),
        cmocka_unit_test(results_may_replace_inputs),
        cmocka_unit_test(exp_is_good_to_two_units),
        cmocka_unit_test(exp_has_the_same_bits_everywhere),
        cmocka_unit_test(gates_reach_their_ends),
        cmocka_unit_test(softmax_handles_special_rows),
        cmocka_unit_test(norms_of_zeroes_are_zero),
        cmocka_unit_test(scalars_agree_with_libm),
        cmocka_unit_test(scalar_functions_hold_at_the_ends_of_their_range),
        cmocka_unit_test(angles_agree_with_libm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
