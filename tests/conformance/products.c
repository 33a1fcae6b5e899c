/* products.c: products with quantised rows, in integers and on a matrix unit.
 *
 *     integers      every set gives the bits of generic, alone or with other rows, and is
 *                   as near to double arithmetic as 15 bits allow
 *     matrix unit   as near as bf16 allows; a product's bits do not depend on its neighbours */
#include "support/test.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>

static struct machine machine;
static const struct kernels *generic;
static uint64_t state = 88172645463325252u;

static uint64_t next_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static float next_number(void)
{
    return (float)((double)(next_bits() >> 11) * 0x1p-53 * 4.0 - 2.0);
}

/* --------------------------------------------------------------- a matrix */

enum { ROWS = 37, X_ROWS = 6 };

struct matrix {
    struct weight weight;
    uint8_t *values, *scales, *biases;
    float *rows; /* dequantised */
};

/* Where the f16 scales of a block lie; the rest of it may be anything. */
static const struct {
    enum format format;
    int first, second; /* -1: none */
} scale_places[] = {
    { FORMAT_Q4_0, 0, -1 },  { FORMAT_Q4_1, 0, 2 },    { FORMAT_Q5_0, 0, -1 },
    { FORMAT_Q5_1, 0, 2 },   { FORMAT_Q8_0, 0, -1 },   { FORMAT_IQ4_NL, 0, -1 },
    { FORMAT_Q2_K, 80, 82 }, { FORMAT_Q3_K, 108, -1 }, { FORMAT_Q4_K, 0, 2 },
    { FORMAT_Q5_K, 0, 2 },   { FORMAT_Q6_K, 208, -1 }, { FORMAT_IQ4_XS, 0, -1 },
};

static void put_scale(uint8_t *at)
{
    uint16_t bits = (uint16_t)(0x2000u | (next_bits() & 0x83ffu)); /* ±2^-7 … 2^-6 */
    memcpy(at, &bits, sizeof bits);
}

static void make_scales_sane(struct matrix *m, size_t bytes)
{
    const struct format_info *info = format_info(m->weight.format);
    for (size_t at = 0; at < bytes; at += info->block_bytes) {
        for (size_t i = 0; i < COUNT_OF(scale_places); i++) {
            if (scale_places[i].format != m->weight.format) continue;
            put_scale(m->values + at + scale_places[i].first);
            if (scale_places[i].second >= 0) put_scale(m->values + at + scale_places[i].second);
        }
        if (m->weight.format == FORMAT_MXFP4) m->values[at] = (uint8_t)(120 + next_bits() % 8);
    }
}

static uint8_t *random_scales(size_t count)
{
    uint8_t *scales = malloc(2 * count);
    assert_non_null(scales);
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = (uint16_t)(0x3c00u | (next_bits() & 0x807fu)); /* bf16, ±2^-7 … 2^-6 */
        memcpy(scales + 2 * i, &bits, sizeof bits);
    }
    return scales;
}

static bool is_affine(enum format format)
{
    return format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8;
}

/* False: rows of so many numbers do not exist in this format. */
static bool matrix_make(struct matrix *m, enum format format, size_t cols, uint32_t group)
{
    uint64_t row_bytes;
    *m = (struct matrix){ .weight = { .format = format,
                                      .rows = ROWS,
                                      .cols = cols,
                                      .group_rows = 1,
                                      .group_cols = group,
                                      .scale_format = FORMAT_BF16 } };
    if (!format_row_bytes(&row_bytes, format, cols)) return false;
    if (is_affine(format) && cols % group != 0) return false;
    size_t bytes = ROWS * row_bytes;
    m->values = malloc(bytes + 8);
    m->rows = malloc(ROWS * cols * sizeof(float));
    assert_non_null(m->values);
    assert_non_null(m->rows);
    for (size_t i = 0; i < bytes; i++) m->values[i] = (uint8_t)next_bits();
    make_scales_sane(m, bytes);
    m->weight.values = m->values;
    m->weight.row_bytes = row_bytes;
    if (is_affine(format)) {
        m->scales = random_scales(ROWS * cols / group);
        m->biases = random_scales(ROWS * cols / group);
        m->weight.scales = m->scales;
        m->weight.biases = m->biases;
        m->weight.scale_row_bytes = cols / group * 2;
    }
    if (format == FORMAT_BF16 || format == FORMAT_F32)
        for (size_t i = 0; i < ROWS * cols; i++) format_store(format, m->values, i, next_number());
    for (size_t r = 0; r < ROWS; r++) weight_dequantise_row(m->rows + r * cols, &m->weight, r);
    return true;
}

static void matrix_free(struct matrix *m)
{
    free(m->values);
    free(m->scales);
    free(m->biases);
    free(m->rows);
}

static float *random_rows(size_t cols)
{
    float *x = malloc(X_ROWS * cols * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < X_ROWS * cols; i++) x[i] = next_number();
    return x;
}

/* |found - w·x| ≤ bound · Σ|w·x| for every product. */
static void check_products(const struct matrix *m, const float *x, const float *found, double bound,
                           const char *set)
{
    size_t cols = m->weight.cols;
    for (size_t j = 0; j < X_ROWS; j++) {
        for (size_t r = 0; r < ROWS; r++) {
            double sum = 0, size = 0;
            for (size_t c = 0; c < cols; c++) {
                double product = (double)m->rows[r * cols + c] * (double)x[j * cols + c];
                sum += product;
                size += fabs(product);
            }
            double error = fabs((double)found[j * ROWS + r] - sum);
            if (!(error <= bound * size))
                fail_msg("%s, %s, %zu columns: row %zu of %zu is off by %g of %g", set,
                         format_info(m->weight.format)->name, cols, r, j, error, size);
        }
    }
}

/* ---------------------------------------------------------------- integers */

/* Products of all rows with x_rows rows of activations, from row x_first on. */
static void multiply_integers(float *out, const struct kernels *k, const struct matrix *m,
                              const float *x, size_t x_first, size_t x_rows)
{
    size_t cols = m->weight.cols, units = units_of(cols);
    struct integer_unit *made = calloc(X_ROWS * units, sizeof *made);
    const struct integer_unit *rows[X_ROWS];
    float *outs[X_ROWS];
    assert_non_null(made);
    for (size_t j = 0; j < x_rows; j++) {
        k->make_units(made + j * units, x + (x_first + j) * cols, cols);
        rows[j] = made + j * units;
        outs[j] = out + (x_first + j) * ROWS;
    }
    k->integer_dot[m->weight.format](&(struct integer_block){
        .weight = &m->weight, .count = ROWS, .x = rows, .out = outs, .x_rows = x_rows });
    free(made);
}

static void check_integers(const struct matrix *m)
{
    float expected[X_ROWS * ROWS], found[X_ROWS * ROWS];
    float *x = random_rows(m->weight.cols);
    for (size_t j = 0; j < X_ROWS; j++) multiply_integers(expected, generic, m, x, j, 1);
    /* 2^-15 of the largest of 32 numbers, which may be some times their mean. */
    check_products(m, x, expected, 0x1p-13, "generic");
    const struct kernels *k;
    for (size_t set = 0; (k = kernels_at(&machine, set)); set++) {
        multiply_integers(found, k, m, x, 0, X_ROWS);
        if (memcmp(found, expected, sizeof found) != 0)
            fail_msg("%s, %s, %zu columns: other bits than generic", k->name,
                     format_info(m->weight.format)->name, (size_t)m->weight.cols);
    }
    free(x);
}

typedef void (*matrix_check)(const struct matrix *m);

static void for_each_matrix(enum format format, matrix_check check)
{
    static const size_t lengths[] = { 64, 128, 192, 256, 320, 768, 1024 };
    static const uint32_t groups[] = { 32, 64, 128 };
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (size_t g = 0; g < (is_affine(format) ? COUNT_OF(groups) : 1); g++) {
            struct matrix m;
            if (!matrix_make(&m, format, lengths[i], groups[g])) continue;
            check(&m);
            matrix_free(&m);
        }
    }
}

static void integer_products_have_the_same_bits_everywhere(void **unused)
{
    (void)unused;
    size_t formats = 0;
    for (int format = 0; format < FORMAT_COUNT; format++) {
        if (!generic->integer_dot[format]) continue;
        for_each_matrix((enum format)format, check_integers);
        formats++;
    }
    assert_int_equal(formats, 19);
}

static void infinite_activations_stay_visible(void **unused)
{
    (void)unused;
    const struct kernels *k;
    for (size_t set = 0; (k = kernels_at(&machine, set)); set++) {
        struct integer_unit unit;
        float x[UNIT] = { 0 };
        x[40] = INFINITY;
        x[100] = NAN;
        x[200] = 1e-44f;
        k->make_units(&unit, x, UNIT);
        for (int i = 0; i < UNIT / 32; i++)
            assert_int_equal(isnan(unit.scales[i]) != 0, i == 40 / 32 || i == 100 / 32);
    }
}

/* ------------------------------------------------------------- matrix unit */

static void multiply_matrix(float *out, const struct kernels *k, const struct matrix *m,
                            const float *x, size_t x_first, size_t x_rows)
{
    size_t cols = m->weight.cols, padded = matrix_cols(cols), stride = padded + 32;
    uint16_t *panel = malloc((ROWS + 2) * stride * sizeof *panel);
    uint16_t *pack = malloc(PACK_ROWS * padded * sizeof *pack);
    const float *rows[X_ROWS];
    float *outs[X_ROWS];
    assert_non_null(panel);
    assert_non_null(pack);
    for (size_t j = 0; j < x_rows; j++) {
        rows[j] = x + (x_first + j) * cols;
        outs[j] = out + (x_first + j) * ROWS;
    }
    k->matrix->begin();
    k->matrix->make_panel(panel, stride, &m->weight, 0, ROWS);
    k->matrix->make_pack(pack, rows, x_rows, cols);
    k->matrix->multiply(&(struct matrix_product){ .panel = panel,
                                                  .stride = stride,
                                                  .rows = ROWS,
                                                  .packs = pack,
                                                  .x_rows = x_rows,
                                                  .cols = padded,
                                                  .out = outs });
    k->matrix->end();
    free(panel);
    free(pack);
}

static void check_matrix(const struct matrix *m)
{
    float alone[X_ROWS * ROWS], together[X_ROWS * ROWS];
    float *x = random_rows(m->weight.cols);
    const struct kernels *k;
    for (size_t set = 0; (k = kernels_at(&machine, set)); set++) {
        if (!k->matrix) continue;
        for (size_t j = 0; j < X_ROWS; j++) multiply_matrix(alone, k, m, x, j, 1);
        multiply_matrix(together, k, m, x, 0, X_ROWS);
        assert_memory_equal(alone, together, sizeof alone);
        check_products(m, x, together, 0x1p-7, k->name); /* two factors of 8 bits */
    }
    free(x);
}

static void matrix_products_are_near_and_independent(void **unused)
{
    (void)unused;
    for (int format = 0; format < FORMAT_COUNT; format++)
        if (generic->integer_dot[format]) for_each_matrix((enum format)format, check_matrix);
    static const size_t odd[] = { 1, 21, 33, 100, 256 };
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        struct matrix m;
        assert_true(matrix_make(&m, FORMAT_F32, odd[i], 32));
        check_matrix(&m);
        matrix_free(&m);
        assert_true(matrix_make(&m, FORMAT_BF16, odd[i], 32));
        check_matrix(&m);
        matrix_free(&m);
    }
    if (!kernels_at(&machine, 0)->matrix)
        print_message("    no matrix unit on this machine: nothing was compared\n");
}

int main(void)
{
    machine_probe(&machine);
    generic = kernels_select(&machine, "generic");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_products_have_the_same_bits_everywhere),
        cmocka_unit_test(infinite_activations_stay_visible),
        cmocka_unit_test(matrix_products_are_near_and_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
