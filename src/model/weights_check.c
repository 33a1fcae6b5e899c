/* weights_check.c: which weight of a damaged checkpoint is not a number. */
#include "model/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const weight_names[] = {
#define WEIGHT_NAME(name) #name,
    WEIGHT_LIST(WEIGHT_NAME)
#undef WEIGHT_NAME
};

static bool row_is_finite(const float *row, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(row[i])) return false;
    return true;
}

/* The first row of the matrix that has such a number; its rows when there is none. */
static uint64_t find_row(const struct weight *weight)
{
    uint64_t row = 0;
    float *numbers = malloc(weight->cols * sizeof *numbers + 1);
    if (!numbers) return weight->rows;
    for (; row < weight->rows; row++) {
        weight_dequantise_row(numbers, weight, row);
        if (!row_is_finite(numbers, weight->cols)) break;
    }
    free(numbers);
    return row;
}

static bool find_in_weights(char *out, size_t capacity, const struct weight weights[WEIGHT_COUNT],
                            const char *where)
{
    for (int id = 0; id < WEIGHT_COUNT; id++) {
        const struct weight *weight = &weights[id];
        if (!weight->values) continue;
        uint64_t row = find_row(weight);
        if (row == weight->rows) continue;
        snprintf(out, capacity, "row %llu of %s%s", (unsigned long long)row, weight_names[id],
                 where);
        return true;
    }
    return false;
}

bool weights_find_not_finite(char *out, size_t capacity, const struct weights *weights,
                             uint32_t layer_count)
{
    if (find_in_weights(out, capacity, weights->weights, "")) return true;
    for (uint32_t i = 0; i < layer_count; i++) {
        char where[32];
        snprintf(where, sizeof where, " in layer %u", i);
        if (find_in_weights(out, capacity, weights->layers[i].weights, where)) return true;
    }
    return false;
}
