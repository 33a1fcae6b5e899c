/* sampler.h: from a row of logits to the next token.
 *
 *     logits ─▶ usable, allowed, not NaN ─▶ biases ─▶ penalties ─▶ temperature
 *            ─▶ top-k ─▶ typical ─▶ top-p ─▶ min-p ─▶ draw
 *
 * The order is fixed.  Temperature comes before the filters, so that "top_p 0.9"
 * speaks of the distribution that is drawn from; each filter sees what the one
 * before it left, with its probabilities scaled to one, and keeps at least one token.
 *
 * Everything is selection, nothing is sorted: a filter finds the smallest kept
 * score with a radix search over the bits of the scores (see sampler.c), and the
 * candidates stay in ascending id.  Equal scores are therefore kept lower id first.
 *
 * The same options, logits and history give the same tokens on every machine: the
 * generator and exp are our own, sums run in ascending id, nothing else is inexact.
 *
 * Lifetimes: a sampler owns all of its memory, taken when it is made; nothing is
 * allocated afterwards.  Threads: one owner at a time. */
#ifndef SAMPLING_SAMPLER_H
#define SAMPLING_SAMPLER_H

#include "base/common.h"
#include "moeflux.h"

/* 64-bit words, token t at bit t % 64 of word t / 64: one word is one block of a row. */
#define TOKEN_MASK_WORDS(vocab_size) (((vocab_size) + 63) / 64)

struct sampler_options {
    float temperature; /* 0: the best token, nothing is drawn */
    int32_t top_k;     /* the k best; 0: all */
    float top_p;       /* the fewest best that together reach this probability; 0 or 1: all */
    float min_p;       /* those at least this fraction of the best one's probability; 0: all */
    float typical_p; /* the fewest nearest to the expected surprise that reach this; 0 or 1: all */

    /* Penalties look at the last `penalty_window` tokens of the history. */
    int32_t penalty_window;
    float repetition_penalty; /* prompt and answer: positive logits divided, others multiplied; 1 */
    float frequency_penalty;  /* answer: this times the number of occurrences is subtracted; 0 */
    float presence_penalty;   /* answer: subtracted once if the token occurred; 0 */

    /* DRY ("don't repeat yourself"): a token that would lengthen a repetition of the last
     * n ≥ dry_allowed_length tokens loses dry_multiplier * dry_base^(n - dry_allowed_length). */
    float dry_multiplier; /* 0: off */
    float dry_base;
    int32_t dry_allowed_length;
    const int32_t *dry_breakers; /* a repetition never reaches across these tokens */
    size_t dry_breaker_count;

    uint64_t seed;
    const mf_logit_bias *biases;
    size_t bias_count;
};

/* Draws from the model's own distribution: temperature 1, every filter and penalty off, window
 * 1024, DRY base 1.75 from length 2 (multiplier 0), seed 0. */
void sampler_options_default(struct sampler_options *options);

struct sampler;

/* Rows have `vocab_size` logits; only ids below `usable` are ever picked (the rows above are
 * padding of the embedding).  `options` and its arrays are copied.  On failure *out is NULL. */
mf_status sampler_new(struct sampler **out, const mf_allocator *allocator,
                      const struct sampler_options *options, size_t vocab_size, size_t usable,
                      mf_error *why);
void sampler_free(struct sampler *sampler);

/* The history that penalties look at: tokens of the prompt (repetition and DRY only), and the
 * token that was picked.  Ids outside the vocabulary are not remembered. */
void sampler_accept_prompt(struct sampler *sampler, const int32_t *tokens, size_t count);
void sampler_accept(struct sampler *sampler, int32_t token);

/* As just made: no history, the generator at its seed. */
void sampler_reset(struct sampler *sampler);

/* The next token of logits[vocab_size]; -1 when there is none (every one is -inf, NaN or not
 * allowed).  `allowed` (NULL: all) is a token mask of TOKEN_MASK_WORDS(vocab_size) words.
 * A NaN counts as -inf and +inf as the largest float.  The history is not changed. */
int32_t sampler_pick(struct sampler *sampler, const float *logits);
int32_t sampler_pick_allowed(struct sampler *sampler, const float *logits, const uint64_t *allowed);

/* The model's own distribution over the usable ids, before biases, penalties and filters:
 * the `count` most probable tokens into out[count], best first, lower id first among equals.
 * Returns how many were written: fewer than `count` only when fewer are possible. */
size_t sampler_logprobs(struct sampler *sampler, mf_logprob *out, size_t count,
                        const float *logits);

/* The log-probability of one token in the same distribution. */
float sampler_logprob_of(struct sampler *sampler, const float *logits, int32_t token);

#endif
