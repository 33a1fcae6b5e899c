/* requantise.h: weights from one format into a smaller one, row by row.
 *
 *     q8     Q8_0: 32 numbers share a scale, 8.5 bits a weight
 *     q4, q3, q2
 *            affine: 64 numbers share a scale and a bias, both BF16; 4.5, 3.5, 2.5 bits
 *     bf16   16 bits
 *
 * A matrix that has no more bits than that already is left as it is, so nothing grows, and
 * nothing is rounded twice for no gain. */
#ifndef CONVERT_REQUANTISE_H
#define CONVERT_REQUANTISE_H

#include "base/thread_pool.h"
#include "quant/format.h"

#define QUANTISATION_LIST(X)                                                                       \
    X(KEEP, "as they were")                                                                        \
    X(BF16, "bf16")                                                                                \
    X(Q8, "q8")                                                                                    \
    X(Q4, "q4")                                                                                    \
    X(Q3, "q3")                                                                                    \
    X(Q2, "q2")

enum quantisation {
#define QUANTISATION_ENUM(id, name) QUANTISE_##id,
    QUANTISATION_LIST(QUANTISATION_ENUM)
#undef QUANTISATION_ENUM
        QUANTISATION_COUNT
};

const char *quantisation_name(enum quantisation quantisation);

/* QUANTISATION_COUNT: there is none of that name. */
enum quantisation quantisation_find(const char *name);

enum requantise_answer {
    REQUANTISE_CHANGE, /* into *out */
    REQUANTISE_SMALL,  /* it has no more bits than that */
    REQUANTISE_UNFIT,  /* its rows do not fill whole groups */
};

/* What `from` becomes; *out has format and sizes and no data.  Pointers are not looked at. */
enum requantise_answer requantise_plan(struct weight *out, const struct weight *from,
                                       enum quantisation to);

/* Whether two matrices of the same sizes have the same bytes for the same numbers. */
bool requantise_is_same(const struct weight *a, const struct weight *b);

/* All rows of `from` into `to`, whose values, scales and biases are written to; `scratch`
 * has `cols` floats for each worker of `pool`.  Rows are independent, so the number of
 * workers does not change a bit. */
void requantise_rows(const struct weight *to, const struct weight *from, float *scratch,
                     struct thread_pool *pool);

#endif
