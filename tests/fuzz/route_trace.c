/* Any bytes as a trace of routes, with the checksum put right so that the rest is looked at.
 * What is accepted must be readable to its last row, and can be played. */
#include "experts/simulation.h"
#include "support/failing_allocator.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct route_trace *trace)
{
    for (size_t s = 0; s < trace->step_count; s++)
        for (uint32_t row = 0; row < trace->steps[s].rows; row++)
            for (uint32_t layer = 0; layer < trace->shape.layers; layer++) {
                if (trace->order[layer] == NO_ORDER) continue;
                for (uint32_t k = 0; k < trace->shape.per_token; k++)
                    if (route_trace_expert(trace, &trace->steps[s], layer, row, k) >=
                        trace->shape.experts)
                        abort();
            }
}

static void play(const struct route_trace *trace, const mf_allocator *allocator)
{
    uint64_t full = simulation_full_bytes(trace);
    if (trace->shape.experts > 64 || trace->shape.layers > 64) return; /* takes long */
    for (int policy = 0; policy < CACHE_POLICIES; policy++) {
        struct simulation_result result;
        struct simulation_setting setting = { .policy = (enum cache_policy)policy,
                                              .budget_bytes = full / 2,
                                              .rows = (uint32_t)policy % 3 };
        if (simulation_run(&result, trace, &setting, allocator, NULL) == MF_OK &&
            result.hits > result.uses)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct failing_allocator heap;
    struct route_trace trace;
    uint8_t *copy = malloc(size + 1);
    if (!copy) return 0;
    memcpy(copy, data, size);
    if (size >= 8) {
        uint64_t sum = checksum_of(copy, size - 8);
        memcpy(copy + size - 8, &sum, sizeof sum);
    }
    failing_allocator_init(&heap);
    heap.limit_bytes = 64 << 20;
    if (route_trace_open(&trace, &heap.allocator, copy, size, NULL) == MF_OK) {
        read_all(&trace);
        play(&trace, &heap.allocator);
        route_trace_free(&trace);
    }
    free(copy);
    if (heap.live_bytes != 0) abort();
    return 0;
}
