/* kernels.h: the arithmetic, as tables of pure functions.
 *
 * One table per instruction set; which one runs is chosen once, when an engine
 * is opened.  Kernels see pointers and sizes, never a model, and have no state.
 *
 * The sets here are one source (lanes_*.c) compiled for each instruction set.
 * All arithmetic goes through 16 lanes of f32 that are added in a fixed order,
 * and nothing is contracted into fused operations: every set gives the same bits,
 * "generic" included, which is the reference that defines the result. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "base/machine.h"
#include "kernels/attend.h"
#include "kernels/delta.h"
#include "quant/format.h"

/* out[j][i] = w_i · x_j: a few rows of a matrix with a few rows of activations.
 * The bits of one product do not depend on how many others are asked for. */
struct dot_block {
    const float *w;        /* [w_rows][n] */
    const float *const *x; /* x_rows pointers to n floats */
    float *const *out;     /* x_rows pointers to w_rows floats */
    size_t w_rows, x_rows, n;
};

struct kernels {
    const char *name;

    /* By format; NULL where the plain function of the format table will do.
     * Called through kernels_dequantise. */
    dequantise_function dequantise[FORMAT_COUNT];

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
    /* out = silu(gate) ⊙ up; out may be either */
    void (*silu_multiply)(float *out, const float *gate, const float *up, size_t n);
    /* out = x ⊙ sigmoid(gate); out may be either */
    void (*sigmoid_multiply)(float *out, const float *x, const float *gate, size_t n);
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

/* The named set, or with NULL the best that runs on `machine`; NULL when there is none. */
const struct kernels *kernels_select(const struct machine *machine, const char *name);

/* Set `index` that runs on `machine`, best first; NULL after the last ("generic"). */
const struct kernels *kernels_at(const struct machine *machine, size_t index);

#endif
