/* neon_dotprod.h: products of unsigned with signed bytes on ARM without the int8 extension. */
#ifndef KERNELS_SIMD_NEON_DOTPROD_H
#define KERNELS_SIMD_NEON_DOTPROD_H

#include "kernels/simd/neon.h"

/* u - 128 is signed, and 128·Σs makes up for it. */
LANES_INLINE int_lanes dot4_wide(int_lanes sums, bytes u, bytes s)
{
    int_lanes none = { 0 };
    return dot4_signed(sums, u ^ 128, s) + (dot4_signed(none, (bytes){ 0 } + 1, s) << 7);
}

#endif
