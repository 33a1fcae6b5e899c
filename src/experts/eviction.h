/* eviction.h: which expert is least likely to be missed.
 *
 * Layers are visited in turn, so an expert's next use is at one of its layer's next
 * visits.  With a chance p of being wanted by each of them it lies, in visits of
 * any layer,
 *
 *     (visits until its layer comes) + (1/p - 1) x layers
 *
 * away; the store evicts the one that is furthest.
 *
 * What one token may choose next, v, is learnt while the model runs:
 *
 *     v[e] = Σ share x memory[e]             what was used in the past
 *          + Σ over the chosen c: follows[c][e]  what follows upon what was just chosen
 *
 * Three memories forget by half after about 1, 35 and 350 tokens.  `follows` holds for
 * each pair of experts of a layer how much more often e is used in the next few tokens
 * when c was chosen in this one: experts are chosen by what a word is, and words have
 * their successors.  It is learnt as values are in reinforcement learning, with γ = 0.7:
 *
 *     v before += rate x ((1 - γ) used now + γ v now - v before)
 *
 * p is the chance that any of the rows of a visit wants the expert, 1 - (1 - v)^rows:
 * nearly 1 for a long piece of a prompt, so that then only the turn of the layers counts.
 * What else was tried, and how far the best possible choice is away, is in
 * docs/experiments.md.
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
    float *follows;           /* [layers][experts chosen][experts that follow] */
    float *chosen;            /* [layers][experts] by which share of the last visit's rows … */
    float *expected;          /* [layers][experts] … and v after it */
    float *distances;         /* [layers][experts] (1/p - 1) x layers */
    float *now;               /* [experts] v, as it is found */
};

/* False: no memory.  Most of what it takes are layers x experts² floats. */
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
