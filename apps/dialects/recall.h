/* recall.h: what earlier prompts consisted of, so that a request that names its predecessor learns
 * what has changed since, and with it why the prefix cache could not go on from there.
 *
 * Of a prompt the hashes of its parts are kept, of RECALL_COUNT prompts in all.
 * Threads: all functions may be called from any thread. */
#ifndef DIALECTS_RECALL_H
#define DIALECTS_RECALL_H

#include "serve/ask.h"

enum { RECALL_COUNT = 1024 };

struct recall;

mf_status recall_new(struct recall **out, mf_error *why);
void recall_free(struct recall *recall); /* NULL is legal */

enum recall_change {
    RECALL_NONE,    /* the earlier messages are all there, others may follow */
    RECALL_UNKNOWN, /* there is no such answer, or another client's */
    RECALL_TOOLS,
    RECALL_SYSTEM,
    RECALL_MESSAGES,
    RECALL_OTHER /* variables of the template */
};

/* Keeps the prompt of ask->id, which has `tokens`. */
void recall_keep(struct recall *recall, const struct ask *ask, uint32_t tokens);

/* Compares the prompt of `ask` with the one that answer `id` was to; *tokens: of that one. */
enum recall_change recall_compare(struct recall *recall, uint32_t *tokens, const struct ask *ask,
                                  const char *id);

#endif
