/* amx.c: bf16 products on the tiles of AMX.
 *
 * Weights become bf16 by strips of 32 rows and 64 columns (or, where a format does not lend
 * itself to it, by pieces of 256), which stay in a near cache.  While the tiles work on one
 * another one is made, between two of their instructions: tiles and vectors are units of their
 * own, and the CPU keeps both busy if what they do lies close together.
 *
 *     rows of activations    what is kept
 *     up to 48               two of them, which fit the nearest cache beside activations
 *     more                   all columns of 32 rows, and one ahead: for every 48 rows they are
 *                            used once more, and sums stay in tiles
 *
 * A tile is 16 rows of 64 bytes.  Weights are the first operand, activations the second one,
 * in pairs; up to six tiles of sums share the loads:
 *
 *                  pack p    pack p+1  pack p+2
 *     rows 0-15    sums 0    sums 1    sums 4     sums are [weight row][activation row],
 *     rows 16-31   sums 2    sums 3    sums 5     and are transposed on their way out */
#include "kernels/prefill/amx_tiles.h"
#include "kernels/prefill/bf16_packs.h"

enum {
    TILE_SUMS = TILE * TILE,
    GROUP_ROWS = 3 * PACK_ROWS, /* of activations whose sums are in tiles at a time */
    GROUP_SUMS = 6 * TILE_SUMS,
    BLOCK_NUMBERS = 1 << 19, /* of activations that stay in a second-level cache */
    TURNS = 8,
};

/* Those that most files are made of: the others' steps are shorter, and fit less closely. */
#define CLOSE_FORMATS(X) X(Q4_K, q4_k) X(Q6_K, q6_k) X(AFFINE4, usual_affine4)

struct tile_config {
    uint8_t palette, start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Constant: the compiler does not see that the instruction reads more than its first word. */
static const struct tile_config config = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
    .rows = { TILE, TILE, TILE, TILE, TILE, TILE, TILE, TILE },
};

static void begin(void)
{
    _tile_loadconfig(&config);
}

static void end(void)
{
    _tile_release();
    lanes_streamed();
}

/* ---------------------------------------------------------------------- tiles
 *
 * Numbers of tiles must be constants.  With one or two packs 0 to 3 are sums, 4 and 5 weights,
 * 6 and 7 packs; with three 0 to 5 are sums, 6 weights and 7 a pack. */

LANES_INLINE void zero_sums(size_t packs)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (packs < 3) return;
    _tile_zero(4);
    _tile_zero(5);
}

LANES_INLINE void store_sums(float *sums, size_t packs)
{
    float *bottom = sums + GROUP_SUMS / 2;
    _tile_stored(0, sums, 64);
    _tile_stored(1, sums + TILE_SUMS, 64);
    _tile_stored(2, bottom, 64);
    _tile_stored(3, bottom + TILE_SUMS, 64);
    if (packs < 3) return;
    _tile_stored(4, sums + 2 * TILE_SUMS, 64);
    _tile_stored(5, bottom + 2 * TILE_SUMS, 64);
}

/* A step multiplies 32 numbers of 32 rows with as many of one to three packs.  It has eight
 * turns, and vector instructions go between them. */
LANES_INLINE void turn_of_two(int turn, const uint16_t *w, const uint16_t *a, size_t pack,
                              size_t packs)
{
    if (turn == 0) {
        _tile_loadd(4, w, 64);
    } else if (turn == 1) {
        _tile_loadd(6, a, 64);
    } else if (turn == 2) {
        if (packs == 2) _tile_loadd(7, a + pack, 64);
        _tile_dpbf16ps(0, 4, 6);
    } else if (turn == 3 && packs == 2) {
        _tile_dpbf16ps(1, 4, 7);
    } else if (turn == 4) {
        _tile_loadd(5, w + TILE * TILE_COLS, 64);
    } else if (turn == 6) {
        _tile_dpbf16ps(2, 5, 6);
    } else if (turn == 7 && packs == 2) {
        _tile_dpbf16ps(3, 5, 7);
    }
}

LANES_INLINE void turn_of_three(int turn, const uint16_t *w, const uint16_t *a, size_t pack)
{
    if (turn == 0) {
        _tile_loadd(6, w, 64);
        _tile_loadd(7, a, 64);
        _tile_dpbf16ps(0, 6, 7);
    } else if (turn == 1) {
        _tile_loadd(7, a + pack, 64);
        _tile_dpbf16ps(1, 6, 7);
    } else if (turn == 2) {
        _tile_loadd(7, a + 2 * pack, 64);
    } else if (turn == 3) {
        _tile_dpbf16ps(4, 6, 7);
    } else if (turn == 4) {
        _tile_loadd(6, w + TILE * TILE_COLS, 64);
        _tile_dpbf16ps(5, 6, 7);
    } else if (turn == 5) {
        _tile_loadd(7, a + pack, 64);
        _tile_dpbf16ps(3, 6, 7);
    } else if (turn == 6) {
        _tile_loadd(7, a, 64);
    } else {
        _tile_dpbf16ps(2, 6, 7);
    }
}

LANES_INLINE void turn_of_step(int turn, const uint16_t *w, const uint16_t *a, size_t pack,
                               size_t packs)
{
    if (packs == 3)
        turn_of_three(turn, w, a, pack);
    else
        turn_of_two(turn, w, a, pack, packs);
}

/* All steps of a piece, and between them rows of the next one, as long as some are left. */
LANES_INLINE void piece_steps(struct stream *s, const uint16_t *piece, const uint16_t *a,
                              size_t count, size_t packs)
{
    size_t pack = PACK_ROWS * s->cols;
    for (size_t k = 0; k < count; k += TILE_COLS, piece += STEP, a += TILE_COLS * PACK_ROWS) {
#pragma GCC unroll 8
        for (int turn = 0; turn < TURNS; turn++) {
            turn_of_step(turn, piece, a, pack, packs);
            if (turn % 2 == 1 && s->row < PIECE_ROWS) make_row(s);
        }
    }
}

LANES_INLINE void plain_steps(const struct stream *s, const uint16_t *piece, const uint16_t *a,
                              size_t count, size_t packs)
{
    size_t pack = PACK_ROWS * s->cols;
    for (size_t k = 0; k < count; k += TILE_COLS, piece += STEP, a += TILE_COLS * PACK_ROWS)
#pragma GCC unroll 8
        for (int turn = 0; turn < TURNS; turn++) turn_of_step(turn, piece, a, pack, packs);
}

typedef void (*open_four_function)(struct open_unit *out, const struct panel_row *rows,
                                   size_t unit);

/* Prefetches, in one turn of this strip, its part of the next block's 16 rows from `half` on, with
 * units of `unit` bytes.  Spread evenly: prefetches occupy the few line fill buffers that tile loads
 * need, too. */
LANES_INLINE void fetch_part(const struct stream *s, size_t half, size_t turn, size_t unit)
{
    const struct panel_row *row = &s->rows[half];
    size_t share = TILE * unit / STRIPS, end = (turn + 1) * share / TURNS;
    const uint8_t *from = row->at.values + row->ahead + (s->unit * STRIPS + s->strip) * share;
    for (size_t line = align_up(turn * share / TURNS, CACHE_LINE); line < end; line += CACHE_LINE)
        __builtin_prefetch(from + line, 0, 2);
}

/* The steps of a strip, and between them the next one, where making it takes as long as the
 * products: two vectors of two rows between two tile instructions.  With a neighbour on the core
 * the CPU looks ahead no further than that. */
LANES_INLINE void close_steps(struct stream *s, const uint16_t *strip, const uint16_t *a,
                              size_t packs, open_four_function open_four, struct panel_kind kind)
{
    enum { ROWS = PIECE_ROWS / (TURNS * STRIP / STEP) };
    _Static_assert(2 * ROWS == 4, "what is opened at once is what two turns make");
    size_t pack = PACK_ROWS * s->cols, quarter = s->strip;
    uint16_t *out = strip_in_ring(s, s->block, s->unit, quarter);
    for (size_t r = 0; r < PIECE_ROWS; r += ROWS * TURNS) {
#pragma GCC unroll 8
        for (int turn = 0; turn < TURNS; turn++) {
            size_t row = r + ROWS * (size_t)turn;
            if (quarter == 0 && turn % 2 == 0) open_four(&s->open[row], &s->rows[row], s->unit);
            if (packs > 0) turn_of_step(turn, strip, a, pack, packs);
            fetch_part(s, r, (size_t)turn, kind.bytes);
#pragma GCC unroll 2
            for (size_t i = row; i < row + ROWS; i++)
                panel_quarter(out + i * TILE_COLS, STEP, &s->open[i], quarter, kind);
        }
        strip += STEP;
        a += TILE_COLS * PACK_ROWS;
    }
}

#define DEFINE_CLOSE_STEPS(id, name)                                                               \
    static void close_steps_##name(struct stream *s, const uint16_t *strip, const uint16_t *a,     \
                                   size_t packs)                                                   \
    {                                                                                              \
        if (packs == 3)                                                                            \
            close_steps(s, strip, a, 3, open_four_##name, kind_##name);                            \
        else if (packs == 2)                                                                       \
            close_steps(s, strip, a, 2, open_four_##name, kind_##name);                            \
        else if (packs == 1)                                                                       \
            close_steps(s, strip, a, 1, open_four_##name, kind_##name);                            \
        else                                                                                       \
            close_steps(s, strip, a, 0, open_four_##name, kind_##name);                            \
    }
CLOSE_FORMATS(DEFINE_CLOSE_STEPS)

static bool blocks_are_whole(const struct matrix_product *p)
{
    size_t before = (p->rows - 1) / PIECE_ROWS;
    for (size_t i = 0; i < 2; i++) {
        const struct matrix_rows *from = &p->from[i];
        if (from->first + before * from->next + TILE > from->end) return false;
    }
    return true;
}

static close_steps_function close_steps_for(const struct matrix_product *p)
{
    static const close_steps_function functions[FORMAT_COUNT] = {
#define CLOSE_STEPS(id, name) [FORMAT_##id] = close_steps_##name,
        CLOSE_FORMATS(CLOSE_STEPS)
    };
    const struct weight *first = p->from[0].weight, *second = p->from[1].weight;
    bool same = first->format == second->format;
    bool known =
        first->format != FORMAT_AFFINE4 || (affine_is_usual(first) && affine_is_usual(second));
    return same && known && blocks_are_whole(p) ? functions[first->format] : NULL;
}

static void multiply_made(const struct stream *s, const uint16_t *piece, const uint16_t *a,
                          size_t count, size_t packs)
{
    if (packs == 3)
        plain_steps(s, piece, a, count, 3);
    else if (packs == 2)
        plain_steps(s, piece, a, count, 2);
    else
        plain_steps(s, piece, a, count, 1);
}

/* Meanwhile the next piece is made. */
static void multiply_piece(struct stream *s, const uint16_t *piece, const uint16_t *a, size_t count,
                           size_t packs)
{
    begin_piece(s);
    if (s->row == PIECE_ROWS)
        multiply_made(s, piece, a, count, packs);
    else if (packs == 3)
        piece_steps(s, piece, a, count, 3);
    else if (packs == 2)
        piece_steps(s, piece, a, count, 2);
    else
        piece_steps(s, piece, a, count, 1);
    end_piece(s);
}

/* Meanwhile the next strip is made; of 0 packs: only that. */
static void multiply_strip(struct stream *s, const uint16_t *strip, const uint16_t *a, size_t packs)
{
    if (s->block == s->blocks) {
        multiply_made(s, strip, a, QUARTER, packs);
        return;
    }
    s->close_steps(s, strip, a, packs);
    if (++s->strip < STRIPS) return;
    s->strip = 0;
    next_unit(s);
}

/* A block of 32 rows with the first group of packs. */
static void multiply_first(struct stream *s, size_t block, const uint16_t *a, size_t packs)
{
    for (size_t unit = 0; unit < s->units; unit++, a += UNIT * PACK_ROWS) {
        if (!s->close_steps) {
            size_t count = min_size(UNIT, s->cols - unit * UNIT);
            multiply_piece(s, strip_in_ring(s, block, unit, 0), a, count, packs);
            continue;
        }
        for (size_t strip = 0; strip < STRIPS; strip++)
            multiply_strip(s, strip_in_ring(s, block, unit, strip), a + strip * QUARTER * PACK_ROWS,
                           packs);
    }
}

/* A block of 32 rows with a later group: its strips lie side by side but for the ring's end. */
static void multiply_later(const struct stream *s, size_t block, const uint16_t *a, size_t packs)
{
    const uint16_t *begin = strip_in_ring(s, block, 0, 0);
    size_t left = (size_t)(s->ring + s->ring_strips * STRIP - begin) / PIECE_ROWS;
    size_t count = min_size(left, s->cols);
    multiply_made(s, begin, a, count, packs);
    if (count == s->cols) return;
    multiply_made(s, s->ring, a + count * PACK_ROWS, s->cols - count, packs);
}

/* A block of 32 rows with a group of packs. */
static void multiply_group(struct stream *s, size_t block, size_t x, size_t packs)
{
    const uint16_t *a = s->packs + x * s->cols;
    zero_sums(packs);
    if (x == 0)
        multiply_first(s, block, a, packs);
    else
        multiply_later(s, block, a, packs);
    store_sums(s->sums, packs);
}

/* ------------------------------------------------------------------------ all */

static void finish_group(const struct stream *s, size_t block, size_t x, size_t packs,
                         const struct gated_packs *gated)
{
    const struct matrix_product *p = s->product;
    size_t row = block * PIECE_ROWS;
    for (size_t pack = 0; pack < packs; pack++, x += PACK_ROWS) {
        const float *top = s->sums + pack * TILE_SUMS, *bottom = top + GROUP_SUMS / 2;
        if (gated) {
            bf16_store_gated(p, gated, top, bottom, block, x);
            continue;
        }
        bf16_add_results(p, top, row, x);
        if (p->rows - row > TILE) bf16_add_results(p, bottom, row + TILE, x);
    }
}

/* Rows of activations that are multiplied at a time: their packs stay in a second-level cache. */
static size_t block_x(const struct matrix_product *p)
{
    size_t numbers = p->x_rows * matrix_cols(p->from[0].weight->cols);
    size_t blocks = (numbers + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS;
    return align_up((p->x_rows + blocks - 1) / blocks, PACK_ROWS);
}

static void make_first(struct stream *s)
{
    if (s->close_steps) {
        multiply_strip(s, s->ring, s->packs, 0);
    } else {
        begin_piece(s);
        end_piece(s);
    }
}

static void begin_stream(struct stream *s)
{
    const struct matrix_product *p = s->product;
    s->cols = matrix_cols(p->from[0].weight->cols);
    s->packs = p->packs + s->x * s->cols;
    s->x_rows = min_size(block_x(p), p->x_rows - s->x);
    s->blocks = (p->rows + PIECE_ROWS - 1) / PIECE_ROWS;
    s->units = units_of(s->cols);
    s->sums = p->room;
    s->ring = (uint16_t *)(void *)(s->sums + GROUP_SUMS);
    s->lines = s->ring + 2 * s->units * PIECE;
    for (size_t i = 0; i < 2; i++) s->make[i] = NAMED(panel_unit_for)(p->from[i].weight);
    s->close_steps = close_steps_for(p);
    size_t ahead = s->close_steps ? 1 : STRIPS;
    s->ring_strips = ahead + (s->x_rows > GROUP_ROWS ? s->units * STRIPS : ahead);
    open_first_block(s);
    make_first(s);
}

/* Packs of the group at row `at`: three, and no single one behind others, which takes as long as
 * two. */
static size_t group_packs(const struct stream *s, size_t at)
{
    size_t left = (s->x_rows - at + PACK_ROWS - 1) / PACK_ROWS;
    return left == 4 && at > 0 ? 2 : min_size(left, GROUP_ROWS / PACK_ROWS);
}

/* All rows of weights with a block of activations, from `x` on. */
static void multiply_block_x(const struct matrix_product *p, size_t x,
                             const struct gated_packs *gated)
{
    struct stream s = { .product = p, .x = x };
    begin_stream(&s);
    for (size_t block = 0; block < s.blocks; block++)
        for (size_t at = 0, packs; at < s.x_rows; at += packs * PACK_ROWS) {
            packs = group_packs(&s, at);
            multiply_group(&s, block, at, packs);
            finish_group(&s, block, x + at, packs, gated);
        }
}

static void multiply(const struct matrix_product *p)
{
    for (size_t x = 0; x < p->x_rows; x += block_x(p)) multiply_block_x(p, x, NULL);
}

static void multiply_gated(const struct matrix_product *p, uint16_t *packs, size_t first,
                           size_t cols)
{
    struct gated_packs gated = { packs, first, cols, p->activation };
    for (size_t x = 0; x < p->x_rows; x += block_x(p)) multiply_block_x(p, x, &gated);
}

const struct matrix_unit NAMED(prefill_amx) = {
    .start_rows = 2,
    .expert_start_rows = 2,
    .words = 1,
    .begin = begin,
    .end = end,
    .make_panel = NAMED(make_panel),
    .make_pack = bf16_make_pack,
    .multiply = multiply,
    .multiply_gated = multiply_gated,
};
