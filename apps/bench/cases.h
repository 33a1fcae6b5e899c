/* cases.h: every operation of a kernel set x format x shape, as one table.
 *
 *     tests/conformance/kernels.c    all sets against generic, and against double arithmetic
 *     moeflux bench --ops            the same operations, timed
 *
 * A case says what is computed; a task is a case with its inputs, made of numbers that
 * are the same every time, at addresses that are aligned to nothing but floats.  An
 * operation that a set does not have is passed over.
 *
 * Threads: a task has one owner; tasks do not know of each other. */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

#include "kernels/kernels.h"
#include "moeflux.h"

/* What rows are filled with. */
enum case_fill {
    FILL_USUAL,  /* between -3 and 3; weights with scales around 1/100 */
    FILL_ZERO,   /* zeroes */
    FILL_EQUAL,  /* one number */
    FILL_WIDE,   /* every magnitude from 1e-12 to 1e12 */
    FILL_TINY,   /* around 1e-25: squares vanish */
    FILL_HUGE,   /* around 1e25: squares overflow */
    FILL_GATES,  /* between -110 and 110: the whole range of exp and beyond */
    FILL_SPICED, /* usual, with infinities, NaN and -0 among them; weights of any bits */
    FILL_COUNT
};

const char *case_fill_name(enum case_fill fill);

enum { CASE_INPUTS = 4 };

struct case_op;

struct kernel_case {
    const struct case_op *op;
    size_t n;            /* numbers in a row */
    size_t m;            /* rows; 1 where the operation has one */
    size_t x_rows;       /* rows of activations; 1 likewise */
    size_t heads, depth; /* of attention: rows of one position, positions that are cached */
    enum format format;  /* of a weight; FORMAT_COUNT: there is none */
    enum format scale_format;
    uint32_t group; /* numbers that share a scale, where scales lie apart */
    enum case_fill fill;
};

/* "Q4_K 512 x 2048, usual numbers": everything but the operation; returns `out`. */
const char *case_describe(const struct kernel_case *what, char *out, size_t capacity);

struct case_sizes {
    size_t in[CASE_INPUTS], out; /* floats */
    size_t scratch_bytes;        /* that a run needs besides */
    double flops;                /* of a run; 0: it only moves and converts numbers */
    size_t bytes;                /* of a run; 0: those floats and the weight */
};

struct case_task {
    struct kernel_case what;
    struct case_sizes sizes;
    float *in[CASE_INPUTS];
    float *out; /* [sizes.out], and one behind them that must stay as it is */
    struct weight weight;
    uint8_t *weight_memory;
    void *scratch;         /* aligned to CACHE_LINE */
    size_t x_first, x_end; /* rows of activations that a run computes; at first all of them */
    double *expected;      /* [sizes.out]: case_task_compute fills these two */
    double *bound;         /* how far from `expected` a result may be */
};

/* How an operation may differ between sets. */
enum case_rule {
    CASE_SAME_BITS, /* not at all; generic is within the bounds */
    CASE_NEAR       /* every set is within the bounds */
};

/* As in a case.  CASE_MANY rows are a quarter of a GiB: too many for the caches. */
enum { CASE_TIMED_MAX = 4, CASE_MANY = 1 << 30 };
struct case_shape {
    size_t m, n, x_rows; /* n 0: no more shapes */
    size_t heads, depth;
};

struct case_op {
    const char *name;
    enum case_rule rule;
    bool has_rows, has_weight; /* m counts; format counts */
    bool in_place;             /* `out` begins as a copy of in[0] */
    bool in_parts;             /* rows of activations in parts, in order, have the same bits */
    bool windowed;             /* attention in a window, with sinks */
    bool q8;                   /* attention over a cache of bytes with scales */
    bool on_matrix;            /* works on the matrix unit, in a set that has one */
    unsigned fills;            /* bit set of fills that in_double covers */
    /* With a weight: m and x_rows.  Else shapes to try instead of the usual ones, or NULL. */
    const struct case_shape *tried;
    bool (*takes)(const struct kernel_case *what); /* weights; NULL: all */
    bool (*exists)(const struct kernels *kernels); /* NULL: every set has it */
    void (*measure)(struct case_sizes *out, const struct kernel_case *what);
    /* What comes before a run and after it, and is not timed: inputs as the kernel wants
     * them, results as floats.  NULL: nothing. */
    void (*prepare)(const struct kernels *kernels, const struct case_task *task);
    void (*run)(const struct kernels *kernels, const struct case_task *task);
    void (*collect)(const struct case_task *task);
    void (*in_double)(const struct case_task *task);      /* of a task that is prepared */
    double (*widen_bound)(const struct kernels *kernels); /* a factor; NULL: 1 for every set */
    struct case_shape timed[CASE_TIMED_MAX];
};

/* The table: entry `index`, NULL after the last. */
const struct case_op *case_op_at(size_t index);

/* Does the set have it, and does the format have such rows? */
bool case_exists(const struct kernels *kernels, const struct kernel_case *what);

/* Inputs; a result of zeroes.  Before it is run it is prepared, afterwards results are
 * collected; a kernel set's own run goes with its own preparation. */
mf_status case_task_make(struct case_task *out, const struct kernel_case *what, mf_error *why);
void case_task_free(struct case_task *task);

void case_task_prepare(const struct case_task *task, const struct kernels *kernels);
void case_task_run(const struct case_task *task, const struct kernels *kernels);
void case_task_collect(const struct case_task *task);

/* What double arithmetic gives, for fills that the operation covers. */
void case_task_compute(const struct case_task *task);

/* Bytes that a run reads and writes: weight, inputs and results. */
double case_task_bytes(const struct case_task *task);

/* Calls `each` with every case of an operation: sizes that fill vectors and sizes that do
 * not, every format, every fill. */
typedef void (*case_function)(void *user, const struct kernel_case *what);
void case_for_each(const struct case_op *op, case_function each, void *user);

/* Those that are timed: sizes as models have them, every format, usual numbers. */
void case_for_each_timed(const struct case_op *op, case_function each, void *user);

/* Is its weight one that comes from memory every time? */
bool case_is_large(const struct kernel_case *what);

/* -------------------------------------------------- for the parts of the table */

extern const struct case_op case_row_ops[];     /* cases_rows.c; a name of NULL ends it */
extern const struct case_op case_weight_ops[];  /* cases_weights.c */
extern const struct case_op case_product_ops[]; /* cases_products.c */
extern const struct case_op case_attend_ops[];  /* cases_attend.c */
extern const struct case_op case_delta_ops[];   /* cases_delta.c */

/* Cuts a task's scratch memory into aligned pieces; without memory it only counts. */
struct case_cutter {
    uint8_t *memory;
    size_t bytes;
};
void *case_cut(struct case_cutter *cutter, size_t bytes);

/* bound[first … first + count) = relative · the largest of `expected` there, `least` at least */
void case_bound_by_largest(const struct case_task *task, size_t first, size_t count,
                           double relative, double least);

struct case_random {
    uint64_t state;
};
uint64_t case_next_bits(struct case_random *random);
float case_next_number(struct case_random *random, enum case_fill fill);

#define FILL_BIT(fill) (1u << (fill))
#define FILLS_FINITE                                                                               \
    (FILL_BIT(FILL_USUAL) | FILL_BIT(FILL_ZERO) | FILL_BIT(FILL_EQUAL) | FILL_BIT(FILL_WIDE) |     \
     FILL_BIT(FILL_TINY))

/* The unit roundoff of f32. */
#define CASE_ROUNDOFF 0x1p-24

double case_dot_double(const float *a, const float *b, size_t n);
/* Each of the sums has n / 16 + 4 additions, and a product rounds once. */
double case_dot_bound(const float *a, const float *b, size_t n);

/* False: the format has no rows of this many numbers, or no such groups. */
bool case_weight_exists(const struct kernel_case *what);
/* MF_OK and memory that is the caller's. */
mf_status case_weight_make(struct weight *out, uint8_t **memory, const struct kernel_case *what,
                           mf_error *why);
double case_weight_bytes(const struct weight *weight);

#endif
