/* bf16.h: attention of prompt rows in bf16, for bf16.c (vectors) and amx.c (tiles).
 *
 * Everything is transposed, so that a query row is a lane from the scores to the sums and
 * the softmax never adds across lanes:
 *
 *     scores[256][16]   = K [256][width]  · Qᵀ [width][16]    K and Vᵀ are A operands,
 *     sums[value][16]  += Vᵀ [value][256] · P [256][16]       Q and P are B operands
 *
 * A tile register holds 16 rows of 16 dwords; a dword of an operand is two numbers that
 * follow each other in the summed direction.  Operands are stored as such blocks of 1 KiB,
 * one behind the other, for vectors, too: a row of B is a vector, a dword of A is spread. */
#ifndef KERNELS_ATTENTION_BF16_H
#define KERNELS_ATTENTION_BF16_H

#include "kernels/attention/attention.h"
#include "kernels/set.h"

#include <math.h>

enum {
    BLOCK = 256, /* dwords of an operand block, floats of a block of sums */
    STEP = 32,   /* channels or positions that one operand block sums over */
    TILE_STEPS = ATTEND_TILE / STEP,
    PIECE_TILES = ATTEND_PIECE / ATTEND_TILE,
};

/* ------------------------------------------------------------------ packing */

LANES_INLINE void store_block(uint32_t *out, const __m512i r[16])
{
    for (int i = 0; i < 16; i++) _mm512_store_si512(out + 16 * i, r[i]);
}

/* 16 columns of two rows as pairs: bf16 of `low` in the lower halves of the dwords. */
LANES_INLINE __m512i pair(__m512 low, __m512 high)
{
    const __m512i interleave =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(interleave, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

LANES_INLINE __m512 load_f16(const uint16_t *row, __mmask16 columns)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(columns, row));
}

LANES_INLINE __mmask16 first_lanes(size_t count)
{
    return (__mmask16)(count >= 16 ? 0xffffu : (1u << count) - 1);
}

/* An A operand block from 32 rows of f16: its 16 rows are their columns.  Rows outside of
 * [begin, end) and columns from `columns` on are zeroes. */
LANES_INLINE void pack_columns(uint32_t *out, const uint16_t *in, size_t stride, ptrdiff_t begin,
                               ptrdiff_t end, size_t columns)
{
    __m512i r[16];
    __mmask16 mask = first_lanes(columns);
    for (ptrdiff_t i = 0; i < 32; i += 2) {
        const uint16_t *low = in + (size_t)i * stride;
        r[i / 2] = pair(load_f16(low, i >= begin && i < end ? mask : 0),
                        load_f16(low + stride, i + 1 >= begin && i + 1 < end ? mask : 0));
    }
    transpose_dwords(r);
    store_block(out, r);
}

/* keys: [4][steps] blocks of 16 positions x 32 channels */
static void pack_keys(uint32_t *out, const struct attend_block *b, const struct attend_tile *tile)
{
    for (size_t p = 0; p < ATTEND_TILE / 16; p++)
        for (size_t s = 0; s < b->key_width; s += STEP, out += BLOCK)
            pack_columns(out, tile->keys + s * ATTEND_TILE + 16 * p, ATTEND_TILE, 0,
                         (ptrdiff_t)(b->key_width - s), 16);
}

/* values: [value blocks][2] blocks of 16 channels x 32 positions.  What no row sees may be anything
 * and becomes zero: its weights are zeroes, too. */
static void pack_values(uint32_t *out, const struct attend_block *b, const struct attend_tile *tile,
                        size_t value_padded)
{
    for (size_t c = 0; c < value_padded; c += 16)
        for (size_t s = 0; s < TILE_STEPS; s++, out += BLOCK) {
            ptrdiff_t before = (ptrdiff_t)attend_first(b, 0) - tile->first;
            ptrdiff_t at = (ptrdiff_t)s * STEP;
            size_t columns = b->value_width > c ? b->value_width - c : 0;
            pack_columns(out, tile->values + s * STEP * b->value_width + c, b->value_width,
                         before - at, (ptrdiff_t)tile->count - at, columns);
        }
}

/* A B operand block: 32 channels of 16 queries. */
LANES_INLINE void pack_queries(uint32_t *out, const float *const *queries, size_t count,
                               size_t first, size_t width)
{
    __m512i r[16];
    size_t columns = width - first;
    for (size_t i = 0; i < 16; i++) {
        const float *q = queries[i < count ? i : 0] + first;
        __m512 low = _mm512_maskz_loadu_ps(first_lanes(columns), q);
        __m512 high = _mm512_maskz_loadu_ps(columns > 16 ? first_lanes(columns - 16) : 0, q + 16);
        r[i] = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    }
    transpose_dwords(r);
    store_block(out, r);
}

/* Lanes behind the last row are the row at the group's beginning, or the last one. */
static void begin_block(const struct attend_block *b)
{
    struct attend_layout l = attend_layout(b);
    size_t steps = l.key_padded / STEP;
    uint32_t *out = (uint32_t *)(void *)l.queries;
    for (size_t g = 0; g < l.groups; g++) {
        size_t first = min_size(g * ATTEND_LANES, b->row_count - 1);
        for (size_t s = 0; s < steps; s++, out += BLOCK)
            pack_queries(out, b->queries + first, b->row_count - first, s * STEP, b->key_width);
    }
    memset(l.sums, 0, l.groups * l.value_padded * ATTEND_LANES * sizeof(float));
    memset(l.weight_sums, 0, l.groups * ATTEND_LANES * sizeof(float));
    for (size_t i = 0; i < l.groups * ATTEND_LANES; i++) l.greatest[i] = -INFINITY;
    NAMED(attend_begin_sinks)(b);
    l.waiting->count = 0;
}

/* ------------------------------------------------------------------ softmax */

/* 2^x to 4e-6: enough for weights that are rounded to bf16.  2^0 is 1; what would be less than
 * 2^-126 is 0, because the CPU takes hundreds of cycles to make such a number. */
LANES_INLINE __m512 exp2_rough(__m512 x)
{
    __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_GE_OQ);
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(0.00978291253f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0559768836f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240207111f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693113604f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(normal, p, n);
}

/* Positions from `begin` on that a lane must not see score -∞. */
static void hide_later(float *scores, size_t begin, size_t end, __m512i visible)
{
    for (size_t i = begin; i < end; i++) {
        __mmask16 later = _mm512_cmple_epi32_mask(visible, _mm512_set1_epi32((int)i));
        _mm512_mask_store_ps(scores + 16 * i, later, _mm512_set1_ps(-INFINITY));
    }
}

/* The same of positions before a lane's window, up to `end`. */
static void hide_earlier(float *scores, size_t end, __m512i first)
{
    for (size_t i = 0; i < end; i++) {
        __mmask16 earlier = _mm512_cmpgt_epi32_mask(first, _mm512_set1_epi32((int)i));
        _mm512_mask_store_ps(scores + 16 * i, earlier, _mm512_set1_ps(-INFINITY));
    }
}

/* One group's scores of a piece on their way to weights, a B operand of two blocks for a tile. */
struct weighing {
    const float *scores, *end; /* the next ones, and behind the last ones */
    uint32_t *weights;
    __m512 factor, shift, sums[2];
};

LANES_INLINE __m512 greatest_of(const float *scores, const float *end)
{
    __m512 best[4];
    for (size_t j = 0; j < 4; j++) best[j] = _mm512_load_ps(scores + 16 * j);
    for (scores += 16 * 4; scores < end; scores += 16 * 4)
        for (size_t j = 0; j < 4; j++)
            best[j] = _mm512_max_ps(best[j], _mm512_load_ps(scores + 16 * j));
    return _mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3]));
}

/* Sums are only scaled down when a score outgrows the old greatest by a factor of 2^8:
 * weights above 1 do no harm, and passes over the sums are dear. */
LANES_INLINE struct weighing begin_weighing(float *greatest, float *keep, const float *scores,
                                            size_t rows, uint32_t *weights, float factor)
{
    const float *end = scores + rows * ATTEND_LANES;
    __m512 c = _mm512_set1_ps(factor);
    __m512 before = _mm512_load_ps(greatest), most = greatest_of(scores, end);
    __m512 growth = _mm512_mul_ps(_mm512_sub_ps(most, before), c);
    __mmask16 grown = _mm512_cmp_ps_mask(growth, _mm512_set1_ps(8.0f), _CMP_NLE_UQ);
    most = _mm512_mask_mov_ps(before, grown, most);
    _mm512_store_ps(greatest, most);
    _mm512_store_ps(keep, exp2_rough(_mm512_mul_ps(_mm512_sub_ps(before, most), c)));
    return (struct weighing){ .scores = scores,
                              .end = end,
                              .weights = weights,
                              .factor = c,
                              .shift = _mm512_mul_ps(most, c),
                              .sums = { _mm512_setzero_ps(), _mm512_setzero_ps() } };
}

/* Two of the piece's positions. */
LANES_INLINE void weigh_two(struct weighing *w)
{
    __m512 s0 = _mm512_load_ps(w->scores), s1 = _mm512_load_ps(w->scores + 16);
    __m512 p0 = exp2_rough(_mm512_fmsub_ps(s0, w->factor, w->shift));
    __m512 p1 = exp2_rough(_mm512_fmsub_ps(s1, w->factor, w->shift));
    w->sums[0] = _mm512_add_ps(w->sums[0], p0);
    w->sums[1] = _mm512_add_ps(w->sums[1], p1);
    _mm512_store_si512(w->weights, pair(p0, p1));
    w->scores += 32;
    w->weights += 16;
}

LANES_INLINE void end_weighing(const struct attend_layout *l, size_t g, const float *keep,
                               const struct weighing *w)
{
    float *sums = l->weight_sums + g * ATTEND_LANES;
    __m512 more = _mm512_add_ps(w->sums[0], w->sums[1]);
    _mm512_store_ps(sums, _mm512_fmadd_ps(_mm512_load_ps(sums), _mm512_load_ps(keep), more));
}

/* ---------------------------------------------------------------- the products */

/* Two groups of lanes and up to four tiles of positions: what is computed at a time, so that the
 * sums are loaded and stored once for all of them.  There is memory for two, because three follow
 * each other as in a pipe. */
struct piece {
    size_t group;       /* the first of the two */
    size_t tile, count; /* of those that wait */
    float *scores;      /* [2][256][16] */
    uint32_t *weights;  /* [2][8] blocks */
    float *keep;        /* [2][16] */
};

LANES_INLINE void scale_sums(const struct attend_layout *l, float *sums, const float *keep)
{
    __m512 factor = _mm512_load_ps(keep);
    if (_mm512_cmpneq_ps_mask(factor, _mm512_set1_ps(1.0f)) == 0) return;
    for (size_t i = 0; i < l->value_padded; i++)
        _mm512_store_ps(sums + 16 * i, _mm512_mul_ps(_mm512_load_ps(sums + 16 * i), factor));
}

/* The products, which bf16.c makes with vectors and amx.c on tiles.  With tiles a weighing `w` (may
 * be NULL) goes on beside them. */
LANES_INLINE void score(const struct attend_layout *l, const struct piece *p, struct weighing *w);
LANES_INLINE void add(const struct attend_layout *l, const struct piece *p, struct weighing *w);
static void begin_products(void);
static void end_products(void);

/* ------------------------------------------------------------------ the pieces */

/* Lane by lane, how many positions of the tile it sees. */
LANES_INLINE __m512i visible(const struct attend_block *b, uint32_t first, size_t g)
{
    int32_t count[ATTEND_LANES];
    for (size_t i = 0; i < ATTEND_LANES; i++) {
        size_t lane = min_size(g * ATTEND_LANES + i, b->row_count - 1);
        count[i] = (int32_t)(b->positions[lane] - first + 1);
    }
    return _mm512_loadu_si512(count);
}

/* Lane by lane, how many positions of the tile are before its window; below 0: none. */
LANES_INLINE __m512i unseen(const struct attend_block *b, uint32_t first, size_t g)
{
    int32_t count[ATTEND_LANES];
    for (size_t i = 0; i < ATTEND_LANES; i++) {
        size_t lane = min_size(g * ATTEND_LANES + i, b->row_count - 1);
        count[i] = (int32_t)(attend_first(b, lane) - first);
    }
    return _mm512_loadu_si512(count);
}

/* The pieces of a block and of the tiles that wait, in their order. */
struct pieces {
    const struct attend_block *block;
    struct attend_layout l;
    size_t group, tile; /* of the next */
    size_t count;       /* so far */
};

/* Of the places of tiles that wait, the end of those that two groups see. */
static size_t tiles_end(const struct pieces *all, size_t group)
{
    size_t row = min_size((group + 2) * ATTEND_LANES, all->block->row_count) - 1;
    uint32_t last = all->block->positions[row], first = all->l.waiting->first;
    return last < first ? 0 : min_size(all->l.waiting->count, (last - first) / ATTEND_TILE + 1);
}

/* … and their beginning. */
static size_t tiles_begin(const struct pieces *all, size_t group)
{
    size_t row = min_size(group * ATTEND_LANES, all->block->row_count - 1);
    uint32_t seen = attend_first(all->block, row), first = all->l.waiting->first;
    return max_size(all->l.waiting->begin, seen < first ? 0 : (seen - first) / ATTEND_TILE);
}

/* False: there is no other. */
static bool next_piece(struct pieces *all, struct piece *out)
{
    size_t end = 0;
    for (; all->group < all->l.groups; all->group += 2, all->tile = 0) {
        all->tile = max_size(all->tile, tiles_begin(all, all->group));
        end = tiles_end(all, all->group);
        if (all->tile < end) break;
    }
    if (all->group == all->l.groups) return false;
    size_t place = all->count++ % 2;
    *out =
        (struct piece){ .group = all->group,
                        .tile = all->tile,
                        .count = min_size(PIECE_TILES - all->tile % PIECE_TILES, end - all->tile),
                        .scores = all->l.scores + place * 2 * ATTEND_PIECE * 16,
                        .weights = (uint32_t *)(void *)all->l.weights + place * ATTEND_PIECE * 16,
                        .keep = all->l.keep + place * 2 * ATTEND_LANES };
    all->tile += out->count;
    return true;
}

/* The weighing of one of a piece's two groups begins. */
LANES_INLINE struct weighing weighing_of(const struct pieces *all, const struct piece *p,
                                         size_t side)
{
    const float log2e = 1.44269504f;
    const struct attend_block *b = all->block;
    size_t g = p->group + side, rows = p->count * ATTEND_TILE;
    float *scores = p->scores + side * ATTEND_PIECE * 16;
    uint32_t first = all->l.waiting->first + (uint32_t)p->tile * ATTEND_TILE;
    uint32_t earliest = b->positions[min_size(g * ATTEND_LANES, b->row_count - 1)];
    size_t all_see = earliest < first ? 0 : earliest - first + 1;
    if (all_see < rows) hide_later(scores, all_see, rows, visible(b, first, g));
    uint32_t latest = attend_first(b, min_size((g + 1) * ATTEND_LANES, b->row_count) - 1);
    if (latest > first) hide_earlier(scores, min_size(latest - first, rows), unseen(b, first, g));
    return begin_weighing(all->l.greatest + g * ATTEND_LANES, p->keep + side * ATTEND_LANES, scores,
                          rows, p->weights + side * PIECE_TILES * TILE_STEPS * BLOCK,
                          b->scale * log2e);
}

LANES_INLINE void finish(const struct pieces *all, const struct piece *p, size_t side,
                         struct weighing *w)
{
    while (w->scores != w->end) weigh_two(w);
    end_weighing(&all->l, p->group + side, p->keep + side * ATTEND_LANES, w);
}

/* While a piece is weighed, the scores of the one after it are made, and then the one before it
 * is added to the sums: what is written is not read at once. */
static void weigh_beside(const struct pieces *all, const struct piece *p,
                         const struct piece *before, const struct piece *after)
{
    struct weighing first = weighing_of(all, p, 0);
    if (after) score(&all->l, after, &first);
    finish(all, p, 0, &first);
    struct weighing second = weighing_of(all, p, 1);
    if (before) add(&all->l, before, &second);
    finish(all, p, 1, &second);
}

/* All tiles that wait. */
static void attend_tiles(const struct attend_block *b)
{
    struct pieces all = { .block = b, .l = attend_layout(b) };
    struct piece before = { 0 }, now = { 0 }, after = { 0 };
    bool has_before = false, has_now = next_piece(&all, &now), has_after;
    begin_products();
    if (has_now) score(&all.l, &now, NULL);
    while (has_now) {
        has_after = next_piece(&all, &after);
        weigh_beside(&all, &now, has_before ? &before : NULL, has_after ? &after : NULL);
        before = now;
        now = after;
        has_before = true;
        has_now = has_after;
    }
    if (has_before) add(&all.l, &before, NULL);
    end_products();
    all.l.waiting->count = 0;
}

/* Tiles wait until there are some: a pair of groups then passes through the nearest cache once
 * for all of them. */
static void add_tile(const struct attend_block *b, const struct attend_tile *tile)
{
    struct attend_layout l = attend_layout(b);
    struct attend_waiting *waiting = l.waiting;
    if (waiting->count == 0) {
        waiting->first = tile->first / ATTEND_PIECE * ATTEND_PIECE;
        waiting->begin = (tile->first - waiting->first) / ATTEND_TILE;
    }
    size_t index = (tile->first - waiting->first) / ATTEND_TILE;
    waiting->count = (uint32_t)index + 1;
    pack_keys((uint32_t *)(void *)l.keys + index * ATTEND_TILE * l.key_padded / 2, b, tile);
    pack_values((uint32_t *)(void *)l.values + index * ATTEND_TILE * l.value_padded / 2, b, tile,
                l.value_padded);
    if (waiting->count == ATTEND_WAITING) attend_tiles(b);
}

static void end_block(const struct attend_block *b)
{
    attend_tiles(b);
    NAMED(attend_end)(b);
}

#endif
