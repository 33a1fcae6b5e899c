/* kernels.h: the arithmetic, as tables of pure functions.
 *
 * One table per instruction set; which one runs is chosen once, when an engine
 * is opened.  Kernels see pointers and sizes, never a model, and have no state.
 *
 * The sets are one source compiled for each instruction set.  What the reference uses
 * (lanes_*.c) goes through 16 lanes of f32 that are added in a fixed order, and nothing is
 * contracted into fused operations: every set gives the same bits.  So do products in
 * integers (units_*.c).  Attention, the chunked delta rule and products of prompts (*_matrix.c) are
 * within the bounds of docs/numerics.md instead. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "base/activation.h"
#include "base/machine.h"
#include "kernels/attention/attention.h"
#include "kernels/delta/delta.h"
#include "quant/format.h"

/* out[j][i] = w_i · x_j: a few rows of a matrix with a few rows of activations.
 * The bits of one product do not depend on how many others are asked for. */
struct dot_block {
    const float *w;        /* [w_rows][n] */
    const float *const *x; /* x_rows pointers to n floats */
    float *const *out;     /* x_rows pointers to w_rows floats */
    size_t w_rows, x_rows, n;
};

/* Activations as integers, 256 at a time: x = scale · (128·high + low), a scale for 32 numbers.
 * That keeps 15 bits and more, twice the products of one byte each: the weights wait for
 * the memory bus anyway (docs/numerics.md). */
enum { UNIT = 256 };
struct integer_unit {
    int8_t high[UNIT], low[UNIT];
    float scales[UNIT / 32];  /* of numbers 32i … 32i + 31 */
    float sums[UNIT / 32];    /* Σ x of the same */
    float sums_16[UNIT / 16]; /* Σ x of numbers 16i … 16i + 15 */
};

/* The order of the numbers in a unit's high and low, not of its scales and sums.  A product of a
 * group is exact, so a kernel set may have them as they meet a format's weights after the fewest
 * instructions.  Number n, in eights e = n / 8:
 *
 *     row      as in the row
 *     k_64     e = 8c + 4p + i (c, i below 4) at 16(i % 2) + 8(p ^ i / 2) + 4(c % 2) + 2p + c / 2
 *     k_32     the same eights at 16p + 4i + c
 *     halves   e = 16h + 8p + 2j + i (j below 4) at 16p + 8i + 2j + h
 *     pairs    of each 128 the even numbers, then the odd ones */
enum unit_order {
    UNIT_ORDER_ROW,
    UNIT_ORDER_K_64,
    UNIT_ORDER_K_32,
    UNIT_ORDER_HALVES,
    UNIT_ORDER_PAIRS,
    UNIT_ORDER_COUNT
};

/* Units of a row of n numbers; the last one is filled up with zeroes. */
static inline size_t units_of(size_t n)
{
    return (n + UNIT - 1) / UNIT;
}

/* out[j][i] = row (first + i) of `weight` · x_j, for `count` rows.
 * The bits of one product do not depend on the others, nor on the instruction set. */
struct integer_block {
    const struct weight *weight;
    uint64_t first;
    size_t count;
    const struct integer_unit *const *x; /* x_rows pointers to units_of(cols), in the order of
                                            kernels_unit_order */
    float *const *out;                   /* x_rows pointers to `count` floats */
    size_t x_rows;
    bool add; /* to what is there */
};
typedef void (*integer_dot_function)(const struct integer_block *block);

/* The same with a matrix and activations in floats. */
struct float_block {
    const struct weight *weight;
    uint64_t first;
    size_t count;
    const float *const *x; /* x_rows pointers to cols floats */
    float *const *out;     /* x_rows pointers to `count` floats */
    size_t x_rows;
    bool add; /* to what is there */
};
typedef void (*float_dot_function)(const struct float_block *block);

/* A matrix unit multiplies rows of weights with packs of activations, both in bf16 if the CPU
 * multiplies such numbers:
 *
 *     panel   [rows][stride]      rows of a matrix, cols numbers each
 *     pack    [cols / 2][16][2]   16 rows of activations, pairs of numbers side by side
 *
 * cols are filled up with zeroes to a multiple of 32.  The bits of one product do not
 * depend on the others. */
enum { PACK_ROWS = 16 };

/* Rows first … end - 1 of a matrix, 16 at a time: those that follow are `next` rows further. */
struct matrix_rows {
    const struct weight *weight;
    uint64_t first, end;
    size_t next;
};

/* Of 32 rows of a block, 16 are from[0]'s and 16 from[1]'s, which have the same cols. */
struct matrix_product {
    struct matrix_rows from[2];
    size_t rows;                /* in all blocks */
    const uint16_t *packs;      /* one after the other */
    size_t x_rows;              /* rows in the packs */
    float *const *out;          /* x_rows pointers to `rows` floats */
    bool add;                   /* to what is there */
    enum activation activation; /* of a gated product */
    /* Numbers that are added to each row's results: the first for `rows` of them; of a gated product
     * for gate's and for up's, with zeroes up to whole blocks.  NULL: none. */
    const float *addends[2];
    void *room; /* matrix_room bytes, in lines of the cache */
};

struct matrix_unit {
    /* Prompt rows at the start of a run that are multiplied as generated tokens are: with so few,
     * converting weights for the unit takes longer than their products in integers.  An expert
     * sees some of a run's rows only, so there are more of them. */
    size_t start_rows, expert_start_rows;
    size_t words; /* 16-bit words of a number in a pack: 1 is bf16; 2 are f32, one row beside the
                     other instead of pairs: [cols][16], or as much room for integers */
    /* Once per thread around some products. */
    void (*begin)(void);
    void (*end)(void);
    /* `count` rows of `weight` from `first` on, and room for one more.  NULL without bf16. */
    void (*make_panel)(uint16_t *out, size_t stride, const struct weight *weight, uint64_t first,
                       size_t count);
    /* Up to 16 rows of n floats; the others are zero. */
    void (*make_pack)(uint16_t *out, const float *const *x, size_t count, size_t n);
    void (*multiply)(const struct matrix_product *product);
    /* A block is 16 rows of gate, then 16 of up: act(gate) ⊙ up becomes 16 numbers, from `first`
     * on, of packs of `cols` numbers; out and add are not used. */
    void (*multiply_gated)(const struct matrix_product *product, uint16_t *packs, size_t first,
                           size_t cols);
    /* A pack of `cols` numbers that multiply_gated has filled becomes one that multiply takes.
     * NULL: it is one. */
    void (*close_pack)(uint16_t *pack, size_t cols);
};

/* Numbers in a row of a panel or a pack of n numbers. */
static inline size_t matrix_cols(size_t n)
{
    return align_up(n, 32);
}

/* What a product with n columns needs: 64 rows of weights, sums, and a line for each row of a
 * format that comes in whole rows. */
static inline size_t matrix_room(size_t n)
{
    return (8 << 10) + (64 * align_up(n, 256) + 33 * (matrix_cols(n) + 32)) * sizeof(uint16_t);
}

struct kernels {
    const char *name;

    /* By format; NULL where the plain function of the format table will do.
     * Called through kernels_dequantise. */
    dequantise_function dequantise[FORMAT_COUNT];

    /* By format; NULL where numbers are not integers.  Called where kernels_have_integers. */
    integer_dot_function integer_dot[FORMAT_COUNT];
    const enum unit_order *unit_orders; /* [FORMAT_COUNT]; see kernels_unit_order */
    /* The n floats of x as units_of(n) units.  What is not finite makes its 32 numbers NaN. */
    void (*make_units)(struct integer_unit *out, const float *x, size_t n, enum unit_order order);
    /* By format; NULL where numbers are not floats. */
    float_dot_function float_dot[FORMAT_COUNT];

    const struct matrix_unit *matrix; /* NULL: there is none */
    /* Takes weights that are integers, where it is faster.  Its packs are as large. */
    const struct matrix_unit *integer_matrix; /* NULL: `matrix` takes all */

    void (*dot_block)(const struct dot_block *block);
    float (*dot)(const float *a, const float *b, size_t n);
    /* y += a·x */
    void (*add_scaled)(float *y, const float *x, float a, size_t n);
    /* out = x · (mean(x²) + epsilon)^-½ · w; out may be x */
    void (*rms_norm)(float *out, const float *x, const float *w, float epsilon, size_t n);
    /* x ← x · scale · (Σx² + epsilon)^-½ */
    void (*unit_norm)(float *x, float scale, float epsilon, size_t n);
    /* x ← exp(x - shift) */
    void (*exp_shifted)(float *x, float shift, size_t n);
    /* x ← exp(x - max) / Σ */
    void (*softmax)(float *x, size_t n);
    /* By activation: out = act(gate) ⊙ up, or as it says; out may be either */
    void (*gate_multiply[ACTIVATION_COUNT])(float *out, const float *gate, const float *up,
                                            size_t n);
    /* out = x ⊙ sigmoid(gate); out may be either */
    void (*sigmoid_multiply)(float *out, const float *x, const float *gate, size_t n);
    /* x ← cap·tanh(x / cap) */
    void (*soft_cap)(float *x, float cap, size_t n);
    /* x ← silu(x) */
    void (*silu)(float *x, size_t n);
    void (*delta_step)(const struct delta_step *step);

    /* Tuned arithmetic only. */
    const struct attend_kernels *attend;
    const struct delta_kernels *delta;
};

/* Row `row` of `weight`: weight->cols floats. */
static inline void kernels_dequantise(const struct kernels *kernels, float *out,
                                      const struct weight *weight, uint64_t row)
{
    dequantise_function tuned = kernels->dequantise[weight->format];
    (tuned ? tuned : weight_dequantise_row)(out, weight, row);
}

/* Whether products of prompts are made in bf16. */
static inline bool kernels_have_panels(const struct kernels *kernels)
{
    return kernels->matrix && kernels->matrix->make_panel;
}

/* 16-bit words that one row of n numbers takes in a pack; 0: there are no packs. */
static inline size_t kernels_pack_words(const struct kernels *kernels, size_t n)
{
    return kernels->matrix ? matrix_cols(n) * kernels->matrix->words : 0;
}

/* Whether products with `weight` can be made in integers. */
static inline bool kernels_have_integers(const struct kernels *kernels, const struct weight *weight)
{
    bool grouped = !weight->scales || (weight->group_rows == 1 && weight->group_cols % 32 == 0);
    bool scaled = weight->scales || weight->format != FORMAT_E2M1;
    return kernels->integer_dot[weight->format] && weight->cols % 64 == 0 && grouped && scaled;
}

/* The function that multiplies `weight` with packs of activations; NULL: none. */
static inline const struct matrix_unit *kernels_matrix(const struct kernels *kernels,
                                                       const struct weight *weight)
{
    bool integers = kernels->integer_matrix && kernels_have_integers(kernels, weight);
    return integers ? kernels->integer_matrix : kernels->matrix;
}

/* How many rows at the start of a run are multiplied with `weight` as generated tokens are.  None
 * where a row is shorter than a unit, most of which would be zeroes. */
static inline size_t kernels_start_rows(const struct kernels *kernels, const struct weight *weight)
{
    return kernels->matrix && weight->cols >= UNIT ? kernels->matrix->start_rows : 0;
}

/* The same of an expert, all of whose matrices take the same rows. */
static inline size_t kernels_expert_start_rows(const struct kernels *kernels,
                                               const struct weight *gate, const struct weight *down)
{
    bool whole = gate->cols >= UNIT && down->cols >= UNIT;
    return kernels->matrix && whole ? kernels->matrix->expert_start_rows : 0;
}

/* How integer_dot wants the activations that are multiplied with `weight`. */
static inline enum unit_order kernels_unit_order(const struct kernels *kernels,
                                                 const struct weight *weight)
{
    return kernels->unit_orders[weight->format];
}

/* Whether products with `weight` can be made of its floats as they are stored. */
static inline bool kernels_have_floats(const struct kernels *kernels, const struct weight *weight)
{
    return kernels->float_dot[weight->format];
}

/* The named set, or with NULL the best that runs on `machine`; NULL when there is none. */
const struct kernels *kernels_select(const struct machine *machine, const char *name);

/* Set `index` that runs on `machine`, best first; NULL after the last ("generic"). */
const struct kernels *kernels_at(const struct machine *machine, size_t index);

#endif
