/* avx2_vnni.h: products of integers with AVX2 and AVX-VNNI. */
#ifndef KERNELS_SIMD_AVX2_VNNI_H
#define KERNELS_SIMD_AVX2_VNNI_H

#include "kernels/simd/avx2.h"

/* sums + a[2i]·b[2i] + a[2i + 1]·b[2i + 1] of 16-bit numbers. */
LANES_INLINE int_part part_add_pairs(int_part sums, int_part a, int_part b)
{
    return (int_part)_mm256_dpwssd_avx_epi32((__m256i)sums, (__m256i)a, (__m256i)b);
}

#endif
