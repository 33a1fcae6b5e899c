#include "experts/eviction.h"

/* Weight of one token in each moving average, and the share of the average in v.  Measured with
 * bench/expert_cache on Pebble, over five texts; the optimum is flat. */
static const struct {
    float rate, share;
} memories[EVICTION_MEMORIES] = { { 0.5f, 1.0f / 6 }, { 0.02f, 1.0f / 3 }, { 0.002f, 0.5f } };

/* Bounds of v: keep 1/p finite and 1 - v above 0. */
static const float chance_min = 1e-4f, chance_max = 0.9999f;

/* Flush to zero: denormals are slow. */
static const float memory_min = 1e-9f;

size_t eviction_table_bytes(uint32_t layers, uint32_t experts)
{
    uint64_t bytes;
    uint64_t count = (uint64_t)layers * experts;
    bool fits = checked_multiply(&bytes, count, (EVICTION_MEMORIES + 1) * sizeof(float));
    return fits && bytes <= SIZE_MAX ? (size_t)bytes : SIZE_MAX;
}

uint64_t eviction_arena_bytes(uint32_t layers, uint32_t experts)
{
    uint64_t count = (uint64_t)layers * experts;
    struct arena_tally tally = ARENA_TALLY_STARTED;
    arena_tally_take(&tally, EVICTION_MEMORIES * count, sizeof(float));
    arena_tally_take(&tally, count, sizeof(float));
    return tally.total_bytes;
}

bool eviction_init(struct eviction *out, struct arena *arena, uint32_t layers, uint32_t experts)
{
    size_t count = (size_t)layers * experts;
    *out = (struct eviction){ .layers = layers,
                              .experts = experts,
                              .memories = ARENA_NEW(arena, float, EVICTION_MEMORIES *count),
                              .distances = ARENA_NEW(arena, float, count) };
    if (!out->memories || !out->distances) return false;
    for (size_t i = 0; i < count; i++) out->distances[i] = (float)layers / chance_min;
    return true;
}

static float clamp(float value, float low, float high)
{
    return value < low ? low : value > high ? high : value;
}

/* (1 - rate)^rows */
static float remaining(float rate, uint32_t rows)
{
    float left = 1.0f, power = 1.0f - rate;
    for (; rows > 0; rows >>= 1) {
        if (rows & 1) left *= power;
        power *= power;
    }
    return left;
}

void eviction_visit(struct eviction *eviction, uint32_t layer, const uint32_t *uses, uint32_t rows)
{
    size_t first = (size_t)layer * eviction->experts;
    float left[EVICTION_MEMORIES];
    for (int m = 0; m < EVICTION_MEMORIES; m++) left[m] = remaining(memories[m].rate, rows);
    for (size_t e = 0; e < eviction->experts; e++) {
        float *memory = eviction->memories + (first + e) * EVICTION_MEMORIES;
        float frequency = (float)uses[e] / (float)rows, v = 0.0f;
        for (int m = 0; m < EVICTION_MEMORIES; m++) {
            memory[m] = frequency + left[m] * (memory[m] - frequency);
            if (memory[m] < memory_min) memory[m] = 0.0f;
            v += memories[m].share * memory[m];
        }
        float chance = 1.0f - remaining(clamp(v, chance_min, chance_max), rows);
        eviction->distances[first + e] = (1.0f / chance - 1.0f) * (float)eviction->layers;
    }
    eviction->present = layer;
}
