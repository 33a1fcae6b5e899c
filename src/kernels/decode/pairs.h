/* pairs.h: UNIT_ORDER_PAIRS, which weights and activations are put in. */
#ifndef KERNELS_DECODE_PAIRS_H
#define KERNELS_DECODE_PAIRS_H

#include "kernels/simd/simd.h"

/* A unit's bytes from row order to UNIT_ORDER_PAIRS. */
LANES_INLINE void unit_part_pairs(void *bytes_of_unit)
{
    uint8_t from[UNIT], to[UNIT];
    memcpy(from, bytes_of_unit, sizeof from);
    for (size_t half = 0; half < UNIT; half += UNIT / 2)
        for (size_t i = 0; i < UNIT / 4; i++) {
            to[half + i] = from[half + 2 * i];
            to[half + UNIT / 4 + i] = from[half + 2 * i + 1];
        }
    memcpy(bytes_of_unit, to, sizeof to);
}

#endif
