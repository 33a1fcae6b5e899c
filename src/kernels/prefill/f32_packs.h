/* f32_packs.h: packs of f32 numbers, [cols][16]: a row of activations is a lane.
 *
 * Sums are [32 rows of weights][16 rows of activations]. */
#ifndef KERNELS_PREFILL_F32_PACKS_H
#define KERNELS_PREFILL_F32_PACKS_H

#include "kernels/simd/simd.h"

enum {
    HALF_ROWS = 16,
    BLOCK_ROWS = 2 * HALF_ROWS,
    /* Rows of weights and packs at a time: their sums fill the registers. */
    TALL = PARTS == 1 ? 8 : 4,
    WIDE = PARTS == 1 ? 3 : 1,
};

static inline void make_float_pack(float *pack, const float *const *x, size_t count, size_t n)
{
    memset(pack, 0, PACK_ROWS * matrix_cols(n) * sizeof *pack);
    for (size_t j = 0; j < count; j++)
        for (size_t k = 0; k < n; k++) pack[k * PACK_ROWS + j] = x[j][k];
}

/* Sums of rows of weights from `row` on with the rows of the pack from `x` on. */
static inline void store_results(const struct matrix_product *p, const float *sums, size_t row,
                                 size_t x)
{
    size_t rows = min_size(BLOCK_ROWS, p->rows - row), count = min_size(PACK_ROWS, p->x_rows - x);
    float turned[PACK_ROWS * BLOCK_ROWS];
    transpose_floats(turned, BLOCK_ROWS, sums, LANES, BLOCK_ROWS, PACK_ROWS);
    for (size_t j = 0; j < count; j++) {
        const float *from = turned + j * BLOCK_ROWS;
        float *out = p->out[x + j] + row;
        for (size_t r = 0; r < rows; r++) {
            float result = p->addends[0] ? from[r] + p->addends[0][row + r] : from[r];
            out[r] = p->add ? out[r] + result : result;
        }
    }
}

/* Where gated results go: packs of `cols` numbers, from `first` on.  NULL: to product->out. */
struct gated_packs {
    float *packs;
    size_t first, cols;
    enum activation activation;
};

/* 16 rows of gate's sums, then 16 of up's; addends for each, or NULL. */
LANES_INLINE void store_rows(float *pack, const float *sums, const float *const addends[2],
                             enum activation activation)
{
    for (size_t i = 0; i < HALF_ROWS; i++) {
        lanes gate = lanes_load(sums + i * LANES), up = lanes_load(sums + (HALF_ROWS + i) * LANES);
        if (addends[0]) gate += addends[0][i];
        if (addends[1]) up += addends[1][i];
        lanes_store(pack + i * LANES, lanes_gate(activation, gate, up));
    }
}

static inline void store_gated(const struct matrix_product *p, const struct gated_packs *to,
                               const float *sums, size_t block, size_t x)
{
    size_t row = block * HALF_ROWS;
    float *pack = to->packs + x * to->cols + (to->first + row) * PACK_ROWS;
    const float *const addends[2] = { p->addends[0] ? p->addends[0] + row : NULL,
                                      p->addends[1] ? p->addends[1] + row : NULL };
    if (to->activation == ACTIVATION_CLAMPED)
        store_rows(pack, sums, addends, ACTIVATION_CLAMPED);
    else if (to->activation == ACTIVATION_GELU)
        store_rows(pack, sums, addends, ACTIVATION_GELU);
    else
        store_rows(pack, sums, addends, ACTIVATION_SILU);
}

/* The sums of block `block` with the pack from `x` on. */
static inline void finish_block(const struct matrix_product *p, const struct gated_packs *gated,
                                const float *sums, size_t block, size_t x)
{
    if (gated)
        store_gated(p, gated, sums, block, x);
    else
        store_results(p, sums, block * BLOCK_ROWS, x);
}

#endif
