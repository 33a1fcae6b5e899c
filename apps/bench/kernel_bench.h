/* kernel_bench.h: the table of cases.h, timed with all threads at once.
 *
 * Every thread has a task of its own and runs it again and again; figures are those of
 * all threads together, to be held against ceilings that were measured in the same way. */
#ifndef BENCH_KERNEL_BENCH_H
#define BENCH_KERNEL_BENCH_H

#include "bench/ceilings.h"

#include <stdio.h>

struct kernel_figure {
    const char *operation, *format;
    size_t rows, cols, activations; /* of the weight; rows of activations */
    size_t heads, depth;            /* of attention, else 0 */
    bool large;                     /* the weight comes from memory every time */
    const char *set;
    bool on_matrix;          /* it worked on the matrix unit */
    double bytes_per_second; /* of weights, inputs and results */
    double flops;            /* per second; 0: the operation only moves and converts */
};

struct kernel_bench_wishes {
    unsigned threads;
    bool all_sets;    /* else one */
    const char *set;  /* which one; NULL: the best */
    const char *only; /* a part of an operation's or a format's name; NULL: everything */
};

/* Calls `each` with one figure after the other, as they are measured. */
typedef void (*kernel_figure_function)(void *user, const struct kernel_figure *figure);
mf_status kernel_bench_run(const struct kernel_bench_wishes *wishes, kernel_figure_function each,
                           void *user, mf_error *why);

/* A line of the table; with NULL instead of a figure its heading.  Shares are of the memory
 * bandwidth, where the weights are too large for the caches, and of the peak. */
void kernel_figure_print(const struct kernel_figure *figure, const mf_ceilings *ceilings,
                         FILE *out);
json_t *kernel_figure_json_new(const struct kernel_figure *figure, const mf_ceilings *ceilings);

#endif
