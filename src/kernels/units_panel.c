/* units_panel.c: rows of weights in bf16 for the matrix unit.
 *
 * A number is q·scale + min in f32, rounded once, then to the nearest bf16. */
#include "kernels/lanes_set.h"
#include "kernels/units.h"

#if defined(__AVX512BF16__)

LANES_INLINE void store_bf16(uint16_t *out, lanes first, lanes second)
{
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
}

/* 32 numbers of a unit, with the scales and mins of their one or two groups. */
LANES_INLINE void panel_32(uint16_t *out, const uint8_t *q, const float *scales, const float *mins,
                           int group)
{
    byte_lanes low, high;
    memcpy(&low, q, sizeof low);
    memcpy(&high, q + 16, sizeof high);
    int second = group == 16;
    store_bf16(
        out, lanes_fma(lanes_from_bytes(low), lanes_all(scales[0]), lanes_all(mins[0])),
        lanes_fma(lanes_from_bytes(high), lanes_all(scales[second]), lanes_all(mins[second])));
}

LANES_INLINE void panel_unit(uint16_t *out, const struct unit *u, size_t count, int group)
{
    uint8_t q[UNIT];
    float factors[2 * LANES];
    memcpy(q, u->q, sizeof q);
    lanes_store(factors, group == 32 ? u->both : u->scale);
    lanes_store(factors + LANES, group == 32 ? u->both : u->min);
    const float *mins = group == 32 ? factors + 8 : factors + LANES;
    int step = group == 32 ? 1 : 2;
    if (count == UNIT) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            panel_32(out + 32 * i, q + 32 * i, factors + step * i, mins + step * i, group);
        return;
    }
    for (int i = 0; 32 * (size_t)i < count; i++)
        panel_32(out + 32 * i, q + 32 * i, factors + step * i, mins + step * i, group);
}

LANES_INLINE void panel_row(uint16_t *out, const struct weight *w, uint64_t row, unit_loader load,
                            int group)
{
    struct unit_place at = unit_row(w, row);
    for (size_t left = w->cols; left > 0; left -= at.count, at.index++) {
        struct unit unit;
        at.count = min_size(UNIT, left);
        load(&unit, &at);
        panel_unit(out + at.index * UNIT, &unit, at.count, group);
    }
}

#define DEFINE_PANEL(id, name, wide, group, bytes)                                                 \
    static void panel_##name(uint16_t *out, size_t stride, const struct weight *weight,            \
                             uint64_t first, size_t count)                                         \
    {                                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            panel_row(out + i * stride, weight, first + i, load_##name, group);                    \
    }
UNIT_FORMATS(DEFINE_PANEL)

static void panel_bf16(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(out + i * stride, weight->values + (first + i) * weight->row_bytes,
               2 * weight->cols);
}

/* Any other format: through f32, which a row of the panel and the one behind it hold; the
 * numbers move down, behind those that are read. */
static void panel_plain(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                        size_t count)
{
    for (size_t i = 0; i < count; i++, out += stride) {
        float *row = (float *)(void *)out;
        kernels_dequantise(&NAMED(kernels), row, weight, first + i);
        for (size_t c = 0; c < weight->cols; c++) {
            uint16_t rounded = bf16_from_f32(load_f32(row + c));
            memcpy(out + c, &rounded, sizeof rounded);
        }
    }
}

typedef void (*panel_function)(uint16_t *out, size_t stride, const struct weight *weight,
                               uint64_t first, size_t count);

void NAMED(make_panel)(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                       size_t count)
{
    static const panel_function functions[FORMAT_COUNT] = {
#define PANEL(id, name, wide, group, bytes) [FORMAT_##id] = panel_##name,
        UNIT_FORMATS(PANEL)[FORMAT_BF16] = panel_bf16,
    };
    panel_function make = functions[weight->format];
    bool integers = kernels_have_integers(&NAMED(kernels), weight);
    if (!integers && weight->format != FORMAT_BF16) make = panel_plain;
    make(out, stride, weight, first, count);
    size_t padded = matrix_cols(weight->cols);
    for (size_t i = 0; padded > weight->cols && i < count; i++)
        memset(out + i * stride + weight->cols, 0, (padded - weight->cols) * sizeof *out);
}

#endif
