/* units_matrix.c: a matrix unit made of vectors, for CPUs that have no other.
 *
 * 32 rows of weights become f32 in memory, and are multiplied with packs; a lane is a row of
 * activations, a weight is spread over all lanes:
 *
 *     sums[row][lane] += weight[row][k] · pack[k][lane]
 *
 * A few rows and up to three packs at a time, so that all sums stay in registers.  Products are
 * added up in the order of the columns, whatever else is multiplied beside them. */
#include "kernels/lanes_set.h"
#include "kernels/units.h"

#if (defined(__FMA__) || defined(__ARM_FEATURE_DOTPROD)) && !defined(__AVX512BF16__)

enum {
    HALF_ROWS = 16,
    BLOCK_ROWS = 2 * HALF_ROWS,
#if defined(__AVX512F__)
    TALL = 8, /* rows of weights at a time */
    WIDE = 3, /* packs */
#else
    TALL = 4,
    WIDE = 1,
#endif
};

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
    float *pack = (float *)(void *)out;
    memset(pack, 0, PACK_ROWS * matrix_cols(n) * sizeof *pack);
    for (size_t j = 0; j < count; j++)
        for (size_t k = 0; k < n; k++) pack[k * PACK_ROWS + j] = x[j][k];
}

/* ------------------------------------------------------------------- products
 *
 * In vectors as wide as a register: the compiler keeps wider ones in memory. */

#if defined(__AVX512F__)
enum { PART = 16 };
#elif defined(__FMA__)
enum { PART = 8 };
#else
enum { PART = 4 };
#endif
enum { PARTS = PACK_ROWS / PART };

typedef float part __attribute__((vector_size(PART * sizeof(float))));

/* a·b + c, rounded once. */
LANES_INLINE part part_fma(part a, part b, part c)
{
#if defined(__AVX512F__)
    return (part)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (part)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return (part)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#endif
}

/* To sums: [packs][BLOCK_ROWS][LANES].  `packs` is a constant where this is inlined. */
LANES_INLINE void multiply_rows(float *out, const float *w, size_t cols, const float *pack,
                                size_t packs)
{
    part sums[TALL][WIDE * PARTS] = { 0 };
    for (size_t k = 0; k < cols; k++, pack += PACK_ROWS) {
        part x[WIDE * PARTS];
        for (size_t i = 0; i < packs * PARTS; i++)
            memcpy(&x[i], pack + i / PARTS * PACK_ROWS * cols + i % PARTS * PART, sizeof x[i]);
#pragma GCC unroll 16
        for (size_t r = 0; r < TALL; r++) {
            part weight = w[r * cols + k] - (part){ 0 };
            for (size_t i = 0; i < packs * PARTS; i++)
                sums[r][i] = part_fma(weight, x[i], sums[r][i]);
        }
    }
    for (size_t i = 0; i < packs * PARTS; i++)
        for (size_t r = 0; r < TALL; r++)
            memcpy(out + (i / PARTS * BLOCK_ROWS + r) * LANES + i % PARTS * PART, &sums[r][i],
                   sizeof sums[r][i]);
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

/* -------------------------------------------------------------------- results */

static void store_results(const struct matrix_product *p, const float *sums, size_t row, size_t x)
{
    size_t rows = min_size(BLOCK_ROWS, p->rows - row), count = min_size(PACK_ROWS, p->x_rows - x);
    for (size_t j = 0; j < count; j++) {
        float *out = p->out[x + j] + row;
        for (size_t r = 0; r < rows; r++)
            out[r] = p->add ? out[r] + sums[r * LANES + j] : sums[r * LANES + j];
    }
}

static void store_gated(float *pack, const float *gates)
{
    const float *ups = gates + HALF_ROWS * LANES;
    for (size_t i = 0; i < HALF_ROWS * LANES; i += LANES) {
        lanes g = lanes_load(gates + i);
        lanes_store(pack + i, g * lanes_sigmoid(g) * lanes_load(ups + i));
    }
}

/* ------------------------------------------------------------------------ all */

/* Where gated results go: packs of `cols` numbers, from `first` on.  NULL: to product->out. */
struct gated_packs {
    float *packs;
    size_t first, cols;
};

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
            for (size_t i = 0; i < packs; i++) {
                const float *results = sums + i * BLOCK_ROWS * LANES;
                size_t at = x + i * PACK_ROWS;
                if (gated)
                    store_gated(gated->packs + at * gated->cols +
                                    (gated->first + block * HALF_ROWS) * PACK_ROWS,
                                results);
                else
                    store_results(p, results, block * BLOCK_ROWS, at);
            }
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
    multiply_all(p, &(struct gated_packs){ (float *)(void *)packs, first, cols });
}

const struct matrix_unit NAMED(matrix) = {
    .words = 2,
    .begin = nothing,
    .end = nothing,
    .make_pack = make_pack,
    .multiply = multiply,
    .multiply_gated = multiply_gated,
};

#endif
