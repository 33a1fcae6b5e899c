/* batches_internal.h: what batches.c and batches_routes.c share. */
#ifndef BATCH_BATCHES_INTERNAL_H
#define BATCH_BATCHES_INTERNAL_H

#include "batch/batches.h"
#include "records/state_store.h"

#include <pthread.h>

struct batches {
    struct serve *serve;
    int stop; /* eventfd: the running batch is to end */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows, and of changes of a batch's record */
    pthread_cond_t wake;
    bool changed, closing;
    char current[STATE_NAME_CAPACITY]; /* the running batch, or "" */
    bool cancelling;
    size_t total, completed, failed; /* of its lines */
};

bool batch_has_ended(const json_t *record);

/* With the time, as "…_at". */
void batch_set_status(json_t *record, const char *status);

/* The running batch gives up what it answers. */
void batches_interrupt(struct batches *batches);

#endif
