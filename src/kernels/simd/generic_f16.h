/* generic_f16.h: f16 numbers in plain C. */
#ifndef KERNELS_SIMD_GENERIC_F16_H
#define KERNELS_SIMD_GENERIC_F16_H

#include "kernels/simd/quarters.h"

LANES_INLINE part part_from_f16(const uint16_t *p)
{
    part v;
    for (int i = 0; i < PART; i++) v[i] = f32_from_f16(p[i]);
    return v;
}

LANES_INLINE lanes lanes_from_f16(const void *p)
{
    lanes result;
    for (int i = 0; i < LANES; i++) result[i] = f32_from_f16(load_u16((const uint16_t *)p + i));
    return result;
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes v)
{
    for (int i = 0; i < LANES; i++) p[i] = f16_from_f32(v[i]);
}

LANES_INLINE lanes lanes_from_e4m3(const uint8_t *p)
{
    lanes result;
    for (int i = 0; i < LANES; i++) result[i] = f32_from_e4m3(p[i]) * 0x1p-8f;
    return result;
}

#endif
