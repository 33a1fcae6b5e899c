/* requests_loop.h: the parts of requests.h's loop. */
#ifndef ENGINE_REQUESTS_LOOP_H
#define ENGINE_REQUESTS_LOOP_H

#include "engine/requests.h"
#include "engine/scheduler.h"

struct requests {
    struct requests_options options;
    char *park_directory;
    struct scheduler scheduler; /* the loop's thread alone, as is `active` */
    struct request *active[REQUESTS_PARALLEL_MAX];
    size_t active_count;
    bool starved; /* the last step found too little memory for one of them */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t submitted;
    struct request *waiting; /* in the order in which they are admitted */
    size_t waiting_count;
    uint64_t next_number;
    bool closing;
};

/* The request leaves the loop; `why` NULL: its answer is complete. */
void requests_end(struct requests *requests, struct request *request, const mf_error *why);

/* Plans and runs a step of the active requests, and asks for their next tokens. */
void requests_step(struct requests *requests);

/* Bytes of the pool that a request holds, and that it will hold with its prompt and the tokens that
 * it is sure to get. */
uint64_t request_held_bytes(const struct request *request);
uint64_t request_wanted_bytes(const struct request *request, const struct state_shape *shape);

/* Copies the state out of the pool, and back.  After a failure nothing has changed. */
mf_status request_park(struct request *request, const char *directory, mf_error *why);
mf_status request_unpark(struct request *request, mf_error *why);
void request_drop_parked(struct request *request);

#endif
