/* bytes.h: sixty-four small numbers at a time, for products in integers.
 *
 * The fallbacks are plain loops, which define the result; the instruction sets
 * give the same numbers, as integers do. */
#ifndef KERNELS_SIMD_BYTES_H
#define KERNELS_SIMD_BYTES_H

#include "kernels/simd/lanes.h"

enum { BYTES = 64 };

typedef uint8_t bytes __attribute__((vector_size(BYTES)));
typedef uint8_t half_bytes __attribute__((vector_size(BYTES / 2)));

LANES_INLINE bytes bytes_load(const void *p)
{
    bytes v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Two halves of 32, one after the other. */
LANES_INLINE bytes bytes_join(const uint8_t *first, const uint8_t *second)
{
#if defined(__AVX512BW__)
    half_bytes a, b;
    memcpy(&a, first, sizeof a);
    memcpy(&b, second, sizeof b);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                                   17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
                                   33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
                                   49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63);
#else
    half_bytes halves[2];
    memcpy(&halves[0], first, sizeof halves[0]);
    memcpy(&halves[1], second, sizeof halves[1]);
    return bytes_load(halves);
#endif
}

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

/* ---------------------------------------------------------------- products
 * AVX2 alone has its own: kernels/decode/dot_avx2.h. */

#if defined(__ARM_FEATURE_DOTPROD)
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
#endif

/* sums[l] += Σ u[4l + i]·s[4l + i], u unsigned and below 128, s signed. */
LANES_INLINE int_lanes dot4_small(int_lanes sums, bytes u, bytes s)
{
#if defined(__AVX512VNNI__)
    return (int_lanes)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)u, (__m512i)s);
#elif defined(__AVX512BW__)
    __m512i pairs = _mm512_maddubs_epi16((__m512i)u, (__m512i)s);
    return sums + (int_lanes)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
#elif defined(__ARM_FEATURE_DOTPROD)
    return dot4_signed(sums, u, s); /* below 128 it is the same number */
#else
    int8_t factors[BYTES];
    memcpy(factors, &s, sizeof factors);
    for (int l = 0; l < LANES; l++)
        for (int i = 0; i < 4; i++) sums[l] += u[4 * l + i] * factors[4 * l + i];
    return sums;
#endif
}

/* The same for u up to 255.  With AVX-512 but without VNNI pairs of products are added in 16 bits
 * and would overflow, so the top bit goes on its own.  ARM without its int8 extension has no
 * product of unsigned with signed: u - 128 is signed, and 128·Σs makes up for it. */
LANES_INLINE int_lanes dot4(int_lanes sums, bytes u, bytes s)
{
#if defined(__AVX512BW__) && !defined(__AVX512VNNI__)
    return dot4_small(dot4_small(sums, u & 127, s), u & 128, s);
#elif defined(__ARM_FEATURE_MATMUL_INT8)
    uint8x16_t x[4];
    int8x16_t y[4];
    int32x4_t z[4];
    memcpy(x, &u, sizeof x);
    memcpy(y, &s, sizeof y);
    memcpy(z, &sums, sizeof z);
    for (int i = 0; i < 4; i++) z[i] = vusdotq_s32(z[i], x[i], y[i]);
    memcpy(&sums, z, sizeof z);
    return sums;
#elif defined(__ARM_FEATURE_DOTPROD)
    int_lanes none = { 0 };
    return dot4_signed(sums, u ^ 128, s) + (dot4_signed(none, (bytes){ 0 } + 1, s) << 7);
#else
    return dot4_small(sums, u, s);
#endif
}

#if defined(__AVX512BW__) && !defined(__AVX512VNNI__)
/* 128·Σ u·high + Σ u·low of four numbers each: sums of pairs become sums of four by a product with
 * 128 or 1, which costs as much. */
LANES_INLINE int_lanes dot4_planes_small(bytes u, bytes high, bytes low)
{
    __m512i h = _mm512_maddubs_epi16((__m512i)u, (__m512i)high);
    __m512i l = _mm512_maddubs_epi16((__m512i)u, (__m512i)low);
    return (int_lanes)_mm512_add_epi32(_mm512_madd_epi16(h, _mm512_set1_epi16(128)),
                                       _mm512_madd_epi16(l, _mm512_set1_epi16(1)));
}
#endif

/* 128·Σ u[4l + i]·high[4l + i] + Σ u[4l + i]·low[4l + i]; `wide`: u may be above 127. */
LANES_INLINE int_lanes dot4_planes(bytes u, bytes high, bytes low, bool wide)
{
#if defined(__AVX512BW__) && !defined(__AVX512VNNI__)
    if (!wide) return dot4_planes_small(u, high, low);
    return dot4_planes_small(u & 127, high, low) + dot4_planes_small(u & 128, high, low);
#else
    int_lanes none = { 0 }, sum;
    sum = (wide ? dot4(none, u, high) : dot4_small(none, u, high)) << 7;
    return wide ? dot4(sum, u, low) : dot4_small(sum, u, low);
#endif
}

/* ----------------------------------------------------------------- packing */

#if defined(__AVX512BW__)
LANES_INLINE __m512i halves_counts(unsigned first, unsigned second)
{
    return _mm512_inserti64x4(_mm512_set1_epi16((short)first), _mm256_set1_epi16((short)second), 1);
}

/* 32 bytes twice, shifted in pairs of bytes. */
LANES_INLINE bytes halves_down(const uint8_t *p, unsigned first, unsigned second)
{
    __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
    return (bytes)_mm512_srlv_epi16(both, halves_counts(first, second));
}
LANES_INLINE bytes halves_up(const uint8_t *p, unsigned first, unsigned second)
{
    __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
    return (bytes)_mm512_sllv_epi16(both, halves_counts(first, second));
}

/* The bits of `mask` of a, the others of b. */
LANES_INLINE bytes bytes_merge(uint8_t mask, bytes a, bytes b)
{
    return (bytes)_mm512_ternarylogic_epi32(_mm512_set1_epi8((char)mask), (__m512i)a, (__m512i)b,
                                            0xca);
}
#endif

/* [(p[i] >> first) & mask | (p[i] >> second) & mask], i = 0 … 31 in either half. */
LANES_INLINE bytes fields_of_32(const uint8_t *p, unsigned first, unsigned second, uint8_t mask)
{
#if defined(__AVX512BW__)
    return halves_down(p, first, second) & mask;
#else
    half_bytes stored, halves[2];
    memcpy(&stored, p, sizeof stored);
    halves[0] = stored >> (uint8_t)first & mask;
    halves[1] = stored >> (uint8_t)second & mask;
    return bytes_load(halves);
#endif
}

#if defined(__AVX2__)
LANES_INLINE half_bytes nibbles_of_16(const uint8_t *p)
{
    __m128i stored = _mm_loadu_si128((const __m128i *)p);
    return (half_bytes)_mm256_set_m128i(_mm_srli_epi16(stored, 4), stored) & 15;
}
#endif

/* Two blocks of 32 four-bit numbers: the low nibbles of 16 bytes, then the high ones. */
LANES_INLINE bytes nibbles_of_16s(const uint8_t *first, const uint8_t *second)
{
#if defined(__AVX512BW__)
    __m256i stored = _mm256_loadu2_m128i((const __m128i *)second, (const __m128i *)first);
    __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                             _mm512_castsi256_si512(stored));
    __m512i counts = _mm512_setr_epi64(0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0,
                                       0x0004000400040004, 0x0004000400040004);
    return (bytes)_mm512_and_si512(_mm512_srlv_epi16(twice, counts), _mm512_set1_epi8(15));
#elif defined(__AVX2__)
    half_bytes halves[2] = { nibbles_of_16(first), nibbles_of_16(second) };
    return bytes_load(halves);
#elif defined(__ARM_FEATURE_DOTPROD)
    uint8x16_t a = vld1q_u8(first), b = vld1q_u8(second);
    uint8x16_t parts[4] = { a & 15, a >> 4, b & 15, b >> 4 };
    return bytes_load(parts);
#else
    uint8_t out[BYTES];
    for (int i = 0; i < 16; i++) {
        out[i] = first[i] & 15;
        out[16 + i] = first[i] >> 4;
        out[32 + i] = second[i] & 15;
        out[48 + i] = second[i] >> 4;
    }
    return bytes_load(out);
#endif
}

#if defined(__ARM_FEATURE_DOTPROD)
/* `value` in number i where bit i is set, else 0. */
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
#endif

/* 16 of one table for each number below 16. */
LANES_INLINE bytes bytes_look_up(const uint8_t table[16], bytes index)
{
#if defined(__AVX512BW__)
    __m512i tables = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
    return (bytes)_mm512_shuffle_epi8(tables, (__m512i)index);
#elif defined(__AVX2__)
    __m256i halves[2];
    __m256i levels = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    memcpy(halves, &index, sizeof halves);
    for (int i = 0; i < 2; i++) halves[i] = _mm256_shuffle_epi8(levels, halves[i]);
    return bytes_load(halves);
#elif defined(__ARM_FEATURE_DOTPROD)
    uint8x16_t parts[4], levels = vld1q_u8(table);
    memcpy(parts, &index, sizeof parts);
    for (int i = 0; i < 4; i++) parts[i] = vqtbl1q_u8(levels, parts[i]);
    return bytes_load(parts);
#else
    uint8_t out[BYTES];
    for (int i = 0; i < BYTES; i++) out[i] = table[index[i]];
    return bytes_load(out);
#endif
}

#if defined(__ARM_FEATURE_DOTPROD)
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
#endif

#if defined(__AVX2__)
/* 64 numbers of 4 bits: the two of a byte side by side. */
LANES_INLINE bytes bytes_from_nibbles(const uint8_t *p)
{
#if defined(__AVX512BW__)
    __m512i words = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)p));
    enum { A_OR_B_AND_C = 0xa8 };
    return (bytes)_mm512_ternarylogic_epi32(words, _mm512_slli_epi16(words, 4),
                                            _mm512_set1_epi8(15), A_OR_B_AND_C);
#else
    __m256i halves[2];
    for (int i = 0; i < 2; i++) {
        __m256i words = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p + i));
        words = _mm256_or_si256(words, _mm256_slli_epi16(words, 4));
        halves[i] = _mm256_and_si256(words, _mm256_set1_epi8(15));
    }
    return bytes_load(halves);
#endif
}

/* Sixteen numbers of a stream, as words: the two bytes that one may lie in, times the power of
 * two that brings it to the upper one. */
LANES_INLINE __m256i sixteen_from_stream(__m128i stored, unsigned first, unsigned bits)
{
    uint8_t places[32];
    uint16_t factors[16];
    for (unsigned j = 0; j < 16; j++) {
        places[2 * j] = (uint8_t)(first + j * bits / 8);
        places[2 * j + 1] = (uint8_t)(first + j * bits / 8 + 1);
        factors[j] = (uint16_t)(256u >> j * bits % 8);
    }
    __m256i pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(stored),
                                        _mm256_loadu_si256((const __m256i *)places));
    __m256i moved = _mm256_mullo_epi16(pairs, _mm256_loadu_si256((const __m256i *)factors));
    return _mm256_and_si256(_mm256_srli_epi16(moved, 8),
                            _mm256_set1_epi16((short)((1 << bits) - 1)));
}
#endif

/* 64 numbers of `bits` (a constant below 8) bits each, a stream with the lowest bit first. */
LANES_INLINE bytes bytes_from_stream(const uint8_t *p, unsigned bits)
{
    const uint8_t mask = (uint8_t)((1u << bits) - 1);
#if defined(__AVX2__)
    if (bits == 4) return bytes_from_nibbles(p);
#endif
#if defined(__AVX512VBMI__)
    /* Number j of eight lies at bit j·bits of their `bits` bytes: bring those bytes to one
     * 64-bit lane, then take eight of its bits from each of the eight places. */
    const uint64_t ramp = 0x0706050403020100, steps = 0x0101010101010101 * bits;
    const uint64_t bit_places = ramp * bits;
    __m512i stored = _mm512_maskz_loadu_epi8(bits == 8 ? ~0ull : (1ull << (8 * bits)) - 1, p);
    __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    __m512i places = _mm512_add_epi64(_mm512_mullo_epi64(lane, _mm512_set1_epi64((long long)steps)),
                                      _mm512_set1_epi64((long long)ramp));
    __m512i spread = _mm512_permutexvar_epi8(places, stored);
    __m512i shifts = _mm512_set1_epi64((long long)bit_places);
    return (bytes)_mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, spread),
                                   _mm512_set1_epi8((char)mask));
#elif defined(__AVX2__)
    /* Sixteen numbers have 2·bits bytes; the last 16 bytes are loaded where there are no more.
     * A second byte that would lie behind them is any, and is not needed. */
    __m256i words[4], halves[2];
    (void)mask;
    for (unsigned i = 0; i < 4; i++) {
        unsigned begin = 2 * bits * i, end = 8 * bits - 16, from = begin < end ? begin : end;
        __m128i stored = _mm_loadu_si128((const __m128i *)(p + from));
        words[i] = sixteen_from_stream(stored, begin - from, bits);
    }
    for (unsigned i = 0; i < 2; i++)
        halves[i] =
            _mm256_permute4x64_epi64(_mm256_packus_epi16(words[2 * i], words[2 * i + 1]), 0xd8);
    return bytes_load(halves);
#elif defined(__ARM_FEATURE_DOTPROD)
    /* Sixteen numbers have 2·bits bytes; the last 16 bytes are loaded where there are no more.
     * A second byte that would lie behind them is 0 and is not needed. */
    uint8x16_t parts[4];
    (void)mask;
    for (unsigned i = 0; i < 4; i++) {
        unsigned begin = 2 * bits * i, end = 8 * bits - 16, from = begin < end ? begin : end;
        uint8x16_t stored = vld1q_u8(p + from);
        parts[i] = vcombine_u8(eight_from_stream(stored, begin - from, bits),
                               eight_from_stream(stored, begin - from + bits, bits));
    }
    return bytes_load(parts);
#else
    uint8_t out[BYTES];
    for (int i = 0; i < BYTES; i += 8, p += bits) {
        uint64_t stream = 0;
        memcpy(&stream, p, bits);
        for (unsigned j = 0; j < 8; j++) out[i + (int)j] = (uint8_t)(stream >> (j * bits) & mask);
    }
    return bytes_load(out);
#endif
}

#endif
