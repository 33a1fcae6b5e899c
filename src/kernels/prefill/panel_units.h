/* panel_units.h: units of weights become bf16, a quarter at a time.
 *
 * A number is q·scale + min in f32, rounded once, then to the nearest bf16.  A unit is opened
 * first, which leaves its scales in memory, and its numbers in a byte each.  Not in registers:
 * what loads can spread and widen would else keep the one unit of the CPU busy that permutes
 * registers.  Numbers of the most usual formats stay as they are stored: the files' own bytes
 * index a table, and open units, of which there are many at a time, fit a near cache. */
#ifndef KERNELS_PREFILL_PANEL_UNITS_H
#define KERNELS_PREFILL_PANEL_UNITS_H

#include "kernels/prefill/panels.h"

enum { VECTOR = 32, QUARTER = 64, QUARTERS = UNIT / QUARTER };

struct open_unit {
    const uint8_t *q; /* what the kind says */
    size_t count;
    _Alignas(CACHE_LINE) float scales[LANES]; /* for groups of 32 mins are the second half */
    float mins[LANES];
    uint8_t bytes[UNIT];
};

/* Where an open unit's numbers are. */
enum unit_numbers {
    NUMBERS_IN_BYTES,
    NUMBERS_IN_Q4_K,    /* two in a byte: one of a group and one of the next group */
    NUMBERS_IN_NIBBLES, /* two in a byte, neighbours */
    NUMBERS_SIGNED,     /* 32 less than in the file, so that there are no mins */
};

static inline bool two_in_a_byte(enum unit_numbers numbers)
{
    return numbers == NUMBERS_IN_Q4_K || numbers == NUMBERS_IN_NIBBLES;
}

/* What is constant for a format. */
struct panel_kind {
    bool few;     /* all numbers are below 16 */
    int group;    /* numbers that share a scale: 16 or 32 */
    size_t bytes; /* of a unit in the file */
    enum unit_numbers numbers;
};

/* ----------------------------------------------------------------------- open */

LANES_INLINE void open_bytes(struct open_unit *out, const struct unit *u, size_t count, int group,
                             enum unit_numbers numbers)
{
    bytes q[4];
    for (int v = 0; v < 4; v++) q[v] = numbers == NUMBERS_SIGNED ? u->q[v] - 32 : u->q[v];
    memcpy(out->bytes, q, sizeof out->bytes);
    lanes_store(out->scales, group == 32 ? u->both : u->scale);
    if (group == 16 && numbers != NUMBERS_SIGNED) lanes_store(out->mins, u->min);
    __asm__("" : "+m"(out->bytes), "+m"(out->scales), "+m"(out->mins));
    out->q = out->bytes;
    out->count = count;
}

/* A block of Q4_K begins with d, dmin, and eight scales and mins of six bits.  Of each of those 16
 * numbers the lower bits are in one byte, and the upper two of some in another. */
struct k_places {
    __m128i low, high; /* bytes */
    __m128i down;      /* bits that the lower ones are shifted by */
    __m128i low_bits;
};

LANES_INLINE struct k_places k_places(void)
{
    return (struct k_places){
        .low = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15),
        .high = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11),
        .down = _mm_setr_epi32(0, 0, 0, 4),
        .low_bits = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f),
    };
}

LANES_INLINE void open_q4_k_block(struct open_unit *out, const struct unit_place *at)
{
    const struct block_q4_k *b = (const struct block_q4_k *)at->values + at->index;
    const struct k_places places = k_places();
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128 signs = _mm_setr_ps(1, -1, 0, 0);
    __m128i head = _mm_loadu_si128((const __m128i *)(const void *)b->d);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(head, places.low), places.down);
    __m128i high = _mm_srli_epi32(_mm_shuffle_epi8(head, places.high), 2);
    __m128i numbers = (low & places.low_bits) | (high & _mm_set1_epi8(0x30));
    __m128 d = _mm_mul_ps(_mm_cvtph_ps(head), signs);
    lanes factors = (lanes)_mm512_permutexvar_ps(spread, _mm512_castps128_ps512(d));
    lanes_store(out->scales, lanes_from_bytes((byte_lanes)numbers) * factors);
    out->q = b->qs;
}

LANES_INLINE void open_nibbles(struct open_unit *out, const struct unit_place *at)
{
    lanes_store(out->scales, lanes_16_bit_groups(affine_groups(at)));
    out->q = at->values + at->index * (UNIT / 2);
}

/* A unit whose numbers stay as they are stored. */
LANES_INLINE void open_stored(struct open_unit *out, const struct unit_place *at,
                              enum unit_numbers numbers)
{
    if (numbers == NUMBERS_IN_Q4_K)
        open_q4_k_block(out, at);
    else
        open_nibbles(out, at);
    __asm__("" : "+m"(out->scales));
    out->count = at->count;
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

/* 32 signed numbers in two groups of 16. */
LANES_INLINE void panel_signed(uint16_t *out, const uint8_t *q, const float *scales)
{
    __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)q));
    __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(q + 16)));
    store_bf16(out, (lanes)_mm512_cvtepi32_ps(low) * lanes_all(scales[0]),
               (lanes)_mm512_cvtepi32_ps(high) * lanes_all(scales[1]));
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

/* 32 numbers of which neighbours share a byte. */
LANES_INLINE __m512i load_nibbles(const uint8_t *q)
{
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)q));
    return (b | _mm512_slli_epi32(b, 12)) & _mm512_set1_epi16(15);
}

LANES_INLINE void look_up(uint16_t *out, __m512i indices, __m512i table)
{
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(indices, table));
}

/* 64 numbers in two groups of 32. */
LANES_INLINE void look_up_32s(uint16_t *out, size_t step, const uint8_t *q, const float *scales,
                              const float *mins, enum unit_numbers numbers)
{
    const __m512i low = _mm512_set1_epi16(15), second = _mm512_set1_epi16(16);
    __m512i table = two_groups(scales, mins);
    if (numbers == NUMBERS_IN_Q4_K) {
        __m512i both = load_words(q);
        look_up(out, both & low, table);
        look_up(out + step, _mm512_srli_epi16(both, 4) | second, table);
    } else if (numbers == NUMBERS_IN_NIBBLES) {
        look_up(out, load_nibbles(q), table);
        look_up(out + step, load_nibbles(q + VECTOR / 2) | second, table);
    } else {
        look_up(out, load_words(q), table);
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
    scales += QUARTER / kind.group * quarter;
    mins += QUARTER / kind.group * quarter;
    const uint8_t *q = u->q + (two_in_a_byte(kind.numbers) ? QUARTER / 2 : QUARTER) * quarter;
    if (kind.few && kind.group == 32) {
        look_up_32s(out, step, q, scales, mins, kind.numbers);
        return;
    }
    for (size_t v = 0; v < 2; v++, out += step, q += VECTOR) {
        if (kind.numbers == NUMBERS_SIGNED)
            panel_signed(out, q, scales);
        else if (kind.few)
            look_up_16s(out, q, scales, mins);
        else
            panel_32(out, q, scales, mins, kind.group);
        scales += VECTOR / kind.group;
        mins += VECTOR / kind.group;
    }
}

/* -------------------------------------------------------------------- formats */

#define NUMBERS_OF_UNIT(id)                                                                        \
    (FORMAT_##id == FORMAT_Q4_K   ? NUMBERS_IN_Q4_K                                                \
     : FORMAT_##id == FORMAT_Q6_K ? NUMBERS_SIGNED                                                 \
                                  : NUMBERS_IN_BYTES)
#define NUMBERS_OF_USUAL(id) (FORMAT_##id == FORMAT_AFFINE4 ? NUMBERS_IN_NIBBLES : NUMBERS_IN_BYTES)

#define DEFINE_PANEL(name, below, group, bytes, numbers)                                           \
    static const struct panel_kind kind_##name = { (below) <= 16, group, bytes, numbers };         \
    LANES_INLINE void open_##name(struct open_unit *out, const struct panel_row *row)              \
    {                                                                                              \
        struct unit unit;                                                                          \
        if (two_in_a_byte(numbers)) {                                                              \
            open_stored(out, &row->at, numbers);                                                   \
            return;                                                                                \
        }                                                                                          \
        load_##name(&unit, &row->at);                                                              \
        open_bytes(out, &unit, row->at.count, group, numbers);                                     \
    }
#define DEFINE_UNIT_PANEL(id, name, below, group, bytes)                                           \
    DEFINE_PANEL(name, below, group, bytes, NUMBERS_OF_UNIT(id))
#define DEFINE_USUAL_PANEL(id, name, below, group, bytes)                                          \
    DEFINE_PANEL(usual_##name, below, group, bytes, NUMBERS_OF_USUAL(id))
UNIT_FORMATS(DEFINE_UNIT_PANEL)
AFFINE_FORMATS(DEFINE_USUAL_PANEL)

#endif
