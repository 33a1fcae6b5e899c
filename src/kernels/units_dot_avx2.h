/* units_dot_avx2.h: how products are added up with vectors of 32 bytes.
 *
 * Written in registers: vectors of 64 bytes would be split by the compiler, which then keeps
 * most of them in memory. */
#ifndef KERNELS_UNITS_DOT_AVX2_H
#define KERNELS_UNITS_DOT_AVX2_H

#include "kernels/units.h"

enum { STREAMS = 1, TOGETHER = 1 };

/* A unit in eight pieces of 32 numbers. */
enum { PIECES = 8, PIECE = 32 };

typedef struct {
    __m256i q[PIECES];
    __m256 scale[2], min[2]; /* of groups of 32 only the first */
} dot_unit;

/* Groups of 32: of products, of mins.  Groups of 16: the first eight, the others. */
struct sums {
    __m256 first, second;
};

/* ------------------------------------------------------------------- integers */

/* 128·Σ q·high + Σ q·low of piece `i`, in each lane of four numbers, which are below 128. */
LANES_INLINE __m256i dot_small(__m256i q, const struct integer_unit *x, int i)
{
    __m256i high = _mm256_loadu_si256((const __m256i *)(x->high + PIECE * i));
    __m256i low = _mm256_loadu_si256((const __m256i *)(x->low + PIECE * i));
#if defined(__AVXVNNI__)
    __m256i sum = _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), q, high);
    return _mm256_dpbusd_avx_epi32(_mm256_slli_epi32(sum, 7), q, low);
#else
    /* Sums of pairs become sums of four by a product with 128 or 1, which costs as much. */
    __m256i h = _mm256_madd_epi16(_mm256_maddubs_epi16(q, high), _mm256_set1_epi16(128));
    __m256i l = _mm256_madd_epi16(_mm256_maddubs_epi16(q, low), _mm256_set1_epi16(1));
    return _mm256_add_epi32(h, l);
#endif
}

/* Without VNNI pairs of products are added in 16 bits: what is above 127 goes on its own. */
LANES_INLINE __m256i dot_piece(const dot_unit *w, const struct integer_unit *x, int i, bool wide)
{
#if !defined(__AVXVNNI__)
    if (wide) {
        __m256i rest = _mm256_and_si256(w->q[i], _mm256_set1_epi8(127));
        __m256i top = _mm256_and_si256(w->q[i], _mm256_set1_epi8(-128));
        return _mm256_add_epi32(dot_small(rest, x, i), dot_small(top, x, i));
    }
#endif
    (void)wide;
    return dot_small(w->q[i], x, i);
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

LANES_INLINE __m256i dot_groups_of_32(const dot_unit *w, const struct integer_unit *x,
                                      struct unit_kind kind)
{
    __m256i a = dot_four_pieces(w, x, 0, kind.wide), b = dot_four_pieces(w, x, 4, kind.wide);
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

/* Half 0: groups 0 … 7. */
LANES_INLINE __m256i dot_groups_of_16(const dot_unit *w, const struct integer_unit *x, int half,
                                      struct unit_kind kind)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(dot_four_pieces(w, x, 4 * half, kind.wide), order);
}

/* ----------------------------------------------------------------------- sums */

LANES_INLINE void add_groups_of_32(struct sums *sums, const dot_unit *w,
                                   const struct integer_unit *x, struct unit_kind kind)
{
    __m256 dots = _mm256_cvtepi32_ps(dot_groups_of_32(w, x, kind));
    __m256 scales = _mm256_mul_ps(w->scale[0], _mm256_loadu_ps(x->scales));
    __m256 mins = _mm256_mul_ps(w->min[0], _mm256_loadu_ps(x->sums));
    sums->first = _mm256_fmadd_ps(dots, scales, sums->first);
    sums->second = _mm256_add_ps(sums->second, mins);
}

LANES_INLINE __m256 add_groups_of_16(__m256 sum, const dot_unit *w, const struct integer_unit *x,
                                     int half, struct unit_kind kind)
{
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    __m256 dots = _mm256_cvtepi32_ps(dot_groups_of_16(w, x, half, kind));
    __m256 x_scales = _mm256_castps128_ps256(_mm_loadu_ps(x->scales + 4 * half));
    __m256 scales = _mm256_mul_ps(w->scale[half], _mm256_permutevar8x32_ps(x_scales, twice));
    sum = _mm256_fmadd_ps(w->min[half], _mm256_loadu_ps(x->sums_16 + 8 * half), sum);
    return _mm256_fmadd_ps(dots, scales, sum);
}

LANES_INLINE void add_product(struct sums *sums, size_t which, const dot_unit *w,
                              const struct integer_unit *x, struct unit_kind kind)
{
    (void)which;
    if (kind.group == 32) {
        add_groups_of_32(sums, w, x, kind);
        return;
    }
    sums->first = add_groups_of_16(sums->first, w, x, 0, kind);
    sums->second = add_groups_of_16(sums->second, w, x, 1, kind);
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

#endif
