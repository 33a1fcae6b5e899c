/* floats.h: floats of fewer bits, and powers of two.
 * Conversions are exact or round once, so they are the same on every instruction set. */
#ifndef KERNELS_SIMD_FLOATS_H
#define KERNELS_SIMD_FLOATS_H

#include "kernels/simd/lanes.h"

/* Sixteen f16 numbers. */
LANES_INLINE lanes lanes_from_f16(const void *p)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__)
    __m256 parts[2] = { _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + 1)) };
    lanes result;
    memcpy(&result, parts, sizeof result);
    return result;
#elif defined(__ARM_NEON)
    float32x4_t parts[4];
    lanes result;
    for (int i = 0; i < 4; i++) {
        float16x4_t stored;
        memcpy(&stored, (const uint8_t *)p + 8 * i, sizeof stored);
        parts[i] = vcvt_f32_f16(stored);
    }
    memcpy(&result, parts, sizeof result);
    return result;
#else
    lanes result;
    for (int i = 0; i < LANES; i++) result[i] = f32_from_f16(load_u16((const uint16_t *)p + i));
    return result;
#endif
}

#if defined(__F16C__) || defined(__ARM_NEON)
#define LANES_HAVE_F16 1
#endif

typedef int8_t signed_bytes __attribute__((vector_size(LANES)));
typedef int16_t word_lanes __attribute__((vector_size(LANES * sizeof(int16_t))));

/* Sixteen bytes with their signs. */
LANES_INLINE word_lanes words_from_bytes(const uint8_t *p)
{
#if defined(__AVX2__) /* the compiler takes halves */
    return (word_lanes)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
#else
    signed_bytes stored;
    memcpy(&stored, p, sizeof stored);
    return __builtin_convertvector(stored, word_lanes);
#endif
}

/* Sixteen numbers of four bits of exponent and three of fraction, 2^8 too small: shifted, they
 * are f16 numbers.  What has NaNs (e4m3_has_nan) must go another way. */
LANES_INLINE lanes lanes_from_e4m3(const uint8_t *p)
{
#if defined(LANES_HAVE_F16)
    word_lanes shifted = (words_from_bytes(p) << 7) & (int16_t)0xbf80;
    return lanes_from_f16(&shifted);
#else
    lanes result;
    for (int i = 0; i < LANES; i++) result[i] = f32_from_e4m3(p[i]) * 0x1p-8f;
    return result;
#endif
}

static inline bool e4m3_has_nan(const uint8_t *p, size_t n)
{
    uint8_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t magnitude = p[i] & 0x7f;
        most = magnitude > most ? magnitude : most;
    }
    return most == 0x7f;
}

/* Sixteen numbers that are the upper halves of f16 ones. */
LANES_INLINE lanes lanes_from_e5m2(const uint8_t *p)
{
    word_lanes shifted = words_from_bytes(p) << 8;
    return lanes_from_f16(&shifted);
}

LANES_INLINE lanes lanes_from_f16_bytes(const uint8_t *p)
{
    return lanes_from_f16(p);
}

/* One of those above. */
typedef lanes (*load_function)(const uint8_t *p);

/* The first `count` (< LANES) numbers of so many bytes, zeroes behind them. */
LANES_INLINE lanes lanes_load_floats(const uint8_t *p, size_t count, size_t bytes,
                                     load_function load)
{
    lanes copy = { 0 }; /* room for them, and as aligned as a vector */
    memcpy(&copy, p, count * bytes);
    return load((const uint8_t *)&copy);
}

/* A scale or bias; bf16 is what MLX writes, f32 and bf16 stand beside 8-bit floats. */
LANES_INLINE float load_scale(enum format format, const uint8_t *array, size_t index)
{
    if (format == FORMAT_BF16) return f32_from_bf16(load_u16(array + 2 * index));
    if (format == FORMAT_F32) return load_f32(array + 4 * index);
    return format_load(format, array, index);
}

/* The nearest f16 numbers, ties to even. */
LANES_INLINE void lanes_to_f16(uint16_t *p, lanes v)
{
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    __m256 parts[2];
    memcpy(parts, &v, sizeof parts);
    for (int i = 0; i < 2; i++)
        _mm_storeu_si128((__m128i *)(p + 8 * i),
                         _mm256_cvtps_ph(parts[i], _MM_FROUND_TO_NEAREST_INT));
#elif defined(__ARM_NEON)
    float32x4_t parts[4];
    memcpy(parts, &v, sizeof parts);
    for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(parts[i])));
#else
    for (int i = 0; i < LANES; i++) p[i] = f16_from_f32(v[i]);
#endif
}

/* The greater one; b where either is NaN.  One instruction, which the compiler does not
 * make of lanes_max. */
LANES_INLINE lanes lanes_greater(lanes a, lanes b)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return lanes_max(a, b);
#endif
}

/* The lesser one; b where either is NaN. */
LANES_INLINE lanes lanes_least(lanes a, lanes b)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_min_ps((__m512)a, (__m512)b);
#else
    return lanes_choose(a < b, a, b);
#endif
}

/* v, but 0 where the condition's lane is all ones. */
LANES_INLINE lanes lanes_zero_where(int_lanes condition, lanes v)
{
    int_lanes bits;
    memcpy(&bits, &v, sizeof bits);
    bits &= ~condition;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* 2^x for x ≤ 127 to about one unit in the last place; 2^0 is 1, below -126 it is 0. */
LANES_INLINE lanes lanes_exp2(lanes x)
{
    const lanes lowest = lanes_all(-126.0f);
    /* Adding and taking off 1.5·2^23 rounds to the nearest whole number n, which then
     * stands in the lowest bits. */
    const lanes magic = lanes_all(12582912.0f);
    lanes clamped = lanes_greater(lowest, x); /* NaN stays NaN */
    lanes rounded = clamped + magic;
    lanes r = clamped - (rounded - magic);
    lanes p = lanes_all(1.55946775e-4f);
    p = lanes_fma(p, r, lanes_all(1.34066439e-3f));
    p = lanes_fma(p, r, lanes_all(9.61769298e-3f));
    p = lanes_fma(p, r, lanes_all(5.55031055e-2f));
    p = lanes_fma(p, r, lanes_all(2.40226528e-1f));
    p = lanes_fma(p, r, lanes_all(6.93147215e-1f));
    p = lanes_fma(p, r, lanes_all(1.0f));
    int_lanes bits, n;
    memcpy(&bits, &p, sizeof bits);
    memcpy(&n, &rounded, sizeof n);
    bits += n << 23; /* what is above the exponent falls off */
    memcpy(&p, &bits, sizeof p);
    return lanes_zero_where(x < lowest, p);
}

#endif
