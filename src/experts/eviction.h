/* eviction.h: which expert is least likely to be missed.
 *
 * Layers are visited in turn, so an expert's next use is at one of its layer's next
 * visits.  With a chance p of being chosen at each of them it lies, in visits of
 * any layer,
 *
 *     (visits until its layer comes) + (1/p - 1) x layers
 *
 * away; the store evicts the one that is furthest.  The first term is what makes
 * room in a long prompt, where every expert of every layer is needed in turn.
 *
 * p is estimated from the past with three memories, which forget by half after
 * about 1, 35 and 350 tokens: what was just used, what this passage uses, what this
 * text uses.  No one of them is as good as their sum; what else was tried, and how
 * far the best possible choice is away, is in docs/experiments.md.
 *
 * Threads: one owner. */
#ifndef EXPERTS_EVICTION_H
#define EXPERTS_EVICTION_H

#include "base/arena.h"

enum { EVICTION_MEMORIES = 3 };

struct eviction {
    uint32_t layers, experts; /* experts per layer */
    uint32_t present;         /* layer of the last visit */
    float *memories;          /* [layers][experts][EVICTION_MEMORIES] */
    float *distances;         /* [layers][experts] (1/p - 1) x layers */
};

/* False: no memory. */
bool eviction_init(struct eviction *out, struct arena *arena, uint32_t layers, uint32_t experts);

/* A visit: of `rows` tokens that went through the layer, uses[e] (≤ rows) chose expert e. */
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
