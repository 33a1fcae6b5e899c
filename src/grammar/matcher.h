/* matcher.h: constrains generation to a grammar, token by token.
 *
 *     for each token:
 *         token = matcher_pick(matcher, sampler, logits, remaining);   one that fits
 *         matcher_accept(matcher, token);
 *         if (matcher_is_finished(matcher)) break;
 *
 * An answer is always complete within the limit.  `remaining` is the number of tokens that may
 * still be generated; matcher_pick takes no token after which the shortest completion would not
 * fit, and follows that completion when nothing else fits.  The caller checks at the start that
 * matcher_closing_tokens is at most the limit.
 *
 * Masks are composed of cached pieces (mask.c).  The first use of a piece costs a walk over the
 * vocabulary: a few milliseconds for 250,000 tokens if nearly all of them are allowed.
 * matcher_reset keeps the cache.
 *
 * Lifetimes: grammar and vocabulary must outlive the matcher.  Tables take about 2.5 MB at first;
 * grammars with many states let them grow to 29 MB.  Where there is no memory for that, states are
 * dropped and computed again.
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

/* Returns to the start of the text. */
void matcher_reset(struct grammar_matcher *matcher);

/* is_complete: the text so far is a text of the grammar.  is_finished: nothing can follow it. */
bool matcher_is_complete(const struct grammar_matcher *matcher);
bool matcher_is_finished(const struct grammar_matcher *matcher);

/* The tokens that may come next, as a token mask (sampler.h) of the vocabulary's mask_words; end
 * tokens are set if the text is complete.  In a highly ambiguous grammar some allowed tokens may be
 * missing.  Borrowed until the next call on the matcher. */
const uint64_t *matcher_mask(struct grammar_matcher *matcher);

/* allows: whether a token may come next.  accept: advances by it, or returns false and changes
 * nothing.  After an end token the matcher is finished. */
bool matcher_allows(struct grammar_matcher *matcher, int32_t token);
bool matcher_accept(struct grammar_matcher *matcher, int32_t token);
bool matcher_accept_bytes(struct grammar_matcher *matcher, const char *bytes, size_t length);

/* The shortest completion.  closing_text: writes up to `capacity` bytes of it and returns its
 * length; closing_tokens: an upper bound of its tokens, at most one per byte. */
size_t matcher_closing_text(const struct grammar_matcher *matcher, char *out, size_t capacity);
size_t matcher_closing_tokens(struct grammar_matcher *matcher);

/* Samples the next token from a row of logits.  `remaining` (≥ 1) includes this token; SIZE_MAX: no
 * limit.  -1: the text is finished, or no token of the vocabulary continues it.  Does not advance
 * the matcher. */
int32_t matcher_pick(struct grammar_matcher *matcher, struct sampler *sampler, const float *logits,
                     size_t remaining);

#endif
