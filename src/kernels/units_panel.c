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

/* Where numbers are below 16 all of a group's are computed, and then looked up: of 64 numbers
 * in two groups of 32, or of 32 numbers in two groups of 16. */
LANES_INLINE void panel_look_up(uint16_t *out, const uint8_t *q, const float *scales,
                                const float *mins, int group)
{
    const lanes all = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    const __m512i second = _mm512_set1_epi16(16);
    const __m512i second_half = _mm512_mask_set1_epi16(_mm512_setzero_si512(), 0xffff0000u, 16);
    __m512i table = (__m512i)_mm512_cvtne2ps_pbh(
        (__m512)lanes_fma(all, lanes_all(scales[1]), lanes_all(mins[1])),
        (__m512)lanes_fma(all, lanes_all(scales[0]), lanes_all(mins[0])));
    __m512i index = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)q));
    if (group == 16) index |= second_half;
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(index, table));
    if (group == 16) return;
    index = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(q + 32))) | second;
    _mm512_storeu_si512(out + 32, _mm512_permutexvar_epi16(index, table));
}

/* What is constant for a format. */
struct panel_kind {
    bool few;  /* all numbers are below 16 */
    int group; /* numbers that share a scale: 16 or 32 */
    int bytes; /* of a unit's values */
};

LANES_INLINE void panel_unit(uint16_t *out, const struct unit *u, size_t count,
                             struct panel_kind kind)
{
    int group = kind.group;
    uint8_t q[UNIT];
    float factors[2 * LANES];
    memcpy(q, u->q, sizeof q);
    lanes_store(factors, group == 32 ? u->both : u->scale);
    lanes_store(factors + LANES, group == 32 ? u->both : u->min);
    /* In memory, not in registers: what loads can spread and widen would else keep the one
     * unit busy that permutes registers, a third more of the time. */
    __asm__("" : "+m"(q));
    const float *mins = group == 32 ? factors + 8 : factors + LANES;
    size_t step = kind.few ? 2 * (size_t)group : 32;
#pragma GCC unroll 8
    for (size_t i = 0; i < UNIT; i += step) {
        if (i >= count) return;
        if (kind.few)
            panel_look_up(out + i, q + i, factors + i / group, mins + i / group, group);
        else
            panel_32(out + i, q + i, factors + i / group, mins + i / group, group);
    }
}

LANES_INLINE void panel_row(const struct panel_part *part, size_t i, unit_loader load,
                            struct panel_kind kind)
{
    const struct weight *w = part->weight;
    struct unit_place at = unit_row(w, part->first + i);
    uint16_t *out = part->out + i * part->stride;
    size_t end = min_size(w->cols, (part->unit + part->units) * UNIT), ahead = w->row_bytes;
    ahead *= part->fetch_rows;
    for (at.index = part->unit; at.index * UNIT < end; at.index++, out += UNIT) {
        struct unit unit;
        const uint8_t *next = at.values + at.index * (size_t)kind.bytes + ahead;
        for (int line = 0; ahead > 0 && line < kind.bytes; line += CACHE_LINE)
            __builtin_prefetch(next + line, 0, 2);
        at.count = min_size(UNIT, end - at.index * UNIT);
        load(&unit, &at);
        panel_unit(out, &unit, at.count, kind);
    }
}

#define DEFINE_PANEL(id, name, below, group, bytes)                                                \
    static void panel_##name(const struct panel_part *part)                                        \
    {                                                                                              \
        for (size_t i = 0; i < part->count; i++)                                                   \
            panel_row(part, i, load_##name, (struct panel_kind){ (below) <= 16, group, bytes });   \
    }
UNIT_FORMATS(DEFINE_PANEL)

static void panel_bf16(const struct panel_part *part)
{
    const struct weight *w = part->weight;
    size_t begin = part->unit * UNIT, end = min_size(w->cols, (part->unit + part->units) * UNIT);
    for (size_t i = 0; i < part->count; i++)
        memcpy(part->out + i * part->stride,
               w->values + (part->first + i) * w->row_bytes + 2 * begin, 2 * (end - begin));
}

/* Any other format, whole rows: through f32, which a row of the panel and the one behind it
 * hold; the numbers move down, behind those that are read. */
static void panel_plain(const struct panel_part *part)
{
    uint16_t *out = part->out;
    for (size_t i = 0; i < part->count; i++, out += part->stride) {
        float *row = (float *)(void *)out;
        kernels_dequantise(&NAMED(kernels), row, part->weight, part->first + i);
        for (size_t c = 0; c < part->weight->cols; c++) {
            uint16_t rounded = bf16_from_f32(load_f32(row + c));
            memcpy(out + c, &rounded, sizeof rounded);
        }
    }
}

typedef void (*panel_function)(const struct panel_part *part);

static panel_function function_for(const struct weight *weight)
{
    static const panel_function functions[FORMAT_COUNT] = {
#define PANEL(id, name, below, group, bytes) [FORMAT_##id] = panel_##name,
        UNIT_FORMATS(PANEL)
    };
    if (weight->format == FORMAT_BF16) return panel_bf16;
    return kernels_have_integers(&NAMED(kernels), weight) ? functions[weight->format] : panel_plain;
}

bool NAMED(panel_in_parts)(const struct weight *weight)
{
    return function_for(weight) != panel_plain;
}

void NAMED(make_panel_part)(const struct panel_part *part)
{
    const struct weight *w = part->weight;
    function_for(w)(part);
    size_t cols = w->cols - part->unit * UNIT, padded = matrix_cols(cols);
    if (padded == cols || cols > part->units * UNIT) return;
    for (size_t i = 0; i < part->count; i++)
        memset(part->out + i * part->stride + cols, 0, (padded - cols) * sizeof *part->out);
}

void NAMED(make_panel)(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                       size_t count)
{
    NAMED(make_panel_part)
    (&(struct panel_part){ .out = out,
                           .stride = stride,
                           .weight = weight,
                           .first = first,
                           .count = count,
                           .units = units_of(weight->cols) });
}

#endif
