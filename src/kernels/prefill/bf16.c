/* bf16.c: a matrix unit made of vectors that multiply pairs of bf16 numbers, for CPUs that
 * have such an instruction and no tiles.
 *
 * 32 rows of weights become bf16 in memory, and are multiplied with packs; a lane is a row of
 * activations, two neighbours of a row of weights are spread over all lanes:
 *
 *     sums[row][lane] += weight[row][2k] · pack[k][lane][0] + weight[row][2k + 1] · pack[k][lane][1]
 *
 * Eight rows and up to three packs at a time, so that all sums stay in registers.  Of a last pack
 * that is at most half full only that half is multiplied, in vectors of half the width, which
 * take half the time.  Products are added up in the order of the columns, whatever else is
 * multiplied beside them. */
#include "kernels/prefill/bf16_packs.h"
#include "kernels/prefill/panels.h"

enum {
    BLOCK_ROWS = 2 * PACK_ROWS,
    TALL = 8,                /* rows of weights at a time */
    WIDE = 3,                /* packs */
    HALF = PACK_ROWS / 2,    /* rows of half a pack */
    BLOCK_NUMBERS = 1 << 18, /* of activations that stay in a second-level cache */
};

static void nothing(void)
{
}

/* -------------------------------------------------------------------- weights */

struct weights {
    const struct matrix_product *product;
    size_t cols;    /* a multiple of 32 */
    uint16_t *rows; /* [BLOCK_ROWS][row_stride] */
    uint16_t *line; /* see panel_unit_for */
};

/* No multiple of a page, or all rows would meet in the same few places of a cache. */
static inline size_t row_stride(size_t cols)
{
    return cols + PACK_COLS;
}

static void make_row(const struct weights *w, uint16_t *out, size_t half, uint64_t number)
{
    const struct matrix_rows *from = &w->product->from[half];
    struct panel_row row = panel_row_at(from->weight, number);
    row.ahead = from->next * from->weight->row_bytes;
    row.line = w->line;
    NAMED(make_panel_row)(out, &row);
}

/* Rows of a block, and zeroes where there are no more. */
static void make_block(const struct weights *w, size_t block)
{
    uint16_t *out = w->rows;
    for (size_t i = 0; i < BLOCK_ROWS; i++, out += row_stride(w->cols)) {
        const struct matrix_rows *from = &w->product->from[i / PACK_ROWS];
        uint64_t row = from->first + block * from->next + i % PACK_ROWS;
        if (row < from->end)
            make_row(w, out, i / PACK_ROWS, row);
        else
            memset(out, 0, w->cols * sizeof *out);
    }
}

/* ------------------------------------------------------------------- products */

LANES_INLINE __m512i spread_pair(const uint16_t *two)
{
    return _mm512_set1_epi32((int)load_u32(two));
}

/* To sums: [packs][BLOCK_ROWS][16].  `packs` and `half`, whether half a pack follows, are
 * constants where this is inlined. */
LANES_INLINE void multiply_rows(float *out, const uint16_t *w, size_t cols, const uint16_t *pack,
                                size_t packs, bool half)
{
    const size_t stride = row_stride(cols);
    __m512 sums[TALL][WIDE];
    __m256 halves[TALL];
    for (size_t r = 0; r < TALL; r++) {
        for (size_t i = 0; i < packs; i++) sums[r][i] = _mm512_setzero_ps();
        halves[r] = _mm256_setzero_ps();
    }
    for (size_t k = 0; k < cols; k += 2, pack += 2 * PACK_ROWS) {
        __m512bh x[WIDE];
        __m256bh x_half;
        for (size_t i = 0; i < packs; i++)
            x[i] = (__m512bh)_mm512_loadu_si512(pack + i * PACK_ROWS * cols);
        if (half)
            x_half = (__m256bh)_mm256_loadu_si256(
                (const __m256i *)(const void *)(pack + packs * PACK_ROWS * cols));
#pragma GCC unroll 8
        for (size_t r = 0; r < TALL; r++) {
            __m512i both = spread_pair(w + r * stride + k);
            for (size_t i = 0; i < packs; i++)
                sums[r][i] = _mm512_dpbf16_ps(sums[r][i], (__m512bh)both, x[i]);
            if (half)
                halves[r] =
                    _mm256_dpbf16_ps(halves[r], (__m256bh)_mm512_castsi512_si256(both), x_half);
        }
    }
    for (size_t r = 0; r < TALL; r++, out += PACK_ROWS) {
        for (size_t i = 0; i < packs; i++)
            _mm512_storeu_ps(out + i * BLOCK_ROWS * PACK_ROWS, sums[r][i]);
        if (half) _mm256_storeu_ps(out + packs * BLOCK_ROWS * PACK_ROWS, halves[r]);
    }
}

static void multiply_block(float *sums, const struct weights *w, const uint16_t *pack, size_t rows)
{
    size_t packs = (rows + HALF - 1) / PACK_ROWS;
    bool half = packs * PACK_ROWS < rows;
    const uint16_t *weights = w->rows;
    size_t cols = w->cols;
    for (size_t r = 0; r < BLOCK_ROWS;
         r += TALL, weights += TALL * row_stride(cols), sums += TALL * PACK_ROWS) {
        if (packs == 3)
            multiply_rows(sums, weights, cols, pack, 3, false);
        else if (packs == 2 && half)
            multiply_rows(sums, weights, cols, pack, 2, true);
        else if (packs == 2)
            multiply_rows(sums, weights, cols, pack, 2, false);
        else if (packs == 1 && half)
            multiply_rows(sums, weights, cols, pack, 1, true);
        else if (packs == 1)
            multiply_rows(sums, weights, cols, pack, 1, false);
        else
            multiply_rows(sums, weights, cols, pack, 0, true);
    }
}

/* ------------------------------------------------------------------------ all */

/* Results of a block with some rows of activations, from `x` on. */
static void finish_block(const struct matrix_product *p, const struct gated_packs *gated,
                         const float *sums, size_t block, size_t x, size_t rows)
{
    size_t row = block * BLOCK_ROWS;
    for (size_t end = x + rows; x < end; x += PACK_ROWS, sums += BLOCK_ROWS * PACK_ROWS) {
        if (gated) {
            bf16_store_gated(p, gated, sums, sums + PACK_SUMS, block, x);
            continue;
        }
        bf16_add_results(p, sums, row, x);
        if (p->rows - row > PACK_ROWS) bf16_add_results(p, sums + PACK_SUMS, row + PACK_ROWS, x);
    }
}

/* All rows of weights with rows x … end - 1 of activations. */
static void multiply_some(const struct weights *w, const struct gated_packs *gated, size_t x,
                          size_t end)
{
    const struct matrix_product *p = w->product;
    _Alignas(CACHE_LINE) float sums[WIDE * BLOCK_ROWS * PACK_ROWS] = { 0 };
    for (size_t block = 0; block * BLOCK_ROWS < p->rows; block++) {
        make_block(w, block);
        for (size_t at = x; at < end; at += WIDE * PACK_ROWS) {
            size_t rows = min_size(WIDE * PACK_ROWS, end - at);
            multiply_block(sums, w, p->packs + at * w->cols, rows);
            finish_block(p, gated, sums, block, at, rows);
        }
    }
}

static void multiply_all(const struct matrix_product *p, const struct gated_packs *gated)
{
    struct weights w = { .product = p, .cols = matrix_cols(p->from[0].weight->cols) };
    w.rows = p->room;
    w.line = w.rows + BLOCK_ROWS * row_stride(w.cols);
    size_t blocks = (p->x_rows * w.cols + BLOCK_NUMBERS - 1) / BLOCK_NUMBERS;
    size_t rows = align_up((p->x_rows + blocks - 1) / blocks, PACK_ROWS);
    for (size_t x = 0; x < p->x_rows; x += rows)
        multiply_some(&w, gated, x, min_size(p->x_rows, x + rows));
}

static void multiply(const struct matrix_product *p)
{
    multiply_all(p, NULL);
    lanes_streamed();
}

static void multiply_gated(const struct matrix_product *p, uint16_t *packs, size_t first,
                           size_t cols)
{
    multiply_all(p, &(struct gated_packs){ packs, first, cols, p->activation });
}

const struct matrix_unit NAMED(prefill_bf16) = {
    .start_rows = 8,
    .expert_start_rows = 64,
    .words = 1,
    .begin = nothing,
    .end = nothing,
    .make_panel = NAMED(make_panel),
    .make_pack = bf16_make_pack,
    .multiply = multiply,
    .multiply_gated = multiply_gated,
};
