/* panels.h: rows of weights in bf16, for the sets that multiply such numbers. */
#ifndef KERNELS_PREFILL_PANELS_H
#define KERNELS_PREFILL_PANELS_H

#include "kernels/set.h"
#include "kernels/weight_units.h"

/* A row that becomes bf16 unit by unit. */
struct panel_row {
    struct unit_place at; /* the next unit */
    uint64_t row;
    bool exists;    /* else it is zeroes */
    size_t ahead;   /* prefetch distance in bytes */
    uint16_t *line; /* memory for a row, and for another behind it: see panel_unit_for */
};

/* The row's next unit, in vectors of 32 numbers that are `step` numbers apart, filled up with
 * zeroes to whole vectors. */
typedef void (*panel_unit_function)(uint16_t *out, size_t step, struct panel_row *row);

/* Some formats come in whole rows: a row's first unit computes all of it into its line. */
panel_unit_function NAMED(panel_unit_for)(const struct weight *weight);

/* All units of a row, from its first on, side by side. */
void NAMED(make_panel_row)(uint16_t *out, struct panel_row *row);

LANES_INLINE struct panel_row panel_row_at(const struct weight *weight, uint64_t row)
{
    return (struct panel_row){ .at = unit_row(weight, row), .row = row };
}

#endif
