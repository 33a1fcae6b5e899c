#include "experts/eviction.h"

/* What one token changes, and what each memory says about the next choice.  Measured
 * with bench/expert_cache on Pebble, over five texts; the optimum is flat. */
static const struct {
    float rate, share;
} memories[EVICTION_MEMORIES] = { { 0.5f, 0.1f }, { 0.02f, 0.2f }, { 0.002f, 0.3f } };
static const float share_sum = 0.6f;

static const float discount = 0.7f, learning_rate = 0.04f;

/* With more rows the chosen ones are nearly all, and tell nothing about what follows. */
enum { ROWS_LEARNT_MAX = 8 };

/* Nothing is quite impossible, nor certain: keeps 1/p finite, and 1 - v above 0. */
static const float chance_min = 1e-4f, chance_max = 0.9999f;

/* Flush to zero: denormals are slow. */
static const float memory_min = 1e-9f;

bool eviction_init(struct eviction *out, struct arena *arena, uint32_t layers, uint32_t experts)
{
    size_t count = (size_t)layers * experts;
    uint64_t pairs;
    *out = (struct eviction){ .layers = layers,
                              .experts = experts,
                              .memories = ARENA_NEW(arena, float, EVICTION_MEMORIES *count),
                              .chosen = ARENA_NEW(arena, float, count),
                              .expected = ARENA_NEW(arena, float, count),
                              .distances = ARENA_NEW(arena, float, count),
                              .now = ARENA_NEW(arena, float, experts) };
    if (!checked_multiply(&pairs, count, experts)) return false;
    out->follows = ARENA_NEW(arena, float, pairs);
    if (!out->memories || !out->follows || !out->chosen || !out->expected || !out->distances ||
        !out->now)
        return false;
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

/* Ages the memories of a layer's experts; their sum becomes now[e]. */
static void remember(const struct eviction *eviction, size_t first, const uint32_t *uses,
                     uint32_t rows)
{
    float left[EVICTION_MEMORIES];
    for (int m = 0; m < EVICTION_MEMORIES; m++) left[m] = remaining(memories[m].rate, rows);
    for (size_t e = 0; e < eviction->experts; e++) {
        float *memory = eviction->memories + (first + e) * EVICTION_MEMORIES;
        float frequency = (float)uses[e] / (float)rows, sum = 0.0f;
        for (int m = 0; m < EVICTION_MEMORIES; m++) {
            memory[m] = frequency + left[m] * (memory[m] - frequency);
            if (memory[m] < memory_min) memory[m] = 0.0f;
            sum += memories[m].share * memory[m];
        }
        eviction->now[e] = sum;
    }
}

/* follows[c] of every chosen c, weighted, to now[e]. */
static void add_followers(const struct eviction *eviction, size_t first, const uint32_t *uses,
                          uint32_t rows)
{
    size_t experts = eviction->experts;
    for (size_t c = 0; c < experts; c++) {
        if (uses[c] == 0) continue;
        const float *follows = eviction->follows + (first + c) * experts;
        float weight = (float)uses[c] / (float)rows;
        for (size_t e = 0; e < experts; e++) eviction->now[e] += weight * follows[e];
    }
}

/* What was expected after the visit before meets what came. */
static void learn(const struct eviction *eviction, size_t first, const uint32_t *uses,
                  uint32_t rows)
{
    size_t experts = eviction->experts;
    const float *chosen = eviction->chosen + first;
    float *surprise = eviction->expected + first, sum = 0.0f;
    for (size_t e = 0; e < experts; e++) sum += chosen[e];
    if (sum == 0.0f) return;
    for (size_t e = 0; e < experts; e++) {
        float used = (float)uses[e] / (float)rows, now = clamp(eviction->now[e], 0.0f, 1.0f);
        surprise[e] = (1.0f - discount) * used + discount * now - surprise[e];
    }
    for (size_t c = 0; c < experts; c++) {
        if (chosen[c] == 0.0f) continue;
        float *follows = eviction->follows + (first + c) * experts;
        float rate = learning_rate * chosen[c] / sum;
        for (size_t e = 0; e < experts; e++) follows[e] += rate * surprise[e];
    }
}

void eviction_visit(struct eviction *eviction, uint32_t layer, const uint32_t *uses, uint32_t rows)
{
    size_t experts = eviction->experts, first = (size_t)layer * experts;
    bool learns = rows <= ROWS_LEARNT_MAX;
    remember(eviction, first, uses, rows);
    if (learns) {
        add_followers(eviction, first, uses, rows);
        learn(eviction, first, uses, rows);
    }
    for (size_t e = 0; e < experts; e++) {
        float v = learns ? eviction->now[e] : eviction->now[e] / share_sum;
        float chance = 1.0f - remaining(clamp(v, chance_min, chance_max), rows);
        eviction->distances[first + e] = (1.0f / chance - 1.0f) * (float)eviction->layers;
        eviction->expected[first + e] = v;
        eviction->chosen[first + e] = learns ? (float)uses[e] / (float)rows : 0.0f;
    }
    eviction->present = layer;
}
