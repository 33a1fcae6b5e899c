/* metrics.h: what the server counts, and /metrics in Prometheus' text form.
 *
 * Threads: every function from any thread. */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

#include "serve/serve.h"

enum { HISTOGRAM_BUCKETS = 24 };

enum metric_histogram {
    METRIC_FIRST_TOKEN, /* from submit to the first token of an answer */
    METRIC_INTER_TOKEN, /* between two tokens of an answer */
    METRIC_REQUEST,     /* from submit to the end */
    METRIC_QUEUE,       /* from submit to the first step */
    METRIC_HISTOGRAMS
};

enum metric_counter {
    METRIC_PROMPT_TOKENS,
    METRIC_CACHED_TOKENS,   /* of the prompts, taken over from the prefix cache */
    METRIC_REPLAYED_TOKENS, /* known to it, but computed again */
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

void metrics_observe(struct metrics *metrics, enum metric_histogram which, double seconds);
void metrics_add(struct metrics *metrics, enum metric_counter which, uint64_t count);
uint64_t metrics_get(struct metrics *metrics, enum metric_counter which);

/* Handler of GET /metrics. */
void metrics_reply(struct serve *serve, struct exchange *exchange);

#endif
