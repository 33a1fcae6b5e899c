/* experts.h: the live view of experts: GET /v1/moeflux/experts, a stream of frames for any number of
 * viewers, and the routes that GET /v1/moeflux/whatif replays.
 *
 *     thread that computes ── events, routes ──▶ gathering ── 10 Hz ──▶ encoder ──▶ frames ──▶ viewers
 *
 * A frame is encoded once for all viewers.  One that is too slow for them gets the sums of all frames
 * that it missed, as one.  The sums of all frames from the first on, plus the totals of the map that
 * comes before them, are the counters of /metrics.
 * Without a viewer the model has no watcher, routes are not looked at, and the encoder sleeps.
 *
 * Threads: every function from any thread. */
#ifndef VIEW_EXPERTS_H
#define VIEW_EXPERTS_H

#include "serve/serve.h"

struct experts;

/* Model, metrics and start of `serve` are used; it outlives the view. */
mf_status experts_new(struct experts **out, const struct serve *serve, mf_error *why);

/* When no viewer is left and nothing computes. */
void experts_free(struct experts *experts);

/* A request's rows, followed through the layers of a step.  Begin with the first three fields. */
struct expert_trail {
    const char *request; /* the id under which its tokens are shown; NULL: they are not */
    uint32_t owner;      /* guard_owner: whose viewers are shown them */
    uint32_t prompt_tokens;
    /* Of the step under way: */
    uint64_t session, first;
    uint32_t count;
};

/* mf_request_options.routes, in the thread that computes. */
void experts_take_routes(struct experts *experts, struct expert_trail *trail,
                         const mf_routes *routes);

#endif
