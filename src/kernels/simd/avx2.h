/* avx2.h: the vocabulary of simd.h with AVX2, FMA and F16C and registers of 32 bytes.
 * Products of integers are in avx2_vnni.h or avx2_maddubs.h. */
#ifndef KERNELS_SIMD_AVX2_H
#define KERNELS_SIMD_AVX2_H

enum { PART = 8 };

#include "kernels/simd/avx2_stream.h"
#include "kernels/simd/halves.h"
#include "kernels/simd/parts.h"

#define DECODE_DOT_HEADER "kernels/decode/dot_avx2.h"

/* ------------------------------------------------------------------ lanes and parts */

LANES_INLINE part part_fma(part a, part b, part c)
{
    return (part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    __m256 x[2], y[2], z[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(z, &c, sizeof z);
    for (int i = 0; i < 2; i++) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
    memcpy(&c, z, sizeof c);
    return c;
}

/* ------------------------------------------------------------------- conversions */

LANES_INLINE lanes lanes_from_bytes(byte_lanes stored)
{
    __m128i low = (__m128i)stored, high = _mm_srli_si128(low, 8);
    __m256 parts[2] = { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low)),
                        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high)) };
    lanes result;
    memcpy(&result, parts, sizeof result);
    return result;
}

LANES_INLINE lanes lanes_from_bf16(const uint8_t *p)
{
    __m256i halves[2];
    lanes result;
    for (int i = 0; i < 2; i++) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p + i));
        halves[i] = _mm256_slli_epi32(wide, 16);
    }
    memcpy(&result, halves, sizeof result);
    return result;
}

LANES_INLINE part part_from_f16(const uint16_t *p)
{
    return (part)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

LANES_INLINE lanes lanes_from_f16(const void *p)
{
    __m256 parts[2] = { _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + 1)) };
    lanes result;
    memcpy(&result, parts, sizeof result);
    return result;
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes v)
{
    __m256 parts[2];
    memcpy(parts, &v, sizeof parts);
    for (int i = 0; i < 2; i++)
        _mm_storeu_si128((__m128i *)(p + 8 * i),
                         _mm256_cvtps_ph(parts[i], _MM_FROUND_TO_NEAREST_INT));
}

/* In one register: the compiler takes halves. */
LANES_INLINE word_lanes words_from_bytes(const uint8_t *p)
{
    return (word_lanes)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Shifted, the bits of an e4m3 number are those of an f16 one. */
LANES_INLINE lanes lanes_from_e4m3(const uint8_t *p)
{
    word_lanes shifted = (words_from_bytes(p) << 7) & (int16_t)0xbf80;
    return lanes_from_f16(&shifted);
}

LANES_INLINE float float_from_f16(const uint8_t *p)
{
    return _cvtsh_ss(load_u16(p));
}

LANES_INLINE half_lanes half_from_f16(eight_words words)
{
    return (half_lanes)_mm256_cvtph_ps((__m128i)words);
}

/* ---------------------------------------------------------------------- spreading */

/* One number of s eight times. */
LANES_INLINE half_lanes half_all(half_lanes s, int number)
{
    return (half_lanes)_mm256_permutevar8x32_ps((__m256)s, _mm256_set1_epi32(number));
}

LANES_INLINE lanes lanes_two_eights(half_lanes s)
{
    return lanes_join(half_all(s, 0), half_all(s, 1));
}

LANES_INLINE half_lanes half_twice(half_lanes s)
{
    return __builtin_shufflevector(s, s, 0, 0, 1, 1, 2, 2, 3, 3);
}

LANES_INLINE half_lanes half_four_times(half_lanes s)
{
    return __builtin_shufflevector(s, s, 0, 0, 0, 0, 1, 1, 1, 1);
}

LANES_INLINE lanes lanes_twice(lanes s)
{
    half_lanes first;
    memcpy(&first, &s, sizeof first);
    return lanes_join(__builtin_shufflevector(first, first, 0, 0, 1, 1, 2, 2, 3, 3),
                      __builtin_shufflevector(first, first, 4, 4, 5, 5, 6, 6, 7, 7));
}

/* ------------------------------------------------------------------------- bytes */

LANES_INLINE half_bytes nibbles_of_16(const uint8_t *p)
{
    __m128i stored = _mm_loadu_si128((const __m128i *)p);
    return (half_bytes)_mm256_set_m128i(_mm_srli_epi16(stored, 4), stored) & 15;
}

LANES_INLINE bytes bytes_nibbles_of_16s(const uint8_t *first, const uint8_t *second)
{
    half_bytes halves[2] = { nibbles_of_16(first), nibbles_of_16(second) };
    return bytes_load(halves);
}

/* A byte of `set` comes to the eight numbers that its bits are for. */
LANES_INLINE bytes bytes_where(uint64_t set, uint8_t value)
{
    const __m256i places =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i halves[2];
    for (int i = 0; i < 2; i++) {
        __m256i stored = _mm256_set1_epi32((int)(uint32_t)(set >> 32 * i));
        __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(stored, places), each);
        halves[i] = _mm256_and_si256(_mm256_cmpeq_epi8(bits, each), _mm256_set1_epi8((char)value));
    }
    return bytes_load(halves);
}

LANES_INLINE bytes bytes_look_up(const uint8_t table[16], bytes index)
{
    __m256i halves[2];
    __m256i levels = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    memcpy(halves, &index, sizeof halves);
    for (int i = 0; i < 2; i++) halves[i] = _mm256_shuffle_epi8(levels, halves[i]);
    return bytes_load(halves);
}

/* 64 numbers of 4 bits: the two of a byte side by side. */
LANES_INLINE bytes bytes_from_nibbles(const uint8_t *p)
{
    __m256i halves[2];
    for (int i = 0; i < 2; i++) {
        __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p + i));
        words = _mm256_or_si256(words, _mm256_slli_epi16(words, 4));
        halves[i] = _mm256_and_si256(words, _mm256_set1_epi8(15));
    }
    return bytes_load(halves);
}

LANES_INLINE bytes bytes_from_stream(const uint8_t *p, unsigned bits)
{
    return bits == 4 ? bytes_from_nibbles(p) : bytes_from_stream_by_16(p, bits);
}

/* --------------------------------------------------------------------- transposes */

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

LANES_INLINE size_t transpose_16_rows(float *out, size_t out_stride, const float *in,
                                      size_t in_stride, size_t columns)
{
    size_t c = 0;
    for (; c + 8 <= columns; c += 8)
        for (size_t half = 0; half < LANES; half += 8) {
            __m256 block[8];
            for (size_t i = 0; i < 8; i++)
                block[i] = _mm256_loadu_ps(in + (half + i) * in_stride + c);
            transpose_eight(block);
            for (size_t i = 0; i < 8; i++)
                _mm256_storeu_ps(out + (c + i) * out_stride + half, block[i]);
        }
    return c;
}

/* Not in registers: the caller's plain loop does it. */
LANES_INLINE size_t transpose_words(const struct turned_words *w)
{
    (void)w;
    return 0;
}

#endif
