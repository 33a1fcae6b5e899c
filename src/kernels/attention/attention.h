/* attention.h: interface of the attention kernels.
 *
 * A tile is 64 positions of a cache in f16.  Keys are stored by channel and values by position, so
 * that both products below read consecutive numbers.
 *
 *     keys [key_width][64]        values [64][value_width]
 *
 * Prompt: a block of query rows, each one head of one position, in groups of 16 lanes.  The caller
 * passes the tiles in ascending order:
 *
 *     begin    packs the queries, clears the sums
 *     tile     scores[64][lanes] = keys·queries, running softmax, sums += values·weights
 *     …
 *     end      writes sums / Σ weights to the rows' outputs
 *
 * Lanes do not interact and tiles begin at multiples of 64 positions, so the bits of a row depend
 * on its position and the cache up to there, not on the other rows of its block.
 *
 * With a window a row does not see the positions before it; they have no weight, so that a tile
 * which no row of a block sees may be left out.
 *
 * A sink is a score without a key and without a value: it takes part in the softmax, after the
 * scale, and adds nothing to the sums.
 *
 * Decode: the heads of one row over a stretch of pages; stretches are computed in parallel and
 * joined in ascending order; sinks are joined as a stretch without positions would be. */
#ifndef KERNELS_ATTENTION_ATTENTION_H
#define KERNELS_ATTENTION_ATTENTION_H

#include "base/common.h"

/* A kernel may collect up to ATTEND_WAITING tiles before it computes; it then computes ATTEND_PIECE
 * positions at a time. */
enum { ATTEND_TILE = 64, ATTEND_LANES = 16, ATTEND_WAITING = 8, ATTEND_PIECE = 256 };

struct attend_block {
    size_t key_width, value_width;
    size_t row_count;
    const float *const *queries; /* [row_count] of key_width */
    const uint32_t *positions;   /* [row_count], ascending */
    uint32_t window;             /* positions that a row sees, its own included; 0: all */
    const float *sinks;          /* [row_count], or NULL; see below */
    float *const *out;           /* [row_count] of value_width */
    float scale;                 /* of the scores */
    void *memory;                /* attend_block_bytes, aligned to CACHE_LINE */
};

/* The first position that a row sees.  Tiles wholly before those of all rows need not be passed. */
static inline uint32_t attend_first(const struct attend_block *block, size_t row)
{
    uint32_t position = block->positions[row];
    return block->window > 0 && position >= block->window ? position + 1 - block->window : 0;
}

struct attend_tile {
    const uint16_t *keys;   /* f16 [key_width][64] */
    const uint16_t *values; /* f16 [64][value_width] */
    uint32_t first;         /* position, a multiple of 64 */
    uint32_t count;         /* valid positions; the others are not read */
};

/* Heads of one row over consecutive pages; keys and values of a page as in a tile, or in a q8_tile. */
struct attend_stretch {
    const float *queries; /* [heads][key_width] */
    size_t heads, key_width, value_width;
    const void *const *keys, *const *values; /* [ceil(count / 64)] pages */
    bool q8;                                 /* they are q8_tiles, value_stride their width */
    size_t value_stride;                     /* numbers between two positions' values */
    size_t count;                            /* positions */
    size_t hidden;                           /* of these the first ones, below 64: not seen */
    float scale;
    float *scores; /* scratch: [heads][count up to a multiple of 64] */
    /* Results: the greatest score, Σ e^(score - greatest), and that sum over values. */
    float *greatest, *weight_sums; /* [heads], scores without their scale */
    float *sums;                   /* [heads][value_width] */
};

/* 64 positions of one head of a q8 cache.  Groups of 32 channels of a position have a scale:
 * number = byte x scale; the last group may be shorter. */
enum { Q8_GROUP = 32 };

static inline size_t q8_groups(size_t width)
{
    return (width + Q8_GROUP - 1) / Q8_GROUP;
}

struct q8_tile {
    int8_t *numbers; /* [width][64] by channel, else [64][width] */
    size_t width;
    bool by_channel;
};

static inline uint16_t *q8_scales(const struct q8_tile *tile) /* f16 [groups][64] */
{
    return (uint16_t *)(void *)(tile->numbers + tile->width * ATTEND_TILE);
}

struct turned_words {
    uint16_t *out;
    size_t out_stride;
    const uint16_t *x;
    size_t stride, rows, columns;
};

struct attend_kernels {
    void (*begin)(const struct attend_block *block);
    /* `tile` is borrowed for the call. */
    void (*tile)(const struct attend_block *block, const struct attend_tile *tile);
    void (*end)(const struct attend_block *block);
    void (*stretch)(const struct attend_stretch *stretch);
    /* Merges the results of the next stretch into those of `stretch`. */
    void (*join)(const struct attend_stretch *stretch, const struct attend_stretch *next);
    /* out[i x stride] = x[i] as f16, nearest */
    void (*store_f16)(uint16_t *out, size_t stride, const float *x, size_t n);
    void (*load_f16)(float *out, const uint16_t *x, size_t n);
    /* Position `index` of the tile becomes x: a group's greatest number becomes 127 or -127, or
     * nearly so; a group with a number that is not finite becomes NaN. */
    void (*store_q8)(const struct q8_tile *tile, size_t index, const float *x);
    /* All 64 positions as f16, nearest, in the order of the tile. */
    void (*widen_q8)(uint16_t *out, const struct q8_tile *tile);
    /* 64 rows by channel: out[c x 64 + row] = x[row x stride + c] for n channels, as f16 */
    void (*turn_rows)(uint16_t *out, const float *x, size_t stride, size_t n);
    /* Any 16-bit numbers: out[c x out_stride + r] = x[r x stride + c] */
    void (*turn_words)(const struct turned_words *words);
};

/* Tiles that are packed and not yet computed: in places begin to count - 1 of those that may wait.
 * Place 0 is at a multiple of ATTEND_PIECE, so that a piece is one wherever a block begins. */
struct attend_waiting {
    uint32_t first; /* position of place 0 */
    uint32_t begin, count;
};

/* The layout of a block's memory, the same for all kernel sets.  keys and values hold one tile in
 * f32, or the waiting tiles in bf16. */
struct attend_layout {
    size_t groups;                   /* an even number */
    size_t key_padded, value_padded; /* multiples of 32 channels */
    float *queries;                  /* [groups][key_padded][16] */
    float *sums;                     /* [groups][value_padded][16] */
    float *greatest, *weight_sums;   /* [groups][16] */
    float *keys, *values;            /* [64][padded] f32, or [ATTEND_WAITING][64][padded] bf16 */
    float *scores;                   /* [2][2][ATTEND_PIECE][16] */
    float *weights;                  /* [2][2][ATTEND_PIECE][16], bf16 */
    float *keep; /* [2][2][16] factor of the sums after a piece raised the maximum */
    struct attend_waiting *waiting;
};

/* Floats of a block's memory. */
static inline size_t attend_floats(const struct attend_block *block)
{
    size_t lanes = align_up(block->row_count, 2 * ATTEND_LANES);
    size_t padded = align_up(block->key_width, 32) + align_up(block->value_width, 32);
    size_t tiles = ATTEND_WAITING / 2 * ATTEND_TILE;
    size_t pieces = 2 * 2 * ATTEND_PIECE * ATTEND_LANES;
    return lanes * (padded + 2) + tiles * padded + pieces + pieces / 2 + 2 * 2 * ATTEND_LANES +
           ATTEND_LANES; /* what waits */
}

static inline struct attend_layout attend_layout(const struct attend_block *block)
{
    struct attend_layout l = { .groups =
                                   align_up(block->row_count, 2 * ATTEND_LANES) / ATTEND_LANES,
                               .key_padded = align_up(block->key_width, 32),
                               .value_padded = align_up(block->value_width, 32) };
    size_t lanes = l.groups * ATTEND_LANES;
    size_t tiles = ATTEND_WAITING / 2 * ATTEND_TILE;
    size_t pieces = 2 * 2 * ATTEND_PIECE * ATTEND_LANES;
    l.queries = block->memory;
    l.sums = l.queries + lanes * l.key_padded;
    l.greatest = l.sums + lanes * l.value_padded;
    l.weight_sums = l.greatest + lanes;
    l.keys = l.weight_sums + lanes;
    l.values = l.keys + tiles * l.key_padded;
    l.scores = l.values + tiles * l.value_padded;
    l.weights = l.scores + pieces;
    l.keep = l.weights + pieces / 2;
    l.waiting = (struct attend_waiting *)(void *)(l.keep + 2 * 2 * ATTEND_LANES);
    return l;
}

#endif
