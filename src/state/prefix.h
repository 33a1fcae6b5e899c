/* prefix.h: the prefix cache: beginnings of texts that were computed, kept for the next request
 * that begins in the same way.
 *
 *     root ─┬─ [64 tokens]─┬─ [64]── [64]── [17]          a node: up to 64 tokens, with the phase
 *           │     page     │   page ● page    ○           of each; one page
 *           │              └─ [30]                        ●  checkpoint: the recurrent state of a
 *           └─ [64]── …                                      position
 *                                                         ○  tokens alone
 *
 * Edges are cut at pages, so siblings may begin with the same tokens; none is the beginning of
 * another.  Pages and recurrent states are counted references into the pool: keeping a sequence
 * copies nothing, resuming shares what is kept.
 *
 * A model without recurrent layers and windows resumes at any token whose page is kept; one with
 * them at a checkpoint, which has the recurrent state or the pages of the windows.  There a page is kept only where a checkpoint lies in it or further
 * down, because nothing else can use it.  The tokens stay, without a page: the tree recognises by
 * them a beginning that is asked for again, and proposes to leave a checkpoint there (`junction`).
 *
 * A row of prompt tokens and a row of generated ones have different bits.  In `exact` a request
 * resumes only what a prompt has made; otherwise a generated token serves a prompt with the same
 * id.
 *
 * What is kept takes at most `limit_bytes`; the least valuable goes first.  The pool asks for
 * memory before it reports that it is full, and the tree gives what no sequence holds.
 *
 * Threads: any; the tree has a lock.  Lock order: tree, pool.  The tree takes no block from the
 * pool while it holds its lock, because the pool may ask it for one. */
#ifndef STATE_PREFIX_H
#define STATE_PREFIX_H

#include "base/clock.h"
#include "state/sequence.h"

/* Why a checkpoint is left at a position: what the caller knows about it. */
enum prefix_place {
    PREFIX_NO_PLACE,   /* none is */
    PREFIX_HEAD,       /* end of tools and leading system messages: what all sessions share */
    PREFIX_BREAKPOINT, /* asked for by name */
    PREFIX_PROMPT_END, /* before the tokens that only open the answer */
    PREFIX_JUNCTION,   /* where prefix_match says so */
    PREFIX_LAST_USER,  /* start of the last user message */
    PREFIX_ANSWER_END, /* end of the answer, or where it begins to call a tool */
    PREFIX_NET,        /* every few thousand tokens */
};

/* Distances of PREFIX_NET, in tokens of a prompt and in generated ones. */
enum { PREFIX_NET_PROMPT = 4096, PREFIX_NET_GENERATED = 1024 };

/* Where the match of a request ended. */
enum prefix_reason {
    PREFIX_EMPTY,     /* nothing is kept */
    PREFIX_ENDS,      /* what is kept ends there */
    PREFIX_DIFFERS,   /* another token follows */
    PREFIX_GENERATED, /* the same token follows, made by generating, and the cache is exact */
    PREFIX_WHOLE,     /* all that was asked for is kept */
};

struct prefix_match {
    uint32_t matched;  /* tokens that the request shares with what is kept */
    uint32_t resumed;  /* tokens that the sequence holds now; the rest of `matched` is replayed,
                        * because no checkpoint lies nearer */
    uint32_t junction; /* position at which the caller should stop its prompt, and keep the
                        * sequence as a PREFIX_JUNCTION; 0: none */
    enum prefix_reason reason; /* why not more than `matched` */
};

struct prefix_disk; /* prefix_disk.h */

struct prefix_options {
    bool exact;
    uint64_t limit_bytes;      /* of blocks and tables; 0: what the pool has to spare */
    const struct clock *clock; /* of the value of what is kept; NULL: the system's */
    struct prefix_disk *disk;  /* borrowed; NULL: memory only */
};

struct prefix_statistics {
    uint64_t lookups;
    uint64_t asked_tokens, matched_tokens, resumed_tokens;
    uint64_t checkpoints_kept, checkpoints_evicted; /* so far */
    uint64_t pages_evicted;
    uint64_t refused; /* times that nothing was kept, because the limit is too low */
    uint64_t bytes;   /* of blocks and tables, now */
    uint32_t nodes, pages, checkpoints; /* now */
};

struct prefix_tree;

/* An empty tree on the pool, which asks it for memory from now on.  Both end in the order tree,
 * pool; sequences may outlive the tree. */
mf_status prefix_tree_new(struct prefix_tree **out, struct state_pool *pool,
                          const struct prefix_options *options, mf_error *why);
void prefix_tree_free(struct prefix_tree *tree); /* no other call is under way */

/* Makes an empty sequence hold the longest beginning of `tokens` that is kept, by reference.
 * Where logits are wanted, `count` leaves the last token of the prompt out.  MF_ERR_ARGUMENT: the
 * sequence is not empty; MF_ERR_MEMORY: for its tables.  After a failure it is empty. */
mf_status prefix_tree_resume(struct prefix_match *out, struct prefix_tree *tree,
                             struct sequence *sequence, const int32_t *tokens, uint32_t count,
                             mf_error *why);

/* Keeps what the sequence holds, by reference, with a checkpoint of its position if it has
 * recurrent layers or windows and `place` is one that pays: a short request whose beginning was not asked
 * for before leaves none as PREFIX_LAST_USER, PREFIX_ANSWER_END or PREFIX_NET.  A tree that is
 * too small for it keeps less, or nothing, and that is no error.  MF_ERR_MEMORY: for the tables;
 * what was there is still kept. */
mf_status prefix_tree_keep(struct prefix_tree *tree, const struct sequence *sequence,
                           enum prefix_place place, mf_error *why);

/* Forgets everything. */
void prefix_tree_clear(struct prefix_tree *tree);

struct prefix_statistics prefix_tree_statistics(struct prefix_tree *tree);
void prefix_tree_reset_statistics(struct prefix_tree *tree); /* but for what is kept now */

/* Bytes of blocks that no sequence holds: what the tree gives when the pool asks. */
uint64_t prefix_tree_unshared_bytes(struct prefix_tree *tree);

/* Checks the invariants above, of all nodes (tests only). */
bool prefix_tree_check_invariants(struct prefix_tree *tree);

#endif
