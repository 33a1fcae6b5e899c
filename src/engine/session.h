/* session.h: one sequence of one model, fed in chunks.
 *
 *            feed                        feed, clear, truncate
 *     open ────────▶ has logits ◀───────────────────────────────┐
 *                        └─────────────────────────────────────-┘
 *
 * A feed cuts its tokens into chunks; the sequence commits once, at the end.  All
 * memory is taken at open. */
#ifndef ENGINE_SESSION_H
#define ENGINE_SESSION_H

#include "engine/forward.h"

struct session {
    struct arena arena;
    struct kv_pool pool;
    struct sequence sequence;
    struct forward forward;
    uint32_t chunk_rows;
    float *logits; /* [vocabulary] of the last token fed */
    bool has_logits;
    struct session_times {
        uint64_t prompt_tokens, decode_tokens;
        double prompt_seconds, decode_seconds;
    } times;
};

struct session_sizes {
    uint32_t context_length; /* positions */
    uint32_t chunk_rows;
};

mf_status session_init(struct session *session, const mf_allocator *allocator,
                       const struct forward_parts *parts, struct session_sizes sizes,
                       mf_error *why);
void session_free(struct session *session);

/* Tokens to evaluate; see mf_sequence_feed_each. */
struct session_feed {
    mf_phase phase;
    const int32_t *tokens;
    size_t count;
    mf_logits_function each; /* may be NULL */
    void *user;
};

mf_status session_feed(struct session *session, const struct session_feed *feed, mf_error *why);
/* The work of session_feed, after which the sequence is where it was, also a recurrent one:
 * for measuring a prompt again and again at the same depth.  Leaves no logits. */
mf_status session_rehearse(struct session *session, const struct session_feed *feed, mf_error *why);
void session_clear(struct session *session);
mf_status session_truncate(struct session *session, uint32_t position, mf_error *why);

#endif
