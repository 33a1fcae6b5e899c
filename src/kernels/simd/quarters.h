/* quarters.h: vocabulary of the sets with registers of four floats (neon, generic). */
#ifndef KERNELS_SIMD_QUARTERS_H
#define KERNELS_SIMD_QUARTERS_H

enum { PART = 4 };

#include "kernels/simd/halves.h"
#include "kernels/simd/parts.h"

#define DECODE_DOT_HEADER "kernels/decode/dot_lanes.h"

/* ------------------------------------------------------------------- conversions */

/* By interleaving with zeroes: the compiler's own conversion goes byte by byte. */
LANES_INLINE lanes lanes_from_bytes(byte_lanes stored)
{
    const byte_lanes no_bytes = { 0 };
    const word_half no_words = { 0 };
    word_half words[2] = {
        (word_half)__builtin_shufflevector(stored, no_bytes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                           21, 6, 22, 7, 23),
        (word_half)__builtin_shufflevector(stored, no_bytes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                           13, 29, 14, 30, 15, 31),
    };
    word_half doubles[4];
    for (int i = 0; i < 2; i++) {
        doubles[2 * i] = __builtin_shufflevector(words[i], no_words, 0, 8, 1, 9, 2, 10, 3, 11);
        doubles[2 * i + 1] =
            __builtin_shufflevector(words[i], no_words, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    int_lanes integers;
    memcpy(&integers, doubles, sizeof integers);
    return __builtin_convertvector(integers, lanes);
}

LANES_INLINE lanes lanes_from_bf16(const uint8_t *p)
{
    const word_half zero = { 0 };
    word_half stored[2], parts[4];
    lanes result;
    memcpy(stored, p, sizeof stored);
    for (int i = 0; i < 2; i++) {
        parts[2 * i] = __builtin_shufflevector(zero, stored[i], 0, 8, 1, 9, 2, 10, 3, 11);
        parts[2 * i + 1] = __builtin_shufflevector(zero, stored[i], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    memcpy(&result, parts, sizeof result);
    return result;
}

LANES_INLINE word_lanes words_from_bytes(const uint8_t *p)
{
    signed_bytes stored;
    memcpy(&stored, p, sizeof stored);
    return __builtin_convertvector(stored, word_lanes);
}

/* ---------------------------------------------------------------------- spreading */

LANES_INLINE lanes lanes_two_eights(half_lanes s)
{
    quarter_lanes first = quarter_all(s[0]), second = quarter_all(s[1]);
    quarter_lanes parts[4] = { first, first, second, second };
    lanes result;
    memcpy(&result, parts, sizeof result);
    return result;
}

LANES_INLINE half_lanes half_twice(half_lanes s)
{
    quarter_lanes first, parts[2];
    memcpy(&first, &s, sizeof first);
    parts[0] = __builtin_shufflevector(first, first, 0, 0, 1, 1);
    parts[1] = __builtin_shufflevector(first, first, 2, 2, 3, 3);
    memcpy(&s, parts, sizeof s);
    return s;
}

LANES_INLINE half_lanes half_four_times(half_lanes s)
{
    quarter_lanes parts[2] = { quarter_all(s[0]), quarter_all(s[1]) };
    memcpy(&s, parts, sizeof s);
    return s;
}

LANES_INLINE lanes lanes_twice(lanes s)
{
    quarter_lanes from[2], parts[4];
    memcpy(from, &s, sizeof from);
    for (int i = 0; i < 2; i++) {
        parts[2 * i] = __builtin_shufflevector(from[i], from[i], 0, 0, 1, 1);
        parts[2 * i + 1] = __builtin_shufflevector(from[i], from[i], 2, 2, 3, 3);
    }
    memcpy(&s, parts, sizeof s);
    return s;
}

/* --------------------------------------------------------------------- transposes
 * None in registers: the callers' plain loops do it. */

LANES_INLINE size_t transpose_16_rows(float *out, size_t out_stride, const float *in,
                                      size_t in_stride, size_t columns)
{
    (void)out, (void)out_stride, (void)in, (void)in_stride, (void)columns;
    return 0;
}

LANES_INLINE size_t transpose_words(const struct turned_words *w)
{
    (void)w;
    return 0;
}

#endif
