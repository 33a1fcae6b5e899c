/* batches.h: /v1/batches: files of requests, answered in the background by batch/batch_run.h.
 *
 *     validating ─▶ in_progress ─▶ finalizing ─▶ completed
 *          │             ├─▶ cancelling ─▶ cancelled     failed: the file is none of requests
 *          ▼             └─▶ expired                     (24 hours)
 *        failed
 *
 * One batch runs at a time, in the order of creation, behind all interactive requests.  A server
 * that was stopped in any way goes on with it at its next start. */
#ifndef BATCH_BATCHES_H
#define BATCH_BATCHES_H

#include "serve/serve.h"

struct batches;

/* Starts the thread that runs them; needs serve->store.  It waits for batches_wake. */
mf_status batches_start(struct batches **out, struct serve *serve, mf_error *why);
/* There are batches to look for. */
void batches_wake(struct batches *batches);
/* Ends the thread; what it was answering is left to the next server.  Handlers may still ask. */
void batches_stop(struct batches *batches); /* NULL is legal, here and below */
void batches_free(struct batches *batches); /* after batches_stop */

/* Whether a batch that has not ended reads this file; `batches` may be NULL. */
bool batches_use_file(struct batches *batches, const char *name);

void batches_create(struct serve *serve, struct exchange *exchange);
void batches_list(struct serve *serve, struct exchange *exchange);
void batches_one(struct serve *serve, struct exchange *exchange);
void batches_cancel(struct serve *serve, struct exchange *exchange);

#endif
