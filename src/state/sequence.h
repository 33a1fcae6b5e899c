/* sequence.h: everything a model remembers of one text.
 *
 *     position   committed tokens            kv         keys and values, in pages
 *     pending    tokens of the present feed  recurrent  state of recurrent layers
 *
 *            feed: steps advance                     commit
 *     position ────────────────▶ position + pending ────────▶ position' = position + pending
 *            ◀──────────────────────────────────────
 *                           abandon
 *
 * A feed is not visible until it is committed: after an error the sequence is
 * as it was.  Nothing allocates after sequence_init. */
#ifndef STATE_SEQUENCE_H
#define STATE_SEQUENCE_H

#include "model/config.h"
#include "state/kv_pages.h"
#include "state/recurrent.h"

struct sequence {
    const struct model_config *config;
    uint32_t position;
    uint32_t pending;
    uint32_t capacity; /* positions */
    /* Where the prompt rows begin that the next row would follow upon without a generated one
     * between: of the committed tokens, and with the pending ones. */
    uint32_t run_start, pending_run_start;
    uint8_t *generated; /* [capacity / 8 + 1] a bit for each token: its phase */
    struct kv_pool *pool;
    uint32_t *pages; /* block table, [kv_pages_for(capacity)] */
    uint32_t page_count;
    struct recurrent recurrent;
    uint32_t *layer_index; /* [layers] how many layers of the same kind come before */
};

/* The pool is borrowed and must have pages for `capacity` positions. */
mf_status sequence_init(struct sequence *sequence, const struct model_config *config,
                        struct kv_pool *pool, struct arena *arena, uint32_t capacity,
                        mf_error *why);

/* What sequence_init takes of the arena, each request in whole cache lines. */
size_t sequence_arena_bytes(const struct model_config *config, uint32_t capacity);

/* A pool for `positions` of this model: of all sequences that will share it, each counted in
 * whole pages. */
mf_status sequence_pool_init(struct kv_pool *pool, const mf_allocator *allocator,
                             const struct model_config *config, uint32_t positions,
                             enum kv_format format, mf_error *why);

/* Bytes of the pages of such a pool. */
uint64_t sequence_pool_bytes(const struct model_config *config, uint32_t positions,
                             enum kv_format format);

/* Makes room for `count` more tokens; MF_ERR_CONTEXT_FULL before anything is written. */
mf_status sequence_reserve(struct sequence *sequence, uint32_t count, mf_error *why);

/* Where the next step's first row goes. */
uint32_t sequence_next_position(const struct sequence *sequence);

/* The layer's state, for the next step. */
void sequence_view(const struct sequence *sequence, uint32_t layer, struct span *span);

/* `decode`: the rows were generated ones. */
void sequence_step_done(struct sequence *sequence, uint32_t rows, bool decode);
void sequence_commit(struct sequence *sequence);
void sequence_abandon(struct sequence *sequence);
void sequence_clear(struct sequence *sequence);

/* Keeps the first `position` tokens; see mf_sequence_truncate. */
mf_status sequence_truncate(struct sequence *sequence, uint32_t position, mf_error *why);

/* Bytes of the state of one sequence that a token reads: of cache per token, and fixed. */
size_t sequence_bytes_per_token(const struct model_config *config, enum kv_format format);
size_t sequence_fixed_bytes(const struct model_config *config);

#endif
