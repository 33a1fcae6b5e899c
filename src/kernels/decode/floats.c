/* floats.c: a matrix of floats with a few rows of activations, straight from its bytes.
 *
 * A product is 16 running sums, one per lane, folded at the end.  Where numbers have scales, the
 * sums of each stretch with one scale are multiplied by it and added to those of the others. */
#include "kernels/set.h"
#include "kernels/simd/simd.h"

#include <math.h>

enum { TILE_W = 4, TILE_X = 4 };

/* Prefetch distance in bytes if rows are far apart. */
enum { FETCH_AHEAD = 1024 };

/* Constants of a format: bytes of a number, which is `factor` times what `load`
 * gives, which does not see NaNs where they are hidden. */
struct float_kind {
    size_t bytes;
    float factor;
    bool hides_nan;
};

/* Some rows of the matrix, `step` apart, with some of activations; both counts are constants. */
struct float_tile {
    const struct weight *weight;
    const uint8_t *values[TILE_W], *scales[TILE_W]; /* scales: NULL where there are none */
    const float *const *x;
    size_t w_count, x_count;
    size_t ahead; /* prefetch distance in bytes */
};

LANES_INLINE struct float_tile tile_at(const struct float_block *b, size_t first, size_t step,
                                       size_t x_first, size_t w_count, size_t x_count)
{
    const struct weight *w = b->weight;
    struct float_tile t = {
        .weight = w, .x = b->x + x_first, .w_count = w_count, .x_count = x_count
    };
    t.ahead = step == 1 ? TILE_W * w->row_bytes : FETCH_AHEAD;
    for (size_t i = 0; i < w_count; i++) {
        uint64_t row = b->first + first + i * step;
        t.values[i] = w->values + row * w->row_bytes;
        t.scales[i] = w->scales ? w->scales + row / w->group_rows * w->scale_row_bytes : NULL;
    }
    return t;
}

LANES_INLINE void clear(lanes sums[TILE_W][TILE_X], const struct float_tile *t)
{
    for (size_t i = 0; i < t->w_count; i++)
        for (size_t j = 0; j < t->x_count; j++) sums[i][j] = (lanes){ 0 };
}

/* Sixteen numbers of a row, from column `k` on. */
LANES_INLINE void add_numbers(lanes sums[TILE_X], const struct float_tile *t, lanes w, size_t k)
{
    for (size_t j = 0; j < t->x_count; j++) sums[j] += w * lanes_load(t->x[j] + k);
}

LANES_INLINE void add_tail(lanes sums[TILE_W][TILE_X], const struct float_tile *t, size_t k,
                           size_t count, load_function load, struct float_kind kind)
{
    for (size_t i = 0; i < t->w_count; i++) {
        lanes w = lanes_load_floats(t->values[i] + k * kind.bytes, count, kind.bytes, load);
        for (size_t j = 0; j < t->x_count; j++)
            sums[i][j] += w * lanes_load_some(t->x[j] + k, count);
    }
}

/* Columns begin to end - 1, by lines of a cache as far as they are whole. */
LANES_INLINE void add_stretch(lanes sums[TILE_W][TILE_X], const struct float_tile *t, size_t begin,
                              size_t end, load_function load, struct float_kind kind)
{
    const size_t line = CACHE_LINE / kind.bytes;
    size_t k = begin;
    for (; k + line <= end; k += line)
        for (size_t i = 0; i < t->w_count; i++) {
            const uint8_t *from = t->values[i] + k * kind.bytes;
            __builtin_prefetch(from + t->ahead, 0, 3);
            for (size_t v = 0; v < line; v += LANES)
                add_numbers(sums[i], t, load(from + v * kind.bytes), k + v);
        }
    for (; k + LANES <= end; k += LANES)
        for (size_t i = 0; i < t->w_count; i++)
            add_numbers(sums[i], t, load(t->values[i] + k * kind.bytes), k);
    if (k < end) add_tail(sums, t, k, end - k, load, kind);
}

LANES_INLINE void tile(const struct float_block *b, size_t first, size_t step, size_t x_first,
                       size_t w_count, size_t x_count, load_function load, struct float_kind kind)
{
    const struct weight *weight = b->weight;
    const struct float_tile t = tile_at(b, first, step, x_first, w_count, x_count);
    lanes totals[TILE_W][TILE_X], sums[TILE_W][TILE_X];
    size_t width = weight->scales ? weight->group_cols : weight->cols;
    clear(totals, &t);
    for (size_t begin = 0, group = 0; begin < weight->cols; begin += width, group++) {
        clear(sums, &t);
        add_stretch(sums, &t, begin, min_size(begin + width, weight->cols), load, kind);
        for (size_t i = 0; i < w_count; i++) {
            const uint8_t *scales = t.scales[i];
            float scale = scales ? load_scale(weight->scale_format, scales, group) : 1.0f;
            for (size_t j = 0; j < x_count; j++) totals[i][j] += sums[i][j] * kind.factor * scale;
        }
    }
    for (size_t i = 0; i < w_count; i++) {
        bool nan = kind.hides_nan && e4m3_has_nan(t.values[i], weight->cols);
        for (size_t j = 0; j < x_count; j++) {
            float *out = b->out[x_first + j] + first + i * step;
            float result = nan ? NAN : lanes_sum(totals[i][j]);
            *out = b->add ? *out + result : result;
        }
    }
}

/* One row of activations: four rows of the matrix from places far apart, because the memory gives a
 * core more in several streams than in one. */
LANES_INLINE void multiply(const struct float_block *b, load_function load, struct float_kind kind)
{
    size_t j = 0, step = b->count / TILE_W;
    for (; j + TILE_X <= b->x_rows; j += TILE_X) {
        size_t i = 0;
        for (; i + TILE_W <= b->count; i += TILE_W) tile(b, i, 1, j, TILE_W, TILE_X, load, kind);
        for (; i < b->count; i++) tile(b, i, 1, j, 1, TILE_X, load, kind);
    }
    for (; j < b->x_rows; j++) {
        for (size_t i = 0; i < step; i++) tile(b, i, step, j, TILE_W, 1, load, kind);
        for (size_t i = step * TILE_W; i < b->count; i++) tile(b, i, 1, j, 1, 1, load, kind);
    }
}

LANES_INLINE lanes load_f32s(const uint8_t *p)
{
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

void NAMED(float_dot_f32)(const struct float_block *block)
{
    multiply(block, load_f32s, (struct float_kind){ 4, 1.0f, false });
}

void NAMED(float_dot_f16)(const struct float_block *block)
{
    multiply(block, lanes_from_f16_bytes, (struct float_kind){ 2, 1.0f, false });
}

void NAMED(float_dot_bf16)(const struct float_block *block)
{
    multiply(block, lanes_from_bf16, (struct float_kind){ 2, 1.0f, false });
}

void NAMED(float_dot_e5m2)(const struct float_block *block)
{
    multiply(block, lanes_from_e5m2, (struct float_kind){ 1, 1.0f, false });
}

void NAMED(float_dot_e4m3)(const struct float_block *block)
{
    multiply(block, lanes_from_e4m3, (struct float_kind){ 1, 0x1p8f, true });
}
