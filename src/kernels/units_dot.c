/* units_dot.c: products of quantised rows with activations in integers.
 *
 * Lane l of a product adds up numbers 4l … 4l + 3 of every 64: four products exactly,
 * in integers, then times weight scale and activation scale in f32.  Even and odd
 * 64s have sums of their own; mins times sums of activations go to the even ones.
 * That order is the same for any number of rows and on any instruction set. */
#include "kernels/lanes_set.h"
#include "kernels/units.h"

#include <assert.h>

/* Rows of activations that share the unpacking of a unit. */
enum { SHARED_X = 4 };

/* Rows that are read at once from places far apart: the memory gives a core more in several
 * streams than in one.  As many as there are registers for their sums. */
#if defined(__AVX512F__)
enum { STREAMS = 4 };
#else
enum { STREAMS = 1 };
#endif

/* Rows follow each other in memory; so far ahead they are asked for, where one stream is read
 * and where several are.  Beyond the end of a matrix that does nothing. */
enum { FETCH_AHEAD = 12288, FETCH_AHEAD_EACH = 1024 };

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
    return __builtin_convertvector(dot4_planes(w->q[v], high, low, wide), lanes);
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
        __builtin_prefetch(at->biases + w->scale_row_bytes + line, 0, 1);
    }
}

/* Some rows of a matrix, `step` apart, with some rows of activations; both counts are constants. */
struct dot_part {
    size_t first, step, w_count;
    size_t x_first, x_count;
};

LANES_INLINE void dot_some(const struct integer_block *b, struct dot_part p, unit_loader load,
                           struct unit_kind kind)
{
    size_t distance = p.w_count == 1 ? FETCH_AHEAD : FETCH_AHEAD_EACH;
    struct unit_place at[STREAMS];
    struct sums sums[STREAMS][SHARED_X] = { 0 };
    for (size_t i = 0; i < p.w_count; i++) {
        at[i] = unit_row(b->weight, b->first + p.first + i * p.step);
        fetch_scales(b->weight, &at[i]);
    }
    for (size_t index = 0, left = b->weight->cols; left > 0; index++) {
        size_t count = min_size(UNIT, left);
#pragma GCC unroll 4
        for (size_t i = 0; i < p.w_count; i++) {
            struct unit unit;
            at[i].index = index;
            at[i].count = count;
            fetch_ahead(&at[i], kind.bytes, distance);
            load(&unit, &at[i]);
            for (size_t j = 0; j < p.x_count; j++)
                add_unit(&sums[i][j], &unit, b->x[p.x_first + j] + index, kind);
        }
        left -= count;
    }
    for (size_t i = 0; i < p.w_count; i++)
        for (size_t j = 0; j < p.x_count; j++) {
            float *out = b->out[p.x_first + j] + p.first + i * p.step;
            float product = lanes_sum(sums[i][j].even + sums[i][j].odd);
            *out = b->add ? *out + product : product;
        }
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

LANES_INLINE void dot_rows(const struct integer_block *b, unit_loader load, struct unit_kind kind)
{
    size_t j = 0, step = b->count / STREAMS;
    for (; j + SHARED_X <= b->x_rows; j += SHARED_X)
        for (size_t i = 0; i < b->count; i++)
            dot_some(b, (struct dot_part){ i, 0, 1, j, SHARED_X }, load, kind);
    for (; j < b->x_rows; j++) {
        if (STREAMS > 1) fetch_beginnings(b, step);
        for (size_t i = 0; i < step; i++)
            dot_some(b, (struct dot_part){ i, step, STREAMS, j, 1 }, load, kind);
        for (size_t i = step * STREAMS; i < b->count; i++)
            dot_some(b, (struct dot_part){ i, 0, 1, j, 1 }, load, kind);
    }
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
        assert(block->weight->biases); /* the analyzer does not know the formats */                \
        if (affine_is_usual(block->weight))                                                        \
            dot_rows(block, load_usual_##name, kind);                                              \
        else                                                                                       \
            dot_rows(block, load_##name, kind);                                                    \
    }
AFFINE_FORMATS(DEFINE_AFFINE_DOT)
