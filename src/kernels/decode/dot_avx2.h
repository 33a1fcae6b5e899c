/* dot_avx2.h: how products are added up with vectors of 32 bytes.
 *
 * Written in registers: vectors of 64 bytes would be split by the compiler, which then keeps
 * most of them in memory. */
#ifndef KERNELS_DECODE_DOT_AVX2_H
#define KERNELS_DECODE_DOT_AVX2_H

#include "kernels/decode/pairs.h"
#include "kernels/weight_units.h"

enum { STREAMS = 1, TOGETHER = 1 };

#define UNIT_ORDERS                                                                                \
    [FORMAT_Q4_K] = UNIT_ORDER_K_32, [FORMAT_Q5_K] = UNIT_ORDER_K_32,                              \
    [FORMAT_Q6_K] = UNIT_ORDER_HALVES, [FORMAT_AFFINE4] = UNIT_ORDER_PAIRS

/* A unit in eight pieces of 32 numbers. */
enum { PIECES = 8, PIECE = 32 };

typedef struct {
    __m256i q[PIECES];
    __m256 scale[2], min[2]; /* of groups of 32 only the first; K formats: the min is taken off */
} dot_unit;

/* Groups of 32: of products, of mins.  Groups of 16: the first eight, the others. */
struct sums {
    __m256 first, second;
};

/* ------------------------------------------------------------------- integers */

/* 128·Σ q·high + Σ q·low of `count` pieces, `step` apart, in each lane of four bytes.  Without
 * VNNI their products are added up in 16 bits, two at a time: they must fit. */
LANES_INLINE __m256i dot_pieces(const __m256i *q, const struct integer_unit *x, int first, int step,
                                int count)
{
    __m256i high = _mm256_setzero_si256(), low = high;
    const int8_t *x_high = x->high + PIECE * first, *x_low = x->low + PIECE * first;
    for (int i = 0; i < count; i++) {
        __m256i h = _mm256_loadu_si256((const __m256i *)(x_high + PIECE * i * step));
        __m256i l = _mm256_loadu_si256((const __m256i *)(x_low + PIECE * i * step));
#if defined(__AVXVNNI__)
        high = _mm256_dpbusd_avx_epi32(high, q[first + i * step], h);
        low = _mm256_dpbusd_avx_epi32(low, q[first + i * step], l);
#else
        h = _mm256_maddubs_epi16(q[first + i * step], h);
        l = _mm256_maddubs_epi16(q[first + i * step], l);
        high = i == 0 ? h : _mm256_add_epi16(high, h);
        low = i == 0 ? l : _mm256_add_epi16(low, l);
#endif
    }
#if defined(__AVXVNNI__)
    return _mm256_add_epi32(_mm256_slli_epi32(high, 7), low);
#else
    /* Sums of pairs become sums of four by a product with 128 or 1, which costs as much. */
    return _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(128)),
                            _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
#endif
}

/* What is above 127 goes on its own: two products would not fit. */
LANES_INLINE __m256i dot_piece(const dot_unit *w, const struct integer_unit *x, int i, bool wide)
{
#if !defined(__AVXVNNI__)
    if (wide) {
        __m256i parts[2][PIECES];
        parts[0][i] = _mm256_and_si256(w->q[i], _mm256_set1_epi8(127));
        parts[1][i] = _mm256_and_si256(w->q[i], _mm256_set1_epi8(-128));
        return _mm256_add_epi32(dot_pieces(parts[0], x, i, 1, 1), dot_pieces(parts[1], x, i, 1, 1));
    }
#endif
    (void)wide;
    return dot_pieces(w->q, x, i, 1, 1);
}

/* Four pieces from `first` on, in either half: the sums of 16 numbers of each. */
LANES_INLINE __m256i dot_four_pieces(const dot_unit *w, const struct integer_unit *x, int first,
                                     bool wide)
{
    __m256i halves[2];
    for (int i = 0; i < 2; i++)
        halves[i] = _mm256_hadd_epi32(dot_piece(w, x, first + 2 * i, wide),
                                      dot_piece(w, x, first + 2 * i + 1, wide));
    return _mm256_hadd_epi32(halves[0], halves[1]);
}

/* Lanes 0 … 3 are those of even groups, 4 … 7 of odd ones: to the order of groups. */
LANES_INLINE __m256i even_odd(__m256i v)
{
    return _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

LANES_INLINE __m256i dot_groups_of_32(const dot_unit *w, const struct integer_unit *x,
                                      struct unit_kind kind)
{
    __m256i a, b;
    switch (kind.order) {
    case UNIT_ORDER_K_32: /* two lanes are of a chunk: of its even group, of its odd one */
        a = dot_pieces(w->q, x, 0, 1, 4);
        b = dot_pieces(w->q, x, 4, 1, 4);
        return _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xaa),
                                _mm256_shuffle_epi32(_mm256_blend_epi32(b, a, 0xaa), 0xb1));
    case UNIT_ORDER_PAIRS: /* a group has half of a piece of even numbers and one of odd ones */
        a = _mm256_hadd_epi32(dot_pieces(w->q, x, 0, 2, 2), dot_pieces(w->q, x, 1, 2, 2));
        b = _mm256_hadd_epi32(dot_pieces(w->q, x, 4, 2, 2), dot_pieces(w->q, x, 5, 2, 2));
        return even_odd(_mm256_hadd_epi32(a, b));
    default:
        a = dot_four_pieces(w, x, 0, kind.wide);
        b = dot_four_pieces(w, x, 4, kind.wide);
        return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                                _mm256_permute2x128_si256(a, b, 0x31));
    }
}

/* out[0]: groups 0 … 7. */
LANES_INLINE void dot_groups_of_16(__m256i out[2], const dot_unit *w, const struct integer_unit *x,
                                   struct unit_kind kind)
{
    if (kind.order == UNIT_ORDER_HALVES) { /* two lanes are of a group, the next two of its 8th */
        __m256 low =
            (__m256)_mm256_hadd_epi32(dot_pieces(w->q, x, 0, 2, 2), dot_pieces(w->q, x, 1, 2, 2));
        __m256 high =
            (__m256)_mm256_hadd_epi32(dot_pieces(w->q, x, 4, 2, 2), dot_pieces(w->q, x, 5, 2, 2));
        out[0] = even_odd((__m256i)_mm256_shuffle_ps(low, high, 0x88));
        out[1] = even_odd((__m256i)_mm256_shuffle_ps(low, high, 0xdd));
        return;
    }
    for (int half = 0; half < 2; half++)
        out[half] = even_odd(dot_four_pieces(w, x, 4 * half, kind.wide));
}

/* ----------------------------------------------------------------------- sums */

LANES_INLINE void add_groups_of_32(struct sums *sums, const dot_unit *w,
                                   const struct integer_unit *x, struct unit_kind kind)
{
    __m256 dots = _mm256_cvtepi32_ps(dot_groups_of_32(w, x, kind));
    __m256 scales = _mm256_mul_ps(w->scale[0], _mm256_loadu_ps(x->scales));
    __m256 mins = _mm256_mul_ps(w->min[0], _mm256_loadu_ps(x->sums));
    sums->first = _mm256_fmadd_ps(dots, scales, sums->first);
    sums->second = kind.order == UNIT_ORDER_K_32 ? _mm256_sub_ps(sums->second, mins)
                                                 : _mm256_add_ps(sums->second, mins);
}

LANES_INLINE __m256 add_groups_of_16(__m256 sum, __m256i dots, const dot_unit *w,
                                     const struct integer_unit *x, int half)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    __m256 x_scales = _mm256_castps128_ps256(_mm_loadu_ps(x->scales + 4 * half));
    __m256 scales = _mm256_mul_ps(w->scale[half], _mm256_permutevar8x32_ps(x_scales, twice));
    sum = _mm256_fmadd_ps(w->min[half], _mm256_loadu_ps(x->sums_16 + 8 * half), sum);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scales, sum);
}

LANES_INLINE void add_product(struct sums *sums, size_t which, const dot_unit *w,
                              const struct integer_unit *x, struct unit_kind kind)
{
    (void)which;
    if (kind.group == 32) {
        add_groups_of_32(sums, w, x, kind);
        return;
    }
    __m256i dots[2];
    dot_groups_of_16(dots, w, x, kind);
    sums->first = add_groups_of_16(sums->first, dots[0], w, x, 0);
    sums->second = add_groups_of_16(sums->second, dots[1], w, x, 1);
}

/* Two at once, in a half each: lanes 0 … 3 and those four further of each. */
LANES_INLINE __m256 fold_two(const struct sums *sums)
{
    __m256 a = _mm256_add_ps(sums[0].first, sums[0].second);
    __m256 b = _mm256_add_ps(sums[1].first, sums[1].second);
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* Four at once what lanes_sum does. */
LANES_INLINE void sum_four(float out[4], const struct sums *sums, struct unit_kind kind)
{
    (void)kind;
    __m256 a = fold_two(sums), b = fold_two(sums + 2);
    __m256 twos = _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
    __m256 ones = _mm256_hadd_ps(twos, twos); /* 0 2 0 2 1 3 1 3 */
    _mm_storeu_ps(out,
                  _mm_unpacklo_ps(_mm256_castps256_ps128(ones), _mm256_extractf128_ps(ones, 1)));
}

/* -------------------------------------------------------------------- loading */

/* As units.h loads it, then cut into pieces. */
LANES_INLINE void load_in_row_order(dot_unit *u, const struct unit_place *at, unit_loader load,
                                    int group)
{
    struct unit unit;
    load(&unit, at);
    memcpy(u->q, unit.q, sizeof u->q);
    if (group == 32) {
        __m256 both[2];
        memcpy(both, &unit.both, sizeof both);
        u->scale[0] = both[0];
        u->min[0] = both[1];
    } else {
        memcpy(u->scale, &unit.scale, sizeof u->scale);
        memcpy(u->min, &unit.min, sizeof u->min);
    }
}

LANES_INLINE __m256i low_nibbles(__m256i v)
{
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}

LANES_INLINE __m256i high_nibbles(__m256i v)
{
    return low_nibbles(_mm256_srli_epi16(v, 4));
}

/* Eight 6-bit scales, then eight mins, of the first 16 bytes of a block.  Four of each are the
 * lower bits of bytes 4 … 11; of the others four bits are in the last four bytes, and two are the
 * upper bits of bytes 4 … 11. */
LANES_INLINE __m128i k_scale_bytes(__m128i head)
{
    const __m128i lower = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i upper = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    const __m128i masks = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(head, lower), _mm_setr_epi32(0, 0, 0, 4));
    __m128i high = _mm_srli_epi32(_mm_shuffle_epi8(head, upper), 2);
    return _mm_or_si128(_mm_and_si128(low, masks), _mm_and_si128(high, _mm_set1_epi8(0x30)));
}

LANES_INLINE void load_k_scales(dot_unit *u, const uint8_t *block)
{
    __m128i head = _mm_loadu_si128((const __m128i *)block), six_bits = k_scale_bytes(head);
    __m128 d = _mm_cvtph_ps(head); /* and dmin */
    __m256 scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(six_bits));
    __m256 mins = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(six_bits, 8)));
    u->scale[0] = _mm256_mul_ps(scales, _mm256_broadcastss_ps(d));
    u->min[0] = _mm256_mul_ps(mins, _mm256_broadcastss_ps(_mm_movehdup_ps(d)));
}

/* Sixteen bytes at p, and those 64 behind them: parts of two loads, as any unit can put them
 * together and only two can move them. */
LANES_INLINE __m256i two_sixteens(const uint8_t *p)
{
    return _mm256_blend_epi32(_mm256_loadu_si256((const __m256i *)p),
                              _mm256_loadu_si256((const __m256i *)(p + 48)), 0xf0);
}

/* Eight bytes i of chunks 0 1 2 3. */
LANES_INLINE void load_chunks(__m256i out[4], const uint8_t *qs)
{
    for (int half = 0; half < 2; half++) {
        __m256i a = two_sixteens(qs + 16 * half), b = two_sixteens(qs + 32 + 16 * half);
        out[2 * half] = _mm256_unpacklo_epi64(a, b);
        out[2 * half + 1] = _mm256_unpackhi_epi64(a, b);
    }
}

LANES_INLINE void load_q4_k_pieces(dot_unit *u, const struct unit_place *at)
{
    const struct block_q4_k *b = (const struct block_q4_k *)at->values + at->index;
    __m256i chunks[4];
    load_k_scales(u, b->d);
    load_chunks(chunks, b->qs);
    for (int i = 0; i < 4; i++) {
        u->q[i] = low_nibbles(chunks[i]);
        u->q[4 + i] = high_nibbles(chunks[i]);
    }
}

/* Bits 2c and 2c + 1 of a byte of qh belong to the two numbers of that byte of chunk c. */
LANES_INLINE void load_q5_k_pieces(dot_unit *u, const struct unit_place *at)
{
    const struct block_q5_k *b = (const struct block_q5_k *)at->values + at->index;
    const __m256i shifts = _mm256_setr_epi64x(0, 2, 4, 6), fifth = _mm256_set1_epi8(16);
    __m256i chunks[4];
    load_k_scales(u, b->d);
    load_chunks(chunks, b->qs);
    for (int i = 0; i < 4; i++) {
        long long eight;
        memcpy(&eight, b->qh + 8 * i, sizeof eight);
        __m256i bits = _mm256_srlv_epi64(_mm256_set1_epi64x(eight), shifts);
        __m256i low = _mm256_and_si256(_mm256_slli_epi16(bits, 4), fifth);
        __m256i high = _mm256_and_si256(_mm256_slli_epi16(bits, 3), fifth);
        u->q[i] = _mm256_or_si256(low_nibbles(chunks[i]), low);
        u->q[4 + i] = _mm256_or_si256(high_nibbles(chunks[i]), high);
    }
}

LANES_INLINE void cut_q6_k_scales(dot_unit *u, const struct block_q6_k *b)
{
    __m256 d = _mm256_set1_ps(float_from_f16(b->d));
    for (int half = 0; half < 2; half++) {
        __m256i scales = _mm256_cvtepi8_epi32(_mm_loadu_si64(b->scales + 8 * half));
        u->scale[half] = _mm256_mul_ps(_mm256_cvtepi32_ps(scales), d);
        u->min[half] = _mm256_mul_ps(u->scale[half], _mm256_set1_ps(-32.0f));
    }
}

/* Eights of both halves side by side: of each, 32 bytes of ql have numbers n and 64 + n, the next
 * 32 have 32 + n and 96 + n; the upper bits of all four are in one byte of qh. */
LANES_INLINE void load_q6_k_pieces(dot_unit *u, const struct unit_place *at)
{
    const struct block_q6_k *b = (const struct block_q6_k *)at->values + at->index;
    const __m256i upper = _mm256_set1_epi8(0x30);
    __m256i from[3][2]; /* ql, ql + 32, qh: both halves */
    cut_q6_k_scales(u, b);
    for (int half = 0; half < 2; half++) {
        from[0][half] = _mm256_loadu_si256((const __m256i *)(b->ql + 64 * half));
        from[1][half] = _mm256_loadu_si256((const __m256i *)(b->ql + 64 * half + 32));
        from[2][half] = _mm256_loadu_si256((const __m256i *)(b->qh + 32 * half));
    }
    for (int i = 0; i < 2; i++) {
        __m256i v[3];
        for (int k = 0; k < 3; k++)
            v[k] = i == 0 ? _mm256_unpacklo_epi64(from[k][0], from[k][1])
                          : _mm256_unpackhi_epi64(from[k][0], from[k][1]);
        __m256i bits[4] = { _mm256_slli_epi16(v[2], 4), _mm256_slli_epi16(v[2], 2), v[2],
                            _mm256_srli_epi16(v[2], 2) };
        for (int k = 0; k < 4; k++) bits[k] = _mm256_and_si256(bits[k], upper);
        u->q[2 * i] = _mm256_or_si256(low_nibbles(v[0]), bits[0]);
        u->q[2 * i + 1] = _mm256_or_si256(low_nibbles(v[1]), bits[1]);
        u->q[4 + 2 * i] = _mm256_or_si256(high_nibbles(v[0]), bits[2]);
        u->q[4 + 2 * i + 1] = _mm256_or_si256(high_nibbles(v[1]), bits[3]);
    }
}

LANES_INLINE void load_affine4_pieces(dot_unit *u, const struct unit_place *at)
{
    u->scale[0] = (__m256)half_16_bit_groups(at->scales, affine_groups(at));
    u->min[0] = (__m256)half_16_bit_groups(at->biases, affine_groups(at));
    const __m256i *p = (const __m256i *)(at->values + UNIT / 2 * at->index);
    for (int i = 0; i < 4; i++) {
        __m256i v = _mm256_loadu_si256(p + i);
        int place = i / 2 * 4 + i % 2;
        u->q[place] = low_nibbles(v);
        u->q[place + 2] = high_nibbles(v);
    }
}

LANES_INLINE void load_for_dot(dot_unit *u, const struct unit_place *at, unit_loader load,
                               struct unit_kind kind)
{
    if (kind.format == FORMAT_Q4_K) {
        load_q4_k_pieces(u, at);
    } else if (kind.format == FORMAT_Q5_K) {
        load_q5_k_pieces(u, at);
    } else if (kind.format == FORMAT_Q6_K) {
        load_q6_k_pieces(u, at);
    } else if (kind.format == FORMAT_AFFINE4 && kind.usual) {
        load_affine4_pieces(u, at);
    } else {
        load_in_row_order(u, at, load, kind.group);
        if (kind.order == UNIT_ORDER_PAIRS) unit_part_pairs(u->q);
    }
}

#endif
