/* selftest.h: the part of `moeflux selftest` that looks inside the library: every operation of
 * a few tokens, computed by the reference and by this machine's kernels, on the real weights. */
#ifndef CLI_SELFTEST_H
#define CLI_SELFTEST_H

#include "moeflux.h"

enum { SELFTEST_PROMPT_ROWS = 48, SELFTEST_DECODED_ROWS = 4, SELFTEST_KINDS_MAX = 64 };

/* All runs of one kind of operation. */
struct selftest_operation {
    const char *name;
    uint64_t runs;
    double largest_error; /* relative to the largest result */
    double tolerance;     /* what rounding explains */
    bool not_finite;
};

struct selftest_figures {
    size_t tensors_used, tensors_not_needed, file_count;
    struct selftest_operation operations[SELFTEST_KINDS_MAX];
    size_t operation_count;
    uint64_t routes_compared, routes_different;
    uint64_t *uses;         /* [layers][experts] how often an expert was chosen; the caller's */
    double weight_error;    /* of the sum of a token's router weights */
    bool weight_not_finite; /* one of them is not a number */
};

/* Tensors and files of the model. */
void selftest_count_binding(struct selftest_figures *figures, const mf_model *model);

/* The first tokens as a prompt, a few more as generated ones: both kinds of arithmetic.
 * `figures->uses` is zeroed by the caller. */
mf_status selftest_compare(struct selftest_figures *figures, mf_model *model, const int32_t *tokens,
                           size_t count, mf_error *why);

#endif
