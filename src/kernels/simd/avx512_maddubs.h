/* avx512_maddubs.h: products of bytes and words with AVX-512 without VNNI.
 *
 * Pairs of byte products are added up in 16 bits, where two of numbers above 127 would not fit. */
#ifndef KERNELS_SIMD_AVX512_MADDUBS_H
#define KERNELS_SIMD_AVX512_MADDUBS_H

#include "kernels/simd/avx512.h"
#include "kernels/simd/avx2_stream.h"

/* 128·Σ u·high + Σ u·low of four numbers each: sums of pairs become sums of four by a product with
 * 128 or 1, which costs as much as an addition. */
LANES_INLINE int_lanes dot4_planes_small(bytes u, bytes high, bytes low)
{
    __m512i h = _mm512_maddubs_epi16((__m512i)u, (__m512i)high);
    __m512i l = _mm512_maddubs_epi16((__m512i)u, (__m512i)low);
    return (int_lanes)_mm512_add_epi32(_mm512_madd_epi16(h, _mm512_set1_epi16(128)),
                                       _mm512_madd_epi16(l, _mm512_set1_epi16(1)));
}

LANES_INLINE int_lanes dot4_planes(bytes u, bytes high, bytes low, bool wide)
{
    if (!wide) return dot4_planes_small(u, high, low);
    return dot4_planes_small(u & 127, high, low) + dot4_planes_small(u & 128, high, low);
}

LANES_INLINE bytes bytes_from_stream(const uint8_t *p, unsigned bits)
{
    return bits == 4 ? bytes_from_nibbles(p) : bytes_from_stream_by_16(p, bits);
}

#endif
