/* buffers.h: assigns memory to the buffers of a graph.
 *
 * Buffers whose lifetimes do not overlap share memory (graph colouring).  A graph is coloured once,
 * when it is built; all graphs of a model use the same scratch, because they run one after the
 * other:
 *
 *     op            0   1   2   3   4   5
 *     normed        ├───────┤
 *     q                 ├───────┤               → 2 physical buffers for 4
 *     heads                     ├───┤
 *     gated                         ├───┤
 */
#ifndef BACKEND_BUFFERS_H
#define BACKEND_BUFFERS_H

#include "backend/graph.h"

struct buffer_plan {
    uint64_t offsets[GRAPH_BUFFERS_MAX]; /* floats per row before the buffer; shared ones: unused */
    uint64_t total_width;                /* floats per row of all physical buffers */
    uint16_t physical_count;
};

/* Colours the graph's own buffers; shared buffers have memory of their own. */
void buffers_plan(struct buffer_plan *out, const struct graph *graph);

/* Addresses for a step of up to `row_capacity` rows: `scratch` holds
 * row_capacity x total_width floats, `shared` the addresses of the shared buffers. */
void buffers_place(float *out[GRAPH_BUFFERS_MAX], const struct buffer_plan *plan,
                   const struct graph *graph, float *const shared[SHARED_COUNT], float *scratch,
                   size_t row_capacity);

#endif
