#include "experts/eviction.h"

/* What one token changes, and what each memory says about the next choice.  Measured
 * with bench/expert_cache on Pebble; the optimum is flat. */
static const struct {
    float rate, share;
} memories[EVICTION_MEMORIES] = { { 0.5f, 0.2f }, { 0.02f, 0.3f }, { 0.002f, 0.5f } };

/* Nothing is quite impossible: keeps 1/p finite. */
static const float chance_min = 1e-4f;

/* What is this small is gone: numbers that shrink for ever become slow ones. */
static const float memory_min = 1e-9f;

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

/* The share of the past that is left after `rows` tokens: (1 - rate)^rows. */
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
        float frequency = (float)uses[e] / (float)rows, chance = chance_min;
        for (int m = 0; m < EVICTION_MEMORIES; m++) {
            memory[m] = frequency + left[m] * (memory[m] - frequency);
            if (memory[m] < memory_min) memory[m] = 0.0f;
            chance += memories[m].share * memory[m];
        }
        eviction->distances[first + e] = (1.0f / chance - 1.0f) * (float)eviction->layers;
    }
    eviction->present = layer;
}
