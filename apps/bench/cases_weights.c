/* cases_weights.c: operations on weights in their formats. */
#include "bench/cases.h"

#include "base/status.h"

#include <stdlib.h>

/* ----------------------------------------------------------------- weights */

static bool is_affine(enum format format)
{
    return format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8;
}

static bool is_f8(enum format format)
{
    return format == FORMAT_F8_E4M3 || format == FORMAT_F8_E5M2;
}

static bool is_float(enum format format)
{
    return format == FORMAT_F64 || format == FORMAT_F32 || format == FORMAT_F16 ||
           format == FORMAT_BF16;
}

bool case_weight_exists(const struct kernel_case *what)
{
    uint64_t row_bytes;
    if (!format_row_bytes(&row_bytes, what->format, what->n)) return false;
    if (format_by_row(what->format) != FORMAT_COUNT) return false; /* no kernel takes these */
    if (is_affine(what->format) && what->n % what->group != 0) return false;
    return !what->op->takes || what->op->takes(what);
}

static size_t groups_of(const struct weight *weight)
{
    return weight->group_cols ? (weight->cols + weight->group_cols - 1) / weight->group_cols : 0;
}

double case_weight_bytes(const struct weight *weight)
{
    double tiles =
        weight->scales ? (double)((weight->rows + weight->group_rows - 1) / weight->group_rows) : 0;
    return (double)weight->rows * (double)weight->row_bytes +
           tiles * (double)weight->scale_row_bytes * (weight->biases ? 2 : 1);
}

/* Where the 16-bit scales of a GGUF block lie; the rest of it may be any bits. */
static const struct {
    enum format format;
    int first, second; /* -1: none */
} scale_places[] = {
    { FORMAT_Q4_0, 0, -1 },  { FORMAT_Q4_1, 0, 2 },    { FORMAT_Q5_0, 0, -1 },
    { FORMAT_Q5_1, 0, 2 },   { FORMAT_Q8_0, 0, -1 },   { FORMAT_IQ4_NL, 0, -1 },
    { FORMAT_Q2_K, 80, 82 }, { FORMAT_Q3_K, 108, -1 }, { FORMAT_Q4_K, 0, 2 },
    { FORMAT_Q5_K, 0, 2 },   { FORMAT_Q6_K, 208, -1 }, { FORMAT_IQ4_XS, 0, -1 },
};

/* ± 2^-7 … 2^-6 as f16 */
static void put_scale(struct case_random *random, uint8_t *at)
{
    uint16_t bits = (uint16_t)(0x2000u | (case_next_bits(random) & 0x83ffu));
    memcpy(at, &bits, sizeof bits);
}

static void tame_block(struct case_random *random, uint8_t *block, enum format format)
{
    if (format == FORMAT_MXFP4) block[0] = (uint8_t)(120 + case_next_bits(random) % 8);
    for (size_t i = 0; i < COUNT_OF(scale_places); i++) {
        if (scale_places[i].format != format) continue;
        put_scale(random, block + scale_places[i].first);
        if (scale_places[i].second >= 0) put_scale(random, block + scale_places[i].second);
    }
}

static void fill_bits(struct case_random *random, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)case_next_bits(random);
}

/* Numbers as a model has them; F8 of any bits has none but its NaNs to avoid. */
static void fill_values(struct case_random *random, uint8_t *row, const struct weight *w)
{
    const struct format_info *info = format_info(w->format);
    if (is_float(w->format) && w->format != FORMAT_F64) {
        for (size_t i = 0; i < w->cols; i++)
            format_store(w->format, row, i, case_next_number(random, FILL_USUAL) / 100);
        return;
    }
    fill_bits(random, row, w->row_bytes);
    for (size_t i = 0; i < w->cols && w->format == FORMAT_F64; i++) {
        double value = (double)case_next_number(random, FILL_USUAL) / 100;
        memcpy(row + 8 * i, &value, sizeof value);
    }
    for (size_t i = 0; i < w->row_bytes && is_f8(w->format); i++) row[i] &= 0xbf; /* below 1 */
    for (size_t at = 0; at < w->row_bytes; at += info->block_bytes)
        tame_block(random, row + at, w->format);
}

static void fill_scales(struct case_random *random, uint8_t *row, const struct weight *w)
{
    for (size_t i = 0; i < groups_of(w); i++)
        if (w->scale_format == FORMAT_F8_E8M0)
            row[i] = (uint8_t)(118 + case_next_bits(random) % 3); /* 2^-9 to 2^-7 */
        else
            format_store(w->scale_format, row, i, case_next_number(random, FILL_USUAL) / 100);
}

/* The rows repeat after some: a large matrix is there to be read, not to be looked at. */
static void fill_rows(struct case_random *random, uint8_t *rows, size_t row_bytes, size_t count,
                      const struct weight *w,
                      void (*fill)(struct case_random *, uint8_t *, const struct weight *))
{
    enum { DIFFERENT = 128 };
    for (size_t r = 0; r < count && r < DIFFERENT; r++) fill(random, rows + r * row_bytes, w);
    for (size_t r = DIFFERENT; r < count; r++)
        memcpy(rows + r * row_bytes, rows + (r - DIFFERENT) * row_bytes, row_bytes);
}

mf_status case_weight_make(struct weight *out, uint8_t **memory, const struct kernel_case *what,
                           mf_error *why)
{
    struct case_random random = { what->n * 100 + what->group + (uint64_t)what->format };
    uint64_t row_bytes;
    format_row_bytes(&row_bytes, what->format, what->n);
    bool blocks = what->format == FORMAT_E2M1;
    bool affine = is_affine(what->format), scaled = affine || blocks || is_f8(what->format);
    *out = (struct weight){ .format = what->format,
                            .rows = what->m,
                            .cols = what->n,
                            .row_bytes = row_bytes,
                            .group_rows = affine || blocks ? 1 : 2,
                            .group_cols = blocks   ? 32
                                          : scaled ? what->group
                                                   : 0,
                            .scale_format = blocks ? FORMAT_F8_E8M0 : what->scale_format };
    size_t tiles = (what->m + out->group_rows - 1) / out->group_rows;
    out->scale_row_bytes = groups_of(out) * format_info(out->scale_format)->block_bytes;
    size_t bytes = what->m * row_bytes, scale_bytes = tiles * out->scale_row_bytes;
    *memory = malloc(1 + bytes + 2 * scale_bytes + CACHE_LINE); /* loads may look a line ahead */
    if (!*memory) return fail_memory(why, bytes + 2 * scale_bytes);
    uint8_t *at = *memory + 1; /* no alignment */
    out->values = at;
    if (scaled) out->scales = at + bytes;
    if (affine) out->biases = at + bytes + scale_bytes;
    if (what->fill != FILL_USUAL) {
        fill_bits(&random, at, bytes + 2 * scale_bytes);
        return MF_OK;
    }
    fill_rows(&random, at, row_bytes, what->m, out, fill_values);
    if (scaled) fill_rows(&random, at + bytes, out->scale_row_bytes, 2 * tiles, out, fill_scales);
    return MF_OK;
}

/* ------------------------------------------------------------- dequantising */

static void measure_dequantise(struct case_sizes *out, const struct kernel_case *what)
{
    *out = (struct case_sizes){ .out = what->m * what->n };
}

static void run_dequantise(const struct kernels *k, const struct case_task *t)
{
    for (size_t r = 0; r < t->what.m; r++)
        kernels_dequantise(k, t->out + r * t->what.n, &t->weight, r);
}

/* The format's own function defines it: not a bit may be different. */
static void double_dequantise(const struct case_task *t)
{
    float row[4096];
    for (size_t r = 0; r < t->what.m && t->what.n <= COUNT_OF(row); r++) {
        weight_dequantise_row(row, &t->weight, r);
        for (size_t i = 0; i < t->what.n; i++) t->expected[r * t->what.n + i] = (double)row[i];
    }
}

const struct case_op case_weight_ops[] = {
    { .name = "dequantise",
      .has_rows = true,
      .has_weight = true,
      .fills = FILL_BIT(FILL_USUAL) | FILL_BIT(FILL_SPICED),
      .tried = &(struct case_shape){ .m = 5, .x_rows = 1 },
      .measure = measure_dequantise,
      .run = run_dequantise,
      .in_double = double_dequantise,
      .timed = { { 64, 2048, 1, 0, 0 } } },
    { .name = NULL },
};
