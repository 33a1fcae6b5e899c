#include "support/same_experts.h"

#include <stdlib.h>

/* After routing, before the experts run. */
static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    struct same_experts *same = user;
    size_t n = same->per_row;
    if (routes->per_row != n) abort();
    for (size_t i = 0; i < rows; i++) {
        size_t position = same->forward->rows[i].position;
        if (position >= same->positions) abort();
        size_t kept = (layer * same->positions + position) * n;
        uint32_t *experts = routes->experts + i * n;
        float *weights = routes->weights + i * n;
        if (!same->follow) {
            memcpy(same->experts + kept, experts, n * sizeof *experts);
            memcpy(same->weights + kept, weights, n * sizeof *weights);
            continue;
        }
        same->decisions++;
        if (memcmp(same->experts + kept, experts, n * sizeof *experts) == 0) continue;
        same->turned++;
        memcpy(experts, same->experts + kept, n * sizeof *experts);
        memcpy(weights, same->weights + kept, n * sizeof *weights);
    }
}

void same_experts_init(struct same_experts *same, mf_model *model, size_t positions)
{
    const struct model_config *c = &model->model.config;
    *same = (struct same_experts){ .observer = { .user = same, .routes = see_routes },
                                   .layers = c->layer_count,
                                   .positions = positions,
                                   .per_row = c->experts_per_token };
    size_t count = same->layers * positions * same->per_row;
    same->experts = calloc(count, sizeof *same->experts);
    same->weights = calloc(count, sizeof *same->weights);
    if (!same->experts || !same->weights) abort();
}

void same_experts_free(struct same_experts *same)
{
    free(same->experts);
    free(same->weights);
}

static void look_at(struct same_experts *same, mf_sequence *sequence, bool follow)
{
    same->follow = follow;
    same->forward = &sequence->model->room.forward;
    sequence->sequence.observer = &same->observer;
}

void same_experts_lead(struct same_experts *same, mf_sequence *sequence)
{
    look_at(same, sequence, false);
}

void same_experts_follow(struct same_experts *same, mf_sequence *sequence)
{
    same->decisions = same->turned = 0;
    look_at(same, sequence, true);
}
