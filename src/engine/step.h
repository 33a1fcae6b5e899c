/* step.h: feeds: tokens of one or more sequences, computed together.
 *
 *     feeds ─ reserve ─▶ steps (rows of all feeds, up to the room's limits) ─▶ commit, each by itself
 *
 * An expert that several rows of a step have chosen is read once.  A row's bits do not depend on
 * the other rows of its step.  A feed that fails fails alone, and leaves its sequence as it was;
 * where a step itself fails (a file cannot be read), so do the feeds that had a part in it.
 *
 * Threads: one call at a time for each engine. */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include "engine/sequence.h"

struct feed {
    struct engine_sequence *sequence;
    mf_phase phase;
    const int32_t *tokens;
    size_t count;
    mf_logits_function each; /* of every row; NULL: the last one's logits are enough */
    void *user;
    bool quiet;       /* no logits are wanted: more of the same text follows */
    mf_status status; /* out */
    mf_error *why;    /* out, after a failure; may be NULL */
    size_t done;      /* tokens computed so far; 0 at first */
};

/* The sequences are different ones of one room. */
void engine_feed(struct feed *feeds, size_t count);

/* The same for feeds that may stand still between two layers while others go on: `function` is
 * called at each boundary and may call engine_feed_in_pause.  What the pauses take is not part of
 * the times of these feeds.  Where the room has no memory for pauses (engine_room_pause_rows) it is
 * never called. */
struct feed_pause {
    void (*function)(void *user);
    void *user;
};
void engine_feed_pausable(struct feed *feeds, size_t count, const struct feed_pause *pause);

/* engine_feed for sequences that have no part in the call that stands still; a step has at most
 * engine_room_pause_rows rows. */
void engine_feed_in_pause(struct feed *feeds, size_t count);

/* The work of a feed, after which the sequence is where it was, also a recurrent one: for measuring
 * a prompt again and again at the same depth.  Leaves no logits. */
void engine_rehearse(struct feed *feed);

#endif
