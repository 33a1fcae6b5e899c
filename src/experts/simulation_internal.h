/* simulation_internal.h: the simulated cache and the interface of its policies; for
 * src/experts/simulation*.c only. */
#ifndef EXPERTS_SIMULATION_INTERNAL_H
#define EXPERTS_SIMULATION_INTERNAL_H

#include "experts/simulation.h"
#include "experts/slot_plan.h"

#define NO_SLOT UINT32_MAX

/* The experts that a step uses in a layer. */
struct visit {
    uint64_t number; /* from 1 */
    uint64_t tokens; /* before it */
    uint32_t layer, rows;
    const uint32_t *uses;    /* [experts] how many of the rows chose each */
    const uint32_t *experts; /* those that were chosen, ascending */
    size_t count;
};

struct cache {
    const struct route_trace *trace;
    struct simulation_setting setting;
    struct arena arena;
    const struct cache_functions *functions;
    void *policy; /* state of the functions */
    struct slot_plan plan;
    uint32_t *places;          /* [slots] layer x experts + expert */
    uint64_t *wanted;          /* [slots] number of the visit that needs it */
    uint32_t *slot_of;         /* [layers x experts], NO_SLOT: not in memory */
    size_t *filled;            /* [classes] slots that hold an expert */
    const struct visit *visit; /* current */
    uint32_t *uses, *experts;  /* its arrays */
    uint32_t *missing;         /* [experts] places that it has to read */
    struct simulation_result result;
};

/* A policy either gives every expert a distance, and the largest is evicted, or chooses the victim
 * itself. */
struct cache_functions {
    mf_status (*begin)(struct cache *cache, mf_error *why); /* may be NULL */
    void (*visit)(struct cache *cache);                     /* before its hits are counted */
    double (*distance)(const struct cache *cache, uint32_t place);
    uint32_t (*victim)(struct cache *cache, size_t class_number); /* a slot; NO_SLOT: none */
    void (*enter)(struct cache *cache, uint32_t slot);            /* may be NULL */
};

extern const struct cache_functions cache_belady, cache_moeflux, cache_lfu, cache_lru,
    cache_s3_fifo;

/* Calls `each` for the visits of the trace, in order. */
void cache_walk(struct cache *cache, void (*each)(struct cache *cache, const struct visit *visit));

static inline bool cache_can_leave(const struct cache *cache, uint32_t slot)
{
    return cache->wanted[slot] != cache->visit->number;
}

#endif
