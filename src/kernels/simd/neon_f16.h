/* neon_f16.h: f16 numbers on ARM; every 64-bit ARM has these instructions. */
#ifndef KERNELS_SIMD_NEON_F16_H
#define KERNELS_SIMD_NEON_F16_H

#include "kernels/simd/quarters.h"

#include <arm_neon.h>

LANES_INLINE part part_from_f16(const uint16_t *p)
{
    float16x4_t stored;
    memcpy(&stored, p, sizeof stored);
    return (part)vcvt_f32_f16(stored);
}

LANES_INLINE lanes lanes_from_f16(const void *p)
{
    float32x4_t parts[4];
    lanes result;
    for (int i = 0; i < 4; i++) {
        float16x4_t stored;
        memcpy(&stored, (const uint8_t *)p + 8 * i, sizeof stored);
        parts[i] = vcvt_f32_f16(stored);
    }
    memcpy(&result, parts, sizeof result);
    return result;
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes v)
{
    float32x4_t parts[4];
    memcpy(parts, &v, sizeof parts);
    for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(parts[i])));
}

/* Shifted, the bits of an e4m3 number are those of an f16 one. */
LANES_INLINE lanes lanes_from_e4m3(const uint8_t *p)
{
    word_lanes shifted = (words_from_bytes(p) << 7) & (int16_t)0xbf80;
    return lanes_from_f16(&shifted);
}

#endif
