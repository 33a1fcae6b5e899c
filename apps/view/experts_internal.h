/* experts_internal.h: what the files of the live view share.
 *
 *     experts.c          what the library tells, gathered for the next frame
 *     experts_log.c      the routes of the last tokens
 *     experts_frame.c    frames and maps as text
 *     experts_view.c     the encoder's thread, and viewers
 *     experts_whatif.c   hit rates for other sizes of memory
 *
 * Locks, in the order in which they are taken: switching, lock, frames_lock.  The library calls
 * take_batch with a lock of its own, which setting the watcher takes, too: that happens under
 * `switching` alone. */
#ifndef VIEW_EXPERTS_INTERNAL_H
#define VIEW_EXPERTS_INTERNAL_H

#include "common/lists.h"
#include "view/experts.h"
#include "serve/metrics.h"

#include <pthread.h>

enum {
    EXPERT_KINDS = MF_EXPERT_WASTED + 1,
    FRAME_TOKENS = 256, /* shown in a frame, at most */
    FRAMES_KEPT = 32,
    ROUTE_ROWS = 4096 /* tokens whose routes are kept */
};

/* Counters, or what they have grown by. */
struct expert_sums {
    uint64_t events[EXPERT_KINDS];
    uint64_t bytes_read, bytes_ahead, bytes_wasted;
    uint64_t steps, prompt_rows, decode_rows;
    double stages[MF_STAGE_COUNT];
};

/* What has happened since the last frame. */
struct gathering {
    uint8_t *counts;   /* [experts of the model][EXPERT_KINDS], at most 255 */
    uint32_t *touched; /* the same number: which counts are not 0, in the order of their events */
    size_t touched_count;
    uint64_t event_count;
    struct shown_token {
        char request[48];
        uint32_t owner;
        uint32_t index; /* in the answer */
    } tokens[FRAME_TOKENS];
    uint16_t *token_experts; /* [FRAME_TOKENS][choices of a token] */
    size_t token_count;
};

/* Rows that were computed lately; number n is at n % ROUTE_ROWS. */
struct route_log {
    uint64_t next; /* number of the next row */
    uint32_t step; /* of the rows that come */
    bool fresh;    /* a layer behind the first was seen since `step` began */
    struct route_row {
        uint64_t number;
        uint32_t step;
        int32_t token;
        bool complete; /* all layers are there */
    } * rows;
    uint16_t *experts; /* [ROUTE_ROWS][choices of a token] */
};

/* An event as it is sent, but for its tokens: each viewer gets those of its own requests. */
struct frame {
    struct byte_list text;   /* up to the list of tokens */
    struct byte_list tokens; /* each with a comma before it; in the order of … */
    struct frame_token {
        uint32_t owner;
        size_t end; /* in `tokens` */
    } owners[FRAME_TOKENS];
    size_t token_count;
};

struct viewer {
    struct viewer *next;
    struct experts *experts;
    struct exchange *exchange;
    uint32_t owner;          /* guard_owner */
    int wake;                /* eventfd: there are frames */
    uint64_t next_frame;     /* that it has not got */
    struct expert_sums seen; /* up to there */
    struct byte_list map;    /* its first event, until it is sent */
};

struct experts {
    const struct serve *serve;
    mf_experts layout;
    uint32_t choice_count; /* of a token, in all layers */
    uint32_t *row_of;      /* [layers] in the map */

    pthread_mutex_t switching; /* begin and end of a session, and a frame */
    uint64_t session;          /* from the first viewer until the last has gone */
    atomic_bool on;

    pthread_mutex_t lock; /* of what the thread that computes writes */
    struct gathering gatherings[2], *open;
    struct expert_sums sums;
    uint64_t present;
    bool happened; /* anything since the last frame */
    struct route_log log;

    pthread_mutex_t frames_lock; /* of what follows */
    pthread_cond_t changed;
    struct frame frames[FRAMES_KEPT]; /* number n is at n % FRAMES_KEPT */
    uint64_t next_frame;
    struct expert_sums told; /* up to the last frame */
    uint64_t told_present;
    double told_at; /* clock */
    struct viewer *viewers;
    bool closing, has_encoder;
    pthread_t encoder;

    pthread_mutex_t whatif_lock; /* of what follows; taken alone */
    char *whatif;                /* the last reply */
    double whatif_at;
};

/* Begins and ends a session; under `switching`. */
mf_status experts_begin(struct experts *experts, mf_error *why);
void experts_end(struct experts *experts);

/* ------------------------------------------------------------ experts_log.c */

bool route_log_new(struct route_log *log, uint32_t choice_count);
void route_log_free(struct route_log *log);

/* Takes in a layer of a request's rows, `row` of the map; true: it was the last one, and all of the
 * rows are there. */
bool route_log_add(struct experts *experts, struct expert_trail *trail, const mf_routes *routes,
                   uint32_t row);

/* The rows that are complete, as a trace for mf_route_trace_open; *count: how many. */
mf_status route_log_trace(struct byte_list *out, size_t *count, struct experts *experts,
                          mf_error *why);

/* ---------------------------------------------------------- experts_frame.c */

struct expert_sums sums_between(const struct expert_sums *from, const struct expert_sums *to);

struct frame_head {
    uint64_t number;
    double seconds; /* since the server began */
    uint64_t present;
};

/* `gathering` NULL: sums only.  False: no memory. */
bool frame_encode(struct frame *out, const struct experts *experts, const struct frame_head *head,
                  const struct expert_sums *grown, const struct gathering *gathering);
void frame_free(struct frame *frame);

/* The event for a viewer. */
bool frame_add(struct byte_list *out, const struct frame *frame, uint32_t owner);
bool map_encode(struct byte_list *out, const struct experts *experts,
                const struct expert_sums *totals);

/* ----------------------------------------------------------- experts_view.c */

void *experts_encode(void *user); /* the thread; `user` is the view */

#endif
