/* recurrent.h: the state of the layers that keep no history.
 *
 * There are two copies.  A feed reads the committed one and writes the other; its
 * later steps go on in the other.  Committing swaps them, so that until the very
 * end the state before the feed is still there. */
#ifndef STATE_RECURRENT_H
#define STATE_RECURRENT_H

#include "backend/backend.h"
#include "base/arena.h"

struct recurrent {
    struct recurrent_sizes {
        size_t conv_floats, delta_floats, open_floats; /* of one layer: struct recurrent_view */
    } sizes;
    uint32_t layer_count; /* recurrent layers */
    float *copies[2];     /* [layer_count][delta | open | conv], aligned to cache lines */
    unsigned committed;   /* which copy */
    bool started;         /* the present feed has written the other one */
};

mf_status recurrent_init(struct recurrent *recurrent, struct arena *arena, uint32_t layer_count,
                         struct recurrent_sizes sizes, mf_error *why);

/* What recurrent_init takes of the arena. */
size_t recurrent_bytes(uint32_t layer_count, struct recurrent_sizes sizes);

/* Recurrent layer `layer` (counted among those) for the next step. */
struct recurrent_view recurrent_view(const struct recurrent *recurrent, uint32_t layer);

void recurrent_step_done(struct recurrent *recurrent);
void recurrent_commit(struct recurrent *recurrent);
void recurrent_abandon(struct recurrent *recurrent);
void recurrent_clear(struct recurrent *recurrent);

#endif
