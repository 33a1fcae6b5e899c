/* neon_i8mm.h: products of unsigned with signed bytes on ARM with the int8 extension. */
#ifndef KERNELS_SIMD_NEON_I8MM_H
#define KERNELS_SIMD_NEON_I8MM_H

#include "kernels/simd/neon.h"

LANES_INLINE int_lanes dot4_wide(int_lanes sums, bytes u, bytes s)
{
    uint8x16_t x[4];
    int8x16_t y[4];
    int32x4_t z[4];
    memcpy(x, &u, sizeof x);
    memcpy(y, &s, sizeof y);
    memcpy(z, &sums, sizeof z);
    for (int i = 0; i < 4; i++) z[i] = vusdotq_s32(z[i], x[i], y[i]);
    memcpy(&sums, z, sizeof z);
    return sums;
}

#endif
