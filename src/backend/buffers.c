#include "backend/buffers.h"

struct physical {
    uint32_t width;
    int16_t busy_until; /* last op of the buffer that has it now */
};

/* Rows start on a cache line where the number of rows allows it. */
static uint32_t rounded(uint32_t width)
{
    return (uint32_t)align_up(width, CACHE_LINE / sizeof(float));
}

/* A physical buffer that is free before op `first`: the tightest that is wide
 * enough, else the widest, which then grows; -1 when all are in use. */
static int find_free(const struct physical *set, int count, uint32_t width, int16_t first)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (set[i].busy_until >= first) continue;
        if (best < 0) {
            best = i;
            continue;
        }
        bool fits = set[i].width >= width, best_fits = set[best].width >= width;
        bool narrower = set[i].width < set[best].width;
        if (fits ? !best_fits || narrower : !best_fits && !narrower) best = i;
    }
    return best;
}

/* The not yet placed buffer that is touched first, or -1. */
static int next_buffer(const struct graph *graph, const int16_t *chosen)
{
    int next = -1;
    for (int i = SHARED_COUNT; i < graph->buffer_count; i++) {
        if (chosen[i] >= 0 || graph->buffers[i].first < 0) continue;
        if (next < 0 || graph->buffers[i].first < graph->buffers[next].first) next = i;
    }
    return next;
}

void buffers_plan(struct buffer_plan *out, const struct graph *graph)
{
    struct physical set[GRAPH_BUFFERS_MAX];
    int16_t chosen[GRAPH_BUFFERS_MAX];
    int count = 0;
    memset(chosen, -1, sizeof chosen);
    *out = (struct buffer_plan){ 0 };

    for (int i; (i = next_buffer(graph, chosen)) >= 0;) {
        const struct graph_buffer *wanted = &graph->buffers[i];
        uint32_t width = rounded(wanted->width);
        int chunk = find_free(set, count, width, wanted->first);
        if (chunk < 0) {
            chunk = count++;
            set[chunk].width = 0;
        }
        if (set[chunk].width < width) set[chunk].width = width;
        set[chunk].busy_until = wanted->last;
        chosen[i] = (int16_t)chunk;
    }

    uint64_t starts[GRAPH_BUFFERS_MAX];
    for (int chunk = 0; chunk < count; chunk++) {
        starts[chunk] = out->total_width;
        out->total_width += set[chunk].width;
    }
    for (int i = SHARED_COUNT; i < graph->buffer_count; i++)
        if (chosen[i] >= 0) out->offsets[i] = starts[chosen[i]];
    out->physical_count = (uint16_t)count;
}

void buffers_place(float *out[GRAPH_BUFFERS_MAX], const struct buffer_plan *plan,
                   const struct graph *graph, float *const shared[SHARED_COUNT], float *scratch,
                   size_t row_capacity)
{
    for (int i = 0; i < SHARED_COUNT; i++) out[i] = shared[i];
    for (int i = SHARED_COUNT; i < graph->buffer_count; i++)
        out[i] = scratch + plan->offsets[i] * row_capacity;
}
