/* lanes_spread.h: numbers repeated in neighbouring lanes.
 *
 * Written register by register: a compiler that is to shuffle vectors wider than its
 * registers does it number by number, through memory. */
#ifndef KERNELS_LANES_SPREAD_H
#define KERNELS_LANES_SPREAD_H

#include "kernels/lanes.h"

LANES_INLINE lanes lanes_join(half_lanes low, half_lanes high)
{
#if defined(__AVX512F__)
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    half_lanes halves[2] = { low, high };
    lanes result;
    memcpy(&result, halves, sizeof result);
    return result;
#endif
}

#if defined(__AVX2__)
/* Two numbers of s, each four times. */
LANES_INLINE half_lanes half_of(half_lanes s, int first, int second)
{
    return (half_lanes)_mm256_permutevar8x32_ps(
        (__m256)s, _mm256_setr_epi32(first, first, first, first, second, second, second, second));
}
#endif

LANES_INLINE quarter_lanes quarter_all(float value)
{
    return (quarter_lanes){ value, value, value, value };
}

/* Numbers 0 and 1 of s, each eight times. */
LANES_INLINE lanes lanes_two_eights(half_lanes s)
{
#if defined(__AVX512F__) /* parts in memory would make the load of all wait for each of them */
    return __builtin_shufflevector(s, s, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
#elif defined(__AVX2__)
    return lanes_join(half_of(s, 0, 0), half_of(s, 1, 1));
#else
    quarter_lanes first = quarter_all(s[0]), second = quarter_all(s[1]);
    quarter_lanes parts[4] = { first, first, second, second };
    lanes result;
    memcpy(&result, parts, sizeof result);
    return result;
#endif
}

/* Numbers 0 0 1 1 2 2 3 3 of s. */
LANES_INLINE half_lanes half_twice(half_lanes s)
{
#if defined(__AVX2__)
    return __builtin_shufflevector(s, s, 0, 0, 1, 1, 2, 2, 3, 3);
#else
    quarter_lanes first, parts[2];
    memcpy(&first, &s, sizeof first);
    parts[0] = __builtin_shufflevector(first, first, 0, 0, 1, 1);
    parts[1] = __builtin_shufflevector(first, first, 2, 2, 3, 3);
    memcpy(&s, parts, sizeof s);
    return s;
#endif
}

/* Numbers 0 0 0 0 1 1 1 1 of s. */
LANES_INLINE half_lanes half_four_times(half_lanes s)
{
#if defined(__AVX2__)
    return __builtin_shufflevector(s, s, 0, 0, 0, 0, 1, 1, 1, 1);
#else
    quarter_lanes parts[2] = { quarter_all(s[0]), quarter_all(s[1]) };
    memcpy(&s, parts, sizeof s);
    return s;
#endif
}

/* Numbers 0 0 1 1 … 7 7 of s. */
LANES_INLINE lanes lanes_twice(lanes s)
{
#if defined(__AVX512F__)
    return __builtin_shufflevector(s, s, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
#elif defined(__AVX2__)
    half_lanes first;
    memcpy(&first, &s, sizeof first);
    return lanes_join(__builtin_shufflevector(first, first, 0, 0, 1, 1, 2, 2, 3, 3),
                      __builtin_shufflevector(first, first, 4, 4, 5, 5, 6, 6, 7, 7));
#else
    quarter_lanes from[2], parts[4];
    memcpy(from, &s, sizeof from);
    for (int i = 0; i < 2; i++) {
        parts[2 * i] = __builtin_shufflevector(from[i], from[i], 0, 0, 1, 1);
        parts[2 * i + 1] = __builtin_shufflevector(from[i], from[i], 2, 2, 3, 3);
    }
    memcpy(&s, parts, sizeof s);
    return s;
#endif
}

#if !defined(__AVX2__)
/* One number in four lanes; `i` is a constant where this is inlined. */
LANES_INLINE quarter_lanes quarter_of(const quarter_lanes *from, int i)
{
    quarter_lanes s = from[i / 4];
    switch (i % 4) {
    case 0:
        return __builtin_shufflevector(s, s, 0, 0, 0, 0);
    case 1:
        return __builtin_shufflevector(s, s, 1, 1, 1, 1);
    case 2:
        return __builtin_shufflevector(s, s, 2, 2, 2, 2);
    default:
        return __builtin_shufflevector(s, s, 3, 3, 3, 3);
    }
}
#endif

/* Numbers 4v … 4v + 3 of s, each four times. */
LANES_INLINE lanes lanes_spread_four(lanes s, int v)
{
#if defined(__AVX512F__)
    switch (v) {
    case 0:
        return __builtin_shufflevector(s, s, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    case 1:
        return __builtin_shufflevector(s, s, 4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
    case 2:
        return __builtin_shufflevector(s, s, 8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 11, 11, 11,
                                       11);
    default:
        return __builtin_shufflevector(s, s, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14, 14, 14, 15, 15,
                                       15, 15);
    }
#elif defined(__AVX2__)
    half_lanes from[2];
    int first = 4 * (v % 2);
    memcpy(from, &s, sizeof from);
    return lanes_join(half_of(from[v / 2], first, first + 1),
                      half_of(from[v / 2], first + 2, first + 3));
#else
    quarter_lanes from[4], parts[4];
    memcpy(from, &s, sizeof from);
    for (int i = 0; i < 4; i++) parts[i] = quarter_of(from, 4 * v + i);
    memcpy(&s, parts, sizeof s);
    return s;
#endif
}

/* Numbers 2v and 2v + 1 of s, each eight times. */
LANES_INLINE lanes lanes_spread_eight(lanes s, int v)
{
#if defined(__AVX512F__)
    switch (v) {
    case 0:
        return __builtin_shufflevector(s, s, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    case 1:
        return __builtin_shufflevector(s, s, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    case 2:
        return __builtin_shufflevector(s, s, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5);
    default:
        return __builtin_shufflevector(s, s, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7);
    }
#elif defined(__AVX2__)
    half_lanes first;
    memcpy(&first, &s, sizeof first);
    return lanes_join(half_of(first, 2 * v, 2 * v), half_of(first, 2 * v + 1, 2 * v + 1));
#else
    quarter_lanes from[4], parts[4];
    memcpy(from, &s, sizeof from);
    for (int i = 0; i < 4; i++) parts[i] = quarter_of(from, 2 * v + i / 2);
    memcpy(&s, parts, sizeof s);
    return s;
#endif
}

#endif
