/* loops.c: reading and multiplying as fast as the registers allow. */
#include "tools/loops.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define NAMED_AGAIN(name, set) name##_##set
#define NAMED_WITH(name, set)  NAMED_AGAIN(name, set)
#define NAMED(name)            NAMED_WITH(name, LOOP_SET)
#define TEXT_AGAIN(text)       #text
#define TEXT(text)             TEXT_AGAIN(text)

/* As many accumulators as hide the latency of two units, and as there are registers for. */
#if defined(__AVX512F__)
typedef __m512 vector;
enum { ACCUMULATORS = 24 };
#define MULTIPLY_ADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#elif defined(__AVX2__)
typedef __m256 vector;
enum { ACCUMULATORS = 12 };
#define MULTIPLY_ADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#elif defined(__ARM_NEON)
typedef float32x4_t vector;
enum { ACCUMULATORS = 24 };
#define MULTIPLY_ADD(a, b, c) vfmaq_f32(c, a, b)
#else
typedef float vector __attribute__((vector_size(16)));
enum { ACCUMULATORS = 12 };
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

enum { VECTOR_FLOATS = sizeof(vector) / sizeof(float) };

static float multiply_add(size_t rounds)
{
    vector sums[ACCUMULATORS], factor, zero = { 0 };
    for (int i = 0; i < ACCUMULATORS; i++) sums[i] = zero + (float)i;
    factor = zero + 0.999f; /* sums stay near 1: no infinity, nothing denormal */
    vector addend = zero + 0.001f;
    for (size_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int i = 0; i < ACCUMULATORS; i++) sums[i] = MULTIPLY_ADD(sums[i], factor, addend);
        __asm__ volatile("" : "+x"(factor)); /* the next round is another one */
    }
    vector all = zero;
    for (int i = 0; i < ACCUMULATORS; i++) all += sums[i];
    return all[0];
}

/* Four streams at a time, as a kernel reads four rows: that keeps more lines under way than
 * one stream does. */
static uint64_t read_memory(const void *memory, size_t bytes)
{
    typedef uint64_t line __attribute__((vector_size(CACHE_LINE)));
    enum { STREAMS = 4 };
    const line *lines = memory;
    size_t part = bytes / CACHE_LINE / STREAMS;
    line sums[STREAMS] = { { 0 } };
    for (size_t i = 0; i < part; i += 4) {
#pragma GCC unroll 4
        for (int s = 0; s < STREAMS; s++) {
            const line *at = lines + (size_t)s * part + i;
            sums[s] ^= (at[0] ^ at[1]) ^ (at[2] ^ at[3]);
        }
    }
    line all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
    return all[0] ^ all[1] ^ all[2] ^ all[3] ^ all[4] ^ all[5] ^ all[6] ^ all[7];
}

const struct loops NAMED(loops) = {
    .name = TEXT(LOOP_SET),
    .read = read_memory,
    .multiply_add = multiply_add,
    .flops_per_round = (size_t)2 * ACCUMULATORS * VECTOR_FLOATS,
};
