#include "engine/cost.h"

#include <math.h>

/* Outside of the rows that were seen a step is taken to cost rows^0.6: experts are shared. */
#define SHARED_EXPONENT 0.6

/* Weight of a new sample in the average place of a point. */
#define PLACE_WEIGHT 0.2

void learned_add(struct learned *learned, double value)
{
    learned->values[learned->next] = value;
    learned->next = (learned->next + 1) % LEARNED_SAMPLES;
    if (learned->count < LEARNED_SAMPLES) learned->count++;
}

double learned_value(const struct learned *learned, double unknown)
{
    double sorted[LEARNED_SAMPLES];
    if (learned->count == 0) return unknown;
    for (uint32_t i = 0; i < learned->count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > learned->values[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = learned->values[i];
    }
    return learned->count < 3 ? sorted[0] : sorted[learned->count / 2];
}

void curve_add(struct curve *curve, uint32_t rows, double total)
{
    uint32_t i = 0;
    while (i + 1 < CURVE_POINTS && rows >> (i + 1) > 0) i++;
    struct curve_point *point = &curve->points[i];
    double place = log2(rows);
    point->place =
        point->per_row.count > 0 ? point->place + PLACE_WEIGHT * (place - point->place) : place;
    learned_add(&point->per_row, total / rows);
}

uint32_t curve_most_rows(const struct curve *curve)
{
    for (uint32_t i = CURVE_POINTS; i > 0; i--)
        if (curve->points[i - 1].per_row.count > 0)
            return (uint32_t)round(exp2(curve->points[i - 1].place));
    return 0;
}

static double total_near(const struct curve_point *point, uint32_t rows)
{
    double seen = exp2(point->place);
    return learned_value(&point->per_row, 0) * seen * pow(rows / seen, SHARED_EXPONENT);
}

double curve_total(const struct curve *curve, uint32_t rows)
{
    const struct curve_point *below = NULL, *above = NULL;
    double place = log2(rows);
    for (uint32_t i = 0; i < CURVE_POINTS && !above; i++) {
        const struct curve_point *point = &curve->points[i];
        if (point->per_row.count == 0) continue;
        *(point->place <= place ? &below : &above) = point;
    }
    if (!below && !above) return 0;
    if (!below || !above) return total_near(below ? below : above, rows);
    double low = learned_value(&below->per_row, 0), high = learned_value(&above->per_row, 0);
    double share = (place - below->place) / (above->place - below->place);
    return (low + share * (high - low)) * rows;
}
