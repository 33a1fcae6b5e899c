/* panels.c: rows of weights in bf16 for the matrix unit, one unit after the other. */
#include "kernels/prefill/panel_units.h"
#include "kernels/simd/simd.h"

#include <assert.h>

LANES_INLINE void fetch_next(const struct panel_row *row, size_t size)
{
    const uint8_t *next = row->at.values + row->at.index * size + row->ahead;
    for (size_t line = 0; line < size; line += CACHE_LINE) __builtin_prefetch(next + line, 0, 2);
}

/* ------------------------------------------------------------------- integers */

LANES_INLINE void panel_unit(uint16_t *out, size_t step, const struct open_unit *u,
                             struct panel_kind kind)
{
#pragma GCC unroll 4
    for (size_t quarter = 0; quarter < QUARTERS; quarter++)
        if (quarter * QUARTER < u->count)
            panel_quarter(out + 2 * quarter * step, step, u, quarter, kind);
}

#define DEFINE_PANEL_UNIT(id, name, below, group, bytes)                                           \
    static void panel_##name(uint16_t *out, size_t step, struct panel_row *row)                    \
    {                                                                                              \
        struct open_unit unit;                                                                     \
        fetch_next(row, bytes);                                                                    \
        open_##name(&unit, row);                                                                   \
        panel_unit(out, step, &unit, kind_##name);                                                 \
    }
#define DEFINE_USUAL_PANEL_UNIT(id, name, below, group, bytes)                                     \
    DEFINE_PANEL_UNIT(id, usual_##name, below, group, bytes)
UNIT_FORMATS(DEFINE_PANEL_UNIT)
AFFINE_FORMATS(DEFINE_USUAL_PANEL_UNIT)

/* -------------------------------------------------------------------- the rest */

LANES_INLINE void copy_unit(uint16_t *out, size_t step, const uint8_t *from, size_t count)
{
    for (size_t i = 0; i < count; i += VECTOR, out += step, from += 2 * VECTOR) {
        size_t left = count - i;
        __mmask32 present = left < VECTOR ? (__mmask32)((1u << left) - 1) : ~(__mmask32)0;
        _mm512_storeu_si512(out, _mm512_maskz_loadu_epi16(present, from));
    }
}

static void panel_bf16(uint16_t *out, size_t step, struct panel_row *row)
{
    fetch_next(row, UNIT * sizeof *out);
    copy_unit(out, step, row->at.values + row->at.index * UNIT * sizeof *out, row->at.count);
}

/* Floats of `size` bytes, `factor` times what `load` gives; a vector has one scale. */
LANES_INLINE void panel_floats(uint16_t *out, size_t step, struct panel_row *row, size_t size,
                               load_function load, float factor)
{
    const struct weight *w = row->at.weight;
    const uint8_t *scales =
        w->scales ? w->scales + row->row / w->group_rows * w->scale_row_bytes : NULL;
    size_t column = row->at.index * UNIT;
    const uint8_t *from = row->at.values + column * size;
    fetch_next(row, UNIT * size);
    for (size_t i = 0; i < row->at.count; i += VECTOR, out += step, from += VECTOR * size) {
        float scale =
            scales ? load_scale(w->scale_format, scales, (column + i) / w->group_cols) : 1.0f;
        size_t left = row->at.count - i;
        lanes first, second = { 0 };
        if (left >= VECTOR) {
            first = load(from);
            second = load(from + LANES * size);
        } else {
            first = left < LANES ? lanes_load_floats(from, left, size, load) : load(from);
            if (left > LANES)
                second = lanes_load_floats(from + LANES * size, left - LANES, size, load);
        }
        store_bf16(out, first * factor * scale, second * factor * scale);
    }
}

static void panel_f16(uint16_t *out, size_t step, struct panel_row *row)
{
    panel_floats(out, step, row, sizeof(uint16_t), lanes_from_f16_bytes, 1.0f);
}

static void panel_e5m2(uint16_t *out, size_t step, struct panel_row *row)
{
    panel_floats(out, step, row, 1, lanes_from_e5m2, 1.0f);
}

/* NaNs and all. */
LANES_INLINE lanes load_any_e4m3(const uint8_t *p)
{
    lanes result;
    for (int i = 0; i < LANES; i++) result[i] = f32_from_e4m3(p[i]);
    return result;
}

static void panel_e4m3(uint16_t *out, size_t step, struct panel_row *row)
{
    if (e4m3_has_nan(row->at.values + row->at.index * UNIT, row->at.count))
        panel_floats(out, step, row, 1, load_any_e4m3, 1.0f);
    else
        panel_floats(out, step, row, 1, lanes_from_e4m3, 0x1p8f);
}

/* Through f32, which a line and the one behind it hold; the numbers move down, behind those
 * that are read. */
static void make_line(uint16_t *line, const struct weight *weight, uint64_t row)
{
    float *numbers = (float *)(void *)line;
    kernels_dequantise(&NAMED(kernels), numbers, weight, row);
    size_t c = 0;
    for (; c + VECTOR <= weight->cols; c += VECTOR)
        store_bf16(line + c, lanes_load(numbers + c), lanes_load(numbers + c + LANES));
    for (; c < weight->cols; c++) {
        uint16_t rounded = bf16_from_f32(load_f32(numbers + c));
        memcpy(line + c, &rounded, sizeof rounded);
    }
}

static void panel_of_line(uint16_t *out, size_t step, struct panel_row *row)
{
    assert(row->line); /* make_panel takes such rows elsewhere */
    if (row->at.index == 0) make_line(row->line, row->at.weight, row->row);
    copy_unit(out, step, (const uint8_t *)(row->line + row->at.index * UNIT), row->at.count);
}

panel_unit_function NAMED(panel_unit_for)(const struct weight *weight)
{
    static const panel_unit_function functions[FORMAT_COUNT] = {
#define PANEL(id, name, below, group, bytes) [FORMAT_##id] = panel_##name,
        UNIT_FORMATS(PANEL)
    };
    static const panel_unit_function usual[FORMAT_COUNT] = {
#define USUAL_PANEL(id, name, below, group, bytes) [FORMAT_##id] = panel_usual_##name,
        AFFINE_FORMATS(USUAL_PANEL)
    };
    static const panel_unit_function floats[FORMAT_COUNT] = { [FORMAT_BF16] = panel_bf16,
                                                              [FORMAT_F16] = panel_f16,
                                                              [FORMAT_F8_E4M3] = panel_e4m3,
                                                              [FORMAT_F8_E5M2] = panel_e5m2 };
    if (floats[weight->format] && (!weight->scales || weight->group_cols % VECTOR == 0))
        return floats[weight->format];
    if (!kernels_have_integers(&NAMED(kernels), weight)) return panel_of_line;
    if (usual[weight->format] && affine_is_usual(weight)) return usual[weight->format];
    return functions[weight->format];
}

/* ---------------------------------------------------------------------- rows */

/* Those that most files are made of, in one loop: what is constant stays in registers, and more of
 * the units that follow each other is under way at a time. */
#define WHOLE_ROWS(X) X(Q4_K, q4_k) X(Q6_K, q6_k) X(AFFINE4, usual_affine4)

/* Units that are opened before the first of them is converted: scales that are read right after
 * they were stored would have to wait. */
enum { UNITS_AT_ONCE = 8 };

#define DEFINE_WHOLE_ROW(id, name)                                                                 \
    static void whole_row_##name(uint16_t *out, const struct panel_row *from)                      \
    {                                                                                              \
        struct panel_row row = *from;                                                              \
        struct open_unit units[UNITS_AT_ONCE];                                                     \
        row.at.count = UNIT;                                                                       \
        for (size_t left = from->at.weight->cols / UNIT; left > 0;) {                              \
            size_t count = min_size(UNITS_AT_ONCE, left);                                          \
            for (size_t i = 0; i < count; i++, row.at.index++) {                                   \
                fetch_next(&row, kind_##name.bytes);                                               \
                open_##name(&units[i], &row);                                                      \
            }                                                                                      \
            for (size_t i = 0; i < count; i++, out += UNIT)                                        \
                panel_unit(out, VECTOR, &units[i], kind_##name);                                   \
            left -= count;                                                                         \
        }                                                                                          \
    }
WHOLE_ROWS(DEFINE_WHOLE_ROW)

void NAMED(make_panel_row)(uint16_t *out, struct panel_row *row)
{
    static void (*const whole[FORMAT_COUNT])(uint16_t *, const struct panel_row *) = {
#define WHOLE_ROW(id, name) [FORMAT_##id] = whole_row_##name,
        WHOLE_ROWS(WHOLE_ROW)
    };
    const struct weight *weight = row->at.weight;
    bool known = weight->format != FORMAT_AFFINE4 || affine_is_usual(weight);
    if (whole[weight->format] && known && weight->cols % UNIT == 0) {
        whole[weight->format](out, row);
        return;
    }
    panel_unit_function make = NAMED(panel_unit_for)(weight);
    for (size_t c = 0; c < weight->cols; c += UNIT, row->at.index++) {
        row->at.count = min_size(UNIT, weight->cols - c);
        make(out + c, VECTOR, row);
    }
}

void NAMED(make_panel)(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                       size_t count)
{
    panel_unit_function make = NAMED(panel_unit_for)(weight);
    size_t padded = matrix_cols(weight->cols);
    for (size_t i = 0; i < count; i++, out += stride) {
        struct panel_row row = panel_row_at(weight, first + i);
        if (make != panel_of_line) {
            NAMED(make_panel_row)(out, &row);
            continue;
        }
        make_line(out, weight, first + i);
        memset(out + weight->cols, 0, (padded - weight->cols) * sizeof *out);
    }
}
