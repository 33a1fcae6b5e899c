/* loops_bf16.c: products of pairs of bf16 numbers in vectors, with nothing to wait for. */
#include "tools/loops.h"

#include <immintrin.h>

float loops_bf16(size_t rounds)
{
    __m512 sums[BF16_SUMS];
    __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    for (int i = 0; i < BF16_SUMS; i++) sums[i] = _mm512_setzero_ps();
    __asm__ volatile("" : "+v"(ones)); /* else their products are known */
    for (size_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < BF16_SUMS; i++) sums[i] = _mm512_dpbf16_ps(sums[i], ones, ones);
    for (int i = 1; i < BF16_SUMS; i++) sums[0] = _mm512_add_ps(sums[0], sums[i]);
    return _mm512_reduce_add_ps(sums[0]);
}
