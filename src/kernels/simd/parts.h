/* parts.h: the floats that one register holds; the set's header has said how many (PART).
 *
 * The compiler keeps a vector wider than a register in memory.  That does not matter for one
 * vector on its way through; sums that a loop adds to are parts, so that they stay in registers. */
#ifndef KERNELS_SIMD_PARTS_H
#define KERNELS_SIMD_PARTS_H

#include "kernels/simd/types.h"

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

LANES_INLINE part part_from_signed(const int8_t *p)
{
    typedef int8_t byte_part __attribute__((vector_size(PART)));
    byte_part stored;
    memcpy(&stored, p, sizeof stored);
    return __builtin_convertvector(__builtin_convertvector(stored, int_part), part);
}

LANES_INLINE part part_all(float value)
{
    return value - (part){ 0 };
}

#endif
