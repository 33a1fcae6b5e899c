/* panel_units.h: units of weights become bf16, a quarter at a time.
 *
 * A number is q·scale + min in f32, rounded once, then to the nearest bf16.  A unit is opened
 * first, which leaves its numbers and scales in memory, not in registers: what loads can spread
 * and widen would else keep the one unit of the CPU busy that permutes registers. */
#ifndef KERNELS_PANEL_UNITS_H
#define KERNELS_PANEL_UNITS_H

#include "kernels/panels.h"

#if defined(__AVX512BF16__)

enum { VECTOR = 32, QUARTER = 64, QUARTERS = UNIT / QUARTER };

struct open_unit {
    const uint8_t *q; /* one in a byte, or as Q4_K has them */
    size_t count;
    _Alignas(CACHE_LINE) float scales[LANES]; /* for groups of 32 mins are the second half */
    float mins[LANES];
    uint8_t bytes[UNIT];
};

/* What is constant for a format. */
struct panel_kind {
    bool few;    /* all numbers are below 16 */
    bool halves; /* two numbers in a byte: those of a group and of the next one */
    int group;   /* numbers that share a scale: 16 or 32 */
};

LANES_INLINE void fetch(const struct panel_row *row, size_t size)
{
    const uint8_t *next = row->at.values + row->at.index * size + row->ahead;
    for (size_t line = 0; line < size; line += CACHE_LINE) __builtin_prefetch(next + line, 0, 2);
}

/* ----------------------------------------------------------------------- open */

LANES_INLINE void open_bytes(struct open_unit *out, const struct unit *u, size_t count, int group)
{
    memcpy(out->bytes, u->q, sizeof out->bytes);
    lanes_store(out->scales, group == 32 ? u->both : u->scale);
    if (group == 16) lanes_store(out->mins, u->min);
    __asm__("" : "+m"(out->bytes), "+m"(out->scales), "+m"(out->mins));
    out->q = out->bytes;
    out->count = count;
}

/* Q4_K is most of what people have: a group's low or high halves of 32 bytes index its table as
 * they are. */
LANES_INLINE void open_halves_q4_k(struct open_unit *out, const struct panel_row *row)
{
    const struct block_q4_k *b = (const struct block_q4_k *)row->at.values + row->at.index;
    fetch(row, sizeof *b);
    lanes_store(out->scales, k_scales(b->d, b->scales, 1.0f));
    __asm__("" : "+m"(out->scales));
    out->q = b->qs;
    out->count = UNIT;
}

/* ------------------------------------------------------------------- quarters */

LANES_INLINE void store_bf16(uint16_t *out, lanes first, lanes second)
{
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
}

/* 32 numbers with the scales and mins of their one or two groups. */
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

LANES_INLINE void look_up(uint16_t *out, __m512i indices, __m512i table)
{
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(indices, table));
}

/* 64 numbers in two groups of 32. */
LANES_INLINE void look_up_32s(uint16_t *out, size_t step, const uint8_t *q, const float *scales,
                              const float *mins, bool halves)
{
    const __m512i low = _mm512_set1_epi16(15), second = _mm512_set1_epi16(16);
    __m512i table = two_groups(scales, mins), first = load_words(q);
    if (halves) {
        look_up(out, first & low, table);
        look_up(out + step, _mm512_srli_epi16(first, 4) | second, table);
    } else {
        look_up(out, first, table);
        look_up(out + step, load_words(q + VECTOR) | second, table);
    }
}

/* 32 numbers in two groups of 16. */
LANES_INLINE void look_up_16s(uint16_t *out, const uint8_t *q, const float *scales,
                              const float *mins)
{
    const __m512i second_half = _mm512_mask_set1_epi16(_mm512_setzero_si512(), 0xffff0000u, 16);
    look_up(out, load_words(q) | second_half, two_groups(scales, mins));
}

/* Numbers 64·quarter to 64·quarter + 63 of the unit: two vectors, `step` numbers apart. */
LANES_INLINE void panel_quarter(uint16_t *out, size_t step, const struct open_unit *u,
                                size_t quarter, struct panel_kind kind)
{
    const float *scales = u->scales, *mins = kind.group == 32 ? u->scales + 8 : u->mins;
    const uint8_t *q = u->q + (kind.halves ? VECTOR : QUARTER) * quarter;
    out += 2 * quarter * step;
    scales += QUARTER / kind.group * quarter;
    mins += QUARTER / kind.group * quarter;
    if (kind.few && kind.group == 32) {
        look_up_32s(out, step, q, scales, mins, kind.halves);
        return;
    }
    for (size_t v = 0; v < 2; v++, out += step, q += VECTOR) {
        if (kind.few)
            look_up_16s(out, q, scales, mins);
        else
            panel_32(out, q, scales, mins, kind.group);
        scales += VECTOR / kind.group;
        mins += VECTOR / kind.group;
    }
}

/* -------------------------------------------------------------------- formats */

#define DEFINE_PANEL(id, name, below, group, bytes)                                                \
    LANES_INLINE void open_##name(struct open_unit *out, const struct panel_row *row)              \
    {                                                                                              \
        struct unit unit;                                                                          \
        if (FORMAT_##id == FORMAT_Q4_K) {                                                          \
            open_halves_q4_k(out, row);                                                            \
            return;                                                                                \
        }                                                                                          \
        fetch(row, bytes);                                                                         \
        load_##name(&unit, &row->at);                                                              \
        open_bytes(out, &unit, row->at.count, group);                                              \
    }                                                                                              \
    static const struct panel_kind kind_##name = { (below) <= 16, FORMAT_##id == FORMAT_Q4_K,      \
                                                   group };
#define DEFINE_USUAL_PANEL(id, name, below, group, bytes)                                          \
    DEFINE_PANEL(id, usual_##name, below, group, bytes)
UNIT_FORMATS(DEFINE_PANEL)
AFFINE_FORMATS(DEFINE_USUAL_PANEL)

#endif
#endif
