/* neon.h: the vocabulary of simd.h with 64-bit ARM's vectors and its dot products.
 * The product of unsigned with signed bytes is in neon_i8mm.h or neon_dotprod.h. */
#ifndef KERNELS_SIMD_NEON_H
#define KERNELS_SIMD_NEON_H

#include "kernels/simd/neon_f16.h"

/* ------------------------------------------------------------------ lanes and parts */

LANES_INLINE part part_fma(part a, part b, part c)
{
    return (part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    float32x4_t x[4], y[4], z[4];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    memcpy(z, &c, sizeof z);
    for (int i = 0; i < 4; i++) z[i] = vfmaq_f32(z[i], x[i], y[i]);
    memcpy(&c, z, sizeof c);
    return c;
}

LANES_INLINE float float_from_f16(const uint8_t *p)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(load_u16(p)))), 0);
}

LANES_INLINE half_lanes half_from_f16(eight_words words)
{
    half_lanes result;
    float16x8_t halves = (float16x8_t)words;
    float32x4_t parts[2] = { vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves) };
    memcpy(&result, parts, sizeof result);
    return result;
}

/* ------------------------------------------------------------------------- bytes */

LANES_INLINE bytes bytes_nibbles_of_16s(const uint8_t *first, const uint8_t *second)
{
    uint8x16_t a = vld1q_u8(first), b = vld1q_u8(second);
    uint8x16_t parts[4] = { a & 15, a >> 4, b & 15, b >> 4 };
    return bytes_load(parts);
}

/* A byte of `set` comes to the eight numbers that its bits are for. */
LANES_INLINE bytes bytes_where(uint64_t set, uint8_t value)
{
    const uint8x16_t each = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    const uint8x16_t halves = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 };
    uint8x16_t stored = vreinterpretq_u8_u64(vdupq_n_u64(set)), parts[4];
    for (int i = 0; i < 4; i++) {
        uint8x16_t spread = vqtbl1q_u8(stored, halves + (uint8_t)(2 * i));
        parts[i] = vtstq_u8(spread, each) & value;
    }
    return bytes_load(parts);
}

LANES_INLINE bytes bytes_look_up(const uint8_t table[16], bytes index)
{
    uint8x16_t parts[4], levels = vld1q_u8(table);
    memcpy(parts, &index, sizeof parts);
    for (int i = 0; i < 4; i++) parts[i] = vqtbl1q_u8(levels, parts[i]);
    return bytes_load(parts);
}

/* Eight numbers of a stream: the two bytes that number j may lie in, shifted to their place. */
LANES_INLINE uint8x8_t eight_from_stream(uint8x16_t stored, unsigned first, unsigned bits)
{
    uint8_t places[16];
    int16_t shifts[8];
    for (unsigned j = 0; j < 8; j++) {
        places[2 * j] = (uint8_t)(first + j * bits / 8);
        places[2 * j + 1] = (uint8_t)(first + j * bits / 8 + 1);
        shifts[j] = (int16_t) - (int)(j * bits % 8);
    }
    uint16x8_t pairs = vreinterpretq_u16_u8(vqtbl1q_u8(stored, vld1q_u8(places)));
    uint16x8_t shifted = vshlq_u16(pairs, vld1q_s16(shifts));
    return vmovn_u16(shifted & (uint16_t)((1u << bits) - 1));
}

/* Sixteen numbers have 2·bits bytes; near the end the last 16 bytes are loaded instead.  A second
 * byte that would lie behind them is 0: no number reaches into it. */
LANES_INLINE bytes bytes_from_stream(const uint8_t *p, unsigned bits)
{
    uint8x16_t parts[4];
    for (unsigned i = 0; i < 4; i++) {
        unsigned begin = 2 * bits * i, end = 8 * bits - 16, from = begin < end ? begin : end;
        uint8x16_t stored = vld1q_u8(p + from);
        parts[i] = vcombine_u8(eight_from_stream(stored, begin - from, bits),
                               eight_from_stream(stored, begin - from + bits, bits));
    }
    return bytes_load(parts);
}

/* ---------------------------------------------------------------- integer products */

/* sums[l] += Σ a[4l + i]·s[4l + i], both signed. */
LANES_INLINE int_lanes dot4_signed(int_lanes sums, bytes a, bytes s)
{
    int8x16_t x[4], y[4];
    int32x4_t z[4];
    memcpy(x, &a, sizeof x);
    memcpy(y, &s, sizeof y);
    memcpy(z, &sums, sizeof z);
    for (int i = 0; i < 4; i++) z[i] = vdotq_s32(z[i], x[i], y[i]);
    memcpy(&sums, z, sizeof z);
    return sums;
}

/* The same with u unsigned: by extension. */
LANES_INLINE int_lanes dot4_wide(int_lanes sums, bytes u, bytes s);

/* Numbers below 128 are the same as signed ones. */
LANES_INLINE int_lanes dot4_planes(bytes u, bytes high, bytes low, bool wide)
{
    int_lanes none = { 0 }, sum;
    sum = (wide ? dot4_wide(none, u, high) : dot4_signed(none, u, high)) << 7;
    return wide ? dot4_wide(sum, u, low) : dot4_signed(sum, u, low);
}

LANES_INLINE int_lanes sums_of_16(const int_lanes fours[4])
{
    int_lanes result;
    int32x4_t parts[4];
    for (int v = 0; v < 4; v++) {
        int32x4_t from[4];
        memcpy(from, &fours[v], sizeof from);
        parts[v] = vpaddq_s32(vpaddq_s32(from[0], from[1]), vpaddq_s32(from[2], from[3]));
    }
    memcpy(&result, parts, sizeof result);
    return result;
}

LANES_INLINE int_lanes sums_of_32(int_lanes sixteens)
{
    int_lanes result;
    int32x4_t from[4];
    memcpy(from, &sixteens, sizeof from);
    int32x4_t parts[4] = { vpaddq_s32(from[0], from[1]), vpaddq_s32(from[2], from[3]),
                           vdupq_n_s32(0), vdupq_n_s32(0) };
    memcpy(&result, parts, sizeof result);
    return result;
}

#endif
