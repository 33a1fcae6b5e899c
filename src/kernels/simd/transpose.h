/* transpose.h: sixteen (with AVX2 eight) rows of as many 32-bit numbers, rows and columns
 * exchanged. */
#ifndef KERNELS_SIMD_TRANSPOSE_H
#define KERNELS_SIMD_TRANSPOSE_H

#include "kernels/simd/lanes.h"

#if defined(__AVX512F__)
LANES_INLINE void transpose_dwords(__m512i r[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}
#elif defined(__AVX2__)
LANES_INLINE void transpose_eight(__m256 r[8])
{
    __m256 t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
            r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) r[i] = t[i];
}
#endif

/* out[columns][out_stride] = in[rows][in_stride] transposed, for any number of both. */
LANES_INLINE void transpose_floats(float *out, size_t out_stride, const float *in, size_t in_stride,
                                   size_t rows, size_t columns)
{
    for (size_t r = 0; r < rows; r += LANES) {
        size_t c = 0;
#if defined(__AVX512F__)
        for (; r + LANES <= rows && c + LANES <= columns; c += LANES) {
            __m512i block[16];
            for (size_t i = 0; i < LANES; i++)
                block[i] = _mm512_loadu_si512(in + (r + i) * in_stride + c);
            transpose_dwords(block);
            for (size_t i = 0; i < LANES; i++)
                _mm512_storeu_si512(out + (c + i) * out_stride + r, block[i]);
        }
#elif defined(__AVX2__)
        for (; r + LANES <= rows && c + 8 <= columns; c += 8)
            for (size_t half = r; half < r + LANES; half += 8) {
                __m256 block[8];
                for (size_t i = 0; i < 8; i++)
                    block[i] = _mm256_loadu_ps(in + (half + i) * in_stride + c);
                transpose_eight(block);
                for (size_t i = 0; i < 8; i++)
                    _mm256_storeu_ps(out + (c + i) * out_stride + half, block[i]);
            }
#endif
        for (; c < columns; c++)
            for (size_t i = r; i < min_size(r + LANES, rows); i++)
                out[c * out_stride + i] = in[i * in_stride + c];
    }
}

#endif
