/* f32.c: a matrix unit made of f32 vectors, for CPUs without quick bf16; where there is an
 * int16.c, it takes the weights that are floats.
 *
 * 32 rows of weights become f32 in memory, and are multiplied with packs; a lane is a row of
 * activations, a weight is spread over all lanes:
 *
 *     sums[row][lane] += weight[row][k] · pack[k][lane]
 *
 * A few rows and up to three packs at a time, so that all sums stay in registers.  Products are
 * added up in the order of the columns, whatever else is multiplied beside them. */
#include "kernels/prefill/f32_packs.h"
#include "kernels/set.h"
#include "kernels/weight_units.h"

static void nothing(void)
{
}

/* -------------------------------------------------------------------- weights */

LANES_INLINE void spread_unit(float *out, const struct unit *u, size_t count, int group)
{
    uint8_t q[UNIT];
    float scales[LANES], mins[LANES];
    memcpy(q, u->q, sizeof q);
    lanes_store(scales, group == 32 ? u->both : u->scale);
    lanes_store(mins, group == 32 ? u->both : u->min);
    for (size_t i = 0; i < count; i += LANES) {
        byte_lanes numbers;
        memcpy(&numbers, q + i, sizeof numbers);
        size_t g = i / (size_t)group;
        lanes_store(out + i, lanes_fma(lanes_from_bytes(numbers), lanes_all(scales[g]),
                                       lanes_all(mins[group == 32 ? 8 + g : g])));
    }
}

#define DEFINE_SPREAD(id, name, below, group, bytes)                                               \
    static void spread_##name(float *out, struct unit_place at)                                    \
    {                                                                                              \
        struct unit unit;                                                                          \
        for (size_t c = 0; c < at.weight->cols; c += UNIT, at.index++) {                           \
            at.count = min_size(UNIT, at.weight->cols - c);                                        \
            load_##name(&unit, &at);                                                               \
            spread_unit(out + c, &unit, at.count, group);                                          \
        }                                                                                          \
    }
UNIT_FORMATS(DEFINE_SPREAD)

/* A row in f32. */
static void load_row(float *out, const struct weight *weight, uint64_t row)
{
    static void (*const functions[FORMAT_COUNT])(float *, struct unit_place) = {
#define SPREAD(id, name, below, group, bytes) [FORMAT_##id] = spread_##name,
        UNIT_FORMATS(SPREAD)
    };
    if (kernels_have_integers(&NAMED(kernels), weight))
        functions[weight->format](out, unit_row(weight, row));
    else
        kernels_dequantise(&NAMED(kernels), out, weight, row);
}

/* Rows of a block, and zeroes where there are no more columns or rows. */
static void load_block(float *out, const struct matrix_product *p, size_t block, size_t cols)
{
    for (size_t i = 0; i < BLOCK_ROWS; i++, out += cols) {
        const struct matrix_rows *from = &p->from[i / HALF_ROWS];
        uint64_t row = from->first + block * from->next + i % HALF_ROWS;
        size_t count = row < from->end ? from->weight->cols : 0;
        if (count > 0) load_row(out, from->weight, row);
        memset(out + count, 0, (cols - count) * sizeof *out);
    }
}

/* ---------------------------------------------------------------------- packs */

static void make_pack(uint16_t *out, const float *const *x, size_t count, size_t n)
{
    make_float_pack((float *)(void *)out, x, count, n);
}

/* ------------------------------------------------------------------- products */

/* To sums: [packs][BLOCK_ROWS][LANES].  `packs` is a constant where this is inlined. */
LANES_INLINE void multiply_rows(float *out, const float *w, size_t cols, const float *pack,
                                size_t packs)
{
    part sums[TALL][WIDE * PARTS] = { 0 };
    for (size_t k = 0; k < cols; k++, pack += PACK_ROWS) {
        part x[WIDE * PARTS];
        for (size_t i = 0; i < packs * PARTS; i++)
            x[i] = part_load(pack + i / PARTS * PACK_ROWS * cols + i % PARTS * PART);
#pragma GCC unroll 16
        for (size_t r = 0; r < TALL; r++) {
            part weight = part_all(w[r * cols + k]);
            for (size_t i = 0; i < packs * PARTS; i++)
                sums[r][i] = part_fma(weight, x[i], sums[r][i]);
        }
    }
    for (size_t i = 0; i < packs * PARTS; i++)
        for (size_t r = 0; r < TALL; r++)
            part_store(out + (i / PARTS * BLOCK_ROWS + r) * LANES + i % PARTS * PART, sums[r][i]);
}

static void multiply_block(float *sums, const float *w, size_t cols, const float *pack,
                           size_t packs)
{
    for (size_t r = 0; r < BLOCK_ROWS; r += TALL, w += TALL * cols, sums += TALL * LANES) {
        if (packs == WIDE)
            multiply_rows(sums, w, cols, pack, WIDE);
        else if (WIDE > 2 && packs == 2)
            multiply_rows(sums, w, cols, pack, 2);
        else
            multiply_rows(sums, w, cols, pack, 1);
    }
}

/* ------------------------------------------------------------------------ all */

static void multiply_all(const struct matrix_product *p, const struct gated_packs *gated)
{
    float sums[WIDE * BLOCK_ROWS * LANES], *w = p->room;
    const float *all = (const float *)(const void *)p->packs;
    size_t cols = matrix_cols(p->from[0].weight->cols);
    for (size_t block = 0; block * BLOCK_ROWS < p->rows; block++) {
        load_block(w, p, block, cols);
        for (size_t x = 0; x < p->x_rows; x += WIDE * PACK_ROWS) {
            size_t left = (p->x_rows - x + PACK_ROWS - 1) / PACK_ROWS;
            size_t packs = min_size(WIDE, left);
            multiply_block(sums, w, cols, all + x * cols, packs);
            for (size_t i = 0; i < packs; i++)
                finish_block(p, gated, sums + i * BLOCK_ROWS * LANES, block, x + i * PACK_ROWS);
        }
    }
}

static void multiply(const struct matrix_product *p)
{
    multiply_all(p, NULL);
}

static void multiply_gated(const struct matrix_product *p, uint16_t *packs, size_t first,
                           size_t cols)
{
    multiply_all(p, &(struct gated_packs){ (float *)(void *)packs, first, cols, p->activation });
}

const struct matrix_unit NAMED(prefill_f32) = {
    .start_rows = 32,
    .expert_start_rows = 32,
    .words = 2,
    .begin = nothing,
    .end = nothing,
    .make_pack = make_pack,
    .multiply = multiply,
    .multiply_gated = multiply_gated,
};
