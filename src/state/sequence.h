/* sequence.h: everything a model remembers of one text: its tokens, a table of pages with keys and
 * values, and the state of recurrent layers.
 *
 *     position   tokens that are committed     pending   tokens of the present feed
 *
 *            feed: steps advance                     commit
 *     position ────────────────▶ position + pending ────────▶ position' = position + pending
 *            ◀──────────────────────────────────────
 *                           abandon
 *
 * A feed is not visible until it is committed: after an error the sequence is as it was.
 * Memory is taken by sequence_reserve, before the steps of a feed, and never during them.
 *
 * Pages and states are counted references into the pool (pool.h), which forks share.  A feed
 * writes behind the committed position: into pages that no other sequence holds (reserve copies
 * one that is shared) and into a recurrent state of its own, which replaces the committed one.
 *
 * A checkpoint keeps the recurrent state of a position, so that a sequence with recurrent layers
 * can be cut back to it; of layers with a window it keeps the pages.  Other pages need none: they
 * hold every position.
 *
 * Threads: one call at a time for each sequence; sequences of a pool are independent. */
#ifndef STATE_SEQUENCE_H
#define STATE_SEQUENCE_H

#include "state/window.h"

/* Marks a token of a sequence as generated; the other bits are its id. */
#define TOKEN_GENERATED UINT32_C(0x80000000)

struct checkpoint {
    uint32_t position;
    void *recurrent; /* NULL: of the empty sequence, or the model keeps no states */
};

struct sequence {
    struct state_pool *pool;
    uint32_t position;
    uint32_t pending;
    uint32_t capacity; /* positions */
    /* Position of the first row of the run of prompt rows that the next row would continue: of the
     * committed tokens, and with the pending ones. */
    uint32_t run_start, pending_run_start;
    uint32_t *tokens; /* [token_room] ids with TOKEN_GENERATED */
    size_t token_room;
    uint8_t **pages; /* block table, [page_room] */
    size_t page_room;
    uint32_t page_count;
    struct window_pages window;
    void *recurrent; /* of the committed tokens; NULL: all zeros, or no recurrent layers */
    void *next;      /* of the present feed; NULL: none is under way */
    bool started;    /* a step of the present feed has written `next` */
    struct checkpoint *checkpoints; /* by position, ascending */
    size_t checkpoint_count, checkpoint_room;
};

/* An empty sequence, which holds nothing yet.  The pool is borrowed. */
void sequence_init(struct sequence *sequence, struct state_pool *pool, uint32_t capacity);
void sequence_free(struct sequence *sequence); /* a zeroed one is legal */

/* Another sequence with the same tokens and checkpoints; pages and states are shared. */
mf_status sequence_fork(struct sequence *out, const struct sequence *sequence, mf_error *why);

/* Makes room for a feed of `count` more tokens.  MF_ERR_CONTEXT_FULL: the sequence's own limit;
 * MF_ERR_POOL_FULL: that of all sequences together.  After a failure call sequence_abandon. */
mf_status sequence_reserve(struct sequence *sequence, uint32_t count, mf_error *why);

/* Where the next step's first row goes. */
uint32_t sequence_next_position(const struct sequence *sequence);

/* The layer's state, for the next step. */
void sequence_view(const struct sequence *sequence, uint32_t layer, struct span *span);

/* A step has computed `count` tokens; `generated` says in which phase. */
void sequence_step_done(struct sequence *sequence, const int32_t *tokens, uint32_t count,
                        bool generated);
void sequence_commit(struct sequence *sequence);

/* Memory for a snapshot of `count` tokens, instead of sequence_reserve. */
mf_status sequence_hold(struct sequence *sequence, uint32_t count, mf_error *why);

/* Instead of steps, for a snapshot whose pages and state were copied into what was reserved:
 * `count` tokens with their phases, and commits.  The sequence is empty before. */
void sequence_restore(struct sequence *sequence, const void *tokens, uint32_t count);

/* Instead of steps, for state that others hold, too: makes room in the tables of an empty sequence;
 * then the caller fills in `tokens` and appends references to `pages`, and sequence_adopt commits
 * `count` of them and takes over `kept`, a reference to the state that was kept of them. */
mf_status sequence_make_tables(struct sequence *sequence, uint32_t count, mf_error *why);
mf_status sequence_adopt(struct sequence *sequence, uint32_t count, void *kept, mf_error *why);
void sequence_abandon(struct sequence *sequence);
void sequence_clear(struct sequence *sequence);

/* A reference to what a checkpoint of the position keeps; NULL where that is nothing. */
mf_status sequence_state(void **out, const struct sequence *sequence, mf_error *why);

/* Keeps the present state under its position, in place of one that was there. */
mf_status sequence_keep_checkpoint(struct sequence *sequence, mf_error *why);
void sequence_forget_checkpoint(struct sequence *sequence, uint32_t position);
bool sequence_has_checkpoint(const struct sequence *sequence, uint32_t position);

/* The last position at or before `position` that the sequence can be cut back to. */
uint32_t sequence_cut_before(const struct sequence *sequence, uint32_t position);

/* Keeps the first `position` tokens and the checkpoints up to there; MF_ERR_CANNOT_TRUNCATE where
 * sequence_cut_before is less. */
mf_status sequence_truncate(struct sequence *sequence, uint32_t position, mf_error *why);

/* Bytes of a sequence of `positions` tokens, with two checkpoints, in the pool, and beside it. */
uint64_t sequence_pool_bytes(const struct state_shape *shape, uint32_t positions);
uint64_t sequence_table_bytes(uint32_t positions);

/* Pages of windows that a sequence of `positions` tokens and its next step take. */
uint64_t sequence_window_pages(const struct state_shape *shape, uint32_t positions);

#endif
