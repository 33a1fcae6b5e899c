/* cost.h: what steps took, learned by number of rows.
 *
 * A value is the median of the last ones, so that neither a first step nor a busy machine shifts
 * it; of fewer than three it is the least.  A curve has a value per row for each doubling of the
 * rows, taken at the rows that were seen there; between them it goes by the logarithm of the rows.
 * Outside of them it assumes that rows share much: a plan should not go beyond twice the most rows
 * that were seen, which are measured then. */
#ifndef ENGINE_COST_H
#define ENGINE_COST_H

#include "base/common.h"

enum { CURVE_POINTS = 14, LEARNED_SAMPLES = 9 };

struct learned {
    double values[LEARNED_SAMPLES]; /* the last ones, in a ring */
    uint32_t count, next;
};

void learned_add(struct learned *learned, double value);
double learned_value(const struct learned *learned, double unknown); /* `unknown`: none was added */

struct curve {
    struct curve_point {
        struct learned per_row;
        double place;       /* logarithm of the rows of its samples, on average */
    } points[CURVE_POINTS]; /* of 2^i … 2^(i+1) - 1 rows; the last one: and more */
};

/* `rows` (≥ 1) took `total`. */
void curve_add(struct curve *curve, uint32_t rows, double total);

uint32_t curve_most_rows(const struct curve *curve); /* that were seen; 0: nothing is known */
double curve_total(const struct curve *curve, uint32_t rows); /* 0 where nothing is known */

#endif
