/* dot.c: products of rows.
 *
 * A product is 16 running sums, one per lane, folded at the end.  A tile shares
 * the loads of several rows; it never changes the order within one product. */
#include "kernels/set.h"

float NAMED(dot)(const float *a, const float *b, size_t n)
{
    lanes sum = { 0 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) sum += lanes_load(a + i) * lanes_load(b + i);
    if (i < n) sum += lanes_load_some(a + i, n - i) * lanes_load_some(b + i, n - i);
    return lanes_sum(sum);
}

void NAMED(add_scaled)(float *y, const float *x, float a, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        lanes_store(y + i, lanes_load(y + i) + lanes_load(x + i) * a);
    for (; i < n; i++) y[i] = y[i] + x[i] * a;
}

/* Many rows: a square that shares loads both ways.  One row: enough independent
 * sums to hide the latency of an addition. */
enum { TILE_W = 4, TILE_X = 4, TILE_TALL = 8 };

/* w_count and x_count are constants where this is inlined, so that the sums live in registers. */
LANES_INLINE void tile(const struct dot_block *b, size_t w_first, size_t x_first, size_t w_count,
                       size_t x_count)
{
    lanes sums[TILE_TALL][TILE_X] = { 0 };
    const float *w = b->w + w_first * b->n;
    const float *const *x = b->x + x_first;
    size_t k = 0;
    for (; k + LANES <= b->n; k += LANES) {
        for (size_t i = 0; i < w_count; i++) {
            lanes wi = lanes_load(w + i * b->n + k);
            for (size_t j = 0; j < x_count; j++) sums[i][j] += wi * lanes_load(x[j] + k);
        }
    }
    size_t left = b->n - k;
    if (left) {
        for (size_t i = 0; i < w_count; i++) {
            lanes wi = lanes_load_some(w + i * b->n + k, left);
            for (size_t j = 0; j < x_count; j++) sums[i][j] += wi * lanes_load_some(x[j] + k, left);
        }
    }
    for (size_t i = 0; i < w_count; i++)
        for (size_t j = 0; j < x_count; j++)
            b->out[x_first + j][w_first + i] = lanes_sum(sums[i][j]);
}

void NAMED(dot_block)(const struct dot_block *block)
{
    size_t j = 0;
    for (; j + TILE_X <= block->x_rows; j += TILE_X) {
        size_t i = 0;
        for (; i + TILE_W <= block->w_rows; i += TILE_W) tile(block, i, j, TILE_W, TILE_X);
        for (; i < block->w_rows; i++) tile(block, i, j, 1, TILE_X);
    }
    for (; j < block->x_rows; j++) {
        size_t i = 0;
        for (; i + TILE_TALL <= block->w_rows; i += TILE_TALL) tile(block, i, j, TILE_TALL, 1);
        for (; i < block->w_rows; i++) tile(block, i, j, 1, 1);
    }
}
