/* units_dot_avx512.h: how products are added up with vectors of 64 bytes.
 *
 * Sums of four products each, as the CPU makes them, are folded onto each other by unpacking until
 * a lane has a whole group.  Eight groups of 32 fill half a vector, so two products share one. */
#ifndef KERNELS_UNITS_DOT_AVX512_H
#define KERNELS_UNITS_DOT_AVX512_H

#include "kernels/units.h"

/* As many rows as there are registers for. */
enum { STREAMS = 4, TOGETHER = 2 };

typedef struct unit dot_unit;

/* Groups of 32: products of the first, then of the second, in the order of join_groups; mins of
 * both.  Groups of 16: the first's, the second's. */
struct sums {
    __m512 first, second;
    /* Of the first's unit, until the second's is there: */
    __m512i dots;
    __m512 scaled; /* scales, then mins, times those of the activations */
};

/* ------------------------------------------------------------------- integers */

LANES_INLINE __m512i dot_vector(const struct unit *w, const struct integer_unit *x, int v,
                                bool wide)
{
    return (__m512i)dot4_planes(w->q[v], bytes_load(x->high + 64 * v), bytes_load(x->low + 64 * v),
                                wide);
}

/* Numbers in row order.  Quarter k of the result has groups k, 4 + k, 8 + k and 12 + k of 16. */
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

/* Groups of 32 of two products: the first's eight, then the second's, even ones before odd ones. */
LANES_INLINE __m512i join_groups(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Where a lane of join_groups has its scale: in the first sixteen, or in the second. */
LANES_INLINE __m512i group_lanes(void)
{
    return _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 16, 18, 20, 22, 17, 19, 21, 23);
}

/* Brings the lanes of join_groups to the order of groups. */
LANES_INLINE __m512 groups_in_order(__m512 v)
{
    const __m512i from = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
    return _mm512_permutexvar_ps(from, v);
}

/* ----------------------------------------------------------------------- sums */

LANES_INLINE void add_groups_of_32(struct sums *sums, size_t which, const struct unit *w,
                                   const struct integer_unit *x, struct unit_kind kind)
{
    /* The sums of x lie behind its scales. */
    __m512 scaled = (__m512)(w->both * lanes_load(x->scales));
    __m512i dots = dot_quarters(w, x, kind.wide);
    if (which == 0) {
        sums->dots = dots;
        sums->scaled = scaled;
        return;
    }
    __m512 scales = _mm512_permutex2var_ps(sums->scaled, group_lanes(), scaled);
    __m512 mins = _mm512_shuffle_f32x4(sums->scaled, scaled, 0xee);
    __m512 whole = _mm512_cvtepi32_ps(join_groups(sums->dots, dots));
    sums->first = _mm512_fmadd_ps(whole, scales, sums->first);
    sums->second = _mm512_add_ps(sums->second, mins);
}

LANES_INLINE __m512 add_groups_of_16(__m512 sum, const struct unit *w, const struct integer_unit *x,
                                     struct unit_kind kind)
{
    const __m512i turned = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 scales = (__m512)(w->scale * lanes_twice(lanes_load(x->scales)));
    __m512i dots = _mm512_permutexvar_epi32(turned, dot_quarters(w, x, kind.wide));
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

/* The upper eight lanes onto the lower ones: of the first product, then of the second. */
LANES_INLINE __m512 fold_halves(const struct sums *sums, struct unit_kind kind)
{
    if (kind.group == 32) return _mm512_add_ps(groups_in_order(sums->first), sums->second);
    return _mm512_add_ps(_mm512_shuffle_f32x4(sums->first, sums->second, 0x44),
                         _mm512_shuffle_f32x4(sums->first, sums->second, 0xee));
}

/* Four at once what lanes_sum does. */
LANES_INLINE void sum_four(float out[4], const struct sums *sums, struct unit_kind kind)
{
    __m512 a = fold_halves(&sums[0], kind), b = fold_halves(&sums[1], kind);
    __m512 fours =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    __m512 twos = _mm512_add_ps(fours, _mm512_permute_ps(fours, 0x4e));
    __m512 ones = _mm512_add_ps(twos, _mm512_permute_ps(twos, 0xb1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, ones)));
}

LANES_INLINE void load_in_row_order(dot_unit *u, const struct unit_place *at, unit_loader load,
                                    int group)
{
    (void)group;
    load(u, at);
}

#endif
