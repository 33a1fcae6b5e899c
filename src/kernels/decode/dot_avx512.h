/* dot_avx512.h: the part of decode/dot.c that depends on the instruction set, for AVX-512.
 *
 *     loading    weights of 256 numbers as bytes, in the order of kernels.h that suits the format
 *     integers   a lane of the CPU's dot instruction is the sum of 4 products; lanes of one group
 *                are added until each lane holds a whole group
 *     sums       groups times their scales, added up in f32 over the row
 *
 * 256 numbers have eight groups of 32, which fill half a vector: two products ("first" and
 * "second") are therefore computed alternately and share one vector.  With groups of 16 a product
 * fills a vector alone. */
#ifndef KERNELS_DECODE_DOT_AVX512_H
#define KERNELS_DECODE_DOT_AVX512_H

#include "kernels/decode/pairs.h"
#include "kernels/weight_units.h"

/* Four rows are read at once (dot.c), as many as there are registers for; two of them share a
 * struct sums. */
enum { STREAMS = 4, TOGETHER = 2 };

#define UNIT_ORDERS                                                                                \
    [FORMAT_Q4_K] = UNIT_ORDER_K_64, [FORMAT_Q5_K] = UNIT_ORDER_K_64,                              \
    [FORMAT_Q6_K] = UNIT_ORDER_HALVES, [FORMAT_AFFINE4] = UNIT_ORDER_PAIRS

typedef struct unit dot_unit;

/* Running sums of two products over a row.
 *
 *                 groups of 32                                     groups of 16
 *     first       dots of both products, lanes as in join_groups   dots of the first product
 *     second      mins of both products                            dots of the second product
 *
 * dots and scaled hold the first product's 256 numbers until the second product's are computed. */
struct sums {
    __m512 first, second;
    __m512i dots;
    __m512 scaled; /* 8 scales times those of x, 8 mins times the sums of x */
};

/* ------------------------------------------------------------------- integers */

/* 128·Σ q·high + Σ q·low over the four bytes of each lane of vector v. */
LANES_INLINE __m512i dot_vector(const struct unit *w, const struct integer_unit *x, int v,
                                bool wide)
{
    return (__m512i)dot4_planes(w->q[v], bytes_load(x->high + 64 * v), bytes_load(x->low + 64 * v),
                                wide);
}

/* Groups of 16 for numbers in row order: quarter k (four lanes) of the result has groups k, 4 + k,
 * 8 + k and 12 + k. */
LANES_INLINE __m512i dot_quarters(const struct unit *w, const struct integer_unit *x, bool wide)
{
    __m512i halves[2];
    for (int i = 0; i < 2; i++) {
        __m512i a = dot_vector(w, x, 2 * i, wide), b = dot_vector(w, x, 2 * i + 1, wide);
        halves[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    return _mm512_add_epi32(_mm512_unpacklo_epi64(halves[0], halves[1]),
                            _mm512_unpackhi_epi64(halves[0], halves[1]));
}

/* dot_vector of v plus dot_vector of v + 1, whose lanes belong to the same groups; q < 64.  Without
 * VNNI four products are added in 16 bits: 4 · 63 · 128 fits. */
LANES_INLINE __m512i dot_two_vectors(const struct unit *w, const struct integer_unit *x, int v)
{
    const int8_t *high = x->high + 64 * v, *low = x->low + 64 * v;
    __m512i a = (__m512i)w->q[v], b = (__m512i)w->q[v + 1];
#if defined(__AVX512VNNI__)
    __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), a, _mm512_loadu_si512(high));
    sum = _mm512_slli_epi32(_mm512_dpbusd_epi32(sum, b, _mm512_loadu_si512(high + 64)), 7);
    sum = _mm512_dpbusd_epi32(sum, a, _mm512_loadu_si512(low));
    return _mm512_dpbusd_epi32(sum, b, _mm512_loadu_si512(low + 64));
#else
    __m512i h = _mm512_add_epi16(_mm512_maddubs_epi16(a, _mm512_loadu_si512(high)),
                                 _mm512_maddubs_epi16(b, _mm512_loadu_si512(high + 64)));
    __m512i l = _mm512_add_epi16(_mm512_maddubs_epi16(a, _mm512_loadu_si512(low)),
                                 _mm512_maddubs_epi16(b, _mm512_loadu_si512(low + 64)));
    return _mm512_add_epi32(_mm512_madd_epi16(h, _mm512_set1_epi16(128)),
                            _mm512_madd_epi16(l, _mm512_set1_epi16(1)));
#endif
}

/* The sum of dot_vector over all four vectors, whose lanes belong to the same groups. */
LANES_INLINE __m512i dot_four_vectors(const struct unit *w, const struct integer_unit *x)
{
#if defined(__AVX512VNNI__)
    __m512i high = _mm512_setzero_si512(), low = high;
    for (int v = 0; v < 4; v++) {
        high = _mm512_dpbusd_epi32(high, (__m512i)w->q[v], _mm512_loadu_si512(x->high + 64 * v));
        low = _mm512_dpbusd_epi32(low, (__m512i)w->q[v], _mm512_loadu_si512(x->low + 64 * v));
    }
    return _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
#else
    return _mm512_add_epi32(dot_two_vectors(w, x, 0), dot_two_vectors(w, x, 2));
#endif
}

/* Adds lanes 2i and 2i + 1; each quarter of the result has two sums of a, then two of b. */
LANES_INLINE __m512i add_neighbours(__m512i a, __m512i b)
{
    __m512 even = _mm512_shuffle_ps((__m512)a, (__m512)b, 0x88);
    __m512 odd = _mm512_shuffle_ps((__m512)a, (__m512)b, 0xdd);
    return _mm512_add_epi32((__m512i)even, (__m512i)odd);
}

/* 16 partial sums of one product: whole groups of 16, or halves of groups of 32 for join_groups. */
LANES_INLINE __m512i dot_unit_alone(const struct unit *w, const struct integer_unit *x,
                                    struct unit_kind kind)
{
    if (kind.order == UNIT_ORDER_ROW) return dot_quarters(w, x, kind.wide);
    if (kind.order == UNIT_ORDER_K_64) return dot_four_vectors(w, x);
    return add_neighbours(dot_two_vectors(w, x, 0), dot_two_vectors(w, x, 2));
}

/* Adds the halves: 8 groups of 32 of product a and 8 of b. */
LANES_INLINE __m512i join_groups(__m512i a, __m512i b, struct unit_kind kind)
{
    if (kind.order == UNIT_ORDER_PAIRS || kind.order == UNIT_ORDER_K_64)
        return add_neighbours(a, b);
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* The permutation that puts the scales of two products (indices 0-7 and 16-23) in the lanes that
 * join_groups gives their groups. */
LANES_INLINE __m512i joined_lanes(struct unit_kind kind)
{
    switch (kind.order) {
    case UNIT_ORDER_K_64:
    case UNIT_ORDER_PAIRS:
        return _mm512_setr_epi32(0, 4, 16, 20, 1, 5, 17, 21, 2, 6, 18, 22, 3, 7, 19, 23);
    default:
        return _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 16, 18, 20, 22, 17, 19, 21, 23);
    }
}

/* Its inverse: the lanes of the first product's groups in order, then those of the second's. */
LANES_INLINE __m512i joined_places(struct unit_kind kind)
{
    switch (kind.order) {
    case UNIT_ORDER_K_64:
    case UNIT_ORDER_PAIRS:
        return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    default:
        return _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    }
}

/* The lanes in which dot_unit_alone leaves groups 0 to 15 of 16 numbers. */
LANES_INLINE __m512i places_of_16(struct unit_kind kind)
{
    if (kind.order == UNIT_ORDER_HALVES)
        return _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15);
    return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
}

/* ----------------------------------------------------------------------- sums */

LANES_INLINE void add_groups_of_32(struct sums *sums, size_t which, const struct unit *w,
                                   const struct integer_unit *x, struct unit_kind kind)
{
    /* One load for both: x->sums follows x->scales in memory. */
    __m512 scaled = (__m512)(w->both * lanes_load(x->scales));
    __m512i dots = dot_unit_alone(w, x, kind);
    if (which == 0) {
        sums->dots = dots;
        sums->scaled = scaled;
        return;
    }
    __m512 scales = _mm512_permutex2var_ps(sums->scaled, joined_lanes(kind), scaled);
    __m512 mins = _mm512_shuffle_f32x4(sums->scaled, scaled, 0xee);
    __m512 whole = _mm512_cvtepi32_ps(join_groups(sums->dots, dots, kind));
    sums->first = _mm512_fmadd_ps(whole, scales, sums->first);
    sums->second = _mm512_add_ps(sums->second, mins);
}

LANES_INLINE __m512 add_groups_of_16(__m512 sum, const struct unit *w, const struct integer_unit *x,
                                     struct unit_kind kind)
{
    __m512 scales = (__m512)(w->scale * lanes_twice(lanes_load(x->scales)));
    __m512i dots = _mm512_permutexvar_epi32(places_of_16(kind), dot_unit_alone(w, x, kind));
    sum = _mm512_fmadd_ps((__m512)w->min, _mm512_loadu_ps(x->sums_16), sum);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), scales, sum);
}

LANES_INLINE void add_product(struct sums *sums, size_t which, const struct unit *w,
                              const struct integer_unit *x, struct unit_kind kind)
{
    if (kind.group == 32) {
        add_groups_of_32(sums, which, w, x, kind);
        return;
    }
    __m512 *sum = which == 0 ? &sums->first : &sums->second;
    *sum = add_groups_of_16(*sum, w, x, kind);
}

/* Adds the upper eight lanes of a product to its lower ones; the result has the first product in its
 * lower half, the second in its upper half. */
LANES_INLINE __m512 fold_halves(const struct sums *sums, struct unit_kind kind)
{
    if (kind.group == 32) {
        __m512 products = _mm512_permutexvar_ps(joined_places(kind), sums->first);
        return _mm512_add_ps(products, sums->second);
    }
    return _mm512_add_ps(_mm512_shuffle_f32x4(sums->first, sums->second, 0x44),
                         _mm512_shuffle_f32x4(sums->first, sums->second, 0xee));
}

/* The results of four products: lanes_sum for each, with the same order of additions. */
LANES_INLINE void sum_four(float out[4], const struct sums *sums, struct unit_kind kind)
{
    __m512 a = fold_halves(&sums[0], kind), b = fold_halves(&sums[1], kind);
    __m512 fours =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    __m512 twos = _mm512_add_ps(fours, _mm512_permute_ps(fours, 0x4e));
    __m512 ones = _mm512_add_ps(twos, _mm512_permute_ps(twos, 0xb1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, ones)));
}

/* -------------------------------------------------------------------- loading */

/* Interleaves groups of eight bytes of the first 64 bytes with those of the second: eights 0 2 4 6
 * of both in out[0], 1 3 5 7 in out[1]. */
LANES_INLINE void load_eights(__m512i out[2], const uint8_t *p)
{
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
    out[0] = _mm512_unpacklo_epi64(a, b);
    out[1] = _mm512_unpackhi_epi64(a, b);
}

/* A byte of the file holds a number of a group (low half) and one of the next group (high half).
 * Given the vectors of low and of high halves, makes two vectors that each have eight numbers of
 * every group, in the same lanes, so that dot_two_vectors can add them. */
enum { FIRST_EIGHTS = 0x33 }; /* eights that keep their lane */

LANES_INLINE void mix_groups(bytes out[2], bytes first, bytes second)
{
    out[0] = (bytes)_mm512_mask_blend_epi64(FIRST_EIGHTS, (__m512i)second, (__m512i)first);
    __m512i others = _mm512_mask_blend_epi64(FIRST_EIGHTS, (__m512i)first, (__m512i)second);
    out[1] = (bytes)_mm512_permutex_epi64(others, 0x4e);
}

/* With VNNI the numbers of odd groups stay in the upper half of their bytes, 16 times as large, and
 * their scales are divided by 16: powers of two, so the result has the same bits without a shift. */
LANES_INLINE void load_q4_k_eights(struct unit *u, const struct unit_place *at)
{
    const struct block_q4_k *b = (const struct block_q4_k *)at->values + at->index;
    __m512i from[2];
    load_eights(from, b->qs);
#if defined(__AVX512VNNI__)
    const __m512i halves =
        _mm512_mask_blend_epi64(FIRST_EIGHTS, _mm512_set1_epi8((char)0xf0), _mm512_set1_epi8(15));
    u->both = k_scales(b->d, b->scales, 0x1p-4f);
    for (int i = 0; i < 2; i++) {
        __m512i others = _mm512_andnot_si512(halves, from[i]);
        u->q[2 * i] = (bytes)_mm512_and_si512(halves, from[i]);
        u->q[2 * i + 1] = (bytes)_mm512_permutex_epi64(others, 0x4e);
    }
#else
    u->both = k_scales(b->d, b->scales, 1.0f);
    for (int i = 0; i < 2; i++)
        mix_groups(&u->q[2 * i], (bytes)from[i] & 15, (bytes)_mm512_srli_epi16(from[i], 4) & 15);
#endif
}

/* Bits 2c and 2c + 1 of byte i of qh are the fifth bits of the two numbers in byte i of the c-th 32
 * bytes of qs. */
LANES_INLINE void load_q5_k_eights(struct unit *u, const struct unit_place *at)
{
    const struct block_q5_k *b = (const struct block_q5_k *)at->values + at->index;
    const __m512i turns = _mm512_setr_epi64(4, 0, 4, 0, 2, -2, 2, -2);
    __m512i from[2], stored = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b->qh));
    __m512i bits[2] = { _mm512_unpacklo_epi64(stored, stored),
                        _mm512_unpackhi_epi64(stored, stored) };
    load_eights(from, b->qs);
    u->both = k_scales(b->d, b->scales, 1.0f);
    for (int i = 0; i < 2; i++) {
        __m512i low = _mm512_rolv_epi64(bits[i], turns), high = _mm512_srli_epi16(low, 1);
        mix_groups(&u->q[2 * i], bytes_merge(15, (bytes)from[i], (bytes)low) & 31,
                   bytes_merge(15, (bytes)_mm512_srli_epi16(from[i], 4), (bytes)high) & 31);
    }
}

LANES_INLINE void load_q6_k_eights(struct unit *u, const struct unit_place *at)
{
    const struct block_q6_k *b = (const struct block_q6_k *)at->values + at->index;
    __m512i from[2], first = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)b->qh));
    __m512i second = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(b->qh + 32)));
    __m512i bits[2] = { _mm512_unpacklo_epi64(first, second),
                        _mm512_unpackhi_epi64(first, second) };
    load_q6_k_scales(u, b);
    load_eights(from, b->ql);
    for (int i = 0; i < 2; i++) {
        bytes low = (bytes)_mm512_sllv_epi16(bits[i], halves_counts(4, 2));
        bytes high = (bytes)_mm512_srlv_epi16(bits[i], halves_counts(0, 2));
        u->q[i] = bytes_merge(15, (bytes)from[i], low) & 63;
        u->q[2 + i] = bytes_merge(15, (bytes)_mm512_srli_epi16(from[i], 4), high) & 63;
    }
}

LANES_INLINE void load_affine4_pairs(struct unit *u, const struct unit_place *at)
{
    const uint8_t *p = at->values + UNIT / 2 * at->index;
    u->both = lanes_16_bit_groups(affine_groups(at));
    for (int i = 0; i < 2; i++) {
        __m512i v = _mm512_loadu_si512(p + 64 * i);
        u->q[2 * i] = (bytes)v & 15;
        u->q[2 * i + 1] = (bytes)_mm512_srli_epi16(v, 4) & 15;
    }
}

LANES_INLINE void load_for_dot(dot_unit *u, const struct unit_place *at, unit_loader load,
                               struct unit_kind kind)
{
    if (kind.format == FORMAT_Q4_K) {
        load_q4_k_eights(u, at);
    } else if (kind.format == FORMAT_Q5_K) {
        load_q5_k_eights(u, at);
    } else if (kind.format == FORMAT_Q6_K) {
        load_q6_k_eights(u, at);
    } else if (kind.format == FORMAT_AFFINE4 && kind.usual) {
        load_affine4_pairs(u, at);
    } else {
        load(u, at);
        if (kind.order == UNIT_ORDER_PAIRS) unit_part_pairs(u->q);
    }
}

#endif
