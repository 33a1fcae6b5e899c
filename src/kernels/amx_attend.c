/* amx_attend.c: attention of prompt rows on the matrix unit, in bf16.
 *
 * Everything is transposed, so that a query row is a lane from the scores to the sums and
 * the softmax never adds across lanes:
 *
 *     scores[64][16]    = K [64][width]  · Qᵀ [width][16]     K and Vᵀ are A operands,
 *     sums[value][16]  += Vᵀ [value][64] · P [64][16]         Q and P are B operands
 *
 * A tile register holds 16 rows of 16 dwords; a dword of an operand is two numbers that
 * follow each other in the summed direction.  Operands are stored as such blocks of 1 KiB,
 * one behind the other. */
#include "kernels/attend.h"
#include "kernels/lanes_set.h"
#include "kernels/lanes_transpose.h"

#include <math.h>

enum {
    BLOCK = 256, /* dwords of an operand block, floats of a block of sums */
    STEP = 32,   /* channels or positions that one operand block sums over */
    TILE_STEPS = ATTEND_TILE / STEP,
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
    return count >= 16 ? 0xffff : (__mmask16)((1u << count) - 1);
}

/* An A operand block from 32 rows of f16: its 16 rows are their columns.  Rows from
 * `rows` on and columns from `columns` on are zeroes. */
LANES_INLINE void pack_columns(uint32_t *out, const uint16_t *in, size_t stride, size_t rows,
                               size_t columns)
{
    __m512i r[16];
    __mmask16 mask = first_lanes(columns);
    for (size_t i = 0; i < 16; i++) {
        const uint16_t *low = in + 2 * i * stride;
        r[i] = pair(load_f16(low, 2 * i < rows ? mask : 0),
                    load_f16(low + stride, 2 * i + 1 < rows ? mask : 0));
    }
    transpose_dwords(r);
    store_block(out, r);
}

/* keys: [4][steps] blocks of 16 positions x 32 channels */
static void pack_keys(const struct attend_layout *l, const struct attend_block *b,
                      const struct attend_tile *tile)
{
    size_t steps = l->key_padded / STEP;
    uint32_t *out = (uint32_t *)(void *)l->keys;
    for (size_t p = 0; p < ATTEND_TILE / 16; p++)
        for (size_t s = 0; s < steps; s++, out += BLOCK)
            pack_columns(out, tile->keys + s * STEP * ATTEND_TILE + 16 * p, ATTEND_TILE,
                         b->key_width - s * STEP, 16);
}

/* values: [value blocks][2] blocks of 16 channels x 32 positions.  What is behind the last
 * position may be anything and becomes zero: its weights are zeroes, too. */
static void pack_values(const struct attend_layout *l, const struct attend_block *b,
                        const struct attend_tile *tile)
{
    uint32_t *out = (uint32_t *)(void *)l->values;
    for (size_t c = 0; c < l->value_padded; c += 16)
        for (size_t s = 0; s < TILE_STEPS; s++, out += BLOCK) {
            size_t rows = tile->count > s * STEP ? tile->count - s * STEP : 0;
            size_t columns = b->value_width > c ? b->value_width - c : 0;
            pack_columns(out, tile->values + s * STEP * b->value_width + c, b->value_width, rows,
                         columns);
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

void NAMED(amx_attend_begin)(const struct attend_block *b)
{
    struct attend_layout l = attend_layout(b);
    size_t steps = l.key_padded / STEP;
    uint32_t *out = (uint32_t *)(void *)l.queries;
    for (size_t g = 0; g < l.groups; g++)
        for (size_t s = 0; s < steps; s++, out += BLOCK)
            pack_queries(out, b->queries + g * ATTEND_LANES, b->row_count - g * ATTEND_LANES,
                         s * STEP, b->key_width);
    memset(l.sums, 0, l.groups * l.value_padded * ATTEND_LANES * sizeof(float));
    memset(l.weight_sums, 0, l.groups * ATTEND_LANES * sizeof(float));
    for (size_t i = 0; i < l.groups * ATTEND_LANES; i++) l.greatest[i] = -INFINITY;
}

/* ------------------------------------------------------------------ softmax */

/* 2^x for x ≤ 0, to 4e-6: enough for weights that are rounded to bf16. 2^0 is 1. */
LANES_INLINE __m512 exp2_rough(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_set1_ps(-200.0f));
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(0.00978291253f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0559768836f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240207111f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693113604f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* Positions that a lane must not see score -∞. */
static void hide_later(float *scores, size_t rows, __m512i visible)
{
    for (size_t i = 0; i < rows; i++) {
        __mmask16 later = _mm512_cmple_epi32_mask(visible, _mm512_set1_epi32((int)i));
        _mm512_mask_store_ps(scores + 16 * i, later, _mm512_set1_ps(-INFINITY));
    }
}

/* One group's scores [rows][16] become weights, a B operand of rows / 32 blocks. */
static void weigh(const struct attend_layout *l, size_t g, const float *scores, size_t rows,
                  float factor)
{
    __m512 best[4];
    float *greatest = l->greatest + g * ATTEND_LANES;
    __m512 before = _mm512_load_ps(greatest), c = _mm512_set1_ps(factor);
    for (size_t j = 0; j < 4; j++) best[j] = _mm512_load_ps(scores + 16 * j);
    for (size_t i = 4; i < rows; i += 4)
        for (size_t j = 0; j < 4; j++)
            best[j] = _mm512_max_ps(best[j], _mm512_load_ps(scores + 16 * (i + j)));
    __m512 most = _mm512_max_ps(_mm512_max_ps(best[0], best[1]), _mm512_max_ps(best[2], best[3]));
    /* Sums are only scaled down when a score outgrows the old greatest by a factor of 2^8:
     * weights above 1 do no harm, and passes over the sums are dear. */
    __m512 growth = _mm512_mul_ps(_mm512_sub_ps(most, before), c);
    __mmask16 grown = _mm512_cmp_ps_mask(growth, _mm512_set1_ps(8.0f), _CMP_NLE_UQ);
    most = _mm512_mask_mov_ps(before, grown, most);
    __m512 shift = _mm512_mul_ps(most, c);

    uint32_t *out = (uint32_t *)(void *)l->weights + g * TILE_STEPS * BLOCK;
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    for (size_t i = 0; i < rows; i += 2) {
        __m512 p0 = exp2_rough(_mm512_fmsub_ps(_mm512_load_ps(scores + 16 * i), c, shift));
        __m512 p1 = exp2_rough(_mm512_fmsub_ps(_mm512_load_ps(scores + 16 * i + 16), c, shift));
        sum0 = _mm512_add_ps(sum0, p0);
        sum1 = _mm512_add_ps(sum1, p1);
        _mm512_store_si512(out + 8 * i, pair(p0, p1));
    }
    __m512 keep = exp2_rough(_mm512_mul_ps(_mm512_sub_ps(before, most), c)); /* mostly 1 */
    float *weight_sums = l->weight_sums + g * ATTEND_LANES;
    __m512 all = _mm512_fmadd_ps(_mm512_load_ps(weight_sums), keep, _mm512_add_ps(sum0, sum1));
    _mm512_store_ps(weight_sums, all);
    _mm512_store_ps(greatest, most);
    _mm512_store_ps(l->keep + g * ATTEND_LANES, keep);
}

/* ---------------------------------------------------------------- the products */

/* All eight tile registers are 16 rows of 64 bytes.  Constant and not on the stack: the
 * compiler's intrinsic says that it reads 8 of the 64 bytes. */
static void configure_tiles(void)
{
    static const struct {
        _Alignas(64) uint8_t palette;
        uint8_t start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1,
                 .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                 .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    _tile_loadconfig(&config);
}

/* A block of memory as an operand, or as sums. */
#define LOAD(tile, address)  _tile_loadd(tile, address, 64)
#define STORE(tile, address) _tile_stored(tile, address, 64)

/* scores [64][16] of group g and, with `two`, of the next: 32 positions at a time. */
LANES_INLINE void score(const struct attend_layout *l, float *scores, size_t g, size_t rows,
                        bool two)
{
    size_t steps = l->key_padded / STEP;
    const uint32_t *q = (const uint32_t *)(const void *)l->queries + g * steps * BLOCK;
    const uint32_t *k = (const uint32_t *)(const void *)l->keys;
    for (size_t r = 0; r < rows; r += 32, k += 2 * steps * BLOCK) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (size_t s = 0; s < steps; s++) {
            LOAD(4, k + s * BLOCK);
            LOAD(6, q + s * BLOCK);
            _tile_dpbf16ps(0, 4, 6);
            if (two) LOAD(7, q + (steps + s) * BLOCK);
            if (two) _tile_dpbf16ps(1, 4, 7);
            LOAD(5, k + (steps + s) * BLOCK);
            _tile_dpbf16ps(2, 5, 6);
            if (two) _tile_dpbf16ps(3, 5, 7);
        }
        float *out = scores + r * 16, *beside = out + ATTEND_TILE * 16;
        STORE(0, out);
        STORE(2, out + BLOCK);
        if (two) STORE(1, beside);
        if (two) STORE(3, beside + BLOCK);
    }
}

LANES_INLINE void scale_sums(const struct attend_layout *l, size_t g)
{
    float *sums = l->sums + g * l->value_padded * 16;
    __m512 keep = _mm512_load_ps(l->keep + g * 16);
    if (_mm512_cmpneq_ps_mask(keep, _mm512_set1_ps(1.0f)) == 0) return;
    for (size_t i = 0; i < l->value_padded; i++)
        _mm512_store_ps(sums + 16 * i, _mm512_mul_ps(_mm512_load_ps(sums + 16 * i), keep));
}

/* sums += Vᵀ·P, weights staying in tile registers. */
LANES_INLINE void add(const struct attend_layout *l, size_t g, size_t rows, bool two)
{
    const uint32_t *p = (const uint32_t *)(const void *)l->weights + g * TILE_STEPS * BLOCK;
    const uint32_t *v = (const uint32_t *)(const void *)l->values;
    float *sums = l->sums + g * l->value_padded * 16, *beside = sums + l->value_padded * 16;
    scale_sums(l, g);
    if (two) scale_sums(l, g + 1);
    LOAD(4, p);
    LOAD(6, p + BLOCK);
    if (two) LOAD(5, p + TILE_STEPS * BLOCK);
    if (two) LOAD(7, p + (TILE_STEPS + 1) * BLOCK);
    for (size_t c = 0; c < l->value_padded; c += 16, v += TILE_STEPS * BLOCK) {
        LOAD(0, sums + 16 * c);
        if (two) LOAD(1, beside + 16 * c);
        LOAD(2, v);
        _tile_dpbf16ps(0, 2, 4);
        if (two) _tile_dpbf16ps(1, 2, 5);
        if (rows > STEP) {
            LOAD(3, v + BLOCK);
            _tile_dpbf16ps(0, 3, 6);
            if (two) _tile_dpbf16ps(1, 3, 7);
        }
        STORE(0, sums + 16 * c);
        if (two) STORE(1, beside + 16 * c);
    }
}

/* ---------------------------------------------------------------------- a tile */

static uint32_t last_position(const struct attend_block *b, size_t g)
{
    return b->positions[min_size((g + 1) * ATTEND_LANES, b->row_count) - 1];
}

/* Rows of scores that are needed for groups up to g: whole steps. */
static size_t rows_for(const struct attend_block *b, const struct attend_tile *tile, size_t g)
{
    return align_up(min_size(ATTEND_TILE, last_position(b, g) - tile->first + 1), STEP);
}

/* Lane by lane, how many positions of the tile it sees. */
LANES_INLINE __m512i visible(const struct attend_block *b, const struct attend_tile *tile, size_t g)
{
    int32_t count[ATTEND_LANES];
    for (size_t i = 0; i < ATTEND_LANES; i++) {
        size_t lane = min_size(g * ATTEND_LANES + i, b->row_count - 1);
        count[i] = (int32_t)(b->positions[lane] - tile->first + 1);
    }
    return _mm512_loadu_si512(count);
}

static void weigh_group(const struct attend_layout *l, const struct attend_block *b,
                        const struct attend_tile *tile, size_t g, float *scores, size_t rows)
{
    const float log2e = 1.44269504f;
    if (b->positions[g * ATTEND_LANES] < tile->first + rows - 1)
        hide_later(scores, rows, visible(b, tile, g));
    weigh(l, g, scores, rows, b->scale * log2e);
}

void NAMED(amx_attend_tile)(const struct attend_block *b, const struct attend_tile *tile)
{
    struct attend_layout l = attend_layout(b);
    size_t first = 0;
    while (first < l.groups && last_position(b, first) < tile->first) first++;
    if (first == l.groups) return;
    configure_tiles();
    pack_keys(&l, b, tile);
    pack_values(&l, b, tile);
    /* Many scores before many weights: changing between the matrix unit and lanes takes time,
     * and so many scores stay in the second-level cache. */
    for (size_t done = first, end; done < l.groups; done = end) {
        end = min_size(done + ATTEND_BATCH, l.groups);
        for (size_t g = done; g < end; g += 2) {
            float *scores = l.scores + (g - done) * ATTEND_TILE * 16;
            if (g + 1 < end)
                score(&l, scores, g, rows_for(b, tile, g + 1), true);
            else
                score(&l, scores, g, rows_for(b, tile, g), false);
        }
        for (size_t g = done; g < end; g++)
            weigh_group(&l, b, tile, g, l.scores + (g - done) * ATTEND_TILE * 16,
                        rows_for(b, tile, min_size(done + ((g - done) | 1), end - 1)));
    }
    for (size_t g = first; g < l.groups; g += 2) {
        if (g + 1 < l.groups)
            add(&l, g, rows_for(b, tile, g + 1), true);
        else
            add(&l, g, rows_for(b, tile, g), false);
    }
    _tile_release();
}
