/* attention.h: attention as kernels see it.
 *
 * A tile is 64 positions of a cache, as f16: keys by channel, values by position, so
 * that both kinds of rows below find neighbours where they need them.
 *
 *     keys [key_width][64]        values [64][value_width]
 *
 * Prompt: many query rows at once, each one head of one position, in groups of 16 lanes.
 * The caller walks the tiles in ascending order:
 *
 *     begin    queries packed, sums cleared
 *     tile     scores[64][lanes] = keys·queries, running softmax, sums += values·weights
 *     …
 *     end      sums / Σ weights to the rows' places
 *
 * A lane never sees its neighbours, and tiles begin at multiples of 64 positions: the bits
 * of a row depend on its position and on what the cache holds up to there, not on the rows
 * it shares a block with.
 *
 * Decode: a few heads of one row over a stretch of pages, to be joined with other
 * stretches in ascending order. */
#ifndef KERNELS_ATTENTION_ATTENTION_H
#define KERNELS_ATTENTION_ATTENTION_H

#include "base/common.h"

/* Tiles may wait for others before they are worked on, at most so many; a piece is positions that
 * are then worked on at a time. */
enum { ATTEND_TILE = 64, ATTEND_LANES = 16, ATTEND_WAITING = 8, ATTEND_PIECE = 256 };

struct attend_block {
    size_t key_width, value_width;
    size_t row_count;
    const float *const *queries; /* [row_count] of key_width */
    const uint32_t *positions;   /* [row_count], ascending */
    float *const *out;           /* [row_count] of value_width */
    float scale;                 /* of the scores */
    void *memory;                /* attend_block_bytes, aligned to CACHE_LINE */
};

struct attend_tile {
    const uint16_t *keys;   /* f16 [key_width][64] */
    const uint16_t *values; /* f16 [64][value_width] */
    uint32_t first;         /* position, a multiple of 64 */
    uint32_t count;         /* positions that are there; the others are not looked at */
};

/* Heads of one row over some pages; a page's keys and values as in a tile. */
struct attend_stretch {
    const float *queries; /* [heads][key_width] */
    size_t heads, key_width, value_width;
    const uint16_t *const *keys, *const *values; /* [ceil(count / 64)] pages */
    size_t value_stride;                         /* numbers between two positions' values */
    size_t count;                                /* positions */
    float scale;
    float *scores; /* scratch: [heads][count up to a multiple of 64] */
    /* Results: the greatest score, Σ e^(score - greatest), and that sum over values. */
    float *greatest, *weight_sums; /* [heads], scores without their scale */
    float *sums;                   /* [heads][value_width] */
};

struct turned_words {
    uint16_t *out;
    size_t out_stride;
    const uint16_t *x;
    size_t stride, rows, columns;
};

struct attend_kernels {
    void (*begin)(const struct attend_block *block);
    /* Its keys and values are not looked at any more when it returns. */
    void (*tile)(const struct attend_block *block, const struct attend_tile *tile);
    void (*end)(const struct attend_block *block);
    void (*stretch)(const struct attend_stretch *stretch);
    /* Adds the results of the stretch that follows to those of `stretch`. */
    void (*join)(const struct attend_stretch *stretch, const struct attend_stretch *next);
    /* out[i x stride] = x[i] as f16, nearest */
    void (*store_f16)(uint16_t *out, size_t stride, const float *x, size_t n);
    void (*load_f16)(float *out, const uint16_t *x, size_t n);
    /* 64 rows by channel: out[c x 64 + row] = x[row x stride + c] for n channels, as f16 */
    void (*turn_rows)(uint16_t *out, const float *x, size_t stride, size_t n);
    /* Any 16-bit numbers: out[c x out_stride + r] = x[r x stride + c] */
    void (*turn_words)(const struct turned_words *words);
};

/* Tiles that are packed and not yet worked on. */
struct attend_waiting {
    uint32_t first; /* position of the first */
    uint32_t count;
};

/* Where a block keeps what in its memory; the same for all sets: one tile in f32, or those
 * that wait in bf16. */
struct attend_layout {
    size_t groups;                   /* an even number */
    size_t key_padded, value_padded; /* multiples of 32 channels */
    float *queries;                  /* [groups][key_padded][16] */
    float *sums;                     /* [groups][value_padded][16] */
    float *greatest, *weight_sums;   /* [groups][16] */
    float *keys, *values;            /* [64][padded] f32, or [ATTEND_WAITING][64][padded] bf16 */
    float *scores;                   /* [2][2][ATTEND_PIECE][16] */
    float *weights;                  /* [2][2][ATTEND_PIECE][16], bf16 */
    float *keep;                     /* [2][2][16] what a piece leaves of the sums */
    struct attend_waiting *waiting;
    size_t floats;
};

static inline struct attend_layout attend_layout(const struct attend_block *block)
{
    struct attend_layout l = { .groups =
                                   align_up(block->row_count, 2 * ATTEND_LANES) / ATTEND_LANES,
                               .key_padded = align_up(block->key_width, 32),
                               .value_padded = align_up(block->value_width, 32) };
    float *at = block->memory;
    size_t lanes = l.groups * ATTEND_LANES;
    size_t tiles = ATTEND_WAITING / 2 * ATTEND_TILE;
    size_t pieces = 2 * 2 * ATTEND_PIECE * ATTEND_LANES;
    l.queries = at;
    l.sums = l.queries + lanes * l.key_padded;
    l.greatest = l.sums + lanes * l.value_padded;
    l.weight_sums = l.greatest + lanes;
    l.keys = l.weight_sums + lanes;
    l.values = l.keys + tiles * l.key_padded;
    l.scores = l.values + tiles * l.value_padded;
    l.weights = l.scores + pieces;
    l.keep = l.weights + pieces / 2;
    l.waiting = (struct attend_waiting *)(void *)(l.keep + 2 * 2 * ATTEND_LANES);
    l.floats = (size_t)(l.keep - at) + 2 * 2 * ATTEND_LANES + ATTEND_LANES;
    return l;
}

#endif
