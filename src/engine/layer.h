/* layer.h: the recipes: what each kind of layer computes.
 *
 *     start    embedding, angles                          once per step
 *     before   norm, mixer, residual, norm, router        per layer, up to routing
 *     after    shared expert, weighted sum, residual;     per layer, behind it
 *              or a dense feed-forward
 *     predict  norm, router                               of a later layer, now and then
 *     head     final norm, output matrix                  for rows whose logits are wanted
 */
#ifndef ENGINE_LAYER_H
#define ENGINE_LAYER_H

#include "backend/graph.h"
#include "base/arena.h"
#include "model/config.h"
#include "backend/buffers.h"

/* A graph with its plan. */
struct recipe {
    struct graph graph;
    struct buffer_plan plan;
};

struct recipes {
    struct recipe start;
    struct recipe before[MIXER_KINDS][FFN_KINDS]; /* those kinds that the model has */
    struct recipe after[FFN_KINDS];
    struct recipe predict;
    struct recipe head;
    uint32_t widths[SHARED_COUNT]; /* of the shared buffers */
    uint64_t scratch_width;        /* floats per row that the largest plan needs */
};

/* What they take of the arena. */
size_t recipes_bytes(const struct model_config *config);

/* Builds and plans all of them; frequencies are taken from `arena`. */
mf_status recipes_build(struct recipes *out, const struct model_config *config, struct arena *arena,
                        mf_error *why);

#endif
