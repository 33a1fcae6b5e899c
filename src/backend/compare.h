/* compare.h: a backend that compares another one with the reference.
 *
 * Every operation of a graph runs on the reference and on the backend under test, with the same
 * inputs.  The difference is recorded by kind of operation, and the step continues with the
 * reference's result, so that errors do not accumulate and are attributed to the right operation.
 * A recurrent state that a step updates in place is restored between the two runs. */
#ifndef BACKEND_COMPARE_H
#define BACKEND_COMPARE_H

#include "backend/backend.h"

/* Experts are not an operation of a graph; they have the index after the last one. */
enum { COMPARE_EXPERTS = OP_KINDS, COMPARE_KINDS };

struct comparison {
    uint64_t runs;
    double largest_error; /* of a result's difference, relative to its largest number */
    bool not_finite;      /* a NaN or an infinity came out of the reference or the other */
};

struct compare_backend {
    struct backend base;
    const mf_allocator *allocator;
    struct backend *reference, *tested; /* borrowed */
    struct comparison kinds[COMPARE_KINDS];
    uint64_t routes_compared, routes_different; /* rows whose experts differ */
    float *before, *expected;                   /* copies of an operation's buffers */
    size_t copy_floats;
};

/* Both backends are borrowed; `copy_floats` is the largest result of a step, in floats. */
mf_status compare_backend_init(struct compare_backend *compare, const mf_allocator *allocator,
                               struct backend *reference, struct backend *tested,
                               size_t copy_floats, mf_error *why);
void compare_backend_free(struct compare_backend *compare);

/* "project", …, "experts" */
const char *compare_kind_name(size_t kind);

#endif
