/* lanes.h: sixteen floats at a time, the same bits on every instruction set.
 *
 * A `lanes` is a compiler vector: one register with AVX-512, two with AVX2, four
 * with SSE or NEON.  The order of every sum is written here, not left to the
 * compiler, so the instruction set decides the speed and nothing else.
 *
 * Each function that is visible outside its file is called NAMED(x), which
 * becomes x_avx2 and so on: the files are compiled once for each set. */
#ifndef KERNELS_SIMD_LANES_H
#define KERNELS_SIMD_LANES_H

#include "kernels/kernels.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define NAMED_AGAIN(name, set) name##_##set
#define NAMED_WITH(name, set)  NAMED_AGAIN(name, set)
#define NAMED(name)            NAMED_WITH(name, KERNEL_SET)

enum { LANES = 16 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t int_lanes __attribute__((vector_size(LANES * sizeof(int32_t))));

/* Vectors wider than a register may not cross a call. */
#define LANES_INLINE static inline __attribute__((always_inline))

LANES_INLINE lanes lanes_all(float value)
{
    return value - (lanes){ 0 };
}

LANES_INLINE lanes lanes_load(const float *p)
{
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

LANES_INLINE void lanes_store(float *p, lanes v)
{
    memcpy(p, &v, sizeof v);
}

/* The first `count` (< LANES) of a row, zeroes behind them. */
LANES_INLINE lanes lanes_load_some(const float *p, size_t count)
{
    lanes v = { 0 };
    memcpy(&v, p, count * sizeof(float));
    return v;
}

LANES_INLINE void lanes_store_some(float *p, lanes v, size_t count)
{
    memcpy(p, &v, count * sizeof(float));
}

typedef float half_lanes __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef float quarter_lanes __attribute__((vector_size(LANES / 4 * sizeof(float))));

/* Σ of the lanes: halves folded onto each other until one is left. */
LANES_INLINE float lanes_sum(lanes v)
{
#if defined(__AVX512F__)
    half_lanes h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    quarter_lanes q =
        __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#else /* wider than registers: shuffled number by number, if asked like that */
    half_lanes halves[2], h;
    quarter_lanes quarters[2], q;
    memcpy(halves, &v, sizeof halves);
    h = halves[0] + halves[1];
    memcpy(quarters, &h, sizeof quarters);
    q = quarters[0] + quarters[1];
#endif
    return (q[0] + q[2]) + (q[1] + q[3]);
}

typedef uint8_t byte_lanes __attribute__((vector_size(LANES)));
typedef uint16_t word_half __attribute__((vector_size(LANES)));

/* Sixteen unsigned bytes.  The compiler's own conversion goes byte by byte; this is
 * two instructions with AVX, and interleaving with zeroes elsewhere. */
LANES_INLINE lanes lanes_from_bytes(byte_lanes bytes)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32((__m128i)bytes));
#elif defined(__AVX2__)
    __m128i low = (__m128i)bytes, high = _mm_srli_si128(low, 8);
    __m256 parts[2] = { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low)),
                        _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high)) };
    lanes result;
    memcpy(&result, parts, sizeof result);
    return result;
#else
    const byte_lanes no_bytes = { 0 };
    const word_half no_words = { 0 };
    word_half words[2] = {
        (word_half)__builtin_shufflevector(bytes, no_bytes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5,
                                           21, 6, 22, 7, 23),
        (word_half)__builtin_shufflevector(bytes, no_bytes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28,
                                           13, 29, 14, 30, 15, 31),
    };
    word_half doubles[4];
    for (int i = 0; i < 2; i++) {
        doubles[2 * i] = __builtin_shufflevector(words[i], no_words, 0, 8, 1, 9, 2, 10, 3, 11);
        doubles[2 * i + 1] =
            __builtin_shufflevector(words[i], no_words, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    int_lanes integers;
    memcpy(&integers, doubles, sizeof integers);
    return __builtin_convertvector(integers, lanes);
#endif
}

/* Sixteen bf16 numbers: the upper halves of f32 ones. */
LANES_INLINE lanes lanes_from_bf16(const uint8_t *p)
{
    lanes result;
#if defined(__AVX512F__)
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    result = (lanes)_mm512_slli_epi32(wide, 16);
#elif defined(__AVX2__)
    __m256i halves[2];
    for (int i = 0; i < 2; i++) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p + i));
        halves[i] = _mm256_slli_epi32(wide, 16);
    }
    memcpy(&result, halves, sizeof result);
#else
    const word_half zero = { 0 };
    word_half stored[2], parts[4];
    memcpy(stored, p, sizeof stored);
    for (int i = 0; i < 2; i++) {
        parts[2 * i] = __builtin_shufflevector(zero, stored[i], 0, 8, 1, 9, 2, 10, 3, 11);
        parts[2 * i + 1] = __builtin_shufflevector(zero, stored[i], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    memcpy(&result, parts, sizeof result);
#endif
    return result;
}

/* Each lane of `yes` where the condition's lane is all ones, else of `no`. */
LANES_INLINE lanes lanes_choose(int_lanes condition, lanes yes, lanes no)
{
    int_lanes a, b;
    memcpy(&a, &yes, sizeof a);
    memcpy(&b, &no, sizeof b);
    int_lanes chosen = (a & condition) | (b & ~condition);
    lanes result;
    memcpy(&result, &chosen, sizeof result);
    return result;
}

/* Past the caches where that can be done: for what is not read again soon. */
LANES_INLINE void lanes_store_past(float *out, lanes x)
{
#if defined(__AVX512F__)
    if ((uintptr_t)out % sizeof x == 0) {
        _mm512_stream_ps(out, (__m512)x);
        return;
    }
#endif
    lanes_store(out, x);
}

/* What went past the caches is there for others from here on. */
LANES_INLINE void lanes_stored_past(void)
{
#if defined(__AVX512F__)
    _mm_sfence();
#endif
}

/* a, plus b in the upper eight lanes. */
LANES_INLINE lanes lanes_add_upper(lanes a, lanes b)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_mask_add_ps((__m512)a, 0xff00, (__m512)a, (__m512)b);
#else
    const int_lanes upper = { 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1 };
    return a + lanes_choose(upper, b, (lanes){ 0 });
#endif
}

LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return lanes_choose(a > b, a, b);
}

/* a·b + c, rounded once. */
LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
#if defined(__AVX512F__)
    return (lanes)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    __m256 x[2], y[2], z[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(z, &c, sizeof z);
    for (int i = 0; i < 2; i++) z[i] = _mm256_fmadd_ps(x[i], y[i], z[i]);
    memcpy(&c, z, sizeof c);
    return c;
#elif defined(__ARM_FEATURE_DOTPROD)
    float32x4_t x[4], y[4], z[4];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(z, &c, sizeof z);
    for (int i = 0; i < 4; i++) z[i] = vfmaq_f32(z[i], x[i], y[i]);
    memcpy(&c, z, sizeof c);
    return c;
#else
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#endif
}

/* e^r for x = n·ln 2 + r, |r| ≤ ½ ln 2: a polynomial. */
LANES_INLINE lanes exp_of_rest(lanes x, lanes *n)
{
    const float log2e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    /* Adding and taking off 1.5·2^23 rounds to the nearest whole number. */
    const lanes magic = lanes_all(12582912.0f);
    *n = (x * log2e + magic) - magic;
    lanes r = (x - *n * ln2_high) - *n * ln2_low;
    lanes p = lanes_all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * r) * r + r + 1.0f;
}

/* e^x to about one unit in the last place.  Below -87.3 the result is 0, above 88.7 it is
 * infinite; NaN stays NaN. */
LANES_INLINE lanes lanes_exp(lanes x)
{
    const lanes lowest = lanes_all(-87.33654f), highest = lanes_all(88.72283f);
    lanes n;
#if defined(__AVX512F__) /* the same bits with half the instructions where no limit is near */
    const __m512 near = _mm512_set1_ps(87.0f);
    if (_mm512_cmp_ps_mask(_mm512_abs_ps((__m512)x), near, _CMP_NLE_UQ) == 0) {
        __m512 p = (__m512)exp_of_rest(x, &n);
        return (lanes)_mm512_scalef_ps(p, (__m512)n);
    }
#endif
    lanes clamped = lanes_choose(x < lowest, lowest, x);
    clamped = lanes_choose(x > highest, highest, clamped);
    lanes p = exp_of_rest(clamped, &n);

    /* 2^n in two factors: n reaches 128, which one float's exponent does not hold. */
    int_lanes half = __builtin_convertvector(n * 0.5f, int_lanes);
    int_lanes rest = __builtin_convertvector(n, int_lanes) - half;
    int_lanes first_bits = (half + 127) << 23, second_bits = (rest + 127) << 23;
    lanes first, second;
    memcpy(&first, &first_bits, sizeof first);
    memcpy(&second, &second_bits, sizeof second);
    lanes result = (p * first) * second;
    result = lanes_choose(x < lowest, (lanes){ 0 }, result);
    result = lanes_choose(x > highest, lanes_all(__builtin_inff()), result);
    return lanes_choose(x == x, result, x);
}

/* 1 / (1 + e^-x) */
LANES_INLINE lanes lanes_sigmoid(lanes x)
{
    return 1.0f / (1.0f + lanes_exp(-x));
}

#endif
