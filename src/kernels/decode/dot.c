/* dot.c: products of quantised rows with activations in integers.
 *
 * The numbers that share a scale are a group; its products are added up exactly, in integers.
 * In f32 every group of a unit has a sum of its own, over all units of the row:
 *
 *     groups of 32    P[g] += dot·(s·sx), rounded once;  M[g] += m·Σx        8 of each
 *     groups of 16    P[g] += m·Σx, then P[g] += dot·(s·sx), each rounded once      16
 *
 * with scale s and min m of the weights, scale sx of the activations.  At the end the sixteen
 * are folded as lanes_sum does: P before M.  That order is the same for any number of rows and on
 * any instruction set; what is free is the order of numbers in a group. */
#include "kernels/set.h"

/* Each has STREAMS, the rows that are read at once from places far apart: the memory gives a core
 * more in several streams than in one; TOGETHER, the products that have a struct sums in common and
 * are added to it in turn; and a dot_unit, weights as load_for_dot leaves them in kind.order. */
#include DECODE_DOT_HEADER

#include <assert.h>

/* Products that are made at a time: of some rows with one of activations, or of one with some of
 * activations, which then share the unpacking of a unit. */
enum { PRODUCTS = 4 };

/* Rows follow each other in memory; so far ahead they are asked for, where one stream is read
 * and where several are.  Beyond the end of a matrix that does nothing. */
enum { FETCH_AHEAD = 12288, FETCH_AHEAD_EACH = 1024 };

LANES_INLINE void fetch_ahead(const struct unit_place *at, int unit_bytes, size_t distance)
{
    const uint8_t *ahead = at->values + at->index * (size_t)unit_bytes + distance;
    for (int line = 0; line < unit_bytes; line += CACHE_LINE)
        __builtin_prefetch(ahead + line, 0, 1);
}

/* Scales and biases that lie on their own: those of the row behind this one. */
LANES_INLINE void fetch_scales(const struct weight *w, const struct unit_place *at)
{
    if (!w->scales) return;
    for (size_t line = 0; line < w->scale_row_bytes; line += CACHE_LINE) {
        __builtin_prefetch(at->scales + w->scale_row_bytes + line, 0, 1);
        if (w->biases) __builtin_prefetch(at->biases + w->scale_row_bytes + line, 0, 1);
    }
}

/* Unit `index` of a row, of which `left` numbers are left and which is read in one of `streams`. */
LANES_INLINE void load_unit(dot_unit *unit, struct unit_place *at, size_t index, size_t streams,
                            unit_loader load, struct unit_kind kind)
{
    at->index = index;
    at->count = min_size(UNIT, at->weight->cols - UNIT * index);
    fetch_ahead(at, kind.bytes, streams == 1 ? FETCH_AHEAD : FETCH_AHEAD_EACH * STREAMS / streams);
    load_for_dot(unit, at, load, kind);
}

/* STREAMS rows with one of activations. */
LANES_INLINE void add_rows(struct sums *out, struct unit_place *at, const struct integer_unit *x,
                           unit_loader load, struct unit_kind kind)
{
    struct sums sums[STREAMS / TOGETHER] = { 0 }; /* in registers until the rows end */
    size_t cols = at->weight->cols;
    for (size_t index = 0; UNIT * index < cols; index++) {
#pragma GCC unroll 4
        for (size_t i = 0; i < STREAMS; i++) {
            dot_unit unit;
            load_unit(&unit, &at[i], index, STREAMS, load, kind);
            add_product(&sums[i / TOGETHER], i % TOGETHER, &unit, x + index, kind);
        }
    }
    memcpy(out, sums, sizeof sums);
}

/* Some rows with some of activations, PRODUCTS in all; `each`, the number of the latter, is a
 * constant where this is inlined. */
LANES_INLINE void add_shared(struct sums *sums, struct unit_place *at,
                             const struct integer_unit *const *x, size_t each, unit_loader load,
                             struct unit_kind kind)
{
    size_t cols = at->weight->cols;
    for (size_t index = 0; UNIT * index < cols; index++) {
#pragma GCC unroll 2
        for (size_t row = 0; row < PRODUCTS / each; row++) {
            dot_unit unit;
            load_unit(&unit, &at[row], index, PRODUCTS / each, load, kind);
#pragma GCC unroll 4
            for (size_t i = 0; i < each; i++) {
                size_t product = row * each + i;
                add_product(&sums[product / TOGETHER], product % TOGETHER, &unit, x[i] + index,
                            kind);
            }
        }
    }
}

LANES_INLINE void store_product(const struct integer_block *b, size_t row, size_t x, float product)
{
    float *out = b->out[x] + row;
    *out = b->add ? *out + product : product;
}

/* Up to PRODUCTS rows, `step` apart; instead of those that are not there the last one is used. */
struct dot_rows {
    size_t first, step, count;
};

LANES_INLINE void dot_rows_with_one(const struct integer_block *b, struct dot_rows rows, size_t x,
                                    unit_loader load, struct unit_kind kind)
{
    struct sums sums[PRODUCTS / TOGETHER];
    struct unit_place at[PRODUCTS];
    float products[PRODUCTS];
    for (size_t i = 0; i < PRODUCTS; i++) {
        size_t row = rows.first + min_size(i, rows.count - 1) * rows.step;
        at[i] = unit_row(b->weight, b->first + row);
        fetch_scales(b->weight, &at[i]);
    }
    for (size_t i = 0; i < PRODUCTS; i += STREAMS)
        add_rows(&sums[i / TOGETHER], &at[i], b->x[x], load, kind);
    sum_four(products, sums, kind);
    for (size_t i = 0; i < rows.count; i++)
        store_product(b, rows.first + i * rows.step, x, products[i]);
}

/* Four rows of activations, or three: then the last one counts twice. */
LANES_INLINE void dot_one_with_some(const struct integer_block *b, size_t row, size_t x,
                                    unit_loader load, struct unit_kind kind)
{
    struct sums sums[PRODUCTS / TOGETHER] = { 0 };
    struct unit_place at = unit_row(b->weight, b->first + row);
    size_t count = min_size(PRODUCTS, b->x_rows - x);
    const struct integer_unit *some[PRODUCTS];
    float products[PRODUCTS];
    for (size_t j = 0; j < PRODUCTS; j++) some[j] = b->x[x + min_size(j, count - 1)];
    fetch_scales(b->weight, &at);
    add_shared(sums, &at, some, PRODUCTS, load, kind);
    sum_four(products, sums, kind);
    for (size_t j = 0; j < count; j++) store_product(b, row, x + j, products[j]);
}

/* Two rows, `step` apart, of which the second may be beyond the last one, with two of
 * activations. */
LANES_INLINE void dot_two_with_two(const struct integer_block *b, size_t row, size_t step, size_t x,
                                   unit_loader load, struct unit_kind kind)
{
    struct sums sums[PRODUCTS / TOGETHER] = { 0 };
    struct unit_place at[2];
    size_t rows[2] = { row, row + step }, count = rows[1] < b->count ? 2 : 1;
    float products[PRODUCTS];
    for (size_t i = 0; i < 2; i++) {
        at[i] = unit_row(b->weight, b->first + rows[min_size(i, count - 1)]);
        fetch_scales(b->weight, &at[i]);
    }
    add_shared(sums, at, b->x + x, 2, load, kind);
    sum_four(products, sums, kind);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < 2; j++) store_product(b, rows[i], x + j, products[2 * i + j]);
}

/* Where the streams begin nothing has been asked for yet. */
LANES_INLINE void fetch_beginnings(const struct integer_block *b, size_t step)
{
    const struct weight *w = b->weight;
    size_t count = min_size(FETCH_AHEAD_EACH, step * w->row_bytes);
    for (size_t i = 0; i < STREAMS; i++) {
        const uint8_t *begin = w->values + (b->first + i * step) * w->row_bytes;
        for (size_t line = 0; line < count; line += CACHE_LINE)
            __builtin_prefetch(begin + line, 0, 1);
    }
}

/* The rows of step `i`: from all streams, or one behind the other; at the end the rest. */
LANES_INLINE struct dot_rows rows_at(const struct integer_block *b, size_t i)
{
    size_t whole = b->count / PRODUCTS;
    if (i >= whole) return (struct dot_rows){ PRODUCTS * whole, 1, b->count % PRODUCTS };
    return STREAMS > 1 ? (struct dot_rows){ i, whole, PRODUCTS }
                       : (struct dot_rows){ PRODUCTS * i, 1, PRODUCTS };
}

LANES_INLINE void dot_all(const struct integer_block *b, unit_loader load, struct unit_kind kind)
{
    size_t j = 0, half = (b->count + 1) / 2;
    for (; j + PRODUCTS - 1 <= b->x_rows; j += PRODUCTS)
        for (size_t i = 0; i < b->count; i++) dot_one_with_some(b, i, j, load, kind);
    if (j + 2 == b->x_rows)
        for (size_t i = 0; i < half; i++) dot_two_with_two(b, i, half, j, load, kind);
    if (j + 1 == b->x_rows) {
        if (STREAMS > 1) fetch_beginnings(b, b->count / STREAMS);
        for (size_t i = 0; PRODUCTS * i < b->count; i++)
            dot_rows_with_one(b, rows_at(b, i), j, load, kind);
    }
}

const enum unit_order NAMED(unit_orders)[FORMAT_COUNT] = { UNIT_ORDERS };

#define KIND(id, below, group, bytes, usual)                                                       \
    ((struct unit_kind){ (below) > 128, group, bytes, NAMED(unit_orders)[FORMAT_##id],             \
                         FORMAT_##id, usual })

#define DEFINE_BLOCK_DOT(id, name, below, group, bytes)                                            \
    void NAMED(integer_dot_##name)(const struct integer_block *block)                              \
    {                                                                                              \
        dot_all(block, load_##name, KIND(id, below, group, bytes, false));                         \
    }
BLOCK_FORMATS(DEFINE_BLOCK_DOT)

#define DEFINE_AFFINE_DOT(id, name, below, group, bytes)                                           \
    void NAMED(integer_dot_##name)(const struct integer_block *block)                              \
    {                                                                                              \
        assert(block->weight->biases); /* the analyzer does not know the formats */                \
        if (affine_is_usual(block->weight))                                                        \
            dot_all(block, load_usual_##name, KIND(id, below, group, bytes, true));                \
        else                                                                                       \
            dot_all(block, load_##name, KIND(id, below, group, bytes, false));                     \
    }
AFFINE_FORMATS(DEFINE_AFFINE_DOT)
