/* lanes_fast.h: what only the tuned arithmetic needs: half precision and powers of two.
 * Conversions are exact or round once, so they are the same on every instruction set. */
#ifndef KERNELS_LANES_FAST_H
#define KERNELS_LANES_FAST_H

#include "kernels/lanes.h"

/* Sixteen f16 numbers. */
LANES_INLINE lanes lanes_from_f16(const uint16_t *p)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__F16C__)
    __m256 parts[2] = { _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))) };
    lanes result;
    memcpy(&result, parts, sizeof result);
    return result;
#elif defined(__ARM_NEON)
    float32x4_t parts[4];
    lanes result;
    for (int i = 0; i < 4; i++) {
        uint16x4_t stored = vld1_u16(p + 4 * i);
        parts[i] = vcvt_f32_f16(vreinterpret_f16_u16(stored));
    }
    memcpy(&result, parts, sizeof result);
    return result;
#else
    lanes result;
    for (int i = 0; i < LANES; i++) result[i] = f32_from_f16(p[i]);
    return result;
#endif
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
