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
    struct requests_counts counts;
};

/* Counts the request in another state; the first one under the lock. */
void requests_move_locked(struct requests *requests, struct request *request,
                          enum request_state state);
void requests_move(struct requests *requests, struct request *request, enum request_state state);

void requests_add_step(struct requests_steps *sum, const struct requests_steps *step);
void requests_count_step(struct requests *requests, const struct requests_steps *step);

/* The request leaves the loop; `why` NULL: its answer is complete. */
void requests_end(struct requests *requests, struct request *request, const mf_error *why);

/* The list of those that wait: takes one out, and puts one that was active back in its place. */
void requests_take_out(struct requests *requests, const struct request *request);
void requests_put_back(struct requests *requests, struct request *request);
void requests_leave_active(struct requests *requests, const struct request *request);

/* Begins what there is memory for. */
void requests_admit(struct requests *requests);

/* A step found too little memory: one of the requests makes room for the others, or ends if it is
 * the only one. */
void requests_make_room(struct requests *requests);

/* Plans and runs a step of the active requests, and asks for their next tokens. */
void requests_step(struct requests *requests);

/* The prefix cache.  Begins with what is kept of the prompt; the next position at which the prompt
 * must stop for the cache; keeps the state, if the request stands at such a position; at the end
 * of its answer; and where it was cancelled. */
mf_status request_resume(struct request *request, struct prefix_tree *prefixes, mf_error *why);
uint32_t request_next_stop(const struct request *request, const struct prefix_tree *prefixes);
void request_keep(const struct request *request, struct prefix_tree *prefixes);
void request_keep_answer(const struct request *request, struct prefix_tree *prefixes);
void request_keep_cut(const struct request *request, struct prefix_tree *prefixes);

/* Whether an active request is about to compute a beginning of this one's prompt; that one stops
 * there. */
bool request_waits_for_prefix(const struct requests *requests, const struct request *request);

/* Bytes of the pool that a request holds, and that it will hold with its prompt and the tokens that
 * it is sure to get. */
uint64_t request_held_bytes(const struct request *request);
uint64_t request_wanted_bytes(const struct request *request, const struct state_shape *shape);

/* Whether parked states can be written to the directory of the options. */
mf_status requests_check_directory(const struct requests_options *options, mf_error *why);

/* Copies the state out of the pool, to a file in the directory (NULL, or the disk is full: to memory),
 * and back.  After a failure nothing has changed. */
mf_status request_park(struct request *request, const struct requests_options *options,
                       const char *directory, mf_error *why);
mf_status request_unpark(struct request *request, mf_error *why);
void request_drop_parked(struct request *request);

#endif
