/* room.h: the engine room: what all sequences of a model share while they compute: the buffers of a
 * step, the rows of logits and the backend's reserve.  It is sized once, when the model is opened,
 * for the longest sequence and the largest step; nothing is allocated afterwards.
 *
 * Threads: one step at a time; the engine's lock sees to that. */
#ifndef ENGINE_ROOM_H
#define ENGINE_ROOM_H

#include "engine/forward.h"

struct engine_room_sizes {
    uint32_t context_length; /* positions of the longest sequence */
    uint32_t chunk_rows;     /* rows of the largest step */
};

struct engine_room {
    struct arena arena;
    struct forward forward;
    struct engine_room_sizes sizes;
    uint64_t bytes; /* of the arena and of the backend's reserve */
};

/* What engine_room_init takes. */
mf_status engine_room_bytes(uint64_t *out, const struct forward_parts *parts,
                            struct engine_room_sizes sizes, mf_error *why);

mf_status engine_room_init(struct engine_room *room, const struct forward_parts *parts,
                           struct engine_room_sizes sizes, mf_error *why);
void engine_room_free(struct engine_room *room); /* a zeroed one is legal */

#endif
