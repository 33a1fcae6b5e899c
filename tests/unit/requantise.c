/* Requantising: what becomes what, how far off it is, and that threads change nothing. */
#include "support/test.h"

#include "base/arena.h"
#include "base/status.h"
#include "convert/requantise.h"

#include <math.h>
#include <stdlib.h>

enum { COLS = 256, GROUP = 64 };

static uint64_t state_of_noise = 1;

static double uniform(void)
{
    state_of_noise = state_of_noise * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state_of_noise >> 11) + 0.5) * 0x1p-53;
}

static double normal(void)
{
    return sqrt(-2.0 * log(uniform())) * cos(6.283185307179586 * uniform());
}

/* A matrix of `rows` with room for its data; format, cols and groups as in `like`. */
struct matrix {
    struct weight weight;
    uint8_t *bytes;
};

static struct matrix new_matrix(const struct weight *like, uint64_t rows)
{
    struct matrix m = { .weight = *like };
    struct weight *w = &m.weight;
    uint64_t shared = w->group_rows ? w->group_rows : 1;
    uint64_t scale_bytes = (rows + shared - 1) / shared * w->scale_row_bytes;
    w->rows = rows;
    m.bytes = calloc(1, rows * w->row_bytes + 2 * scale_bytes + 64);
    w->values = m.bytes;
    if (w->scale_row_bytes) w->scales = m.bytes + rows * w->row_bytes;
    if (w->scale_row_bytes) w->biases = w->scales + scale_bytes;
    return m;
}

static struct weight affine(unsigned bits, enum format scale_format, uint32_t group)
{
    return (struct weight){ .format = format_affine(bits),
                            .scale_format = scale_format,
                            .group_rows = 1,
                            .group_cols = group,
                            .cols = COLS,
                            .row_bytes = COLS / 8 * bits,
                            .scale_row_bytes =
                                COLS / group * format_info(scale_format)->block_bytes };
}

static double distance(const struct weight *w, const float *in)
{
    float out[COLS];
    double sum = 0;
    weight_dequantise_row(out, w, 0);
    for (size_t i = 0; i < COLS; i++) {
        double off = (double)out[i] - (double)in[i];
        sum += off * off;
    }
    return sum;
}

static double quantise(const struct weight *like, const float *in, bool closest)
{
    struct matrix m = new_matrix(like, 1);
    struct quantised_row row = { m.bytes, (uint8_t *)m.weight.scales, (uint8_t *)m.weight.biases };
    if (closest)
        quantise_affine_closest(row, like, in);
    else
        format_info(like->format)->quantise(row, like, in);
    double out = distance(&m.weight, in);
    free(m.bytes);
    return out;
}

/* ------------------------------------------------------------------ closest */

static void fill(float *out, int kind)
{
    for (size_t i = 0; i < COLS; i++) {
        double x = normal();
        double values[] = { x,
                            0.01 * x,
                            x * x * x,
                            5.0 + 0.1 * x,
                            uniform(),
                            -2e-4 * uniform(),
                            0.0,
                            3.0,
                            (i % 64 == 7) ? 40.0 : x,
                            1e-30 * x };
        out[i] = (float)values[kind];
    }
}

static void requantised_rows_are_as_near_as_by_the_rule_of_mlx(void **state)
{
    (void)state;
    const unsigned widths[] = { 2, 3, 4, 5, 6, 8 };
    const enum format scales[] = { FORMAT_BF16, FORMAT_F16, FORMAT_F32 };
    const uint32_t groups[] = { 32, 64, 128 };
    float in[COLS];
    for (int kind = 0; kind < 10; kind++) {
        for (size_t i = 0; i < COUNT_OF(widths) * COUNT_OF(scales) * COUNT_OF(groups); i++) {
            struct weight like = affine(widths[i % 6], scales[i / 6 % 3], groups[i / 18]);
            fill(in, kind);
            double rule = quantise(&like, in, false), closest = quantise(&like, in, true);
            /* Their sums are f32: a relative 1e-4 of noise. */
            if (!(closest <= rule * 1.0001 + 1e-30))
                fail_msg("kind %d, %u bits, groups of %u: %g, the rule %g", kind, widths[i % 6],
                         groups[i / 18], closest, rule);
        }
    }
}

/* The least squares over a fine grid of scales and biases: slow, and plainly right. */
static double best_of_grid(const float *in, size_t count, unsigned bits)
{
    const double top = (double)((1u << bits) - 1);
    double low = INFINITY, high = -INFINITY, least = INFINITY;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, (double)in[i]);
        high = fmax(high, (double)in[i]);
    }
    for (int a = 0; a <= 40; a++) {
        for (int b = 0; b <= 40; b++) {
            double from = low + (high - low) * a / 100, to = high - (high - low) * b / 100;
            double scale = (to - from) / top, sum = 0;
            for (size_t i = 0; i < count; i++) {
                double q = rint(((double)in[i] - from) / scale);
                double off = (double)in[i] - (fmax(0, fmin(top, q)) * scale + from);
                sum += off * off;
            }
            least = fmin(least, sum);
        }
    }
    return least;
}

static void requantised_rows_are_near_the_best_of_the_grid(void **state)
{
    (void)state;
    /* Bits, what is lost against the best of the grid, what MLX's rule costs against it. */
    const struct {
        unsigned bits;
        double most, rule_least;
    } cases[] = { { 2, 1.05, 1.5 }, { 3, 1.06, 1.3 }, { 4, 1.08, 1.2 } };
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        struct weight like = affine(cases[c].bits, FORMAT_BF16, GROUP);
        double best = 0, rule = 0, closest = 0;
        for (int row = 0; row < 12; row++) {
            float in[COLS];
            fill(in, 0);
            rule += quantise(&like, in, false);
            closest += quantise(&like, in, true);
            for (size_t g = 0; g < COLS; g += GROUP)
                best += best_of_grid(in + g, GROUP, cases[c].bits);
        }
        print_message("    %u bits: %.3f of the best, MLX's rule %.3f\n", cases[c].bits,
                      closest / best, rule / best);
        assert_true(closest <= cases[c].most * best);
        assert_true(rule >= cases[c].rule_least * best);
    }
}

static void numbers_on_a_line_stay(void **state)
{
    (void)state;
    for (unsigned bits = 2; bits <= 8; bits += bits < 4 ? 1 : 4) {
        struct weight like = affine(bits, FORMAT_BF16, GROUP);
        float in[COLS];
        for (size_t i = 0; i < COLS; i++) {
            unsigned q = (unsigned)(uniform() * (double)(1u << bits));
            if (i % GROUP == 0) q = 0;
            if (i % GROUP == 1) q = (1u << bits) - 1;
            in[i] = (float)q * 0.0625f - 0.5f;
        }
        assert_true(quantise(&like, in, true) == 0.0);
    }
}

/* `in` in the closest affine numbers, read back; nothing is written behind the row. */
static void quantise_and_read(float *out, const struct weight *like, const float *in)
{
    enum { SPARE = 64, UNTOUCHED = 0xA5 }; /* new_matrix leaves that much room */
    struct matrix m = new_matrix(like, 1);
    uint8_t *end = m.bytes + like->row_bytes + 2 * like->scale_row_bytes;
    memset(end, UNTOUCHED, SPARE);
    quantise_affine_closest(
        (struct quantised_row){ m.bytes, (uint8_t *)m.weight.scales, (uint8_t *)m.weight.biases },
        like, in);
    for (size_t i = 0; i < SPARE; i++) assert_int_equal(end[i], UNTOUCHED);
    weight_dequantise_row(out, &m.weight, 0);
    free(m.bytes);
}

/* Groups without such a number have the values that they have when all of the row is finite. */
static void numbers_that_are_not_finite_stay_in_their_group(void **state)
{
    (void)state;
    const float odd[] = { NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f };
    struct weight like = affine(3, FORMAT_BF16, GROUP);
    float finite[COLS], in[COLS], wanted[COLS], out[COLS];
    fill(finite, 0);
    quantise_and_read(wanted, &like, finite);
    for (size_t i = 0; i < COUNT_OF(odd) * COUNT_OF(odd); i++) {
        memcpy(in, finite, sizeof in);
        in[0] = odd[i / COUNT_OF(odd)];
        in[130] = odd[i % COUNT_OF(odd)];
        quantise_and_read(out, &like, in);
        for (size_t group = 1; group < COLS / GROUP; group += 2) { /* 0 and 130 are in 0 and 2 */
            assert_memory_equal(out + group * GROUP, wanted + group * GROUP, GROUP * sizeof *out);
            for (size_t j = 0; j < GROUP; j++) assert_true(isfinite(out[group * GROUP + j]));
        }
    }
}

/* --------------------------------------------------------------------- plan */

static struct weight plain(enum format format, uint64_t cols)
{
    uint64_t row_bytes = 0;
    assert_true(format_row_bytes(&row_bytes, format, cols));
    return (struct weight){ .format = format, .rows = 8, .cols = cols, .row_bytes = row_bytes };
}

static void a_weight_is_never_requantised_to_more_bits(void **state)
{
    (void)state;
    struct weight f8 = plain(FORMAT_F8_E4M3, COLS);
    f8.group_rows = f8.group_cols = 128;
    f8.scale_format = FORMAT_F32;
    f8.scale_row_bytes = 8;
    const struct {
        struct weight from;
        enum quantisation to;
        enum requantise_answer answer;
        enum format format;
    } cases[] = {
        { plain(FORMAT_F32, COLS), QUANTISE_KEEP, REQUANTISE_SMALL, 0 },
        { plain(FORMAT_F32, COLS), QUANTISE_BF16, REQUANTISE_CHANGE, FORMAT_BF16 },
        { plain(FORMAT_F16, COLS), QUANTISE_BF16, REQUANTISE_SMALL, 0 },
        { plain(FORMAT_BF16, COLS), QUANTISE_BF16, REQUANTISE_SMALL, 0 },
        { plain(FORMAT_BF16, COLS), QUANTISE_Q8, REQUANTISE_CHANGE, FORMAT_Q8_0 },
        { plain(FORMAT_Q8_0, COLS), QUANTISE_Q8, REQUANTISE_SMALL, 0 },
        { plain(FORMAT_Q8_0, COLS), QUANTISE_Q4, REQUANTISE_CHANGE, FORMAT_AFFINE4 },
        { f8, QUANTISE_BF16, REQUANTISE_SMALL, 0 },
        { f8, QUANTISE_Q8, REQUANTISE_SMALL, 0 }, /* 8 bits and a little are less than 8.5 */
        { f8, QUANTISE_Q4, REQUANTISE_CHANGE, FORMAT_AFFINE4 },
        { plain(FORMAT_Q6_K, COLS), QUANTISE_Q4, REQUANTISE_CHANGE, FORMAT_AFFINE4 },
        { plain(FORMAT_Q4_K, COLS), QUANTISE_Q4, REQUANTISE_SMALL, 0 }, /* both 4.5 */
        { plain(FORMAT_Q4_K, COLS), QUANTISE_Q3, REQUANTISE_CHANGE, FORMAT_AFFINE3 },
        { plain(FORMAT_Q3_K, COLS), QUANTISE_Q3, REQUANTISE_SMALL, 0 }, /* 3.44 and 3.5 */
        { plain(FORMAT_Q3_K, COLS), QUANTISE_Q2, REQUANTISE_CHANGE, FORMAT_AFFINE2 },
        { affine(4, FORMAT_BF16, 64), QUANTISE_Q4, REQUANTISE_SMALL, 0 },
        { affine(4, FORMAT_BF16, 128), QUANTISE_Q4, REQUANTISE_SMALL, 0 },
        { affine(4, FORMAT_BF16, 32), QUANTISE_Q4, REQUANTISE_CHANGE, FORMAT_AFFINE4 },
        { affine(4, FORMAT_F32, 64), QUANTISE_Q4, REQUANTISE_CHANGE, FORMAT_AFFINE4 },
        { affine(2, FORMAT_F16, 64), QUANTISE_Q2, REQUANTISE_SMALL, 0 },
        { plain(FORMAT_BF16, 96), QUANTISE_Q4, REQUANTISE_CHANGE, FORMAT_AFFINE4 },
        { plain(FORMAT_BF16, 48), QUANTISE_Q4, REQUANTISE_UNFIT, 0 },
        { plain(FORMAT_BF16, 48), QUANTISE_Q8, REQUANTISE_UNFIT, 0 },
        { plain(FORMAT_F32, 7), QUANTISE_BF16, REQUANTISE_CHANGE, FORMAT_BF16 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct weight to;
        enum requantise_answer answer = requantise_plan(&to, &cases[i].from, cases[i].to);
        if (answer != cases[i].answer) fail_msg("case %zu: %d", i, answer);
        if (answer == REQUANTISE_CHANGE) assert_int_equal(to.format, cases[i].format);
        if (answer == REQUANTISE_CHANGE) assert_false(requantise_is_same(&to, &cases[i].from));
    }
    struct weight to, narrow = plain(FORMAT_BF16, 96);
    requantise_plan(&to, &narrow, QUANTISE_Q2);
    assert_int_equal(to.group_cols, 32);
    assert_int_equal(to.row_bytes, 96 / 4);
    assert_int_equal(to.scale_row_bytes, 3 * 2);
}

static void names_are_found_again(void **state)
{
    (void)state;
    for (int i = 0; i < QUANTISATION_COUNT; i++)
        assert_int_equal(quantisation_find(quantisation_name((enum quantisation)i)), i);
    assert_int_equal(quantisation_find("q5"), QUANTISATION_COUNT);
}

/* --------------------------------------------------------------------- rows */

static void threads_change_nothing(void **state)
{
    (void)state;
    enum { ROWS = 37 };
    struct weight like = plain(FORMAT_F8_E4M3, COLS);
    like.scale_format = FORMAT_F32;
    like.group_rows = 16;
    like.group_cols = 128;
    like.scale_row_bytes = 2 * sizeof(float);
    struct matrix from = new_matrix(&like, ROWS);
    for (size_t i = 0; i < ROWS * COLS; i++) from.bytes[i] = (uint8_t)(i * 37 % 126);
    for (size_t i = 0; i < 6; i++) {
        float scale = 0.01f * (float)(i + 1);
        memcpy((uint8_t *)from.weight.scales + i * sizeof scale, &scale, sizeof scale);
    }
    for (enum quantisation to = QUANTISE_Q4; to < QUANTISATION_COUNT; to++) {
        struct weight shape;
        struct matrix made[3];
        float scratch[3 * COLS];
        mf_error why = { 0 };
        assert_int_equal(requantise_plan(&shape, &from.weight, to), REQUANTISE_CHANGE);
        size_t bytes = ROWS * (shape.row_bytes + 2 * shape.scale_row_bytes);
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct thread_pool *pool;
            assert_int_equal(thread_pool_new(&pool, &allocator_heap, threads, &why), MF_OK);
            made[threads - 1] = new_matrix(&shape, ROWS);
            requantise_rows(&made[threads - 1].weight, &from.weight, scratch, pool);
            thread_pool_free(pool);
            assert_memory_equal(made[threads - 1].bytes, made[0].bytes, bytes);
        }
        float before[COLS], after[COLS];
        for (uint64_t row = 0; row < ROWS; row++) {
            double off = 0, all = 0;
            weight_dequantise_row(before, &from.weight, row);
            weight_dequantise_row(after, &made[2].weight, row);
            for (size_t i = 0; i < COLS; i++) {
                off += pow((double)(after[i] - before[i]), 2);
                all += pow((double)before[i], 2);
            }
            assert_true(off < all * (to == QUANTISE_Q2 ? 0.2 : 0.05));
        }
        for (int i = 0; i < 3; i++) free(made[i].bytes);
    }
    free(from.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requantised_rows_are_as_near_as_by_the_rule_of_mlx),
        cmocka_unit_test(requantised_rows_are_near_the_best_of_the_grid),
        cmocka_unit_test(numbers_on_a_line_stay),
        cmocka_unit_test(numbers_that_are_not_finite_stay_in_their_group),
        cmocka_unit_test(a_weight_is_never_requantised_to_more_bits),
        cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
