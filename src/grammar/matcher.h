/* matcher.h: keeps an answer inside a grammar, token by token.
 *
 *     for each token:
 *         token = matcher_pick(matcher, sampler, logits, remaining);   one that fits
 *         matcher_accept(matcher, token);
 *         if (matcher_is_finished(matcher)) break;
 *
 * The limit: an answer always closes.  `remaining` is how many tokens may still be
 * generated; matcher_pick never takes one after which the shortest way to the end no
 * longer fits, and takes that way itself when nothing else does.  It fits from the start
 * if matcher_closing_tokens is at most the limit, which the caller checks first.
 *
 * Masks are made from remembered pieces (mask.c); a piece met for the first time
 * costs a walk over the vocabulary, a few milliseconds for 250,000 tokens when nearly all
 * of them are allowed.  A matcher that is reset keeps its pieces.
 *
 * Lifetimes: grammar and vocabulary must outlive the matcher.  All memory is taken in
 * grammar_matcher_new: about 20 MB of address space, touched as needed, and the masks.
 * Threads: one owner. */
#ifndef GRAMMAR_MATCHER_H
#define GRAMMAR_MATCHER_H

#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

struct sampler;
struct grammar_matcher;

mf_status grammar_matcher_new(struct grammar_matcher **out, const mf_allocator *allocator,
                              const struct grammar *grammar,
                              const struct grammar_vocabulary *vocabulary, mf_error *why);
void grammar_matcher_free(struct grammar_matcher *matcher);

/* Before the first byte again. */
void matcher_reset(struct grammar_matcher *matcher);

/* The text so far is complete; and: nothing can follow it. */
bool matcher_is_complete(const struct grammar_matcher *matcher);
bool matcher_is_finished(const struct grammar_matcher *matcher);

/* The tokens that may come next, as a token mask (sampler.h) of mask_words of the vocabulary;
 * end tokens when the text is complete.  All of them, except in a grammar that can be read in
 * so many ways that some are not found in time.  Borrowed until the next call on the matcher. */
const uint64_t *matcher_mask(struct grammar_matcher *matcher);

/* Whether a token may come next; and takes it.  False: it may not, nothing changes.  After an
 * end token the matcher is finished. */
bool matcher_allows(struct grammar_matcher *matcher, int32_t token);
bool matcher_accept(struct grammar_matcher *matcher, int32_t token);
bool matcher_accept_bytes(struct grammar_matcher *matcher, const char *bytes, size_t length);

/* The shortest way to the end: its bytes (up to `capacity` into out; returns how many there are
 * in all), and tokens that spell it (an upper bound: at most one per byte). */
size_t matcher_closing_text(const struct grammar_matcher *matcher, char *out, size_t capacity);
size_t matcher_closing_tokens(struct grammar_matcher *matcher);

/* The token to generate, of a row of logits, with `remaining` (≥ 1) tokens to go, this one
 * included; SIZE_MAX: no limit.  -1: the text is finished, or no token of the vocabulary
 * continues it.  The matcher is not moved. */
int32_t matcher_pick(struct grammar_matcher *matcher, struct sampler *sampler, const float *logits,
                     size_t remaining);

#endif
