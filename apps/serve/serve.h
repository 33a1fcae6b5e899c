/* serve.h: the server of `moeflux serve`: one model, many clients.
 *
 *     http/ ── routes.c ── guard.c ── dialects/ ── ask.h ── job.h ── mf_scheduler
 *
 * A dialect turns a body into an `ask` (what is to be generated), starts a `job` (its requests in
 * the scheduler), and writes the job's events as its API wants them, whole or as a stream.
 * To add a route: a handler in a file of its dialect, a line in routes.c.
 *
 * Threads: handlers run in threads of their connections.  What several of them touch is in
 * `registry`, `recall` and `metrics`, which have locks of their own. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "http/server.h"
#include "moeflux.h"

#include <pthread.h>
#include <stdatomic.h>

struct serve_options {
    const char *host; /* address to listen on; NULL: no connections, but api_call_new */
    uint16_t port;
    const char *const *keys;     /* any of them opens the server; borrowed */
    size_t key_count;            /* 0: none is asked for */
    const char *cache;           /* "exact", "reuse" or "off": as the model was opened */
    const char *state_directory; /* of files and batches; NULL: none */
    uint64_t state_limit_bytes;
    uint32_t parallel, queue;  /* requests that are answered, and that wait, at a time; queue 0:
                                  any number */
    double time_limit_seconds; /* of a request; 0: none */
    double max_gap_seconds;    /* 0: the scheduler's own */
    bool strict;               /* refuse what would be noted in x-moeflux-ignored */
    bool strict_model;         /* refuse other names of models */
    bool any_host;             /* accept any Host header: an override for proxies */
    bool log, log_prompts;     /* request_log.h */
};

/* What the model's files say of it; 0 and NULL where they could not be described. */
struct model_facts {
    uint64_t parameters;
    const char *format; /* that most of its bytes have; static text */
};

struct experts;
struct batches;
struct metrics;
struct recall;
struct registry;
struct state_store;

struct serve {
    struct serve_options options;
    mf_model *model;
    const mf_text *text;
    uint32_t context;       /* positions of a request */
    uint32_t expert_layers; /* layers that have experts */
    bool has_checkpoints;   /* the prefix cache resumes at checkpoints alone */
    struct model_facts facts;
    mf_scheduler *scheduler;
    struct http_server *http;
    struct metrics *metrics;
    struct registry *registry;
    struct recall *recall;
    struct experts *experts;   /* the live view of them */
    unsigned char secret[32];  /* of reasoning tokens: reasoning_token.h */
    double started;            /* clock */
    struct state_store *store; /* of files and batches; NULL: none */
    struct batches *batches;   /* NULL: none */
    /* From the start to the end; requests but for /health get 503 unless it is SERVE_READY. */
    _Atomic enum serve_phase { SERVE_LOADING, SERVE_READY, SERVE_CLOSING } phase;
};

/* Listens; there is no model yet. */
mf_status serve_open(struct serve **out, const struct serve_options *options, mf_error *why);

/* From now on requests are answered.  `model` outlives the server; `path` is where it lies. */
mf_status serve_begin(struct serve *serve, mf_model *model, const char *path, mf_error *why);

/* Refuses new requests, gives those that run up to `seconds`, and ends. */
void serve_close(struct serve *serve, double seconds);

/* http_options.admit, .handle and .oversize. */
bool serve_admit(void *user, struct exchange *exchange);
void serve_handle(void *user, struct exchange *exchange);
void serve_oversize(void *user, struct exchange *exchange);

#endif
