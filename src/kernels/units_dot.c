/* units_dot.c: products of quantised rows with activations in integers.
 *
 * Lane l of a product adds up numbers 4l … 4l + 3 of every 64: four products exactly,
 * in integers, then times weight scale and activation scale in f32.  Even and odd
 * 64s have sums of their own; mins times sums of activations go to the even ones.
 * That order is the same for any number of rows and on any instruction set. */
#include "kernels/lanes_set.h"
#include "kernels/units.h"

/* Rows of activations that share the unpacking of a unit. */
enum { SHARED_X = 4 };

/* Rows follow each other in memory; so far ahead they are asked for.  Beyond the end of a
 * matrix that does nothing. */
enum { FETCH_AHEAD = 12288 };

struct sums {
    lanes even, odd;
};

/* What is constant for a format. */
struct unit_kind {
    bool wide; /* numbers above 127 occur */
    int group; /* numbers that share a scale: 16 or 32 */
    int bytes; /* of a unit's values */
};

LANES_INLINE lanes dot_64(const struct unit *w, const struct integer_unit *x, int v, bool wide)
{
    bytes high = bytes_load(x->high + 64 * v), low = bytes_load(x->low + 64 * v);
    int_lanes none = { 0 }, sum;
    sum = (wide ? dot4(none, w->q[v], high) : dot4_small(none, w->q[v], high)) << 7;
    sum = wide ? dot4(sum, w->q[v], low) : dot4_small(sum, w->q[v], low);
    return __builtin_convertvector(sum, lanes);
}

LANES_INLINE void add_unit(struct sums *sums, const struct unit *w, const struct integer_unit *x,
                           struct unit_kind kind)
{
    lanes x_both = lanes_load(x->scales), scale; /* the sums lie behind the scales */
    if (kind.group == 32) {
        scale = w->both * x_both;
        sums->even = lanes_add_upper(sums->even, scale);
    } else {
        scale = w->scale * lanes_twice(x_both);
        sums->even = lanes_fma(w->min, lanes_load(x->sums_16), sums->even);
    }
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        lanes s = kind.group == 32 ? lanes_spread_eight(scale, v) : lanes_spread_four(scale, v);
        lanes *sum = v % 2 ? &sums->odd : &sums->even;
        *sum = lanes_fma(dot_64(w, x, v, kind.wide), s, *sum);
    }
}

/* One row of the matrix with x_count (a constant) rows of activations, from x_first on. */
LANES_INLINE void dot_row(const struct integer_block *b, size_t i, size_t x_first, size_t x_count,
                          unit_loader load, struct unit_kind kind)
{
    const struct weight *w = b->weight;
    struct unit_place at = unit_row(w, b->first + i);
    struct sums sums[SHARED_X] = { 0 };
    for (size_t left = w->cols; left > 0; left -= at.count, at.index++) {
        struct unit unit;
        const uint8_t *ahead = at.values + at.index * (size_t)kind.bytes + FETCH_AHEAD;
        for (int line = 0; line < kind.bytes; line += CACHE_LINE)
            __builtin_prefetch(ahead + line, 0, 1);
        at.count = min_size(UNIT, left);
        load(&unit, &at);
        for (size_t j = 0; j < x_count; j++)
            add_unit(&sums[j], &unit, b->x[x_first + j] + at.index, kind);
    }
    for (size_t j = 0; j < x_count; j++) {
        float *out = b->out[x_first + j] + i, product = lanes_sum(sums[j].even + sums[j].odd);
        *out = b->add ? *out + product : product;
    }
}

LANES_INLINE void dot_rows(const struct integer_block *b, unit_loader load, struct unit_kind kind)
{
    size_t j = 0;
    for (; j + SHARED_X <= b->x_rows; j += SHARED_X)
        for (size_t i = 0; i < b->count; i++) dot_row(b, i, j, SHARED_X, load, kind);
    for (; j < b->x_rows; j++)
        for (size_t i = 0; i < b->count; i++) dot_row(b, i, j, 1, load, kind);
}

#if defined(__AVX512VNNI__)
/* The numbers of odd groups are the upper halves of bytes: they stay there, 16 times as large,
 * and their scales are a 16th.  That gives the same bits. */
LANES_INLINE void load_q4_k_in_place(struct unit *u, const struct unit_place *at)
{
    const struct block_q4_k *b = (const struct block_q4_k *)at->values + at->index;
    const __m512i halves = _mm512_inserti64x4(_mm512_set1_epi8(15), _mm256_set1_epi8(-16), 1);
    u->both = k_scales(b->d, b->scales, 0x1p-4f);
    for (int v = 0; v < 4; v++) u->q[v] = halves_down(b->qs + 32 * v, 0, 0) & (bytes)halves;
}
#define load_q4_k load_q4_k_in_place
#endif

#define DEFINE_BLOCK_DOT(id, name, below, group, bytes)                                            \
    void NAMED(integer_dot_##name)(const struct integer_block *block)                              \
    {                                                                                              \
        dot_rows(block, load_##name, (struct unit_kind){ (below) > 128, group, bytes });           \
    }
BLOCK_FORMATS(DEFINE_BLOCK_DOT)

#define DEFINE_AFFINE_DOT(id, name, below, group, bytes)                                           \
    void NAMED(integer_dot_##name)(const struct integer_block *block)                              \
    {                                                                                              \
        const struct unit_kind kind = { (below) > 128, group, bytes };                             \
        if (affine_is_usual(block->weight))                                                        \
            dot_rows(block, load_usual_##name, kind);                                              \
        else                                                                                       \
            dot_rows(block, load_##name, kind);                                                    \
    }
AFFINE_FORMATS(DEFINE_AFFINE_DOT)
