/* compare.h: a backend that runs everything twice and compares.
 *
 * Every operation of a graph runs on a reference and on the backend under test, with
 * the same inputs; the difference is noted by kind of operation and the step goes on
 * with the reference's result.  So an error is seen where it is made, not where it
 * has grown.
 *
 * Steps must be the first of their feed: later ones update state in place, and that
 * cannot be run twice. */
#ifndef BACKEND_COMPARE_H
#define BACKEND_COMPARE_H

#include "backend/backend.h"

/* Experts are not an operation of a graph; they are counted behind the others. */
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
