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
 * A feed (step.h) that fails, or is cancelled, leaves the state as it was.
 * The last row of logits is kept per sequence: another one may compute before they are read.
 *
 * Threads: one call at a time, but for engine_sequence_cancel. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include "engine/room.h"

struct engine_sequence {
    struct engine_room *room;
    struct sequence state;
    uint32_t chunk_rows; /* of this sequence in one step, at most */
    float *logits;       /* a block of the pool: [vocabulary] of the last token fed; or NULL */
    bool has_logits;
    atomic_bool cancelled;
    const struct observer *observer; /* of this sequence's rows; NULL: none */
    struct feed_progress {
        mf_progress_function function; /* NULL: none */
        void *user;
        size_t done, total; /* tokens of the present feed */
    } progress;
    struct sequence_times {
        uint64_t prompt_tokens, decode_tokens;
        double prompt_seconds, decode_seconds; /* of the steps that it had a part in */
        /* Its part of the time of those steps, by rows. */
        double mixer_seconds, expert_seconds, wait_seconds, head_seconds;
        double stage_ticks[2][MF_STAGE_COUNT]; /* of prompts, of generated tokens */
    } times;
};

/* What a sequence of `positions` tokens takes, of the pool and beside it, if steps have at most
 * `chunk_rows`. */
uint64_t engine_sequence_bytes(const struct model_config *config, enum kv_format format,
                               uint32_t positions, uint32_t chunk_rows);

/* `sizes` are at most the room's, which outlives the sequence. */
void engine_sequence_init(struct engine_sequence *sequence, struct engine_room *room,
                          struct engine_room_sizes sizes);
void engine_sequence_free(struct engine_sequence *sequence);

/* Another sequence with the same tokens and logits; observers and times are not copied. */
mf_status engine_sequence_fork(struct engine_sequence *out, const struct engine_sequence *sequence,
                               mf_error *why);

void engine_sequence_clear(struct engine_sequence *sequence);

/* Clears, and gives the logits back to the pool, too. */
void engine_sequence_release(struct engine_sequence *sequence);

/* Cuts back to `position`; where `reached` is not NULL, to the nearest place before it that the
 * state allows, which it is set to. */
mf_status engine_sequence_truncate(struct engine_sequence *sequence, uint32_t position,
                                   uint32_t *reached, mf_error *why);

/* From any thread, or a signal handler: see mf_sequence_cancel. */
void engine_sequence_cancel(struct engine_sequence *sequence);

/* Checks the invariants of the state diagram, between calls (tests only). */
bool engine_sequence_check_invariants(const struct engine_sequence *sequence);

#endif
