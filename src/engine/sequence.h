/* sequence.h: a sequence as the engine runs it: its state, the logits of its last token, and what
 * it took.
 *
 *                 feed                       feed
 *     EMPTY ───────────────▶ HAS LOGITS ◀──────────────┐
 *       ▲                       │   └──────────────────┘
 *       │ clear, truncate to 0  │ truncate, rehearse
 *       │                       ▼                 feed
 *       └───────────────── NO LOGITS ───────────────────▶ HAS LOGITS
 *
 * A feed that fails, or is cancelled, leaves the state as it was.  It cuts its tokens into chunks;
 * the state commits once, at the end.  All memory is taken at open; scratch is the engine room's.
 * The last row of logits is kept per sequence: another one may compute before they are read.
 *
 * Threads: one call at a time, but for engine_sequence_cancel. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "engine/room.h"

struct engine_sequence {
    struct engine_room *room;
    struct arena arena;
    struct kv_pool pool;
    struct sequence state;
    uint32_t chunk_rows;
    float *logits; /* [vocabulary] of the last token fed */
    bool has_logits;
    atomic_bool cancelled;
    const struct observer *observer; /* of this sequence's steps; NULL: none */
    struct feed_progress {
        mf_progress_function function; /* NULL: none */
        void *user;
        size_t done, total; /* tokens of the present feed, in whole chunks */
    } progress;
    struct sequence_times {
        uint64_t prompt_tokens, decode_tokens;
        double prompt_seconds, decode_seconds;
        struct forward_times forward;
    } times;
};

/* What engine_sequence_init takes. */
uint64_t engine_sequence_bytes(const struct model_config *config, enum kv_format format,
                               uint32_t context_length);

/* `sizes` are at most the room's, which outlives the sequence. */
mf_status engine_sequence_init(struct engine_sequence *sequence, const mf_allocator *allocator,
                               struct engine_room *room, struct engine_room_sizes sizes,
                               mf_error *why);
void engine_sequence_free(struct engine_sequence *sequence);

/* Tokens to evaluate; see mf_sequence_feed_each. */
struct sequence_feed {
    mf_phase phase;
    const int32_t *tokens;
    size_t count;
    mf_logits_function each; /* may be NULL */
    void *user;
};

mf_status engine_sequence_feed(struct engine_sequence *sequence, const struct sequence_feed *feed,
                               mf_error *why);
/* The work of a feed, after which the sequence is where it was, also a recurrent one: for measuring
 * a prompt again and again at the same depth.  Leaves no logits. */
mf_status engine_sequence_rehearse(struct engine_sequence *sequence,
                                   const struct sequence_feed *feed, mf_error *why);
void engine_sequence_clear(struct engine_sequence *sequence);
mf_status engine_sequence_truncate(struct engine_sequence *sequence, uint32_t position,
                                   mf_error *why);

/* From any thread, or a signal handler: see mf_sequence_cancel. */
void engine_sequence_cancel(struct engine_sequence *sequence);

/* Checks the invariants of the state diagram, between calls (tests only). */
bool engine_sequence_check_invariants(const struct engine_sequence *sequence);

#endif
