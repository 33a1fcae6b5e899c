/* room.h: the engine room: what all sequences of a model share: the buffers of a step, the backend's
 * reserve, and the pool that their pages and recurrent states come from.  It is sized once, when
 * the model is opened, for the longest sequence and the largest step.
 *
 * Threads: one step at a time; the engine's lock sees to that.  The pool has a lock of its own. */
#ifndef ENGINE_ROOM_H
#define ENGINE_ROOM_H

#include "engine/forward.h"

struct engine_room_sizes {
    uint32_t context_length; /* positions of the longest sequence */
    uint32_t chunk_rows;     /* rows of the largest step */
    uint32_t sequences;      /* of that length that the pool has room for, at least */
};

struct engine_room {
    struct arena arena;
    struct forward forward;
    struct forward *nested;               /* for steps in the pauses of another; NULL: no pauses */
    uint64_t pause_steps;                 /* calls that have run in pauses */
    double stage_seconds[MF_STAGE_COUNT]; /* of all steps; with a tracer */
    /* Counts times by stage while experts are watched; NULL: never watched, or the engine has a
     * tracer of its own.  Set once, from any thread. */
    _Atomic(struct tracer *) watch_tracer;
    struct state_pool pool;
    struct engine_room_sizes sizes;
    uint64_t bytes; /* of the arena, the backend's reserve and the spare states of a step */
};

/* Rows of a step in a pause: one for each part that a step may have; none where the room has only one
 * sequence. */
uint32_t engine_room_pause_rows(struct engine_room_sizes sizes);

/* What engine_room_init takes, without the pool's sequences. */
mf_status engine_room_bytes(uint64_t *out, const struct forward_parts *parts,
                            struct engine_room_sizes sizes, mf_error *why);

/* What `sizes.sequences` sequences take of the pool, each as long as possible. */
uint64_t engine_room_pool_bytes(const struct model_config *config, enum kv_format format,
                                struct engine_room_sizes sizes);

mf_status engine_room_init(struct engine_room *room, const struct forward_parts *parts,
                           struct engine_room_sizes sizes, mf_error *why);
/* The store, which is opened with what the room leaves; before the first step. */
void engine_room_set_experts(struct engine_room *room, struct expert_store *experts);
void engine_room_free(struct engine_room *room); /* a zeroed one is legal */

#endif
