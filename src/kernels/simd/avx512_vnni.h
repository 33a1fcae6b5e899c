/* avx512_vnni.h: products of bytes and words with AVX-512 and its VNNI and VBMI extensions. */
#ifndef KERNELS_SIMD_AVX512_VNNI_H
#define KERNELS_SIMD_AVX512_VNNI_H

#include "kernels/simd/avx512.h"

LANES_INLINE int_lanes dot4_planes(bytes u, bytes high, bytes low, bool wide)
{
    __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), (__m512i)u, (__m512i)high);
    (void)wide;
    return (int_lanes)_mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 7), (__m512i)u, (__m512i)low);
}

/* Number j of eight lies at bit j·bits of their `bits` bytes: bring those bytes to one 64-bit
 * lane, then take eight of its bits from each of the eight places. */
LANES_INLINE bytes bytes_from_stream(const uint8_t *p, unsigned bits)
{
    if (bits == 4) return bytes_from_nibbles(p);
    const uint8_t mask = (uint8_t)((1u << bits) - 1);
    const uint64_t ramp = 0x0706050403020100, steps = 0x0101010101010101 * bits;
    const uint64_t bit_places = ramp * bits;
    __m512i stored = _mm512_maskz_loadu_epi8((1ull << (8 * bits)) - 1, p);
    __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    __m512i places = _mm512_add_epi64(_mm512_mullo_epi64(lane, _mm512_set1_epi64((long long)steps)),
                                      _mm512_set1_epi64((long long)ramp));
    __m512i spread = _mm512_permutexvar_epi8(places, stored);
    __m512i shifts = _mm512_set1_epi64((long long)bit_places);
    return (bytes)_mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, spread),
                                   _mm512_set1_epi8((char)mask));
}

/* sums + a[2i]·b[2i] + a[2i + 1]·b[2i + 1] of 16-bit numbers. */
LANES_INLINE int_part part_add_pairs(int_part sums, int_part a, int_part b)
{
    return (int_part)_mm512_dpwssd_epi32((__m512i)sums, (__m512i)a, (__m512i)b);
}

#endif
