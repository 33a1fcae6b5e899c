#include "serve/metrics.h"

#include "common/clock.h"
#include "view/registry.h"
#include "serve/reply.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Seconds: each bucket's upper end is the last one's times 10^(1/4) from 100 µs, so that a quantile
 * is known within a factor of 1.8. */
static const double bucket_ends[HISTOGRAM_BUCKETS] = {
    1e-4, 1.78e-4, 3.16e-4, 5.62e-4, 1e-3, 1.78e-3, 3.16e-3, 5.62e-3,
    1e-2, 1.78e-2, 3.16e-2, 5.62e-2, 0.1,  0.178,   0.316,   0.562,
    1,    1.78,    3.16,    5.62,    10,   31.6,    100,     1000,
};

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS + 1]; /* the last one: above all ends */
    double sum;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram histograms[METRIC_HISTOGRAMS];
    uint64_t counters[METRIC_COUNTERS];
};

mf_status metrics_new(struct metrics **out, mf_error *why)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return fail_memory(why, sizeof **out);
    pthread_mutex_init(&(*out)->lock, NULL);
    return MF_OK;
}

void metrics_free(struct metrics *metrics)
{
    if (!metrics) return;
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}

void metrics_observe(struct metrics *metrics, enum metric_histogram which, double seconds)
{
    size_t bucket = 0;

    while (bucket < HISTOGRAM_BUCKETS && seconds > bucket_ends[bucket]) bucket++;
    pthread_mutex_lock(&metrics->lock);
    metrics->histograms[which].counts[bucket]++;
    metrics->histograms[which].sum += seconds;
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_add(struct metrics *metrics, enum metric_counter which, uint64_t count)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->counters[which] += count;
    pthread_mutex_unlock(&metrics->lock);
}

uint64_t metrics_get(struct metrics *metrics, enum metric_counter which)
{
    pthread_mutex_lock(&metrics->lock);
    uint64_t count = metrics->counters[which];
    pthread_mutex_unlock(&metrics->lock);
    return count;
}

/* -------------------------------------------------------------------- writing */

static void add(struct byte_list *out, const char *format, ...) MF_PRINTF(2, 3);
static void add(struct byte_list *out, const char *format, ...)
{
    char line[256];
    va_list list;

    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    text_add(out, line);
}

static void add_kind(struct byte_list *out, const char *name, const char *kind, const char *help)
{
    add(out, "# HELP moeflux_%s %s\n# TYPE moeflux_%s %s\n", name, help, name, kind);
}

static void add_one(struct byte_list *out, const char *name, const char *kind, const char *help,
                    double value)
{
    add_kind(out, name, kind, help);
    add(out, "moeflux_%s %.17g\n", name, value);
}

static void add_histogram(struct byte_list *out, const char *name, const char *help,
                          const struct histogram *histogram)
{
    uint64_t below = 0;

    add_kind(out, name, "histogram", help);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        below += histogram->counts[i];
        add(out, "moeflux_%s_bucket{le=\"%g\"} %llu\n", name, bucket_ends[i],
            (unsigned long long)below);
    }
    below += histogram->counts[HISTOGRAM_BUCKETS];
    add(out, "moeflux_%s_bucket{le=\"+Inf\"} %llu\nmoeflux_%s_sum %.9g\nmoeflux_%s_count %llu\n",
        name, (unsigned long long)below, name, histogram->sum, name, (unsigned long long)below);
}

/* Counters with one label each: one family for rows with the same name. */
static void add_counters(struct byte_list *out, const struct metrics *metrics)
{
    static const struct {
        enum metric_counter which;
        const char *name, *label, *help;
    } rows[] = {
        { METRIC_PROMPT_TOKENS, "prompt_tokens_total", "", "Tokens of prompts" },
        { METRIC_CACHED_TOKENS, "prefix_tokens_total", "{outcome=\"resumed\"}",
          "Tokens of prompts that the prefix cache knew" },
        { METRIC_REPLAYED_TOKENS, "prefix_tokens_total", "{outcome=\"replayed\"}", NULL },
        { METRIC_ANSWER_TOKENS, "generation_tokens_total", "", "Tokens of answers" },
        { METRIC_ENDED_STOP, "requests_total", "{finish=\"stop\"}", "Answers that have ended" },
        { METRIC_ENDED_LENGTH, "requests_total", "{finish=\"length\"}", NULL },
        { METRIC_ENDED_CANCELLED, "requests_total", "{finish=\"cancelled\"}", NULL },
        { METRIC_ENDED_FAILED, "requests_total", "{finish=\"failed\"}", NULL },
        { METRIC_REFUSED_BUSY, "refused_total", "{why=\"busy\"}", "Requests that were refused" },
        { METRIC_REFUSED_INVALID, "refused_total", "{why=\"invalid\"}", NULL },
        { METRIC_MAP_FRAMES, "map_frames_total", "", "Frames of the expert map" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].help) add_kind(out, rows[i].name, "counter", rows[i].help);
        add(out, "moeflux_%s%s %llu\n", rows[i].name, rows[i].label,
            (unsigned long long)metrics->counters[rows[i].which]);
    }
}

static void add_experts(struct byte_list *out, const mf_model_statistics *model)
{
    uint64_t demand = model->expert_misses - model->expert_ahead_late;

    add_kind(out, "expert_requests_total", "counter", "Experts that rows asked for, by source");
    add(out,
        "moeflux_expert_requests_total{source=\"cache\"} %llu\n"
        "moeflux_expert_requests_total{source=\"ahead\"} %llu\n"
        "moeflux_expert_requests_total{source=\"late\"} %llu\n"
        "moeflux_expert_requests_total{source=\"demand\"} %llu\n",
        (unsigned long long)(model->expert_hits - model->expert_ahead_hits),
        (unsigned long long)model->expert_ahead_hits, (unsigned long long)model->expert_ahead_late,
        (unsigned long long)demand);
    add_kind(
        out, "expert_bytes_total", "counter",
        "Bytes of experts that were read, by reason; wasted ones are some of those read ahead");
    add(out,
        "moeflux_expert_bytes_total{why=\"demand\"} %llu\n"
        "moeflux_expert_bytes_total{why=\"ahead\"} %llu\n"
        "moeflux_expert_bytes_total{why=\"wasted\"} %llu\n",
        (unsigned long long)(model->expert_bytes_read - model->expert_ahead_bytes),
        (unsigned long long)model->expert_ahead_bytes,
        (unsigned long long)model->expert_wasted_bytes);
    add_one(out, "expert_evictions_total", "counter", "Experts that made room for others",
            (double)model->expert_evictions);
    add_one(out, "expert_ahead_wasted_total", "counter", "Experts read ahead and not used",
            (double)model->expert_ahead_wasted);
    add_one(out, "expert_wait_seconds_total", "counter", "Time without anything to compute",
            model->expert_wait_seconds);
    add_one(out, "experts_present", "gauge", "Experts in memory", (double)model->experts_present);
    add_one(out, "expert_slots", "gauge", "Experts that fit in memory",
            (double)model->expert_slots);
}

static void add_memory(struct byte_list *out, const mf_model_statistics *model)
{
    add_one(out, "pool_bytes", "gauge", "Limit of the memory that sequences share",
            (double)model->pool_bytes);
    add_one(out, "pool_used_bytes", "gauge", "What sequences and the prefix cache hold of it",
            (double)model->sequence_bytes);
    add_one(out, "pool_pages", "gauge", "Pages of 64 positions in use", (double)model->pool_pages);
    add_one(out, "pool_states", "gauge", "Recurrent states in use", (double)model->pool_states);
    add_one(out, "cache_pages", "gauge", "Pages that the prefix cache holds",
            (double)model->cache_pages);
    add_one(out, "cache_checkpoints", "gauge", "Checkpoints that the prefix cache holds",
            (double)model->cache_checkpoints);
    add_kind(out, "checkpoint_bytes", "gauge", "Bytes of the prefix cache, by tier");
    add(out,
        "moeflux_checkpoint_bytes{tier=\"memory\"} %llu\nmoeflux_checkpoint_bytes{tier=\"disk\"} "
        "%llu\n",
        (unsigned long long)model->cache_bytes, (unsigned long long)model->cache_disk_bytes);
}

static void add_scheduler(struct byte_list *out, const mf_scheduler_statistics *steps)
{
    add_one(out, "requests_running", "gauge", "Requests that are read or answered",
            (double)steps->running);
    add_kind(out, "requests_waiting", "gauge", "Requests that wait, by class");
    add(out,
        "moeflux_requests_waiting{class=\"interactive\"} %u\n"
        "moeflux_requests_waiting{class=\"background\"} %u\n",
        steps->waiting_interactive, steps->waiting_background);
    add_one(out, "requests_parked", "gauge", "Requests that wait for memory that others have",
            (double)steps->parked);
    add_one(out, "parked_total", "counter", "Times that a request made room for others",
            (double)steps->parked_times);
    add_one(out, "steps_total", "counter", "Steps", (double)steps->steps);
    add_kind(out, "step_rows_total", "counter", "Rows of all steps, by phase");
    add(out,
        "moeflux_step_rows_total{phase=\"prompt\"} %llu\n"
        "moeflux_step_rows_total{phase=\"decode\"} %llu\n",
        (unsigned long long)steps->prompt_rows, (unsigned long long)steps->decode_rows);
    add_one(out, "step_seconds_total", "counter", "Time of all steps", steps->step_seconds);
}

static void add_all(struct byte_list *out, struct serve *serve, const struct metrics *copy)
{
    mf_model_statistics model = MF_MODEL_STATISTICS_INIT;
    mf_scheduler_statistics steps = MF_SCHEDULER_STATISTICS_INIT;

    add_one(out, "uptime_seconds", "gauge", "Since the server began",
            clock_seconds() - serve->started);
    add_one(out, "requests_active", "gauge", "Requests that wait or are answered",
            (double)registry_active(serve->registry));
    add_one(out, "connections", "gauge", "Open connections",
            (double)http_server_connections(serve->http));
    add_counters(out, copy);
    add_histogram(out, "time_to_first_token_seconds", "From a request to its first token",
                  &copy->histograms[METRIC_FIRST_TOKEN]);
    add_histogram(out, "inter_token_seconds", "Between two tokens of an answer",
                  &copy->histograms[METRIC_INTER_TOKEN]);
    add_histogram(out, "request_seconds", "From a request to its end",
                  &copy->histograms[METRIC_REQUEST]);
    add_histogram(out, "queue_seconds", "From a request to its first step",
                  &copy->histograms[METRIC_QUEUE]);
    if (mf_scheduler_stats(serve->scheduler, &steps, NULL) == MF_OK) add_scheduler(out, &steps);
    if (mf_model_stats(serve->model, &model, NULL) != MF_OK) return;
    add_experts(out, &model);
    add_memory(out, &model);
}

void metrics_reply(struct serve *serve, struct exchange *exchange)
{
    struct byte_list text = { 0 };
    struct metrics *metrics = serve->metrics;

    pthread_mutex_lock(&metrics->lock);
    struct metrics copy = *metrics;
    pthread_mutex_unlock(&metrics->lock);
    add_all(&text, serve, &copy);
    exchange_reply_copy(exchange, 200, "text/plain; version=0.0.4; charset=utf-8",
                        text.bytes ? text.bytes : "", text.count);
    byte_list_free(&text);
}
