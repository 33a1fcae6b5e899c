/* metrics.h: what the server counts, and /metrics in Prometheus' text form.
 *
 * Threads: every function from any thread. */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

#include "serve/serve.h"

enum metric_histogram {
    METRIC_FIRST_TOKEN, /* from submit to the first token of an answer */
    METRIC_INTER_TOKEN, /* between two tokens of an answer */
    METRIC_REQUEST,     /* from submit to the end */
    METRIC_QUEUE,       /* from submit to the first step */
    METRIC_QUEUE_BACKGROUND,
    METRIC_EXPERT_WAIT,   /* of a step: time without anything to compute */
    METRIC_STEP_ROWS,     /* of a step */
    METRIC_UNION_EXPERTS, /* different experts that a layer of a step used, on average */
    METRIC_HISTOGRAMS
};

enum metric_counter {
    METRIC_PROMPT_TOKENS,
    /* Of the prompts, taken over from the prefix cache: at a checkpoint, where the model has state that
     * only a checkpoint keeps (recurrent layers, windows), or at any token, with keys and values. */
    METRIC_KV_TOKENS,
    METRIC_CHECKPOINT_TOKENS,
    METRIC_REPLAYED_TOKENS, /* known to it, but computed again */
    METRIC_MISSED_TOKENS,   /* not known to it */
    METRIC_ANSWER_TOKENS,
    METRIC_ENDED_STOP,
    METRIC_ENDED_LENGTH,
    METRIC_ENDED_CANCELLED,
    METRIC_ENDED_FAILED,
    METRIC_REFUSED_BUSY,
    METRIC_REFUSED_INVALID,
    METRIC_MAP_FRAMES,
    METRIC_COUNTERS
};

mf_status metrics_new(struct metrics **out, mf_error *why);
void metrics_free(struct metrics *metrics);

void metrics_observe(struct metrics *metrics, enum metric_histogram which, double value);
void metrics_add(struct metrics *metrics, enum metric_counter which, uint64_t count);
uint64_t metrics_get(struct metrics *metrics, enum metric_counter which);

/* A step of the scheduler, in a model with `layers` layers that have experts. */
void metrics_add_step(struct metrics *metrics, const mf_step_report *step, uint32_t layers);

/* Handler of GET /metrics. */
void metrics_reply(struct serve *serve, struct exchange *exchange);

#endif
