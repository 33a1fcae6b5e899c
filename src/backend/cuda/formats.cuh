/* formats.cuh: weights of every format on the device, eight at a time.
 *
 * The unit is eight consecutive numbers of a row from an element k that is a multiple of 8.  It
 * lies in one block of every format, and under one scale of every GGUF format:
 *
 *     load 2 to 8 bytes  ->  eight bytes, an unsigned number in each  ->  eight floats
 *
 * The floats are those of quant/format.h's `dequantise`, bit for bit (a NaN may have another
 * payload).  So products and sums are the intrinsics that the compiler never contracts, and
 * conversions do not depend on -ftz.  Files that include this one are compiled without fast-math.
 *
 * Weights may start at any address.  Loads are of aligned words that hold at least one byte of the
 * row, so they never leave the row's pages, but they may touch up to 3 bytes on either side. */
#ifndef BACKEND_CUDA_FORMATS_CUH
#define BACKEND_CUDA_FORMATS_CUH

#include <cuda_fp16.h>
#include <stddef.h>
#include <stdint.h>

/* C++ has no such keyword, and the shared headers are C. */
#define _Static_assert static_assert
#include "quant/blocks.h"
#include "quant/format.h"
#undef _Static_assert

#include "backend/cuda/launch.h"

#define DEVICE static __device__ __forceinline__

enum { UNIT = 8, FORMAT_ANY = -1 }; /* FORMAT_ANY: the format is known at run time only */

/* The bytes of one row of a matrix. */
struct weight_row {
    const uint8_t *values, *scales, *biases;
};

/* ------------------------------------------------------------------------------------- loads */

/* BYTES (at most 8) from any address, lowest first; the bytes above them are unspecified. */
template <int BYTES> DEVICE uint64_t load_bytes(const uint8_t *p)
{
    const uint32_t skew = (uint32_t)((uintptr_t)p & 3);
    const uint32_t *words = (const uint32_t *)(p - skew);
    const uint32_t first = __ldg(words);
    uint32_t second = 0, third = 0;
    if (skew + BYTES > 4) second = __ldg(words + 1);
    uint32_t low = __funnelshift_r(first, second, 8 * skew), high = 0;
    if (BYTES > 4) {
        if (skew + BYTES > 8) third = __ldg(words + 2);
        high = __funnelshift_r(second, third, 8 * skew);
    }
    return low | (uint64_t)high << 32;
}

DEVICE uint4 load_16_bytes(const uint8_t *p)
{
    if (((uintptr_t)p & 15) == 0) return __ldg((const uint4 *)p);
    const uint64_t low = load_bytes<8>(p), high = load_bytes<8>(p + 8);
    return make_uint4((uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32));
}

DEVICE float float_from_f16(uint32_t bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}

DEVICE float float_from_bf16(uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

/* By way of an f16 with the same mantissa, which is 2^8 too small: exact for subnormals too. */
DEVICE float float_from_e4m3(uint32_t bits)
{
    const uint32_t magnitude = bits & 0x7fu, sign = bits & 0x80u;
    if (magnitude == 0x7fu) return __uint_as_float(sign << 24 | 0x7fc00000u);
    return __fmul_rn(float_from_f16(sign << 8 | magnitude << 7), 256.0f);
}

/* The upper half of an f16. */
DEVICE float float_from_e5m2(uint32_t bits)
{
    return float_from_f16((bits & 0xffu) << 8);
}

/* A power of two, 2^(bits - 127), or NaN. */
DEVICE float float_from_e8m0(uint32_t bits)
{
    if (bits == 0xffu) return __uint_as_float(0x7fc00000u);
    return __uint_as_float(bits == 0 ? 0x00400000u : bits << 23);
}

DEVICE float load_f16(const uint8_t *p)
{
    return float_from_f16((uint32_t)load_bytes<2>(p) & 0xffffu);
}

/* Number `index` of an array of FORMAT, as f32. */
template <int FORMAT> DEVICE float load_as(const uint8_t *array, size_t index)
{
    if constexpr (FORMAT == FORMAT_F64)
        return __double2float_rn(__longlong_as_double((long long)load_bytes<8>(array + 8 * index)));
    else if constexpr (FORMAT == FORMAT_F32)
        return __uint_as_float((uint32_t)load_bytes<4>(array + 4 * index));
    else if constexpr (FORMAT == FORMAT_F16)
        return load_f16(array + 2 * index);
    else if constexpr (FORMAT == FORMAT_BF16)
        return float_from_bf16((uint32_t)load_bytes<2>(array + 2 * index));
    else if constexpr (FORMAT == FORMAT_F8_E4M3)
        return float_from_e4m3(__ldg(array + index));
    else if constexpr (FORMAT == FORMAT_F8_E5M2)
        return float_from_e5m2(__ldg(array + index));
    else
        return float_from_e8m0(__ldg(array + index));
}

/* Out of line: rare formats do not grow every kernel. */
static __device__ __noinline__ float load_rare_number(int format, const uint8_t *array,
                                                      size_t index)
{
    switch (format) {
    case FORMAT_F64:
        return load_as<FORMAT_F64>(array, index);
    case FORMAT_F8_E4M3:
        return load_as<FORMAT_F8_E4M3>(array, index);
    case FORMAT_F8_E5M2:
        return load_as<FORMAT_F8_E5M2>(array, index);
    case FORMAT_F8_E8M0:
        return load_as<FORMAT_F8_E8M0>(array, index);
    default:
        return __uint_as_float(0x7fc00000u); /* not an array of floats: as format_load has it */
    }
}

/* Number `index` of an array: a scale, a bias or an addend. */
DEVICE float load_number(int format, const uint8_t *array, size_t index)
{
    if (format == FORMAT_BF16) return load_as<FORMAT_BF16>(array, index);
    if (format == FORMAT_F16) return load_as<FORMAT_F16>(array, index);
    if (format == FORMAT_F32) return load_as<FORMAT_F32>(array, index);
    return load_rare_number(format, array, index);
}

/* --------------------------------------------------------------------------- whole numbers
 *
 * A number n < 2^23 in the mantissa of 2^23 is the float 2^23 + n.  Subtracting 2^23 + offset
 * leaves n - offset, exactly; the two instructions are faster than a conversion. */

/* Eight unsigned bytes, lowest first. */
struct bytes8 {
    uint32_t low, high;
};

DEVICE struct bytes8 load_bytes8(const uint8_t *p)
{
    const uint64_t bytes = load_bytes<8>(p);
    return { (uint32_t)bytes, (uint32_t)(bytes >> 32) };
}

/* w = n - offset; or with HALVES half of that: in 2^22 the lowest bit of the mantissa is a half. */
template <bool HALVES = false> DEVICE void floats_from_bytes(float *w, struct bytes8 n, int offset)
{
    const uint32_t bits = HALVES ? 0x4a800000u : 0x4b000000u;
    const float base = HALVES ? 4194304.0f : 8388608.0f;
    const float zero = base + (float)offset * (HALVES ? 0.5f : 1.0f);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        /* Byte j of the numbers in the place of the lowest one of `bits`. */
        const uint32_t low = __byte_perm(n.low, bits, 0x7640u + j);
        const uint32_t high = __byte_perm(n.high, bits, 0x7640u + j);
        w[j] = __fsub_rn(__uint_as_float(low), zero);
        w[j + 4] = __fsub_rn(__uint_as_float(high), zero);
    }
}

/* w = scale · w */
DEVICE void scale_floats(float *w, float scale)
{
#pragma unroll
    for (int j = 0; j < UNIT; j++) w[j] = __fmul_rn(scale, w[j]);
}

/* w = scale · w + addend, rounded twice */
DEVICE void scale_and_add(float *w, float scale, float addend)
{
#pragma unroll
    for (int j = 0; j < UNIT; j++) w[j] = __fadd_rn(__fmul_rn(scale, w[j]), addend);
}

/* Each byte >> shift & mask, where `mask` has that of one byte four times. */
DEVICE struct bytes8 bits_of_bytes(struct bytes8 n, uint32_t shift, uint32_t mask)
{
    return { n.low >> shift & mask, n.high >> shift & mask };
}

DEVICE struct bytes8 or_bytes(struct bytes8 a, struct bytes8 b, uint32_t shift)
{
    return { a.low | b.low << shift, a.high | b.high << shift };
}

/* Numbers e to e + 7 of 32 4-bit ones in 16 bytes: `nib` of quant/blocks.h. */
DEVICE struct bytes8 load_nibbles(const uint8_t *qs, uint32_t e)
{
    return bits_of_bytes(load_bytes8(qs + e % 16), e / 16 * 4, 0x0f0f0f0fu);
}

/* Bits 0 to 7, each in the lowest bit of a byte. */
DEVICE struct bytes8 spread_bits(uint32_t bits)
{
    const uint32_t copies = 0x00204081u; /* of four bits, 7 apart: bit i of copy i is bit 8i */
    return { (bits & 15u) * copies & 0x01010101u, (bits >> 4 & 15u) * copies & 0x01010101u };
}

/* -------------------------------------------------------------------------- tables of levels */

/* Sixteen bytes of a table, four in a word: the level plus 128. */
struct levels {
    uint32_t words[4];
};

#define LEVELS_WORD(a, b, c, d)                                                                    \
    ((uint32_t)((a) + 128) | (uint32_t)((b) + 128) << 8 | (uint32_t)((c) + 128) << 16 |            \
     (uint32_t)((d) + 128) << 24)

/* iq4_levels of quant/blocks.h */
DEVICE struct levels iq4_device_levels(void)
{
    return { { LEVELS_WORD(-127, -104, -83, -65), LEVELS_WORD(-49, -35, -22, -10),
               LEVELS_WORD(1, 13, 25, 38), LEVELS_WORD(53, 69, 89, 113) } };
}

/* mxfp4_halves of quant/blocks.h */
DEVICE struct levels mxfp4_device_halves(void)
{
    return { { LEVELS_WORD(0, 1, 2, 3), LEVELS_WORD(4, 6, 8, 12), LEVELS_WORD(0, -1, -2, -3),
               LEVELS_WORD(-4, -6, -8, -12) } };
}

/* The levels of the four nibbles in the lower half of `nibbles`.  A permutation takes 3 bits of
 * each as an index, once in either half of the table; a third one selects by the fourth bit. */
DEVICE uint32_t look_up(struct levels levels, uint32_t nibbles)
{
    const uint32_t index = nibbles & 0x7777u;
    const uint32_t low = __byte_perm(levels.words[0], levels.words[1], index);
    const uint32_t high = __byte_perm(levels.words[2], levels.words[3], index);
    return __byte_perm(low, high, 0x3210u | (nibbles & 0x8888u) >> 1);
}

/* Four nibbles, one in a byte, as the lower half of a word. */
DEVICE uint32_t join_nibbles(uint32_t bytes)
{
    const uint32_t pairs = bytes | bytes >> 4;
    return (pairs & 0xffu) | (pairs >> 8 & 0xff00u);
}

DEVICE struct bytes8 look_up_bytes(struct levels levels, struct bytes8 n)
{
    return { look_up(levels, join_nibbles(n.low)), look_up(levels, join_nibbles(n.high)) };
}

/* ----------------------------------------------------------------------------- plain floats */

/* The numbers before the end of a row, then zeroes. */
template <int FORMAT>
DEVICE void expand_floats_slowly(float *w, const uint8_t *array, size_t step, uint32_t count)
{
#pragma unroll
    for (int j = 0; j < UNIT; j++)
        w[j] = j < (int)count ? load_as<FORMAT>(array + j * step, 0) : 0.0f;
}

/* Eight 16-bit floats, two in a word. */
template <int FORMAT> DEVICE void expand_halves(float *w, uint4 pairs)
{
    const uint32_t words[4] = { pairs.x, pairs.y, pairs.z, pairs.w };
#pragma unroll
    for (int j = 0; j < UNIT; j++) {
        const uint32_t bits = words[j / 2] >> 16 * (j % 2) & 0xffffu;
        w[j] = FORMAT == FORMAT_F16 ? float_from_f16(bits) : float_from_bf16(bits);
    }
}

template <int FORMAT>
DEVICE void expand_floats(float *w, const struct cuda_weight &weight, const struct weight_row &row,
                          uint32_t k)
{
    constexpr int SIZE = FORMAT == FORMAT_F64 ? 8 : FORMAT == FORMAT_F32 ? 4 : 2;
    const uint8_t *array = row.values + (size_t)SIZE * k;
    const uint32_t left = (uint32_t)weight.cols - k;
    if (SIZE == 8 || left < UNIT) {
        expand_floats_slowly<FORMAT>(w, array, SIZE, min(left, (uint32_t)UNIT));
    } else if constexpr (SIZE == 4) {
        const uint4 low = load_16_bytes(array), high = load_16_bytes(array + 16);
        const uint32_t words[UNIT] = { low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w };
#pragma unroll
        for (int j = 0; j < UNIT; j++) w[j] = __uint_as_float(words[j]);
    } else {
        expand_halves<FORMAT>(w, load_16_bytes(array));
    }
}

/* By column: every number is `col_bytes` after the one before. */
template <int FORMAT>
DEVICE void expand_columns(float *w, const struct cuda_weight &weight, const struct weight_row &row,
                           uint32_t k)
{
    const uint32_t left = (uint32_t)weight.cols - k;
    expand_floats_slowly<FORMAT>(w, row.values + k * weight.col_bytes, weight.col_bytes,
                                 min(left, (uint32_t)UNIT));
}

/* --------------------------------------------------------------------------- groups and tiles */

/* k / cols; group sizes are powers of two in all files, and a division is slow. */
DEVICE uint32_t group_of(uint32_t k, uint32_t cols)
{
    return (cols & (cols - 1)) == 0 ? k >> (__ffs((int)cols) - 1) : k / cols;
}

template <int BITS>
DEVICE void expand_affine(float *w, const struct cuda_weight &weight, const struct weight_row &row,
                          uint32_t k)
{
    const uint64_t stream = load_bytes<BITS>(row.values + (size_t)(k / 8) * BITS);
#pragma unroll
    for (int j = 0; j < UNIT; j++) {
        const uint32_t q = (uint32_t)(stream >> (j * BITS)) & ((1u << BITS) - 1);
        w[j] = __fsub_rn(__uint_as_float(0x4b000000u | q), 8388608.0f);
    }
    if (weight.group_cols % UNIT == 0) {
        const uint32_t group = group_of(k, weight.group_cols);
        scale_and_add(w, load_number(weight.scale_format, row.scales, group),
                      load_number(weight.scale_format, row.biases, group));
        return;
    }
#pragma unroll
    for (int j = 0; j < UNIT; j++) { /* legal, and slow */
        const uint32_t group = (k + j) / weight.group_cols;
        const float scale = load_number(weight.scale_format, row.scales, group);
        const float bias = load_number(weight.scale_format, row.biases, group);
        w[j] = __fadd_rn(__fmul_rn(w[j], scale), bias);
    }
}

template <int FORMAT>
DEVICE void expand_f8(float *w, const struct cuda_weight &weight, const struct weight_row &row,
                      uint32_t k)
{
    const uint32_t left = (uint32_t)weight.cols - k;
    if (left < UNIT) {
        expand_floats_slowly<FORMAT>(w, row.values + k, 1, left);
    } else {
        const uint64_t bytes = load_bytes<8>(row.values + k);
#pragma unroll
        for (int j = 0; j < UNIT; j++) {
            const uint32_t bits = (uint32_t)(bytes >> (8 * j)) & 0xffu;
            w[j] = FORMAT == FORMAT_F8_E4M3 ? float_from_e4m3(bits) : float_from_e5m2(bits);
        }
    }
    if (!row.scales) return;
    if (weight.group_cols % UNIT == 0) {
        scale_floats(w,
                     load_number(weight.scale_format, row.scales, group_of(k, weight.group_cols)));
        return;
    }
    for (int j = 0; j < UNIT && j < (int)left; j++)
        w[j] = __fmul_rn(w[j],
                         load_number(weight.scale_format, row.scales, (k + j) / weight.group_cols));
}

/* The lowest nibble first; scales for 32, or 1. */
DEVICE void expand_e2m1(float *w, const struct cuda_weight &weight, const struct weight_row &row,
                        uint32_t k)
{
    const uint32_t nibbles = (uint32_t)load_bytes<4>(row.values + k / 2);
    const struct levels halves = mxfp4_device_halves();
    floats_from_bytes<true>(w, { look_up(halves, nibbles), look_up(halves, nibbles >> 16) }, 128);
    if (row.scales) scale_floats(w, load_number(weight.scale_format, row.scales, k / 32));
}

/* ------------------------------------------------------------------------- blocks of 32 numbers
 *
 * b: the block; e: the first of the eight in it. */

DEVICE void expand_q4_0(float *w, const uint8_t *b, uint32_t e)
{
    floats_from_bytes(w, load_nibbles(b + offsetof(struct block_q4_0, qs), e), 8);
    scale_floats(w, load_f16(b));
}

/* d and then m, both f16, in four bytes */
DEVICE void expand_q4_1(float *w, const uint8_t *b, uint32_t e)
{
    const uint32_t pair = (uint32_t)load_bytes<4>(b);
    floats_from_bytes(w, load_nibbles(b + offsetof(struct block_q4_1, qs), e), 0);
    scale_and_add(w, float_from_f16(pair & 0xffffu), float_from_f16(pair >> 16));
}

DEVICE struct bytes8 load_fives(const uint8_t *qs, const uint8_t *qh, uint32_t e)
{
    const uint32_t high = (uint32_t)load_bytes<4>(qh) >> e;
    return or_bytes(load_nibbles(qs, e), spread_bits(high), 4);
}

DEVICE void expand_q5_0(float *w, const uint8_t *b, uint32_t e)
{
    typedef struct block_q5_0 block;
    floats_from_bytes(w, load_fives(b + offsetof(block, qs), b + offsetof(block, qh), e), 16);
    scale_floats(w, load_f16(b));
}

DEVICE void expand_q5_1(float *w, const uint8_t *b, uint32_t e)
{
    typedef struct block_q5_1 block;
    const uint32_t pair = (uint32_t)load_bytes<4>(b);
    floats_from_bytes(w, load_fives(b + offsetof(block, qs), b + offsetof(block, qh), e), 0);
    scale_and_add(w, float_from_f16(pair & 0xffffu), float_from_f16(pair >> 16));
}

DEVICE void expand_q8_0(float *w, const uint8_t *b, uint32_t e)
{
    const struct bytes8 n = load_bytes8(b + offsetof(struct block_q8_0, qs) + e);
    /* The upper bit flipped, a signed byte is unsigned and 128 more. */
    floats_from_bytes(w, { n.low ^ 0x80808080u, n.high ^ 0x80808080u }, 128);
    scale_floats(w, load_f16(b));
}

DEVICE void expand_iq4_nl(float *w, const uint8_t *b, uint32_t e)
{
    const struct bytes8 n = load_nibbles(b + offsetof(struct block_iq4_nl, qs), e);
    floats_from_bytes(w, look_up_bytes(iq4_device_levels(), n), 128);
    scale_floats(w, load_f16(b));
}

DEVICE void expand_mxfp4(float *w, const uint8_t *b, uint32_t e)
{
    const struct bytes8 n = load_nibbles(b + offsetof(struct block_mxfp4, qs), e);
    floats_from_bytes<true>(w, look_up_bytes(mxfp4_device_halves(), n), 128);
    scale_floats(w, float_from_e8m0(__ldg(b)));
}

/* ------------------------------------------------------------------------ blocks of 256 numbers
 *
 * With the letters of quant/blocks.h: n the half, j the quarter of it, l the place in that. */

DEVICE void expand_q2_k(float *w, const uint8_t *b, uint32_t e)
{
    typedef struct block_q2_k block;
    const uint32_t n = e / 128, j = e % 128 / 32, l = e % 32;
    const uint32_t both = __ldg(b + offsetof(block, scales) + e / 16);
    const uint32_t pair = (uint32_t)load_bytes<4>(b + offsetof(block, d));
    const struct bytes8 qs = load_bytes8(b + offsetof(block, qs) + 32 * n + l);
    const float scale = __fmul_rn(float_from_f16(pair & 0xffffu), (float)(both & 15u));
    const float least = __fmul_rn(float_from_f16(pair >> 16), (float)(both >> 4));
    floats_from_bytes(w, bits_of_bytes(qs, 2 * j, 0x03030303u), 0);
    scale_and_add(w, scale, -least);
}

DEVICE void expand_q3_k(float *w, const uint8_t *b, uint32_t e)
{
    typedef struct block_q3_k block;
    const uint32_t n = e / 128, j = e % 128 / 32, l = e % 32, t = e / 16;
    const uint8_t *scales = b + offsetof(block, scales);
    const uint32_t low = (uint32_t)__ldg(scales + t % 8) >> (t / 8 * 4) & 15u;
    const uint32_t high = (uint32_t)__ldg(scales + 8 + t % 4) >> (2 * (t / 4)) & 3u;
    const struct bytes8 qs = load_bytes8(b + offsetof(block, qs) + 32 * n + l);
    const struct bytes8 thirds = load_bytes8(b + offsetof(block, hmask) + l);
    const float scale = (float)((int)(low | high << 4) - 32);
    const struct bytes8 low_bits = bits_of_bytes(qs, 2 * j, 0x03030303u);
    const struct bytes8 third_bits = bits_of_bytes(thirds, 4 * n + j, 0x01010101u);
    floats_from_bytes(w, or_bytes(low_bits, third_bits, 2), 4);
    scale_floats(w, __fmul_rn(load_f16(b + offsetof(block, d)), scale));
}

/* w · scale - min of group t of Q4_K and Q5_K, which begin alike: d, dmin, scales. */
DEVICE void scale_k_group(float *w, const uint8_t *b, uint32_t t)
{
    const uint8_t *scales = b + offsetof(struct block_q4_k, scales) + t % 4;
    const uint32_t pair = (uint32_t)load_bytes<4>(b);
    const uint32_t s0 = __ldg(scales), s4 = __ldg(scales + 4), s8 = __ldg(scales + 8);
    const uint32_t s = t < 4 ? s0 & 63u : (s8 & 15u) | s0 >> 6 << 4;
    const uint32_t m = t < 4 ? s4 & 63u : s8 >> 4 | s4 >> 6 << 4;
    const float scale = __fmul_rn(float_from_f16(pair & 0xffffu), (float)s);
    const float least = __fmul_rn(float_from_f16(pair >> 16), (float)m);
    scale_and_add(w, scale, -least);
}

DEVICE void expand_q4_k(float *w, const uint8_t *b, uint32_t e)
{
    const uint32_t t = e / 32, l = e % 32;
    const struct bytes8 qs = load_bytes8(b + offsetof(struct block_q4_k, qs) + t / 2 * 32 + l);
    floats_from_bytes(w, bits_of_bytes(qs, t % 2 * 4, 0x0f0f0f0fu), 0);
    scale_k_group(w, b, t);
}

DEVICE void expand_q5_k(float *w, const uint8_t *b, uint32_t e)
{
    const uint32_t t = e / 32, l = e % 32;
    const struct bytes8 qs = load_bytes8(b + offsetof(struct block_q5_k, qs) + t / 2 * 32 + l);
    const struct bytes8 qh = load_bytes8(b + offsetof(struct block_q5_k, qh) + l);
    const struct bytes8 nibbles = bits_of_bytes(qs, t % 2 * 4, 0x0f0f0f0fu);
    floats_from_bytes(w, or_bytes(nibbles, bits_of_bytes(qh, t, 0x01010101u), 4), 0);
    scale_k_group(w, b, t);
}

DEVICE void expand_q6_k(float *w, const uint8_t *b, uint32_t e)
{
    typedef struct block_q6_k block;
    const uint32_t n = e / 128, j = e % 128 / 32, l = e % 32;
    const struct bytes8 ql = load_bytes8(b + offsetof(block, ql) + 64 * n + j % 2 * 32 + l);
    const struct bytes8 qh = load_bytes8(b + offsetof(block, qh) + 32 * n + l);
    const float scale = (float)(int8_t)__ldg(b + offsetof(block, scales) + e / 16);
    const struct bytes8 nibbles = bits_of_bytes(ql, j / 2 * 4, 0x0f0f0f0fu);
    floats_from_bytes(w, or_bytes(nibbles, bits_of_bytes(qh, 2 * j, 0x03030303u), 4), 32);
    scale_floats(w, __fmul_rn(load_f16(b + offsetof(block, d)), scale));
}

DEVICE void expand_iq4_xs(float *w, const uint8_t *b, uint32_t e)
{
    typedef struct block_iq4_xs block;
    const uint32_t t = e / 32, pair = (uint32_t)load_bytes<4>(b); /* d and scales_h */
    const uint32_t low = (uint32_t)__ldg(b + offsetof(block, scales_l) + t / 2) >> (t % 2 * 4);
    const int s = (int)((low & 15u) | (pair >> 16 >> (2 * t) & 3u) << 4) - 32;
    const struct bytes8 n = load_nibbles(b + offsetof(block, qs) + 16 * t, e % 32);
    floats_from_bytes(w, look_up_bytes(iq4_device_levels(), n), 128);
    scale_floats(w, __fmul_rn(float_from_f16(pair & 0xffffu), (float)s));
}

/* -------------------------------------------------------------------------------- any format */

/* The formats whose kernels are compiled apart; the others are dequantised by a call. */
#define COMPILED_PLAIN_LIST(X)                                                                     \
    X(F32)                                                                                         \
    X(F16)                                                                                         \
    X(BF16)                                                                                        \
    X(F8_E4M3)                                                                                     \
    X(F8_E5M2)                                                                                     \
    X(E2M1)
#define COMPILED_AFFINE_LIST(X)                                                                    \
    X(AFFINE2, 2)                                                                                  \
    X(AFFINE3, 3)                                                                                  \
    X(AFFINE4, 4)                                                                                  \
    X(AFFINE5, 5)                                                                                  \
    X(AFFINE6, 6)                                                                                  \
    X(AFFINE8, 8)
#define COMPILED_BLOCK_LIST(X)                                                                     \
    X(Q4_0, q4_0, 32)                                                                              \
    X(Q4_1, q4_1, 32)                                                                              \
    X(Q5_0, q5_0, 32)                                                                              \
    X(Q5_1, q5_1, 32)                                                                              \
    X(Q8_0, q8_0, 32)                                                                              \
    X(IQ4_NL, iq4_nl, 32)                                                                          \
    X(MXFP4, mxfp4, 32)                                                                            \
    X(Q2_K, q2_k, 256)                                                                             \
    X(Q3_K, q3_k, 256)                                                                             \
    X(Q4_K, q4_k, 256)                                                                             \
    X(Q5_K, q5_k, 256)                                                                             \
    X(Q6_K, q6_k, 256)                                                                             \
    X(IQ4_XS, iq4_xs, 256)

#define EXPAND_AFFINE(id, bits)                                                                    \
    else if constexpr (FORMAT == FORMAT_##id) expand_affine<bits>(w, weight, row, k);
#define EXPAND_BLOCK(id, name, elements)                                                           \
    else if constexpr (FORMAT == FORMAT_##id) expand_##name(                                       \
        w, row.values + (size_t)(k / elements) * sizeof(struct block_##name), k % elements);

template <int FORMAT>
DEVICE void dequantise_compiled(float *w, const struct cuda_weight &weight,
                                const struct weight_row &row, uint32_t k)
{
    if constexpr (FORMAT == FORMAT_F64 || FORMAT == FORMAT_F32 || FORMAT == FORMAT_F16 ||
                  FORMAT == FORMAT_BF16)
        expand_floats<FORMAT>(w, weight, row, k);
    else if constexpr (FORMAT == FORMAT_F8_E4M3 || FORMAT == FORMAT_F8_E5M2)
        expand_f8<FORMAT>(w, weight, row, k);
    else if constexpr (FORMAT == FORMAT_E2M1)
        expand_e2m1(w, weight, row, k);
    else if constexpr (FORMAT == FORMAT_F32_COLUMNS)
        expand_columns<FORMAT_F32>(w, weight, row, k);
    else if constexpr (FORMAT == FORMAT_F16_COLUMNS)
        expand_columns<FORMAT_F16>(w, weight, row, k);
    else if constexpr (FORMAT == FORMAT_BF16_COLUMNS)
        expand_columns<FORMAT_BF16>(w, weight, row, k);
    COMPILED_AFFINE_LIST(EXPAND_AFFINE)
    COMPILED_BLOCK_LIST(EXPAND_BLOCK)
    else static_assert(FORMAT == FORMAT_ANY, "a format without a device function");
}
#undef EXPAND_AFFINE
#undef EXPAND_BLOCK

#define EXPAND_CASE(id, ...)                                                                       \
    case FORMAT_##id:                                                                              \
        dequantise_compiled<FORMAT_##id>(w, *weight, *row, k);                                     \
        return;

/* Out of line, so that its many cases are compiled once. */
static __device__ __noinline__ void dequantise_any(float *w, const struct cuda_weight *weight,
                                                   const struct weight_row *row, uint32_t k)
{
    switch (weight->format) {
        COMPILED_PLAIN_LIST(EXPAND_CASE)
        COMPILED_AFFINE_LIST(EXPAND_CASE)
        COMPILED_BLOCK_LIST(EXPAND_CASE)
        EXPAND_CASE(F64)
        EXPAND_CASE(F32_COLUMNS)
        EXPAND_CASE(F16_COLUMNS)
        EXPAND_CASE(BF16_COLUMNS)
    default: /* not a weight: the caller's mistake, kept visible */
        for (int j = 0; j < UNIT; j++) w[j] = __uint_as_float(0x7fc00000u);
    }
}
#undef EXPAND_CASE

/* The eight numbers from element k of a row, as floats; past the row's end they are 0.  A row has
 * fewer than 2^32 numbers, and k is before its end. */
template <int FORMAT>
DEVICE void dequantise_unit(float *w, const struct cuda_weight &weight,
                            const struct weight_row &row, uint32_t k)
{
    if constexpr (FORMAT == FORMAT_ANY)
        dequantise_any(w, &weight, &row, k);
    else
        dequantise_compiled<FORMAT>(w, weight, row, k);
}

DEVICE struct weight_row row_of_weight(const struct cuda_weight &weight, size_t row)
{
    const bool by_tile = weight.format != FORMAT_E2M1 && weight.group_rows > 1;
    const size_t scales = (by_tile ? row / weight.group_rows : row) * weight.scale_row_bytes;
    return { weight.values + row * weight.row_bytes, weight.scales ? weight.scales + scales : NULL,
             weight.biases ? weight.biases + scales : NULL };
}

#endif
