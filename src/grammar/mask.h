/* mask.h: the set of tokens that a grammar allows in a state; see mask.c. */
#ifndef GRAMMAR_MASK_H
#define GRAMMAR_MASK_H

#include "grammar/states.h"
#include "grammar/vocabulary.h"

struct mask_scratch;

/* A cached walk over the vocabulary: the tokens that stay inside a piece of the grammar, and the
 * nodes of the vocabulary at which others leave it. */
struct mask_entry {
    uint32_t tokens; /* in pool: token_count ids, or a bitmap when token_count is TOKENS_BITMAP */
    uint32_t token_count;
    uint32_t exits; /* in pool: exit_count nodes of the vocabulary */
    uint32_t exit_count;
    bool too_many_exits; /* unusable: a larger piece must be walked */
};

struct grammar_masks {
    const struct grammar_vocabulary *vocabulary;
    struct grammar_states *states;
    const mf_allocator *allocator;
    uint32_t *alike;            /* [node_count]: the node that stands for it; see find_alike */
    struct mask_entry *entries; /* [entry_count]; 0 is not used */
    uint32_t *pool;             /* [pool_used] */
    uint32_t entry_count, pool_used;
    unsigned reduction; /* tables have the largest sizes shifted right by so much */
    struct mask_scratch *scratch;
};

/* `states` is shared with the caller; its `mask` fields are written here only. */
mf_status masks_init(struct grammar_masks *masks, struct grammar_states *states,
                     const struct grammar_vocabulary *vocabulary, const mf_allocator *allocator,
                     mf_error *why);
void masks_release(struct grammar_masks *masks);

/* Adds the tokens that may follow `state` to mask[mask_words].  False if a table is full: some
 * tokens may be missing; grow both tables, or compact the states and call masks_forget, and start
 * again. */
bool masks_add_allowed(struct grammar_masks *masks, uint64_t *mask, uint32_t state);

/* Larger tables with the same entries.  False: they are as large as they may get, or there is no
 * memory for that, and nothing has changed. */
bool masks_grow(struct grammar_masks *masks);

/* Empties the cache; call after states were renumbered. */
void masks_forget(struct grammar_masks *masks);

#endif
