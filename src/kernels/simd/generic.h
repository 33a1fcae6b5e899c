/* generic.h: the vocabulary of simd.h in plain C.  Its loops define the results of all sets. */
#ifndef KERNELS_SIMD_GENERIC_H
#define KERNELS_SIMD_GENERIC_H

#include "kernels/simd/quarters.h"

/* ------------------------------------------------------------------ lanes and parts */

LANES_INLINE part part_fma(part a, part b, part c)
{
    for (int i = 0; i < PART; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    for (int i = 0; i < LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}

LANES_INLINE float float_from_f16(const uint8_t *p)
{
    return f32_from_f16(load_u16(p));
}

LANES_INLINE half_lanes half_from_f16(eight_words words)
{
    half_lanes result;
    for (int i = 0; i < 8; i++) result[i] = f32_from_f16(words[i]);
    return result;
}

/* ------------------------------------------------------------------------- bytes */

LANES_INLINE bytes bytes_nibbles_of_16s(const uint8_t *first, const uint8_t *second)
{
    uint8_t out[BYTES];
    for (int i = 0; i < 16; i++) {
        out[i] = first[i] & 15;
        out[16 + i] = first[i] >> 4;
        out[32 + i] = second[i] & 15;
        out[48 + i] = second[i] >> 4;
    }
    return bytes_load(out);
}

LANES_INLINE bytes bytes_where(uint64_t set, uint8_t value)
{
    uint8_t out[BYTES];
    for (int i = 0; i < BYTES; i++) out[i] = (uint8_t)((set >> i & 1) * value);
    return bytes_load(out);
}

LANES_INLINE bytes bytes_look_up(const uint8_t table[16], bytes index)
{
    uint8_t out[BYTES];
    for (int i = 0; i < BYTES; i++) out[i] = table[index[i]];
    return bytes_load(out);
}

LANES_INLINE bytes bytes_from_stream(const uint8_t *p, unsigned bits)
{
    const uint8_t mask = (uint8_t)((1u << bits) - 1);
    uint8_t out[BYTES];
    for (int i = 0; i < BYTES; i += 8, p += bits) {
        uint64_t stream = 0;
        memcpy(&stream, p, bits);
        for (unsigned j = 0; j < 8; j++) out[i + (int)j] = (uint8_t)(stream >> (j * bits) & mask);
    }
    return bytes_load(out);
}

/* ---------------------------------------------------------------- integer products */

/* sums[l] += Σ u[4l + i]·s[4l + i], u unsigned, s signed. */
LANES_INLINE int_lanes dot4(int_lanes sums, bytes u, bytes s)
{
    int8_t factors[BYTES];
    memcpy(factors, &s, sizeof factors);
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++) sums[l] += u[4 * l + i] * factors[4 * l + i];
    return sums;
}

LANES_INLINE int_lanes dot4_planes(bytes u, bytes high, bytes low, bool wide)
{
    (void)wide;
    return dot4(dot4((int_lanes){ 0 }, u, high) << 7, u, low);
}

LANES_INLINE int_lanes sums_of_16(const int_lanes fours[4])
{
    int_lanes result;
    int32_t from[4 * LANES], to[LANES];
    memcpy(from, fours, sizeof from);
    for (int g = 0; g < LANES; g++)
        to[g] = (from[4 * g] + from[4 * g + 1]) + (from[4 * g + 2] + from[4 * g + 3]);
    memcpy(&result, to, sizeof result);
    return result;
}

LANES_INLINE int_lanes sums_of_32(int_lanes sixteens)
{
    int_lanes result;
    int32_t from[LANES], to[LANES] = { 0 };
    memcpy(from, &sixteens, sizeof from);
    for (int g = 0; g < LANES / 2; g++) to[g] = from[2 * g] + from[2 * g + 1];
    memcpy(&result, to, sizeof result);
    return result;
}

#endif
