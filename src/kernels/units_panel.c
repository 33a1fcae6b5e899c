/* units_panel.c: rows of weights in bf16 for the matrix unit.
 *
 * A number is q·scale + min in f32, rounded once, then to the nearest bf16. */
#include "kernels/panels.h"

#if defined(__AVX512BF16__)

enum { VECTOR = 32 };

LANES_INLINE void store_bf16(uint16_t *out, lanes first, lanes second)
{
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
}

LANES_INLINE void fetch(const struct panel_row *row, size_t size)
{
    const uint8_t *next = row->at.values + row->at.index * size + row->ahead;
    for (size_t line = 0; line < size; line += CACHE_LINE) __builtin_prefetch(next + line, 0, 2);
}

/* ------------------------------------------------------------------- integers */

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

/* Where numbers are below 16 all of a group's are computed, and then looked up: this is the
 * table of two groups. */
LANES_INLINE __m512i two_groups(const float *scales, const float *mins)
{
    const lanes all = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    return (__m512i)_mm512_cvtne2ps_pbh(
        (__m512)lanes_fma(all, lanes_all(scales[1]), lanes_all(mins[1])),
        (__m512)lanes_fma(all, lanes_all(scales[0]), lanes_all(mins[0])));
}

LANES_INLINE __m512i load_words(const uint8_t *q)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)q));
}

/* 64 numbers in two groups of 32. */
LANES_INLINE void look_up_32s(uint16_t *out, size_t step, const uint8_t *q, const float *scales,
                              const float *mins)
{
    __m512i table = two_groups(scales, mins), second = _mm512_set1_epi16(16);
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(load_words(q), table));
    _mm512_storeu_si512(out + step,
                        _mm512_permutexvar_epi16(load_words(q + VECTOR) | second, table));
}

/* 32 numbers in two groups of 16. */
LANES_INLINE void look_up_16s(uint16_t *out, const uint8_t *q, const float *scales,
                              const float *mins)
{
    const __m512i second_half = _mm512_mask_set1_epi16(_mm512_setzero_si512(), 0xffff0000u, 16);
    _mm512_storeu_si512(
        out, _mm512_permutexvar_epi16(load_words(q) | second_half, two_groups(scales, mins)));
}

/* What is constant for a format. */
struct panel_kind {
    bool few;  /* all numbers are below 16 */
    int group; /* numbers that share a scale: 16 or 32 */
};

LANES_INLINE void panel_unit(uint16_t *out, size_t step, const struct unit *u, size_t count,
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
    bool by_64 = kind.few && group == 32;
#pragma GCC unroll 8
    for (size_t v = 0; v < UNIT / VECTOR; v += by_64 ? 2 : 1) {
        size_t i = v * VECTOR, g = i / (size_t)group;
        if (i >= count) return;
        if (by_64)
            look_up_32s(out + v * step, step, q + i, factors + g, mins + g);
        else if (kind.few)
            look_up_16s(out + v * step, q + i, factors + g, mins + g);
        else
            panel_32(out + v * step, q + i, factors + g, mins + g, group);
    }
}

/* Q4_K is most of what people have: a group's low or high halves of 32 bytes index its table as
 * they are. */
LANES_INLINE void panel_q4_k_halves(uint16_t *out, size_t step, struct panel_row *row)
{
    const struct block_q4_k *b = (const struct block_q4_k *)row->at.values + row->at.index;
    const __m512i low = _mm512_set1_epi16(15), second = _mm512_set1_epi16(16);
    float factors[LANES], *mins = factors + 8;
    fetch(row, sizeof *b);
    lanes_store(factors, k_scales(b->d, b->scales, 1.0f));
    __asm__("" : "+m"(factors)); /* as in panel_unit */
#pragma GCC unroll 4
    for (size_t v = 0; v < UNIT / VECTOR; v += 2) {
        __m512i table = two_groups(factors + v, mins + v), both = load_words(b->qs + 16 * v);
        _mm512_storeu_si512(out + v * step, _mm512_permutexvar_epi16(both & low, table));
        _mm512_storeu_si512(out + (v + 1) * step,
                            _mm512_permutexvar_epi16(_mm512_srli_epi16(both, 4) | second, table));
    }
}

#define DEFINE_PANEL(id, name, below, group, bytes)                                                \
    static void panel_##name(uint16_t *out, size_t step, struct panel_row *row)                    \
    {                                                                                              \
        struct unit unit;                                                                          \
        if (FORMAT_##id == FORMAT_Q4_K) {                                                          \
            panel_q4_k_halves(out, step, row);                                                     \
            return;                                                                                \
        }                                                                                          \
        fetch(row, bytes);                                                                         \
        load_##name(&unit, &row->at);                                                              \
        panel_unit(out, step, &unit, row->at.count, (struct panel_kind){ (below) <= 16, group });  \
    }
UNIT_FORMATS(DEFINE_PANEL)
#define DEFINE_USUAL_PANEL(id, name, below, group, bytes)                                          \
    DEFINE_PANEL(id, usual_##name, below, group, bytes)
AFFINE_FORMATS(DEFINE_USUAL_PANEL)

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
    fetch(row, UNIT * sizeof *out);
    copy_unit(out, step, row->at.values + row->at.index * UNIT * sizeof *out, row->at.count);
}

/* Through f32, which a line and the one behind it hold; the numbers move down, behind those
 * that are read. */
static void make_line(uint16_t *line, const struct weight *weight, uint64_t row)
{
    float *numbers = (float *)(void *)line;
    kernels_dequantise(&NAMED(kernels), numbers, weight, row);
    for (size_t c = 0; c < weight->cols; c++) {
        uint16_t rounded = bf16_from_f32(load_f32(numbers + c));
        memcpy(line + c, &rounded, sizeof rounded);
    }
}

static void panel_of_line(uint16_t *out, size_t step, struct panel_row *row)
{
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
    if (weight->format == FORMAT_BF16) return panel_bf16;
    if (!kernels_have_integers(&NAMED(kernels), weight)) return panel_of_line;
    if (usual[weight->format] && affine_is_usual(weight)) return usual[weight->format];
    return functions[weight->format];
}

void NAMED(make_panel)(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                       size_t count)
{
    panel_unit_function make = NAMED(panel_unit_for)(weight);
    size_t padded = matrix_cols(weight->cols);
    for (size_t i = 0; i < count; i++, out += stride) {
        struct panel_row row = panel_row_at(weight, first + i);
        for (size_t c = 0; c < weight->cols && make != panel_of_line; c += UNIT, row.at.index++) {
            row.at.count = min_size(UNIT, weight->cols - c);
            make(out + c, VECTOR, &row);
        }
        if (make == panel_of_line) {
            make_line(out, weight, first + i);
            memset(out + weight->cols, 0, (padded - weight->cols) * sizeof *out);
        }
    }
}

#endif
