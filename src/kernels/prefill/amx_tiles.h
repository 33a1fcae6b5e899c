/* amx_tiles.h: rows of weights become bf16 piece by piece, for amx.c.
 *
 * A piece is 32 rows and 256 columns, in steps of 32 columns; two steps are a strip:
 *
 *     [8 steps][32 rows][32 columns]      two tiles in a step
 *
 * Pieces are made in the order in which they are multiplied, into a ring; while one is
 * multiplied, the next one is made: row by row or, for some formats, strip by strip. */
#ifndef KERNELS_PREFILL_AMX_TILES_H
#define KERNELS_PREFILL_AMX_TILES_H

#include "kernels/prefill/panel_units.h"

enum {
    TILE = 16,
    TILE_COLS = 32,
    PIECE_ROWS = 2 * TILE,
    STEP = PIECE_ROWS * TILE_COLS, /* numbers of a piece that one step of the tiles takes */
    PIECE = PIECE_ROWS * UNIT,
    STRIPS = QUARTERS, /* of a piece */
    STRIP = PIECE / STRIPS,
};

struct stream;
typedef void (*close_steps_function)(struct stream *s, const uint16_t *strip, const uint16_t *a,
                                     size_t packs);

struct stream {
    const struct matrix_product *product;
    const uint16_t *packs; /* of the rows of activations that are multiplied now, … */
    size_t x;              /* … from this one on */
    size_t x_rows, cols;   /* a multiple of TILE_COLS */
    size_t blocks, units;  /* of 32 rows and 256 columns: pieces down and across */
    float *sums;           /* [2][3 packs][TILE_SUMS] */
    uint16_t *ring;        /* [ring_strips] strips, in the order in which they are made */
    size_t ring_strips;

    /* The piece that is made. */
    uint16_t *piece;
    size_t block, unit; /* block == blocks: none */
    size_t count;       /* of its columns */
    size_t row;         /* the next one; PIECE_ROWS: all are there */
    panel_unit_function make[2];
    struct panel_row rows[PIECE_ROWS];
    uint16_t *lines;

    /* Strip by strip. */
    close_steps_function close_steps; /* NULL: row by row */
    size_t strip;                     /* the next one of the piece */
    struct open_unit open[PIECE_ROWS];
};

/* ---------------------------------------------------------------- four units
 *
 * Functions, not parts of others: between tile instructions they would be written out many times,
 * and are wanted in one strip of four.  Those of Q4_K at once, because most instructions of one
 * alone are for the bits of its scales. */

LANES_INLINE __m512i load_four(const uint8_t *const *from)
{
    __m512i all = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)from[0]));
    all = _mm512_inserti32x4(all, _mm_loadu_si128((const __m128i *)(const void *)from[1]), 1);
    all = _mm512_inserti32x4(all, _mm_loadu_si128((const __m128i *)(const void *)from[2]), 2);
    return _mm512_inserti32x4(all, _mm_loadu_si128((const __m128i *)(const void *)from[3]), 3);
}

/* The first 16 bytes of a block are d, dmin, and eight scales and mins of six bits: four times
 * those 16 numbers in bytes. */
LANES_INLINE __m512i k_bytes_of_four(__m512i heads)
{
    const struct k_places places = k_places();
    const __m512i low_places = _mm512_broadcast_i32x4(places.low);
    const __m512i high_places = _mm512_broadcast_i32x4(places.high);
    const __m512i down = _mm512_broadcast_i32x4(places.down);
    const __m512i low_bits = _mm512_broadcast_i32x4(places.low_bits);
    __m512i low = _mm512_srlv_epi32(_mm512_shuffle_epi8(heads, low_places), down);
    __m512i high = _mm512_srli_epi32(_mm512_shuffle_epi8(heads, high_places), 2);
    return (low & low_bits) | (high & _mm512_set1_epi8(0x30));
}

/* d of block `i` eight times, then -dmin; `all` has d and -dmin of each. */
LANES_INLINE lanes k_factors(__m512 all, int i)
{
    int d = 2 * i, m = d + 1;
    return (lanes)_mm512_permutexvar_ps(
        _mm512_setr_epi32(d, d, d, d, d, d, d, d, m, m, m, m, m, m, m, m), all);
}

/* Unit `unit` of four rows. */
static void open_four_q4_k(struct open_unit *out, const struct panel_row *rows, size_t unit)
{
    const __m512i dwords = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256 signs = _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f);
    const uint8_t *blocks[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        blocks[i] = rows[i].at.values + unit * sizeof(struct block_q4_k);
        out[i].q = blocks[i] + offsetof(struct block_q4_k, qs);
    }
    __m512i heads = load_four(blocks);
    __m128i halves = _mm512_castsi512_si128(_mm512_permutexvar_epi32(dwords, heads));
    __m512 all = _mm512_castps256_ps512(_mm256_xor_ps(_mm256_cvtph_ps(halves), signs));
    _Alignas(CACHE_LINE) byte_lanes both[4];
    _mm512_store_si512(both, k_bytes_of_four(heads));
    __asm__("" : "+m"(both)); /* what is loaded is spread for nothing */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        lanes_store(out[i].scales, lanes_from_bytes(both[i]) * k_factors(all, i));
        __asm__("" : "+m"(out[i].scales));
    }
}

#define DEFINE_OPEN_FOUR(name)                                                                     \
    static void open_four_##name(struct open_unit *out, const struct panel_row *rows, size_t unit) \
    {                                                                                              \
        _Pragma("GCC unroll 4") for (size_t i = 0; i < 4; i++)                                     \
        {                                                                                          \
            struct panel_row row = rows[i];                                                        \
            row.at.index = unit;                                                                   \
            row.at.count = UNIT;                                                                   \
            open_##name(&out[i], &row);                                                            \
        }                                                                                          \
    }
DEFINE_OPEN_FOUR(q6_k)
DEFINE_OPEN_FOUR(usual_affine4)

/* -------------------------------------------------------------- pieces and strips */

static inline void open_first_block(struct stream *s)
{
    for (size_t i = 0; i < PIECE_ROWS; i++) {
        const struct matrix_rows *from = &s->product->from[i / TILE];
        uint64_t row = from->first + i % TILE;
        s->rows[i] = panel_row_at(from->weight, row);
        s->rows[i].ahead = from->next * from->weight->row_bytes;
        s->rows[i].line = s->lines + i * (s->cols + 32);
        s->rows[i].exists = row < from->end;
    }
}

static inline void open_next_block(struct stream *s)
{
    for (size_t i = 0; i < PIECE_ROWS; i++) {
        const struct matrix_rows *from = &s->product->from[i / TILE];
        struct panel_row *row = &s->rows[i];
        row->row += from->next;
        row->exists = row->row < from->end;
        row->at.index = 0;
        row->at.values += row->ahead;
        if (!row->at.scales) continue;
        row->at.scales += from->next * from->weight->scale_row_bytes;
        row->at.biases += from->next * from->weight->scale_row_bytes;
    }
}

LANES_INLINE void make_row(struct stream *s)
{
    struct panel_row *row = &s->rows[s->row];
    uint16_t *out = s->piece + s->row * TILE_COLS;
    if (row->exists) {
        row->at.count = s->count;
        s->make[s->row / TILE](out, STEP, row);
        row->at.index++;
    } else {
        for (size_t v = 0; v < UNIT; v += TILE_COLS, out += STEP)
            _mm512_storeu_si512(out, _mm512_setzero_si512());
    }
    s->row++;
}

static inline void make_rest(struct stream *s)
{
    while (s->row < PIECE_ROWS) make_row(s);
}

static inline uint16_t *strip_in_ring(const struct stream *s, size_t block, size_t unit,
                                      size_t strip)
{
    size_t number = (block * s->units + unit) * STRIPS + strip;
    return s->ring + number % s->ring_strips * STRIP;
}

static inline void next_unit(struct stream *s)
{
    if (++s->unit < s->units) return;
    s->unit = 0;
    if (++s->block < s->blocks) open_next_block(s);
}

/* Behind the last piece nothing is left to be made. */
static inline void begin_piece(struct stream *s)
{
    if (s->block == s->blocks) return;
    s->count = min_size(UNIT, s->product->from[0].weight->cols - s->unit * UNIT);
    s->piece = strip_in_ring(s, s->block, s->unit, 0);
    s->row = 0;
}

static inline void end_piece(struct stream *s)
{
    if (s->block == s->blocks) return;
    make_rest(s);
    next_unit(s);
}

#endif
