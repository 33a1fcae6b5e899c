/* parts.h: the lanes that one register holds: 16 with AVX-512, 8 with AVX2, else 4.
 *
 * What is wider than a register the compiler keeps in memory.  That does not matter for one
 * vector on its way through; sums that a loop adds to are parts, so that they stay in registers. */
#ifndef KERNELS_SIMD_PARTS_H
#define KERNELS_SIMD_PARTS_H

#include "kernels/simd/lanes.h"

#if defined(__AVX512F__)
enum { PART = 16 };
#elif defined(__AVX2__)
enum { PART = 8 };
#else
enum { PART = 4 };
#endif
enum { PARTS = LANES / PART };

typedef float part __attribute__((vector_size(PART * sizeof(float))));
typedef int32_t int_part __attribute__((vector_size(PART * sizeof(int32_t))));

LANES_INLINE part part_load(const float *p)
{
    part v;
    memcpy(&v, p, sizeof v);
    return v;
}

LANES_INLINE void part_store(float *p, part v)
{
    memcpy(p, &v, sizeof v);
}

LANES_INLINE part part_all(float value)
{
    return value - (part){ 0 };
}

/* f16 numbers. */
LANES_INLINE part part_from_f16(const uint16_t *p)
{
#if defined(__AVX512F__)
    return (part)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
#elif defined(__F16C__)
    return (part)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(__ARM_NEON)
    float16x4_t stored;
    memcpy(&stored, p, sizeof stored);
    return (part)vcvt_f32_f16(stored);
#else
    part v;
    for (int i = 0; i < PART; i++) v[i] = f32_from_f16(p[i]);
    return v;
#endif
}

/* a·b + c, rounded once. */
LANES_INLINE part part_fma(part a, part b, part c)
{
#if defined(__AVX512F__)
    return (part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_FEATURE_DOTPROD)
    return (part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    for (int i = 0; i < PART; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

#endif
