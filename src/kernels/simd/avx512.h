/* avx512.h: the vocabulary of simd.h with AVX-512 (F, BW, DQ, VL, CD) and registers of 64 bytes.
 * Products of bytes are in avx512_vnni.h or avx512_maddubs.h. */
#ifndef KERNELS_SIMD_AVX512_H
#define KERNELS_SIMD_AVX512_H

enum { PART = 16 };

#include "kernels/simd/parts.h"

#include <immintrin.h>

#define DECODE_DOT_HEADER "kernels/decode/dot_avx512.h"

/* ------------------------------------------------------------------------ lanes */

LANES_INLINE float lanes_sum(lanes v)
{
    half_lanes h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    quarter_lanes q =
        __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
    return (q[0] + q[2]) + (q[1] + q[3]);
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return (lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

LANES_INLINE lanes lanes_add_upper(lanes a, lanes b)
{
    return (lanes)_mm512_mask_add_ps((__m512)a, 0xff00, (__m512)a, (__m512)b);
}

/* One instruction, which the compiler does not make of lanes_max. */
LANES_INLINE lanes lanes_greater(lanes a, lanes b)
{
    return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
}

LANES_INLINE lanes lanes_least(lanes a, lanes b)
{
    return (lanes)_mm512_min_ps((__m512)a, (__m512)b);
}

LANES_INLINE bool lanes_within(lanes x, float limit)
{
    __m512 magnitude = _mm512_abs_ps((__m512)x);
    return _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(limit), _CMP_NLE_UQ) == 0;
}

LANES_INLINE lanes lanes_times_power(lanes p, lanes n)
{
    return (lanes)_mm512_scalef_ps((__m512)p, (__m512)n);
}

LANES_INLINE void lanes_stream(float *out, lanes x)
{
    _mm512_stream_ps(out, (__m512)x);
}

LANES_INLINE void lanes_streamed(void)
{
    _mm_sfence();
}

/* ------------------------------------------------------------------------- parts */

LANES_INLINE part part_fma(part a, part b, part c)
{
    return (part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

LANES_INLINE part part_from_f16(const uint16_t *p)
{
    return (part)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* ------------------------------------------------------------------- conversions */

LANES_INLINE lanes lanes_from_bytes(byte_lanes stored)
{
    return (lanes)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32((__m128i)stored));
}

LANES_INLINE lanes lanes_from_bf16(const uint8_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return (lanes)_mm512_slli_epi32(wide, 16);
}

LANES_INLINE lanes lanes_from_f16(const void *p)
{
    return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

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

LANES_INLINE void lanes_to_bytes(int8_t *out, int_lanes v)
{
    _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8((__m512i)v));
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

LANES_INLINE lanes lanes_join(half_lanes low, half_lanes high)
{
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

LANES_INLINE lanes lanes_twice(lanes s)
{
    return __builtin_shufflevector(s, s, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
}

/* The signs are applied in a small register, before the factors are spread. */
LANES_INLINE lanes lanes_scale_and_min(const uint8_t *d, float odd)
{
    const __m512i spread = _mm512_setr_epi32(0, 2, 0, 2, 0, 2, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1);
    __m128i twice = _mm_shuffle_epi32(_mm_cvtsi32_si128((int)load_u32(d)), 0);
    __m128 few = _mm_mul_ps(_mm_cvtph_ps(twice), _mm_setr_ps(1, -1, odd, 0));
    return (lanes)_mm512_permutexvar_ps(spread, _mm512_castps128_ps512(few));
}

LANES_INLINE lanes lanes_16_bit_groups(struct group_numbers from)
{
    static const uint8_t places[3][16] = { { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 },
                                           { 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7 },
                                           { 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3 } };
    __m256i words;
    int kind = 0;
    if (from.group_cols == 32) {
        words = _mm256_loadu2_m128i((const __m128i *)from.second + from.index,
                                    (const __m128i *)from.first + from.index);
    } else if (from.group_cols == 64) {
        __m128i first = _mm_loadu_si64(from.first + 8 * from.index);
        __m128i second = _mm_loadu_si64(from.second + 8 * from.index);
        words = _mm256_castsi128_si256(_mm_unpacklo_epi64(first, second));
        kind = 1;
    } else {
        __m128i first = _mm_cvtsi32_si128((int)load_u32(from.first + 4 * from.index));
        __m128i second = _mm_cvtsi32_si128((int)load_u32(from.second + 4 * from.index));
        words = _mm256_castsi128_si256(_mm_unpacklo_epi32(first, second));
        kind = 2;
    }
    __m128i table = _mm_loadu_si128((const __m128i *)places[kind]);
    if (from.is_bf16) { /* the upper halves of floats */
        __m512i upper = _mm512_slli_epi32(_mm512_cvtepu8_epi32(table), 16);
        const __mmask32 odd = 0xaaaaaaaa;
        return (lanes)_mm512_maskz_permutexvar_epi16(odd, upper, _mm512_castsi256_si512(words));
    }
    return (lanes)_mm512_cvtph_ps(_mm256_permutexvar_epi16(_mm256_cvtepu8_epi16(table), words));
}

/* ------------------------------------------------------------------------- bytes */

LANES_INLINE bytes bytes_join(const uint8_t *first, const uint8_t *second)
{
    half_bytes a, b;
    memcpy(&a, first, sizeof a);
    memcpy(&b, second, sizeof b);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                   17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
                                   33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
                                   49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63);
}

LANES_INLINE __m512i halves_counts(unsigned first, unsigned second)
{
    return _mm512_inserti64x4(_mm512_set1_epi16((short)first), _mm256_set1_epi16((short)second), 1);
}

/* 32 bytes twice, shifted in pairs of bytes. */
LANES_INLINE bytes halves_down(const uint8_t *p, unsigned first, unsigned second)
{
    __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
    return (bytes)_mm512_srlv_epi16(both, halves_counts(first, second));
}

LANES_INLINE bytes halves_up(const uint8_t *p, unsigned first, unsigned second)
{
    __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
    return (bytes)_mm512_sllv_epi16(both, halves_counts(first, second));
}

/* The bits of `mask` from a, the others from b. */
LANES_INLINE bytes bytes_merge(uint8_t mask, bytes a, bytes b)
{
    return (bytes)_mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), (__m512i)a, (__m512i)b,
                                            0xca);
}

LANES_INLINE bytes bytes_fields(const uint8_t *p, unsigned first, unsigned second, uint8_t mask)
{
    return halves_down(p, first, second) & mask;
}

/* The two bits come to their place at once; the mask removes what else moves. */
LANES_INLINE bytes bytes_six_bits(bytes low, const uint8_t *high, bool upper)
{
    if (upper)
        return bytes_merge(15, (bytes)_mm512_srli_epi16((__m512i)low, 4), halves_down(high, 0, 2)) &
               63;
    return bytes_merge(15, low, halves_up(high, 4, 2)) & 63;
}

LANES_INLINE bytes bytes_nibbles_of_16s(const uint8_t *first, const uint8_t *second)
{
    __m256i stored = _mm256_loadu2_m128i((const __m128i *)second, (const __m128i *)first);
    __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                             _mm512_castsi256_si512(stored));
    __m512i counts = _mm512_setr_epi64(0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0,
                                       0x0004000400040004, 0x0004000400040004);
    return (bytes)_mm512_and_si512(_mm512_srlv_epi16(twice, counts), _mm512_set1_epi8(15));
}

LANES_INLINE bytes bytes_where(uint64_t set, uint8_t value)
{
    return (bytes)_mm512_maskz_set1_epi8(set, (char)value);
}

LANES_INLINE bytes bytes_look_up(const uint8_t table[16], bytes index)
{
    __m512i tables = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return (bytes)_mm512_shuffle_epi8(tables, (__m512i)index);
}

/* 64 numbers of 4 bits: the two of a byte side by side. */
LANES_INLINE bytes bytes_from_nibbles(const uint8_t *p)
{
    __m512i words = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)p));
    enum { A_OR_B_AND_C = 0xa8 };
    return (bytes)_mm512_ternarylogic_epi32(words, _mm512_slli_epi16(words, 4),
                                            _mm512_set1_epi8(15), A_OR_B_AND_C);
}

/* --------------------------------------------------------------------- transposes */

/* 16 rows of 16 numbers, rows and columns exchanged. */
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

LANES_INLINE size_t transpose_16_rows(float *out, size_t out_stride, const float *in,
                                      size_t in_stride, size_t columns)
{
    size_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
        __m512i block[16];
        for (size_t i = 0; i < LANES; i++) block[i] = _mm512_loadu_si512(in + i * in_stride + c);
        transpose_dwords(block);
        for (size_t i = 0; i < LANES; i++)
            _mm512_storeu_si512(out + (c + i) * out_stride, block[i]);
    }
    return c;
}

/* Pairs of columns are transposed as dwords, then taken apart. */
LANES_INLINE void transpose_pairs(uint16_t *out, size_t out_stride, const uint16_t *in,
                                  size_t in_stride)
{
    __m512i pairs[16];
    for (size_t i = 0; i < LANES; i++) pairs[i] = _mm512_loadu_si512(in + i * in_stride);
    transpose_dwords(pairs);
    for (size_t i = 0; i < LANES; i++, out += 2 * out_stride) {
        _mm256_storeu_si256((__m256i *)out, _mm512_cvtepi32_epi16(pairs[i]));
        _mm256_storeu_si256((__m256i *)(out + out_stride),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs[i], 16)));
    }
}

LANES_INLINE size_t transpose_words(const struct turned_words *w)
{
    size_t c = 0, whole = w->rows / LANES * LANES;
    for (; c + 2 * LANES <= w->columns; c += 2 * LANES) {
        for (size_t r = 0; r < whole; r += LANES)
            transpose_pairs(w->out + c * w->out_stride + r, w->out_stride, w->x + r * w->stride + c,
                            w->stride);
        for (size_t i = c; i < c + 2 * LANES; i++)
            for (size_t r = whole; r < w->rows; r++)
                w->out[i * w->out_stride + r] = w->x[r * w->stride + i];
    }
    return c;
}

#endif
