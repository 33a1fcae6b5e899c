/* spread.h: numbers repeated in neighbouring lanes.
 *
 * Written register by register: a compiler that is to shuffle vectors wider than its
 * registers does it number by number, through memory. */
#ifndef KERNELS_SIMD_SPREAD_H
#define KERNELS_SIMD_SPREAD_H

#include "kernels/simd/lanes.h"

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

/* The lower eight lanes, zeroes above them. */
LANES_INLINE lanes lanes_lower(lanes v)
{
    const int_lanes lower = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return lanes_choose(lower, v, (lanes){ 0 });
}

#endif
