/* formats: every weight format against values that tools/make_quant_vectors.py
 * computed from the formulas, element by element, without this code.  Bits are
 * compared (any NaN equals any NaN; zero has no sign). */
#include "support/test.h"

#include "base/status.h"
#include "checkpoint/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct tensor_directory vectors;

static const char *const format_ids[FORMAT_COUNT] = {
#define FORMAT_ID(id, name, elements, bytes, dequantise, quantise) [FORMAT_##id] = #id,
    FORMAT_LIST(FORMAT_ID)
#undef FORMAT_ID
};

static int open_vectors(void **state)
{
    (void)state;
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[PATH_CAPACITY];
    mf_error why = { 0 };
    snprintf(path, sizeof path, "%s/tests/fixtures/quant", source ? source : ".");
    tensor_directory_init(&vectors, &allocator_heap);
    if (safetensors_open(&vectors, &files_posix, path, &why) == MF_OK) return 0;
    print_error("%s\n", why.text);
    return -1;
}

static int close_vectors(void **state)
{
    (void)state;
    tensor_directory_free(&vectors);
    return 0;
}

/* The part of a case: its bytes are the caller's to free; NULL when the case has none. */
static void *part_new(const struct tensor **out, const char *label, const char *part)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", label, part);
    *out = tensor_find(&vectors, name);
    if (!*out) return NULL;
    void *bytes = malloc((*out)->bytes + 1);
    assert_non_null(bytes);
    assert_int_equal(tensor_read(&vectors, *out, bytes, NULL), MF_OK);
    return bytes;
}

struct vector {
    char label[100];
    struct weight weight;
    const float *expected; /* [rows][cols] */
    const float *input;    /* the same, or NULL: not a case of writing */
    void *owned[6];
};

static void vector_load(struct vector *v, const char *label, enum format format)
{
    const struct tensor *values, *scales, *biases, *groups, *expected, *input;
    snprintf(v->label, sizeof v->label, "%s", label);
    v->owned[0] = part_new(&values, label, "values");
    v->owned[1] = part_new(&scales, label, "scales");
    v->owned[2] = part_new(&biases, label, "biases");
    v->owned[3] = part_new(&groups, label, "groups");
    v->owned[4] = part_new(&expected, label, "expected");
    v->owned[5] = part_new(&input, label, "input");
    assert_non_null(values);
    v->expected = v->owned[4];
    v->input = v->owned[5];
    v->weight = (struct weight){ .format = format,
                                 .rows = expected->shape[0],
                                 .cols = expected->shape[1],
                                 .values = v->owned[0],
                                 .scales = v->owned[1],
                                 .biases = v->owned[2],
                                 .row_bytes = values->shape[1] };
    uint64_t row_bytes;
    assert_true(format_row_bytes(&row_bytes, format, v->weight.cols));
    assert_int_equal(row_bytes, v->weight.row_bytes);
    if (!scales) return;
    const int32_t *group = v->owned[3];
    assert_non_null(group);
    v->weight.group_rows = (uint32_t)group[0];
    v->weight.group_cols = (uint32_t)group[1];
    v->weight.scale_format = scales->format;
    v->weight.scale_row_bytes = scales->bytes / scales->shape[0];
}

static void vector_free(struct vector *v)
{
    for (size_t i = 0; i < COUNT_OF(v->owned); i++) free(v->owned[i]);
}

static void check_dequantised(const struct vector *v)
{
    const struct weight *w = &v->weight;
    float *row = malloc(w->cols * sizeof *row);
    assert_non_null(row);
    for (uint64_t r = 0; r < w->rows; r++) {
        weight_dequantise_row(row, w, r);
        for (uint64_t c = 0; c < w->cols; c++) {
            float wanted = v->expected[r * w->cols + c];
            if (row[c] == wanted || (isnan(row[c]) && isnan(wanted))) continue;
            fail_msg("%s: number [%u][%u] is %a, %a was expected", v->label, (unsigned)r,
                     (unsigned)c, (double)row[c], (double)wanted);
        }
    }
    free(row);
}

static void check_bytes(const struct vector *v, const char *part, const uint8_t *got,
                        const uint8_t *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (got[i] != wanted[i])
            fail_msg("%s: byte %zu of the %s is %u, %u was expected", v->label, i, part, got[i],
                     wanted[i]);
}

static void check_quantised(const struct vector *v)
{
    const struct weight *w = &v->weight;
    quantise_function quantise = format_info(w->format)->quantise;
    assert_non_null(quantise);
    uint8_t values[1024], scales[1024], biases[1024];
    assert_true(w->row_bytes <= sizeof values && w->scale_row_bytes <= sizeof scales);
    for (uint64_t r = 0; r < w->rows; r++) {
        struct quantised_row out = { values, scales, biases };
        quantise(out, w, v->input + r * w->cols);
        check_bytes(v, "values", values, w->values + r * w->row_bytes, w->row_bytes);
        if (!w->scales) continue;
        check_bytes(v, "scales", scales, w->scales + r * w->scale_row_bytes, w->scale_row_bytes);
        check_bytes(v, "biases", biases, w->biases + r * w->scale_row_bytes, w->scale_row_bytes);
    }
}

/* Calls `check` for every case of `format`; how many there were. */
static unsigned for_each_vector(enum format format, bool written,
                                void (*check)(const struct vector *v))
{
    unsigned count = 0;
    size_t length = strlen(format_ids[format]);
    for (size_t i = 0; i < vectors.count; i++) {
        const char *name = vectors.tensors[i].name, *part = strrchr(name, '.');
        if (strncmp(name, format_ids[format], length) != 0 || name[length] != '/') continue;
        if (strcmp(part, written ? ".input" : ".expected") != 0) continue;
        char label[100];
        snprintf(label, sizeof label, "%.*s", (int)(part - name), name);
        struct vector v;
        vector_load(&v, label, format);
        check(&v);
        vector_free(&v);
        count++;
    }
    return count;
}

static void every_weight_format_gives_the_numbers_of_its_formula(void **state)
{
    (void)state;
    for (enum format format = 0; format < FORMAT_COUNT; format++) {
        bool other_order = format == FORMAT_E2M1 || format_by_row(format) != FORMAT_COUNT;
        if (!format_info(format)->dequantise || other_order) continue;
        unsigned count = for_each_vector(format, false, check_dequantised);
        if (count == 0) fail_msg("format %s has no vectors", format_ids[format]);
    }
}

/* The numbers of MXFP4 in the order of E2M1, every code with every scale, have the same bits. */
static void e2m1_gives_the_numbers_of_mxfp4(void **state)
{
    uint8_t values[16], block[17], e = 0;
    const struct weight apart = { .format = FORMAT_E2M1,
                                  .scale_format = FORMAT_F8_E8M0,
                                  .group_rows = 1,
                                  .group_cols = 32,
                                  .rows = 1,
                                  .cols = 32,
                                  .values = values,
                                  .scales = &e,
                                  .row_bytes = 16,
                                  .scale_row_bytes = 1 };
    const struct weight joined = {
        .format = FORMAT_MXFP4, .rows = 1, .cols = 32, .values = block, .row_bytes = 17
    };
    (void)state;
    for (int scale = 0; scale < 256; scale++) {
        float a[32], b[32];
        memset(values, 0, sizeof values);
        memset(block, 0, sizeof block);
        block[0] = e = (uint8_t)scale;
        for (unsigned i = 0; i < 32; i++) {
            unsigned code = (7 * i + 3) % 16;
            values[i / 2] |= (uint8_t)(code << 4 * (i % 2));
            block[1 + i % 16] |= (uint8_t)(code << 4 * (i / 16));
        }
        weight_dequantise_row(a, &apart, 0);
        weight_dequantise_row(b, &joined, 0);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* Every other number of a tensor whose columns lie one behind the other. */
static void columns_are_gathered(void **state)
{
    float stored[3][8], row[3];
    for (unsigned c = 0; c < 3; c++)
        for (unsigned r = 0; r < 8; r++) stored[c][r] = (float)(10 * c + r);
    const struct weight weight = { .format = FORMAT_F32_COLUMNS,
                                   .rows = 4,
                                   .cols = 3,
                                   .values = (const uint8_t *)&stored[0][1],
                                   .row_bytes = 2 * sizeof(float),
                                   .col_bytes = 8 * sizeof(float) };
    (void)state;
    weight_dequantise_row(row, &weight, 2);
    for (unsigned c = 0; c < 3; c++) assert_true(row[c] == stored[c][5]);
}

static void every_written_format_gives_the_bytes_of_its_formula(void **state)
{
    (void)state;
    for (enum format format = 0; format < FORMAT_COUNT; format++) {
        if (!format_info(format)->quantise || format == FORMAT_F32) continue; /* F32 is copied */
        unsigned count = for_each_vector(format, true, check_quantised);
        if (count == 0) fail_msg("format %s has no vectors for writing", format_ids[format]);
    }
}

enum { TRIAL_GROUP = 32, TRIAL_COLS = 64, TRIAL_SPARE = 16, UNTOUCHED = 0xA5 };

/* A row of two groups with bytes behind it that must stay UNTOUCHED. */
struct trial {
    uint8_t values[TRIAL_COLS * sizeof(float) + TRIAL_SPARE];
    uint8_t scales[2 * sizeof(float) + TRIAL_SPARE], biases[2 * sizeof(float) + TRIAL_SPARE];
    uint64_t row_bytes;
};

static void check_spare(const uint8_t *bytes, size_t used)
{
    for (size_t i = 0; i < TRIAL_SPARE; i++) assert_int_equal(bytes[used + i], UNTOUCHED);
}

/* Quantises a row and reads it back. */
static void try_row(float *out, struct trial *trial, enum format format, const float *in)
{
    memset(trial, UNTOUCHED, sizeof *trial);
    assert_true(format_row_bytes(&trial->row_bytes, format, TRIAL_COLS));
    struct weight like = { .format = format,
                           .scale_format = FORMAT_F32,
                           .group_rows = 1,
                           .group_cols = TRIAL_GROUP,
                           .rows = 1,
                           .cols = TRIAL_COLS,
                           .values = trial->values,
                           .scales = trial->scales,
                           .biases = trial->biases,
                           .row_bytes = trial->row_bytes,
                           .scale_row_bytes = 2 * sizeof(float) };
    format_info(format)->quantise(
        (struct quantised_row){ trial->values, trial->scales, trial->biases }, &like, in);
    check_spare(trial->values, trial->row_bytes);
    check_spare(trial->scales, like.scale_row_bytes);
    check_spare(trial->biases, like.scale_row_bytes);
    weight_dequantise_row(out, &like, 0);
}

/* NaN, infinities and numbers beyond the range of f16 spoil their own group only: the group
 * beside it has the values that it has beside zeroes, and no byte behind the row is written. */
static void a_group_without_finite_numbers_leaves_its_neighbour_alone(void **state)
{
    (void)state;
    static const float odd[] = { NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, 0.0f, -0.0f };
    for (enum format format = 0; format < FORMAT_COUNT; format++) {
        if (!format_info(format)->quantise) continue;
        for (size_t bad = 0; bad < TRIAL_COLS; bad += TRIAL_GROUP) {
            float in[TRIAL_COLS] = { 0 }, wanted[TRIAL_COLS], out[TRIAL_COLS];
            struct trial trial;
            size_t good = TRIAL_GROUP - bad;
            for (size_t i = 0; i < TRIAL_GROUP; i++) in[good + i] = (float)i - 11.5f;
            try_row(wanted, &trial, format, in);
            for (size_t i = 0; i < TRIAL_GROUP; i++) in[bad + i] = odd[i % COUNT_OF(odd)];
            try_row(out, &trial, format, in);
            for (size_t i = 0; i < TRIAL_GROUP; i++) assert_true(isfinite(out[good + i]));
            assert_memory_equal(out + good, wanted + good, TRIAL_GROUP * sizeof *out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_format_gives_the_numbers_of_its_formula),
        cmocka_unit_test(e2m1_gives_the_numbers_of_mxfp4),
        cmocka_unit_test(columns_are_gathered),
        cmocka_unit_test(every_written_format_gives_the_bytes_of_its_formula),
        cmocka_unit_test(a_group_without_finite_numbers_leaves_its_neighbour_alone),
    };
    return cmocka_run_group_tests(tests, open_vectors, close_vectors);
}
