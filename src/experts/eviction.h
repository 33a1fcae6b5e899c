/* eviction.h: the cache policy: estimates when each expert is used next.
 *
 * Layers are visited in turn, so an expert's next use is at one of its layer's next visits.  If
 * each of them uses the expert with probability p, the expected number of visits of any layer
 * until then is
 *
 *     (visits until its layer comes) + (1/p - 1) x layers
 *
 * The store evicts the expert with the largest number.
 *
 * The probability v that one token uses the expert is a weighted sum of three moving averages of
 * past use, with half-lives of about 1, 35 and 350 tokens.  p is the probability that any row of
 * a visit uses the expert, 1 - (1 - v)^rows: nearly 1 for a long chunk of a prompt, where only
 * the order of the layers counts.  Alternatives and their results: docs/notebook/experiments.md.
 *
 * Threads: one owner. */
#ifndef EXPERTS_EVICTION_H
#define EXPERTS_EVICTION_H

#include "base/arena.h"

enum { EVICTION_MEMORIES = 3 };

struct eviction {
    uint32_t layers, experts; /* experts per layer */
    uint32_t present;         /* layer of the last visit */
    float *memories;          /* [layers][experts][EVICTION_MEMORIES] moving averages of use */
    float *distances;         /* [layers][experts] (1/p - 1) x layers */
};

/* Bytes of the tables of eviction_init; SIZE_MAX if they exceed a size_t. */
size_t eviction_table_bytes(uint32_t layers, uint32_t experts);

/* Bytes that eviction_init allocates from an arena after arena_start_block. */
uint64_t eviction_arena_bytes(uint32_t layers, uint32_t experts);

/* False: out of memory. */
bool eviction_init(struct eviction *out, struct arena *arena, uint32_t layers, uint32_t experts);

/* Records a visit of `rows` tokens to a layer; uses[e] (≤ rows) of them use expert e. */
void eviction_visit(struct eviction *eviction, uint32_t layer, const uint32_t *uses, uint32_t rows);

/* Expected visits until the expert is chosen next. */
static inline float eviction_distance(const struct eviction *eviction, uint32_t layer,
                                      uint32_t expert)
{
    uint32_t until = layer > eviction->present ? layer - eviction->present
                                               : layer + eviction->layers - eviction->present;
    return (float)until + eviction->distances[(size_t)layer * eviction->experts + expert];
}

#endif
