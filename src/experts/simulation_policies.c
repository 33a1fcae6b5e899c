/* simulation_policies.c: policies that evict by distance; simulation_queues.c has those with
 * queues. */
#include "experts/simulation_internal.h"

#include "base/status.h"
#include "experts/eviction.h"

#include <math.h>

static mf_status take(struct cache *cache, size_t count, size_t size, mf_error *why)
{
    cache->policy = arena_take(&cache->arena, count, size);
    return cache->policy ? MF_OK : fail_memory(why, count * size);
}

static size_t place_count(const struct cache *cache)
{
    return (size_t)cache->trace->shape.layers * cache->trace->shape.experts;
}

static uint32_t first_place(const struct cache *cache)
{
    return cache->visit->layer * cache->trace->shape.experts;
}

/* ----------------------------------------------------------------- moeflux */

static mf_status moeflux_begin(struct cache *cache, mf_error *why)
{
    const struct route_shape *shape = &cache->trace->shape;
    mf_status status = take(cache, 1, sizeof(struct eviction), why);
    if (status == MF_OK &&
        !eviction_init(cache->policy, &cache->arena, shape->layers, shape->experts))
        status = fail_memory(why, eviction_table_bytes(shape->layers, shape->experts));
    return status;
}

static void moeflux_visit(struct cache *cache)
{
    if (!cache->plan.resident)
        eviction_visit(cache->policy, cache->visit->layer, cache->visit->uses, cache->visit->rows);
}

static double moeflux_distance(const struct cache *cache, uint32_t place)
{
    uint32_t experts = cache->trace->shape.experts;
    return (double)eviction_distance(cache->policy, place / experts, place % experts);
}

const struct cache_functions cache_moeflux = { .begin = moeflux_begin,
                                               .visit = moeflux_visit,
                                               .distance = moeflux_distance };

/* --------------------------------------------------------------------- lru */

/* The visit that used each place last. */
static mf_status lru_begin(struct cache *cache, mf_error *why)
{
    return take(cache, place_count(cache), sizeof(uint64_t), why);
}

static void lru_visit(struct cache *cache)
{
    uint64_t *last = cache->policy;
    for (size_t i = 0; i < cache->visit->count; i++)
        last[first_place(cache) + cache->visit->experts[i]] = cache->visit->number;
}

static double lru_distance(const struct cache *cache, uint32_t place)
{
    const uint64_t *last = cache->policy;
    return -(double)last[place];
}

const struct cache_functions cache_lru = { .begin = lru_begin,
                                           .visit = lru_visit,
                                           .distance = lru_distance };

/* --------------------------------------------------------------------- lfu */

static const double half_life_tokens = 128;

/* Number of uses, decayed up to the token that used the place last. */
struct frequency {
    double uses, token;
};

static mf_status lfu_begin(struct cache *cache, mf_error *why)
{
    return take(cache, place_count(cache), sizeof(struct frequency), why);
}

static void lfu_visit(struct cache *cache)
{
    const struct visit *visit = cache->visit;
    struct frequency *frequencies = cache->policy;
    double now = (double)visit->tokens;
    for (size_t i = 0; i < visit->count; i++) {
        struct frequency *f = &frequencies[first_place(cache) + visit->experts[i]];
        f->uses = f->uses * exp2((f->token - now) / half_life_tokens) +
                  (double)visit->uses[visit->experts[i]];
        f->token = now;
    }
}

/* All counts decay at the same rate, so that their logarithms, extrapolated to token 0, give the
 * order at any token. */
static double lfu_distance(const struct cache *cache, uint32_t place)
{
    const struct frequency *f = (const struct frequency *)cache->policy + place;
    return -(log2(f->uses) + f->token / half_life_tokens);
}

const struct cache_functions cache_lfu = { .begin = lfu_begin,
                                           .visit = lfu_visit,
                                           .distance = lfu_distance };

/* ------------------------------------------------------------------ belady */

/* The visits that will use place p: numbers[starts[p] … starts[p + 1]). */
struct future {
    size_t *starts; /* [places + 1] */
    size_t *next;   /* [places] index of the next visit */
    uint64_t *numbers;
};

static void count_uses(struct cache *cache, const struct visit *visit)
{
    const struct future *future = cache->policy;
    uint32_t first = visit->layer * cache->trace->shape.experts;
    for (size_t i = 0; i < visit->count; i++) future->starts[first + visit->experts[i] + 1]++;
}

static void note_uses(struct cache *cache, const struct visit *visit)
{
    const struct future *future = cache->policy;
    uint32_t first = visit->layer * cache->trace->shape.experts;
    for (size_t i = 0; i < visit->count; i++)
        future->numbers[future->next[first + visit->experts[i]]++] = visit->number;
}

static mf_status belady_begin(struct cache *cache, mf_error *why)
{
    size_t places = place_count(cache);
    mf_status status = take(cache, 1, sizeof(struct future), why);
    if (status != MF_OK) return status;
    struct future *future = cache->policy;
    future->starts = ARENA_NEW(&cache->arena, size_t, places + 1);
    future->next = ARENA_NEW(&cache->arena, size_t, places);
    if (!future->starts || !future->next) return fail_memory(why, places * sizeof(size_t));
    cache_walk(cache, count_uses);
    for (size_t i = 0; i < places; i++) {
        future->starts[i + 1] += future->starts[i];
        future->next[i] = future->starts[i];
    }
    future->numbers = ARENA_NEW(&cache->arena, uint64_t, future->starts[places]);
    if (!future->numbers) return fail_memory(why, future->starts[places] * sizeof(uint64_t));
    cache_walk(cache, note_uses);
    for (size_t i = 0; i < places; i++) future->next[i] = future->starts[i];
    return MF_OK;
}

static void belady_visit(struct cache *cache)
{
    const struct future *future = cache->policy;
    for (size_t i = 0; i < cache->visit->count; i++)
        future->next[first_place(cache) + cache->visit->experts[i]]++;
}

static double belady_distance(const struct cache *cache, uint32_t place)
{
    const struct future *future = cache->policy;
    size_t next = future->next[place];
    return next < future->starts[place + 1] ? (double)future->numbers[next] : (double)INFINITY;
}

const struct cache_functions cache_belady = { .begin = belady_begin,
                                              .visit = belady_visit,
                                              .distance = belady_distance };
