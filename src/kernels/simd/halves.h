/* halves.h: vocabulary of the sets whose registers are narrower than 16 floats (avx2, neon,
 * generic).
 *
 * Vectors are taken apart and put together through memcpy: asked to shuffle a vector wider than a
 * register, the compiler does it number by number. */
#ifndef KERNELS_SIMD_HALVES_H
#define KERNELS_SIMD_HALVES_H

#include "kernels/simd/types.h"

/* Defined by the set. */
LANES_INLINE half_lanes half_from_f16(eight_words words);
LANES_INLINE half_lanes half_twice(half_lanes s);
LANES_INLINE half_lanes half_four_times(half_lanes s);
LANES_INLINE lanes lanes_two_eights(half_lanes s);

/* ------------------------------------------------------------------------ lanes */

LANES_INLINE float lanes_sum(lanes v)
{
    half_lanes halves[2], h;
    quarter_lanes quarters[2], q;
    memcpy(halves, &v, sizeof halves);
    h = halves[0] + halves[1];
    memcpy(quarters, &h, sizeof quarters);
    q = quarters[0] + quarters[1];
    return (q[0] + q[2]) + (q[1] + q[3]);
}

LANES_INLINE lanes lanes_join(half_lanes low, half_lanes high)
{
    half_lanes halves[2] = { low, high };
    lanes result;
    memcpy(&result, halves, sizeof result);
    return result;
}

LANES_INLINE lanes lanes_add_upper(lanes a, lanes b)
{
    const int_lanes upper = { 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1 };
    return a + lanes_choose(upper, b, (lanes){ 0 });
}

LANES_INLINE lanes lanes_greater(lanes a, lanes b)
{
    return lanes_max(a, b);
}

LANES_INLINE lanes lanes_least(lanes a, lanes b)
{
    return lanes_choose(a < b, a, b);
}

LANES_INLINE void lanes_stream(float *out, lanes x)
{
    lanes_store(out, x);
}

LANES_INLINE void lanes_streamed(void)
{
}

LANES_INLINE bool lanes_within(lanes x, float limit)
{
    (void)x, (void)limit;
    return false; /* to ask costs more than the answer saves */
}

/* In two factors: n reaches 128, which one float's exponent does not hold. */
LANES_INLINE lanes lanes_times_power(lanes p, lanes n)
{
    int_lanes half = __builtin_convertvector(n * 0.5f, int_lanes);
    int_lanes rest = __builtin_convertvector(n, int_lanes) - half;
    int_lanes first_bits = (half + 127) << 23, second_bits = (rest + 127) << 23;
    lanes first, second;
    memcpy(&first, &first_bits, sizeof first);
    memcpy(&second, &second_bits, sizeof second);
    return (p * first) * second;
}

LANES_INLINE void lanes_to_bytes(int8_t *out, int_lanes v)
{
    for (int i = 0; i < LANES; i++) out[i] = (int8_t)v[i];
}

/* -------------------------------------------------------------- scales of groups */

LANES_INLINE lanes lanes_scale_and_min(const uint8_t *d, float odd)
{
    eight_words first; /* two of them count; a whole register is one load */
    memcpy(&first, d, sizeof first);
    const lanes signs = { 1, odd, 1, odd, 1, odd, 1, odd, -1, -1, -1, -1, -1, -1, -1, -1 };
    return lanes_two_eights(half_from_f16(first)) * signs;
}

LANES_INLINE half_lanes half_from_16_bits(eight_words words, bool is_bf16)
{
    if (!is_bf16) return half_from_f16(words);
    half_lanes result;
    eight_integers bits = __builtin_convertvector(words, eight_integers) << 16;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* One of the two arrays of `from`: its numbers for 32 columns each. */
LANES_INLINE half_lanes half_16_bit_groups(const uint8_t *array, struct group_numbers from)
{
    if (from.group_cols == 32) {
        eight_words words;
        memcpy(&words, array + 16 * from.index, sizeof words);
        return half_from_16_bits(words, from.is_bf16);
    }
    if (from.group_cols == 64) {
        uint64_t four;
        memcpy(&four, array + 8 * from.index, sizeof four);
        return half_twice(half_from_16_bits((eight_words)(two_quads){ four, 0 }, from.is_bf16));
    }
    uint32_t two = load_u32(array + 4 * from.index);
    return half_four_times(half_from_16_bits((eight_words)(two_quads){ two, 0 }, from.is_bf16));
}

LANES_INLINE lanes lanes_16_bit_groups(struct group_numbers from)
{
    return lanes_join(half_16_bit_groups(from.first, from), half_16_bit_groups(from.second, from));
}

/* ------------------------------------------------------------------------ bytes */

LANES_INLINE bytes bytes_join(const uint8_t *first, const uint8_t *second)
{
    half_bytes halves[2];
    memcpy(&halves[0], first, sizeof halves[0]);
    memcpy(&halves[1], second, sizeof halves[1]);
    return bytes_load(halves);
}

LANES_INLINE bytes bytes_fields(const uint8_t *p, unsigned first, unsigned second, uint8_t mask)
{
    half_bytes stored, halves[2];
    memcpy(&stored, p, sizeof stored);
    halves[0] = stored >> (uint8_t)first & mask;
    halves[1] = stored >> (uint8_t)second & mask;
    return bytes_load(halves);
}

LANES_INLINE bytes bytes_six_bits(bytes low, const uint8_t *high, bool upper)
{
    if (upper) return (low >> 4) | bytes_fields(high, 4, 6, 3) << 4;
    return (low & 15) | bytes_fields(high, 0, 2, 3) << 4;
}

#endif
