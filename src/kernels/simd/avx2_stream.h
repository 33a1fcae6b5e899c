/* avx2_stream.h: numbers of a few bits each from a stream of bits, sixteen at a time. */
#ifndef KERNELS_SIMD_AVX2_STREAM_H
#define KERNELS_SIMD_AVX2_STREAM_H

#include "kernels/simd/types.h"

#include <immintrin.h>

/* Sixteen numbers as words: the two bytes that one may lie in, times the power of two that brings
 * it to the upper one. */
LANES_INLINE __m256i sixteen_from_stream(__m128i stored, unsigned first, unsigned bits)
{
    uint8_t places[32];
    uint16_t factors[16];
    for (unsigned j = 0; j < 16; j++) {
        places[2 * j] = (uint8_t)(first + j * bits / 8);
        places[2 * j + 1] = (uint8_t)(first + j * bits / 8 + 1);
        factors[j] = (uint16_t)(256u >> j * bits % 8);
    }
    __m256i pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(stored),
                                        _mm256_loadu_si256((const __m256i *)places));
    __m256i moved = _mm256_mullo_epi16(pairs, _mm256_loadu_si256((const __m256i *)factors));
    return _mm256_and_si256(_mm256_srli_epi16(moved, 8),
                            _mm256_set1_epi16((short)((1 << bits) - 1)));
}

/* Sixteen numbers have 2·bits bytes; near the end the last 16 bytes are loaded instead.  A second
 * byte that would lie behind them has any value: no number reaches into it. */
LANES_INLINE bytes bytes_from_stream_by_16(const uint8_t *p, unsigned bits)
{
    __m256i words[4], halves[2];
    for (unsigned i = 0; i < 4; i++) {
        unsigned begin = 2 * bits * i, end = 8 * bits - 16, from = begin < end ? begin : end;
        __m128i stored = _mm_loadu_si128((const __m128i *)(p + from));
        words[i] = sixteen_from_stream(stored, begin - from, bits);
    }
    for (unsigned i = 0; i < 2; i++)
        halves[i] =
            _mm256_permute4x64_epi64(_mm256_packus_epi16(words[2 * i], words[2 * i + 1]), 0xd8);
    return bytes_load(halves);
}

#endif
