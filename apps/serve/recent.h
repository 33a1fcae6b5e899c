/* recent.h: what later requests are compared with: of the responses given lately their ids and what
 * their prompts were made of, as sizes and hashes.  It holds no text.
 *
 * Threads: every function from any thread. */
#ifndef SERVE_RECENT_H
#define SERVE_RECENT_H

#include "serve/ask.h"

struct recent;

mf_status recent_new(struct recent **out, mf_error *why);
void recent_free(struct recent *recent);

/* Remembers the response of an ask, in place of the oldest one. */
void recent_add(struct recent *recent, const struct ask *ask, uint32_t prompt_tokens);

/* prompt_cache_diagnostics of an ask against the response `id`: what the prefix cache had of the
 * prompt, and what has changed where that is less than the prompt of the other one.  Responses of
 * other keys are not found.  The caller owns the object. */
json_t *recent_compare_new(struct recent *recent, const char *id, const struct ask *ask,
                           uint32_t prompt_tokens, const mf_resumed *cached);

#endif
