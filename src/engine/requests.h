/* requests.h: prompts that are read and answered at the same time, by a thread of their own.
 *
 *     submit ─▶ waiting ─▶ active: reading the prompt ─▶ answering ─▶ ended
 *                  ▲          │            park          │
 *                  └──────────┴──────────────────────────┘
 *
 * The loop:  take what was submitted · end what was cancelled · admit what there is memory for ·
 * plan a step (scheduler.h) · feed it (step.h) · ask for the next tokens.
 *
 * A request is admitted when the pool has room for its prompt and the next tokens of its answer.
 * Where the pool is full all the same, the last one that came is parked: its state is copied out
 * of the pool, and comes back when there is room; nothing is computed twice.
 *
 * With a prefix cache (state/prefix.h) a request begins where the longest beginning that is kept
 * ends, and leaves its own state at the places that it names.  A prompt that begins like one that
 * is being read waits for that part instead of computing it, too.
 *
 * Threads: any may submit and cancel.  Callbacks run in the loop's thread. */
#ifndef ENGINE_REQUESTS_H
#define ENGINE_REQUESTS_H

#include "base/disk.h"
#include "engine/step.h"
#include "state/prefix.h"

enum { REQUESTS_PARALLEL_MAX = SPANS_MAX };

/* How a request went. */
struct request_outcome {
    mf_error error; /* status MF_OK: `next` has ended the answer */
    double wait_seconds, prompt_seconds, answer_seconds;
    uint32_t parked;            /* times */
    struct prefix_match cached; /* what it found in the prefix cache */
};

struct request_calls {
    /* The token that follows, or -1: the answer has ended. */
    int32_t (*next)(void *user, const float *logits);
    void (*progress)(void *user, size_t done, size_t total); /* tokens of the prompt */
    /* Logits of each token of the prompt, by its position; then nothing of it comes from the prefix
     * cache.  NULL: they are not wanted. */
    mf_logits_function each;
    /* The last call; the request's memory is the caller's again. */
    void (*ended)(void *user, const struct request_outcome *outcome);
    void *user;
};

/* A position of the prompt at which its state is kept in the prefix cache. */
struct request_place {
    uint32_t position;
    enum prefix_place place;
};

enum { REQUEST_PLACES_MAX = 8 };

struct request_wishes {
    const int32_t *prompt; /* borrowed until `ended` */
    uint32_t prompt_count; /* at least 1, at most the room's context */
    uint32_t answer_count; /* tokens that `next` gives, at most */
    uint64_t client;       /* requests of a client share one part of the time */
    bool background;
    struct request_place places[REQUEST_PLACES_MAX]; /* in ascending order */
    size_t place_count;
    const struct observer *observer; /* of its rows; NULL: none; borrowed until `ended` */
    struct request_calls calls;
};

/* Where a request is counted. */
enum request_state {
    REQUEST_NEW,
    REQUEST_WAITING,
    REQUEST_PARKED,
    REQUEST_RUNNING,
    REQUEST_ENDED,
    REQUEST_STATES
};

/* Kinds of ends, which the caller numbers. */
enum { REQUEST_ENDS = 8 };

/* Lies in the caller's memory; the fields are those of requests*.c. */
struct request {
    struct request_wishes wishes;
    enum request_state state;  /* under the lock of the requests */
    struct request *following; /* in the list of those that wait */
    struct engine_sequence sequence;
    atomic_bool cancelled;
    uint64_t number; /* in the order of arrival */
    uint32_t round; /* requests of its client that were active or came before it, when last asked */
    bool answering; /* the prompt is read, and `token` is next */
    int32_t token;
    uint32_t answered;                       /* tokens that `next` has given */
    double submitted, begun, answered_first; /* seconds of the clock; 0: not yet */
    double since;                            /* its last step, or its arrival */
    struct prefix_match cached;
    uint32_t junction;  /* position of its prompt that another request waits for, too; 0: none */
    uint32_t each_rows; /* of a step, at most, where `each` is called */
    struct parked_state {
        size_t count; /* bytes of its snapshot; 0: not parked */
        void *bytes;  /* NULL: they are in the file */
        struct file file;
        uint32_t times;
    } parked;
};

/* Steps, without those in their pauses. */
struct requests_steps {
    uint64_t count, decode_rows, prompt_rows;
    uint64_t experts; /* different ones that each layer of a step used, added up */
    double seconds, wait_seconds;
    double stage_seconds[MF_STAGE_COUNT]; /* with a tracer */
};

struct requests_options {
    struct engine_room *room;
    struct prefix_tree *prefixes; /* the prefix cache; NULL: none */
    pthread_mutex_t *engine_lock; /* held during steps */
    uint32_t parallel;            /* active requests, at most REQUESTS_PARALLEL_MAX */
    uint32_t waiting;             /* further ones, at most; 0: any number */
    double max_gap_seconds;       /* see mf_scheduler_options */
    const char *park_directory;   /* NULL: parked states stay in memory; copied */
    const struct disk *disk; /* of that directory; NULL: files that only their owner can read */
    const mf_files *files;   /* NULL: POSIX */
    /* Told of every step, in the loop's thread; NULL: not wanted. */
    void (*step)(void *user, const struct requests_steps *step);
    void *step_user;
};

struct requests;
/* MF_ERR_IO: nothing can be written to the directory. */
mf_status requests_new(struct requests **out, const struct requests_options *options,
                       mf_error *why);
/* Cancels what is not ended, and waits for it.  NULL is legal. */
void requests_free(struct requests *requests);

/* MF_ERR_POOL_FULL: it would not even fit alone; MF_ERR_BUSY: too many wait; MF_ERR_ARGUMENT: an id
 * is no token. */
mf_status requests_submit(struct requests *requests, struct request *request,
                          const struct request_wishes *wishes, mf_error *why);

/* Before its next layer.  Legal until the request's memory is released, also when it has ended. */
void request_cancel(struct request *request);

/* Since the beginning; at any time all that were submitted are in one of the states. */
struct requests_counts {
    uint32_t now[REQUEST_STATES][2]; /* in WAITING, PARKED, RUNNING; [1]: background ones */
    uint64_t submitted, ended[REQUEST_ENDS];
    uint64_t refused_busy, refused_large, refused_wrong;
    uint64_t parked; /* times */
    struct requests_steps steps, last;
};

/* From any thread; waits for no step. */
struct requests_counts requests_counts(struct requests *requests);

/* The request counts as one that has ended in way `end`; call it within `ended`. */
void requests_count_end(struct requests *requests, struct request *request, unsigned end);

/* A submission failed with `status`. */
void requests_count_refusal(struct requests *requests, mf_status status);

#endif
