/* token_history.h: the last tokens of a text, and what a penalty needs to know of them.
 *
 * A ring of `window` tokens.  Beside it, for every token of the vocabulary, how often it
 * is in the ring, and a dense list of those that are: a penalty touches only them.
 *
 *     ring      … 7 3 3 9 7          counts[3] = 2, counts[7] = 2, counts[9] = 1
 *     distinct  7 3 9                in no particular order; place[] finds the entry
 *
 * Threads: one owner. */
#ifndef SAMPLING_TOKEN_HISTORY_H
#define SAMPLING_TOKEN_HISTORY_H

#include "base/arena.h"

struct token_history {
    int32_t *ring;        /* [window] */
    bool *ring_generated; /* [window]: picked, as against read in the prompt */
    size_t window, length, next;

    uint32_t *counts;    /* [vocab_size]: occurrences in the ring */
    uint32_t *generated; /* [vocab_size]: of those, the picked ones */
    int32_t *distinct;   /* [distinct_count], at most `window` */
    uint32_t *place;     /* [vocab_size]: index in distinct, valid where counts > 0 */
    size_t distinct_count, vocab_size;

    bool *breaks;       /* [vocab_size]: DRY breakers */
    int32_t *reversed;  /* [window]: scratch, newest token first */
    uint32_t *matching; /* [window]: scratch, see token_history_apply_dry */
    uint32_t *repeated; /* [vocab_size]: scratch, zero between calls */
};

struct dry_options {
    float multiplier, base;
    size_t allowed_length;
};

/* Memory from `arena`; a window of 0 remembers nothing. */
mf_status token_history_init(struct token_history *history, struct arena *arena, size_t window,
                             size_t vocab_size, mf_error *why);
void token_history_clear(struct token_history *history);

/* Ids outside the vocabulary are dropped. */
void token_history_push(struct token_history *history, int32_t token, bool generated);

/* Lowers scores[usable] of tokens that would go on with a repetition of the last n tokens,
 * n ≥ allowed_length, by multiplier * base^(n - allowed_length).  Linear in the window. */
void token_history_apply_dry(struct token_history *history, float *scores, size_t usable,
                             const struct dry_options *options);

#endif
