/* avx2_maddubs.h: products of integers with AVX2 without VNNI. */
#ifndef KERNELS_SIMD_AVX2_MADDUBS_H
#define KERNELS_SIMD_AVX2_MADDUBS_H

#include "kernels/simd/avx2.h"

/* sums + a[2i]·b[2i] + a[2i + 1]·b[2i + 1] of 16-bit numbers. */
LANES_INLINE int_part part_add_pairs(int_part sums, int_part a, int_part b)
{
    return sums + (int_part)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}

#endif
