/* bf16_packs.h: what goes into a matrix unit that multiplies in bf16, and what comes out of it.
 *
 * Sums are [16 rows of weights][16 rows of activations], and are turned on their way out. */
#ifndef KERNELS_PREFILL_BF16_PACKS_H
#define KERNELS_PREFILL_BF16_PACKS_H

#include "kernels/simd/simd.h"

enum { PACK_COLS = 32, PACK_SUMS = PACK_ROWS * PACK_ROWS };

/* 32 numbers from `k` on, as pairs of bf16. */
LANES_INLINE __m512i load_pairs(const float *x, size_t k, size_t n)
{
    lanes low = { 0 }, high = { 0 };
    if (k + 32 <= n) {
        low = lanes_load(x + k);
        high = lanes_load(x + k + 16);
    } else {
        low = n - k >= 16 ? lanes_load(x + k) : lanes_load_some(x + k, n - k);
        if (n - k > 16) high = lanes_load_some(x + k + 16, n - k - 16);
    }
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

static inline void bf16_make_pack(uint16_t *out, const float *const *x, size_t count, size_t n)
{
    for (size_t k = 0; k < n; k += PACK_COLS, out += PACK_ROWS * PACK_COLS) {
        __m512i r[PACK_ROWS];
        for (size_t i = 0; i < PACK_ROWS; i++)
            r[i] = i < count ? load_pairs(x[i], k, n) : _mm512_setzero_si512();
        transpose_dwords(r);
        for (size_t i = 0; i < PACK_ROWS; i++) _mm512_storeu_si512(out + i * PACK_COLS, r[i]);
    }
}

/* Such sums to the rows of a pack, from `x` on; weight rows from `row` on. */
static inline void bf16_add_results(const struct matrix_product *p, const float *sums, size_t row,
                                    size_t x)
{
    __m512i r[PACK_ROWS];
    for (int i = 0; i < PACK_ROWS; i++) r[i] = _mm512_loadu_si512(sums + i * PACK_ROWS);
    transpose_dwords(r);
    size_t rows = min_size(PACK_ROWS, p->rows - row), x_rows = min_size(PACK_ROWS, p->x_rows - x);
    __mmask16 present = (__mmask16)((1u << rows) - 1);
    __m512 addends = _mm512_setzero_ps();
    if (p->addends[0]) addends = _mm512_maskz_loadu_ps(present, p->addends[0] + row);
    for (size_t j = 0; j < x_rows; j++) {
        float *out = p->out[x + j] + row;
        __m512 result = (__m512)r[j];
        if (p->addends[0]) result = _mm512_add_ps(result, addends);
        if (!p->add && rows == PACK_ROWS) {
            /* Rows are a page or more apart, and their lines compete for places in caches. */
            lanes_stream_any(out, (lanes)result);
            continue;
        }
        if (p->add) result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(present, out));
        _mm512_mask_storeu_ps(out, present, result);
        __builtin_prefetch(out + 2 * PACK_ROWS, 1, 2); /* the next block's */
    }
}

/* Where gated results go: packs of `cols` numbers, from `first` on. */
struct gated_packs {
    uint16_t *packs;
    size_t first, cols;
    enum activation activation;
};

/* 16 rows of gate's and up's sums, and where they go. */
struct gated_sums {
    const float *sums[2], *addends[2]; /* the latter NULL: none */
    uint16_t *pack;
};

LANES_INLINE lanes gated(const struct gated_sums *s, int row, enum activation activation)
{
    lanes both[2];
    for (int i = 0; i < 2; i++) {
        both[i] = lanes_load(s->sums[i] + row * PACK_ROWS);
        if (s->addends[i]) both[i] += s->addends[i][row];
    }
    return lanes_gate(activation, both[0], both[1]);
}

/* Two rows of sums side by side are what a pack holds. */
LANES_INLINE void bf16_store_rows(const struct gated_sums *s, enum activation activation)
{
    const __m512i pairs =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
#pragma GCC unroll 2
    for (int i = 0; i < PACK_ROWS; i += 2) {
        lanes even = gated(s, i, activation), odd = gated(s, i + 1, activation);
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
        _mm512_storeu_si512(s->pack + i / 2 * PACK_COLS, _mm512_permutexvar_epi16(pairs, both));
    }
}

/* The sums of block `block` with row `x` of activations and those behind it. */
static inline void bf16_store_gated(const struct matrix_product *p, const struct gated_packs *to,
                                    const float *gates, const float *ups, size_t block, size_t x)
{
    size_t row = block * PACK_ROWS;
    struct gated_sums s = { .sums = { gates, ups },
                            .pack = to->packs + x * to->cols + (to->first + row) * PACK_ROWS };
    for (int i = 0; i < 2; i++)
        if (p->addends[i]) s.addends[i] = p->addends[i] + row;
    if (to->activation == ACTIVATION_CLAMPED)
        bf16_store_rows(&s, ACTIVATION_CLAMPED);
    else if (to->activation == ACTIVATION_GELU)
        bf16_store_rows(&s, ACTIVATION_GELU);
    else
        bf16_store_rows(&s, ACTIVATION_SILU);
}

#endif
