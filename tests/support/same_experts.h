/* same_experts.h: two backends that go through the same experts, so that all their rows compare.
 *
 * Arithmetic that rounds more coarsely turns a router's decision where two experts are nearly
 * equal; from there on it computes something else, in that row and in all that look at it, and
 * nothing about its quality can be read from the result.  So one sequence leads, and the other
 * one takes the leader's experts and their weights wherever it would have chosen others.  Where
 * it chooses the same, its own weights stay.
 *
 *     struct same_experts same;
 *     same_experts_init(&same, model, positions);
 *     same_experts_lead(&same, a);    feed a …
 *     same_experts_follow(&same, b);  feed b the same tokens, in any chunks …
 *     same.turned of same.decisions were others
 *     same_experts_free(&same);       after both sequences are closed
 *
 * Threads: one sequence computes at a time. */
#ifndef SUPPORT_SAME_EXPERTS_H
#define SUPPORT_SAME_EXPERTS_H

#include "api/handles.h"

struct same_experts {
    struct observer observer;
    const struct forward *forward; /* of the sequence that is looked at */
    bool follow;
    size_t layers, positions, per_row;
    uint32_t *experts;        /* [layers][positions][per_row] of the leader */
    float *weights;           /* [layers][positions][per_row] of the leader */
    size_t decisions, turned; /* of the follower: a row in a layer each */
};

void same_experts_init(struct same_experts *same, mf_model *model, size_t positions);
void same_experts_free(struct same_experts *same);
void same_experts_lead(struct same_experts *same, mf_sequence *sequence);
void same_experts_follow(struct same_experts *same, mf_sequence *sequence);

#endif
