/* int16.c: a matrix unit that multiplies in 16-bit integers, for CPUs without quick bf16.
 *
 * A vector has twice as many numbers of 16 bits as floats, and two products are added up by the
 * instruction that makes them.  32 rows of weights become such numbers in memory; activations keep
 * 16 bits, with a scale for 32 of them:
 *
 *     dot[row][lane]   = Σ weight[row][k] · pack[k][lane]                     exact, of one group
 *     sums[row][lane] += dot · (weight scale · activation scale) + min · Σ x
 *
 * Groups are added up in the order of the columns, whatever else is multiplied beside them. */
#include "kernels/prefill/f32_packs.h"
#include "kernels/set.h"
#include "kernels/weight_units.h"

enum { PACK_COLS = 32 }; /* of a block of a pack */

/* 32 columns of 16 rows of activations, in the place of as many floats. */
struct pack_block {
    int16_t x[PACK_COLS / 2][PACK_ROWS][2]; /* pairs of columns side by side */
    float scales[PACK_ROWS];
    float sums[PACK_ROWS];       /* Σ x */
    float sums_16[2][PACK_ROWS]; /* Σ x of the first and the last 16 columns */
    float unused[3 * PACK_COLS * PACK_ROWS / 8];
};
_Static_assert(sizeof(struct pack_block) == PACK_COLS * PACK_ROWS * sizeof(float),
               "a block of integers takes the place of one of floats");

static void nothing(void)
{
}

/* ---------------------------------------------------------------------- packs */

static const float largest_integer = 32767.0f;

/* The numbers where the condition's are all ones, else 0. */
LANES_INLINE part part_where(int_part condition, part v)
{
    return (part)((int_part)v & condition);
}

LANES_INLINE part part_greatest(part a, part b)
{
    int_part greater = a > b;
    return (part)(((int_part)a & greater) | ((int_part)b & ~greater));
}

/* What is known of a row's 32 numbers. */
struct range {
    part inverse, scale;
    int_part finite;
};

LANES_INLINE struct range range_of(const float *x)
{
    part largest = { 0 }, spoilt = { 0 }; /* spoilt: 0, or NaN */
    for (size_t k = 0; k < PACK_COLS; k++) {
        part number = part_load(x + k * PACK_ROWS);
        largest = part_greatest((part)((int_part)number & 0x7fffffff), largest);
        spoilt += number - number;
    }
    part inverse = largest_integer / largest;
    int_part finite = spoilt == spoilt;
    return (struct range){ .inverse = part_where((inverse < 3e38f) & finite, inverse),
                           .scale = largest / largest_integer + spoilt,
                           .finite = finite };
}

LANES_INLINE int_part to_integers(const float *x, const struct range *range)
{
    /* Adding and taking off 1.5·2^23 rounds to the nearest whole number. */
    const float magic = 12582912.0f;
    part number = part_where(range->finite, part_load(x));
    return __builtin_convertvector((number * range->inverse + magic) - magic, int_part);
}

/* Floats, [32][16], of rows `at` … become a part of a block.  What is not finite makes its row's
 * numbers NaN. */
LANES_INLINE void close_part(struct pack_block *block, const float *x, size_t at)
{
    struct range range = range_of(x + at);
    int_part sums[2] = { { 0 } };
    for (size_t k = 0; k < PACK_COLS; k += 2) {
        int_part first = to_integers(x + k * PACK_ROWS + at, &range);
        int_part second = to_integers(x + (k + 1) * PACK_ROWS + at, &range);
        int_part pair = (first & 0xffff) | second << 16;
        memcpy(block->x[k / 2][at], &pair, sizeof pair);
        sums[k / 16] += first + second;
    }
    part halves[2] = { __builtin_convertvector(sums[0], part) * range.scale,
                       __builtin_convertvector(sums[1], part) * range.scale };
    part all = __builtin_convertvector(sums[0] + sums[1], part) * range.scale;
    part_store(block->scales + at, range.scale);
    part_store(block->sums + at, all);
    for (size_t h = 0; h < 2; h++) part_store(block->sums_16[h] + at, halves[h]);
}

/* In the place of the floats. */
static void close_block(struct pack_block *block)
{
    float x[PACK_COLS * PACK_ROWS];
    memcpy(x, block, sizeof x);
    for (size_t at = 0; at < PACK_ROWS; at += PART) close_part(block, x, at);
}

static void close_pack(uint16_t *pack, size_t cols)
{
    struct pack_block *blocks = (struct pack_block *)(void *)pack;
    for (size_t b = 0; b < cols / PACK_COLS; b++) close_block(&blocks[b]);
}

static void make_pack(uint16_t *out, const float *const *x, size_t count, size_t n)
{
    make_float_pack((float *)(void *)out, x, count, n);
    close_pack(out, matrix_cols(n));
}

/* -------------------------------------------------------------------- weights */

/* 32 columns of 16 rows of weights, in the order in which they are multiplied. */
struct weight_block {
    int16_t numbers[HALF_ROWS][PACK_COLS];
    float scales[2][HALF_ROWS], mins[2][HALF_ROWS]; /* of groups of 16; the first, if they are 32 */
};

/* Half of a block of rows. */
struct weights {
    struct weight_block *blocks; /* [cols / PACK_COLS] */
    size_t cols;
    int group; /* numbers that share a scale: 16 or 32 */
};

LANES_INLINE void spread_unit(struct weight_block *out, size_t row, const struct unit *u,
                              size_t count, int group)
{
    uint8_t q[UNIT];
    float s[LANES], m[LANES];
    memcpy(q, u->q, sizeof q);
    lanes_store(s, group == 32 ? u->both : u->scale);
    lanes_store(m, group == 32 ? u->both : u->min);
    size_t groups = PACK_COLS / (size_t)group, mins = group == 32 ? 8 : 0;
    for (size_t b = 0; b < count / PACK_COLS; b++, out++) {
        for (size_t i = 0; i < PACK_COLS; i++) out->numbers[row][i] = q[PACK_COLS * b + i];
        for (size_t g = 0; g < groups; g++) {
            out->scales[g][row] = s[groups * b + g];
            out->mins[g][row] = m[mins + groups * b + g];
        }
    }
}

#define DEFINE_SPREAD(id, name, below, group, bytes)                                               \
    static void spread_##name(struct weight_block *out, size_t row, struct unit_place at)          \
    {                                                                                              \
        struct unit unit;                                                                          \
        for (size_t c = 0; c < at.weight->cols; c += UNIT, at.index++) {                           \
            at.count = min_size(UNIT, at.weight->cols - c);                                        \
            load_##name(&unit, &at);                                                               \
            spread_unit(out + c / PACK_COLS, row, &unit, at.count, group);                         \
        }                                                                                          \
    }
UNIT_FORMATS(DEFINE_SPREAD)

static const struct spread {
    void (*row)(struct weight_block *out, size_t row, struct unit_place at);
    int group;
} spreads[FORMAT_COUNT] = {
#define SPREAD(id, name, below, group, bytes) [FORMAT_##id] = { spread_##name, group },
    UNIT_FORMATS(SPREAD)
};

/* A row's bytes, which the next block will read. */
static void fetch_row(const struct weight *weight, uint64_t row)
{
    const uint8_t *from = weight->values + row * weight->row_bytes;
    for (size_t line = 0; line < weight->row_bytes; line += CACHE_LINE)
        __builtin_prefetch(from + line, 0, 2);
}

/* The rows of half a block, and zeroes where there are no more. */
static void load_half(struct weights *w, const struct matrix_rows *from, size_t block)
{
    const struct spread *spread = &spreads[from->weight->format];
    uint64_t first = from->first + block * from->next;
    w->group = spread->group;
    if (first + HALF_ROWS > from->end)
        memset(w->blocks, 0, w->cols / PACK_COLS * sizeof *w->blocks);
    for (uint64_t row = first; row < first + HALF_ROWS && row < from->end; row++) {
        fetch_row(from->weight, row + from->next); /* behind the end that does nothing */
        spread->row(w->blocks, (size_t)(row - first), unit_row(from->weight, row));
    }
}

/* ------------------------------------------------------------------- products */

/* A block of weights with the same columns of some packs. */
struct tile {
    const struct weight_block *weights;
    const struct pack_block *packs;
    size_t pack_step; /* from a pack's block to that of the next pack */
};

/* The products of one group: of rows from `row` on, and pairs of columns from `pair` on.  The
 * counts, `parts` of packs and pairs, are constants where this is inlined. */
LANES_INLINE void multiply_group(int_part dots[TALL][WIDE * PARTS], const struct tile *t,
                                 size_t parts, size_t row, size_t pair, size_t pairs)
{
    for (size_t r = 0; r < TALL; r++)
        for (size_t i = 0; i < parts; i++) dots[r][i] = (int_part){ 0 };
#pragma GCC unroll 4
    for (size_t k = pair; k < pair + pairs; k++) {
        int_part x[WIDE * PARTS];
        for (size_t i = 0; i < parts; i++)
            memcpy(&x[i], t->packs[i / PARTS * t->pack_step].x[k][i % PARTS * PART], sizeof x[i]);
#pragma GCC unroll 8
        for (size_t r = 0; r < TALL; r++) {
            int32_t two;
            memcpy(&two, &t->weights->numbers[row + r][2 * k], sizeof two);
            int_part both = two - (int_part){ 0 };
            for (size_t i = 0; i < parts; i++) dots[r][i] = part_add_pairs(dots[r][i], both, x[i]);
        }
    }
}

/* To sums: [packs][BLOCK_ROWS][LANES], from the tile's first row on. */
LANES_INLINE void add_group(float *sums, int_part dots[TALL][WIDE * PARTS], const struct tile *t,
                            size_t parts, size_t row, size_t g, int group)
{
    for (size_t i = 0; i < parts; i++) {
        const struct pack_block *pack = &t->packs[i / PARTS * t->pack_step];
        size_t at = i % PARTS * PART;
        part x_scale = part_load(pack->scales + at);
        part x_sum = part_load((group == 32 ? pack->sums : pack->sums_16[g]) + at);
#pragma GCC unroll 8
        for (size_t r = 0; r < TALL; r++) {
            float *out = sums + (i / PARTS * BLOCK_ROWS + row + r) * LANES + at;
            part sum = part_fma(part_all(t->weights->mins[g][row + r]), x_sum, part_load(out));
            part scale = t->weights->scales[g][row + r] * x_scale;
            sum = part_fma(__builtin_convertvector(dots[r][i], part), scale, sum);
            part_store(out, sum);
        }
    }
}

LANES_INLINE void multiply_tiles(float *sums, const struct weights *w, struct tile t, size_t parts,
                                 int group)
{
    size_t groups = PACK_COLS / (size_t)group, pairs = (size_t)group / 2;
    for (size_t b = 0; b < w->cols / PACK_COLS; b++, t.weights++, t.packs++)
        for (size_t row = 0; row < HALF_ROWS; row += TALL)
            for (size_t g = 0; g < groups; g++) {
                int_part dots[TALL][WIDE * PARTS];
                multiply_group(dots, &t, parts, row, g * pairs, pairs);
                add_group(sums, dots, &t, parts, row, g, group);
            }
}

/* With constants for what registers depend on. */
static void multiply_half(float *sums, const struct weights *w, const struct pack_block *packs,
                          size_t parts)
{
    struct tile t = { w->blocks, packs, w->cols / PACK_COLS };
    if (parts == 1 && w->group == 32)
        multiply_tiles(sums, w, t, 1, 32);
    else if (parts == 1)
        multiply_tiles(sums, w, t, 1, 16);
    else if (parts == 2 && w->group == 32)
        multiply_tiles(sums, w, t, 2, 32);
    else if (parts == 2)
        multiply_tiles(sums, w, t, 2, 16);
    else if (WIDE * PARTS > 2 && w->group == 32)
        multiply_tiles(sums, w, t, 3, 32);
    else if (WIDE * PARTS > 2)
        multiply_tiles(sums, w, t, 3, 16);
}

/* ------------------------------------------------------------------------ all */

static void multiply_all(const struct matrix_product *p, const struct gated_packs *gated)
{
    _Alignas(CACHE_LINE) float sums[WIDE * BLOCK_ROWS * LANES];
    const struct pack_block *packs = (const struct pack_block *)(const void *)p->packs;
    size_t cols = p->from[0].weight->cols, step = cols / PACK_COLS;
    struct weights w[2] = { { p->room, cols, 0 },
                            { (struct weight_block *)p->room + step, cols, 0 } };
    for (size_t block = 0; block * BLOCK_ROWS < p->rows; block++) {
        for (int half = 0; half < 2; half++) load_half(&w[half], &p->from[half], block);
        for (size_t x = 0; x < p->x_rows; x += WIDE * PACK_ROWS) {
            size_t rows = min_size(WIDE * PACK_ROWS, p->x_rows - x);
            memset(sums, 0, sizeof sums);
            for (size_t half = 0; half < 2; half++)
                multiply_half(sums + half * HALF_ROWS * LANES, &w[half],
                              packs + x / PACK_ROWS * step, (rows + PART - 1) / PART);
            for (size_t i = 0; i * PACK_ROWS < rows; i++)
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

const struct matrix_unit NAMED(prefill_int16) = {
    .words = 2,
    .begin = nothing,
    .end = nothing,
    .make_pack = make_pack,
    .close_pack = close_pack,
    .multiply = multiply,
    .multiply_gated = multiply_gated,
};
