/* amx_matrix.c: bf16 products on the tiles of AMX.
 *
 * A tile is 16 rows of 64 bytes.  Weights are the first operand as they lie in a
 * panel, activations the second one, in pairs; four tiles of sums share the loads:
 *
 *                  pack p    pack p+1
 *     rows 0-15    sums 0    sums 1        sums are [weight row][activation row],
 *     rows 16-31   sums 2    sums 3        and are transposed on their way out */
#include "kernels/lanes_set.h"
#include "kernels/lanes_transpose.h"

#if defined(__AMX_BF16__)

enum { TILE = 16, TILE_COLS = 32 };

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
}

/* ----------------------------------------------------------------- results */

/* A tile's sums to up to 16 rows of activations. */
static void store_sums(const struct matrix_product *p, const float *sums, size_t row, size_t x)
{
    __m512i r[TILE];
    for (int i = 0; i < TILE; i++) r[i] = _mm512_loadu_si512(sums + i * TILE);
    transpose_dwords(r);
    size_t rows = min_size(TILE, p->rows - row), x_rows = min_size(TILE, p->x_rows - x);
    __mmask16 present = (__mmask16)((1u << rows) - 1);
    for (size_t j = 0; j < x_rows; j++) {
        float *out = p->out[x + j] + row;
        __m512 result = (__m512)r[j];
        if (p->add) result = _mm512_add_ps(result, _mm512_maskz_loadu_ps(present, out));
        _mm512_mask_storeu_ps(out, present, result);
    }
}

/* ---------------------------------------------------------------- products */

/* sums[2r + p] of 32 rows (or 16: r = 0) of the panel with two packs (or one: p = 0).  The
 * numbers of tiles must be constants: 0 to 3 are sums, 4 and 5 weights, 6 and 7 packs. */
LANES_INLINE void multiply_tiles(float sums[4][TILE * TILE], const struct matrix_product *p,
                                 size_t row, size_t x, bool two_rows, bool two_packs)
{
    size_t stride = p->stride * sizeof *p->panel, pack = PACK_ROWS * p->cols;
    const uint16_t *w = p->panel + row * p->stride, *w2 = w + TILE * p->stride;
    const uint16_t *a = p->packs + x * p->cols, *a2 = a + pack;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (size_t k = 0; k < p->cols; k += TILE_COLS) {
        _tile_loadd(4, w + k, stride);
        _tile_loadd(6, a + k * PACK_ROWS, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (two_packs) {
            _tile_loadd(7, a2 + k * PACK_ROWS, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_rows) {
            _tile_loadd(5, w2 + k, stride);
            _tile_dpbf16ps(2, 5, 6);
            if (two_packs) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums[0], 64);
    if (two_packs) _tile_stored(1, sums[1], 64);
    if (two_rows) _tile_stored(2, sums[2], 64);
    if (two_rows && two_packs) _tile_stored(3, sums[3], 64);
}

static void multiply_at(const struct matrix_product *p, size_t row, size_t x)
{
    float sums[4][TILE * TILE];
    bool two_rows = p->rows - row > TILE, two_packs = p->x_rows - x > PACK_ROWS;
    if (two_rows && two_packs)
        multiply_tiles(sums, p, row, x, true, true);
    else if (two_rows)
        multiply_tiles(sums, p, row, x, true, false);
    else if (two_packs)
        multiply_tiles(sums, p, row, x, false, true);
    else
        multiply_tiles(sums, p, row, x, false, false);
    store_sums(p, sums[0], row, x);
    if (two_packs) store_sums(p, sums[1], row, x + TILE);
    if (two_rows) store_sums(p, sums[2], row + TILE, x);
    if (two_rows && two_packs) store_sums(p, sums[3], row + TILE, x + TILE);
}

/* ------------------------------------------------------- few rows of activations
 *
 * With up to 48 rows all sums stay in tiles, and the weights need not become a panel: while
 * the tiles work on one unit of 32 rows, in the nearest cache, the next one is made. */

enum { STREAM_PACKS = 3, STREAM_ROWS = STREAM_PACKS * PACK_ROWS, STEPS = UNIT / TILE_COLS };
enum { ROWS_PER_STEP = 2 * TILE / STEPS };

static bool can_stream(const struct matrix_product *p)
{
    return p->x_rows <= STREAM_ROWS && NAMED(panel_in_parts)(p->from[0].weight) &&
           NAMED(panel_in_parts)(p->from[1].weight);
}

/* Rows [row, row + count) of the 32, all in one group of 16, of unit `index`. */
LANES_INLINE void make_piece(uint16_t *piece, const struct matrix_product *p, size_t index,
                             size_t row, size_t count)
{
    const struct panel_rows *from = &p->from[row / TILE];
    size_t in = row % TILE, present = in < from->count ? min_size(count, from->count - in) : 0;
    uint16_t *out = piece + row * UNIT;
    if (present > 0) NAMED(make_panel_part)
    (&(struct panel_part){ .out = out,
                           .stride = UNIT,
                           .weight = from->weight,
                           .first = from->first + in,
                           .count = present,
                           .unit = index,
                           .units = 1,
                           .fetch_rows = from->next });
    if (present < count) memset(out + present * UNIT, 0, (count - present) * UNIT * sizeof *out);
}

/* 32 numbers of 32 rows with as many of one, two or three packs. */
LANES_INLINE void stream_step(const uint16_t *w, const uint16_t *a, size_t pack, size_t packs)
{
    enum { STRIDE = UNIT * sizeof *w };
    const uint16_t *w2 = w + TILE * UNIT;
    if (packs == 3) { /* six tiles of sums leave one for weights and one for a pack */
        _tile_loadd(6, w, STRIDE);
        _tile_loadd(7, a, 64);
        _tile_dpbf16ps(0, 6, 7);
        _tile_loadd(7, a + pack, 64);
        _tile_dpbf16ps(1, 6, 7);
        _tile_loadd(7, a + 2 * pack, 64);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(6, w2, STRIDE);
        _tile_dpbf16ps(5, 6, 7);
        _tile_loadd(7, a + pack, 64);
        _tile_dpbf16ps(3, 6, 7);
        _tile_loadd(7, a, 64);
        _tile_dpbf16ps(2, 6, 7);
        return;
    }
    _tile_loadd(4, w, STRIDE);
    _tile_loadd(6, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, w2, STRIDE);
    _tile_dpbf16ps(2, 5, 6);
    if (packs == 1) return;
    _tile_loadd(7, a + pack, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
}

/* The sums of the first two packs as in multiply_tiles; [4] and [5]: rows 0-15 and 16-31 with
 * the third one. */
LANES_INLINE void stream_tiles(float sums[6][TILE * TILE], const struct matrix_product *p,
                               size_t packs)
{
    _Alignas(CACHE_LINE) uint16_t pieces[2][2 * TILE * UNIT];
    size_t units = units_of(p->cols), pack = PACK_ROWS * p->cols;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (packs == 3) {
        _tile_zero(4);
        _tile_zero(5);
    }
    make_piece(pieces[0], p, 0, 0, TILE);
    make_piece(pieces[0], p, 0, TILE, TILE);
    for (size_t u = 0; u < units; u++) {
        const uint16_t *w = pieces[u % 2], *a = p->packs + u * UNIT * PACK_ROWS;
        for (size_t j = 0; j < STEPS; j++) {
            if (u * UNIT + j * TILE_COLS < p->cols)
                stream_step(w + j * TILE_COLS, a + j * TILE_COLS * PACK_ROWS, pack, packs);
            if (u + 1 < units)
                make_piece(pieces[(u + 1) % 2], p, u + 1, j * ROWS_PER_STEP, ROWS_PER_STEP);
        }
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
    if (packs < 3) return;
    _tile_stored(4, sums[4], 64);
    _tile_stored(5, sums[5], 64);
}

static void stream(float sums[6][TILE * TILE], const struct matrix_product *p)
{
    if (p->x_rows > 2 * PACK_ROWS)
        stream_tiles(sums, p, 3);
    else if (p->x_rows > PACK_ROWS)
        stream_tiles(sums, p, 2);
    else
        stream_tiles(sums, p, 1);
}

static void multiply_stream(const struct matrix_product *p)
{
    float sums[6][TILE * TILE];
    stream(sums, p);
    for (size_t i = 0; i < 6; i++) {
        size_t row = i < 4 ? i / 2 : i % 2, pack = i < 4 ? i % 2 : 2;
        if (row * TILE < p->rows && pack * PACK_ROWS < p->x_rows)
            store_sums(p, sums[i], row * TILE, pack * PACK_ROWS);
    }
}

/* --------------------------------------------------------------------- all */

/* What `from` wants.  Rows that are missing are cleared afterwards: making one may leave
 * anything in the row behind it. */
static void make_wanted(const struct matrix_product *p)
{
    for (size_t i = 0; i < 2; i++) {
        const struct panel_rows *from = &p->from[i];
        uint16_t *out = p->panel + i * TILE * p->stride;
        if (from->count > 0)
            NAMED(make_panel)(out, p->stride, from->weight, from->first, from->count);
        memset(out + from->count * p->stride, 0, (TILE - from->count) * p->stride * sizeof *out);
    }
}

static void multiply(const struct matrix_product *p)
{
    if (p->from && can_stream(p)) {
        multiply_stream(p);
        return;
    }
    if (p->from) make_wanted(p);
    for (size_t x = 0; x < p->x_rows; x += 2 * PACK_ROWS)
        for (size_t row = 0; row < p->rows; row += 2 * TILE) multiply_at(p, row, x);
}

LANES_INLINE lanes gated(const float *gate, const float *up)
{
    lanes g = lanes_load(gate);
    return g * lanes_sigmoid(g) * lanes_load(up);
}

/* Two rows of sums side by side are what a pack holds. */
static void store_gated(uint16_t *pack, const float *gates, const float *ups)
{
    for (int i = 0; i < TILE; i += 2) {
        lanes even = gated(gates + i * TILE, ups + i * TILE);
        lanes odd = gated(gates + (i + 1) * TILE, ups + (i + 1) * TILE);
        __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)even));
        __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)odd));
        _mm512_storeu_si512(pack + i / 2 * TILE_COLS, low | _mm512_slli_epi32(high, 16));
    }
}

static void multiply_gated(const struct matrix_product *p, uint16_t *packs, size_t first,
                           size_t cols)
{
    float sums[6][TILE * TILE];
    uint16_t *pack = packs + first * PACK_ROWS;
    if (p->from && can_stream(p)) {
        stream(sums, p);
        store_gated(pack, sums[0], sums[2]);
        if (p->x_rows > PACK_ROWS) store_gated(pack + PACK_ROWS * cols, sums[1], sums[3]);
        if (p->x_rows > 2 * PACK_ROWS) store_gated(pack + 2 * PACK_ROWS * cols, sums[4], sums[5]);
        return;
    }
    if (p->from) make_wanted(p);
    for (size_t x = 0; x < p->x_rows; x += 2 * PACK_ROWS, pack += 2 * PACK_ROWS * cols) {
        bool two_packs = p->x_rows - x > PACK_ROWS;
        if (two_packs)
            multiply_tiles(sums, p, 0, x, true, true);
        else
            multiply_tiles(sums, p, 0, x, true, false);
        store_gated(pack, sums[0], sums[2]);
        if (two_packs) store_gated(pack + PACK_ROWS * cols, sums[1], sums[3]);
    }
}

/* ------------------------------------------------------------------- packs */

/* 32 numbers from `k` on, as pairs of bf16. */
LANES_INLINE __m512i load_pairs(const float *x, size_t k, size_t n)
{
    lanes low = { 0 }, high = { 0 };
    if (k + 32 <= n) {
        low = lanes_load(x + k);
        high = lanes_load(x + k + 16);
    } else {
        low = n - k >= 16 ? lanes_load(x + k) : lanes_load_some(x + k, n - k);
        if (n - k > 16) high = lanes_load_some(x + k + 16, n - k - 16);
    }
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

static void make_pack(uint16_t *out, const float *const *x, size_t count, size_t n)
{
    for (size_t k = 0; k < n; k += TILE_COLS, out += TILE * TILE_COLS) {
        __m512i r[TILE];
        for (size_t i = 0; i < TILE; i++)
            r[i] = i < count ? load_pairs(x[i], k, n) : _mm512_setzero_si512();
        transpose_dwords(r);
        for (size_t i = 0; i < TILE; i++) _mm512_storeu_si512(out + i * TILE_COLS, r[i]);
    }
}

const struct matrix_unit NAMED(matrix) = {
    .begin = begin,
    .end = end,
    .make_panel = NAMED(make_panel),
    .make_pack = make_pack,
    .multiply = multiply,
    .multiply_gated = multiply_gated,
};

#endif
