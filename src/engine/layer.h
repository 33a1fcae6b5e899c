/* layer.h: the recipes: what each kind of layer computes.
 *
 *     start    embedding, angles                          once per step
 *     mixer    norm, attention or delta net, residual,    per layer, before routing
 *              norm, router
 *     experts  shared expert, weighted sum, residual      per layer, after routing
 *     head     final norm, output matrix                  for rows whose logits are wanted
 */
#ifndef ENGINE_LAYER_H
#define ENGINE_LAYER_H

#include "backend/graph.h"
#include "base/arena.h"
#include "model/config.h"
#include "plan/buffers.h"

/* A graph with its plan. */
struct recipe {
    struct graph graph;
    struct buffer_plan plan;
};

struct recipes {
    struct recipe start;
    struct recipe attention, delta; /* MIXER_ATTENTION, MIXER_DELTA */
    struct recipe experts;
    struct recipe head;
    uint32_t widths[SHARED_COUNT]; /* of the shared buffers */
    uint64_t scratch_width;        /* floats per row that the largest plan needs */
};

/* Builds and plans all of them; frequencies are taken from `arena`. */
mf_status recipes_build(struct recipes *out, const struct model_config *config, struct arena *arena,
                        mf_error *why);

const struct recipe *recipes_mixer(const struct recipes *recipes, enum mixer_kind kind);

#endif
