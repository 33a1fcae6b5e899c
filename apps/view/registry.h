/* registry.h: requests that wait, run or have ended lately, for GET /v1/moeflux/requests.  It holds
 * no text of prompts or answers.
 *
 * Threads: every function from any thread. */
#ifndef VIEW_REGISTRY_H
#define VIEW_REGISTRY_H

#include "serve/ask.h"

struct record;

mf_status registry_new(struct registry **out, mf_error *why);
void registry_free(struct registry *registry);

/* A request that begins.  NULL: no memory, all functions take it. */
struct record *registry_begin(struct registry *registry, const struct ask *ask,
                              uint32_t prompt_tokens);
void registry_progress(struct registry *registry, struct record *record, size_t done);
void registry_token(struct registry *registry, struct record *record);
/* One answer of the request has ended; the record lives on for a while. */
void registry_end(struct registry *registry, struct record *record,
                  const mf_request_result *result);
/* The caller uses the record no more. */
void registry_release(struct registry *registry, struct record *record);

/* "end", "stop", "length", "cancelled", "failed"; "none": it has not ended. */
const char *finish_name(mf_finish finish);

/* Requests that have begun and not been released. */
size_t registry_active(struct registry *registry);

/* Handler of GET /v1/moeflux/requests: those of the owner of the key that came; others as counts. */
void registry_reply(struct serve *serve, struct exchange *exchange);

#endif
