/* checkpoints.h: states of one sequence that a context keeps, each under a position that the caller
 * names, from the oldest to the newest.
 *
 * A kept state is a fork: it shares the memory of the live sequence and does not change when that
 * goes on.  Position 0 and the newest are protected: only the caller removes them.
 *
 * Threads: those of the context. */
#ifndef COMPAT_CHECKPOINTS_H
#define COMPAT_CHECKPOINTS_H

#include "api/handles.h"

struct checkpoints {
    struct kept {
        int32_t pos;
        mf_sequence *state;
    } * kept; /* [room], oldest first */
    size_t count, room;
};

void checkpoints_clear(struct checkpoints *checkpoints);
void checkpoints_free(struct checkpoints *checkpoints); /* a zeroed one is legal */

/* Keeps the state of `live` under `pos`, as the newest, in place of one that was there; then
 * removes the oldest ones that are not protected until `max` remain.  After a failure nothing has
 * changed. */
mf_status checkpoints_keep(struct checkpoints *checkpoints, int32_t pos, const mf_sequence *live,
                           size_t max, mf_error *why);

/* Removes the oldest that is not protected; false: there is none. */
bool checkpoints_evict(struct checkpoints *checkpoints);

/* The state under `pos`; one that is the beginning of `live` and ends at `position`; or NULL. */
const mf_sequence *checkpoints_at(const struct checkpoints *checkpoints, int32_t pos);
const mf_sequence *checkpoints_beginning_of(const struct checkpoints *checkpoints,
                                            const mf_sequence *live, uint32_t position);

void checkpoints_forget(struct checkpoints *checkpoints, int32_t pos);
void checkpoints_forget_above(struct checkpoints *checkpoints, int32_t pos);

#endif
