#include "serve/metrics.h"

#include "common/clock.h"
#include "view/registry.h"
#include "serve/reply.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { SECOND_BUCKETS = 24, COUNT_BUCKETS = 14, BUCKETS_MAX = SECOND_BUCKETS };

/* Seconds: each bucket's upper end is the last one's times 10^(1/4) from 100 µs, so that a quantile
 * is known within a factor of 1.8. */
static const double second_ends[SECOND_BUCKETS] = {
    1e-4, 1.78e-4, 3.16e-4, 5.62e-4, 1e-3, 1.78e-3, 3.16e-3, 5.62e-3,
    1e-2, 1.78e-2, 3.16e-2, 5.62e-2, 0.1,  0.178,   0.316,   0.562,
    1,    1.78,    3.16,    5.62,    10,   31.6,    100,     1000,
};

/* Counts. */
static const double count_ends[COUNT_BUCKETS] = { 1,   2,   4,   8,    16,   32,   64,
                                                  128, 256, 512, 1024, 2048, 4096, 8192 };

/* Histograms of one name follow each other, the first with its help. */
static const struct histogram_kind {
    const char *name, *label, *help;
    bool counts;
} histogram_kinds[METRIC_HISTOGRAMS] = {
    [METRIC_FIRST_TOKEN] = { "time_to_first_token_seconds", "", "From a request to its first token",
                             false },
    [METRIC_INTER_TOKEN] = { "inter_token_seconds", "", "Between two tokens of an answer", false },
    [METRIC_REQUEST] = { "request_seconds", "", "From a request to its end", false },
    [METRIC_QUEUE] = { "queue_seconds", "class=\"interactive\"", "From a request to its first step",
                       false },
    [METRIC_QUEUE_BACKGROUND] = { "queue_seconds", "class=\"background\"", NULL, false },
    [METRIC_EXPERT_WAIT] = { "expert_wait_seconds", "",
                             "Time of a step without anything to compute", false },
    [METRIC_STEP_ROWS] = { "step_rows", "", "Rows of a step", true },
    [METRIC_UNION_EXPERTS] = { "union_experts", "",
                               "Different experts that a layer of a step used, on average", true },
};

struct histogram {
    uint64_t counts[BUCKETS_MAX + 1]; /* the last one in use: above all ends */
    double sum;
};

struct metrics {
    pthread_mutex_t lock;
    struct histogram histograms[METRIC_HISTOGRAMS];
    uint64_t counters[METRIC_COUNTERS];
    double step_seconds, stage_seconds[MF_STAGE_COUNT];
};

static size_t ends_of(const double **ends, enum metric_histogram which)
{
    *ends = histogram_kinds[which].counts ? count_ends : second_ends;
    return histogram_kinds[which].counts ? COUNT_BUCKETS : SECOND_BUCKETS;
}

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

/* Under the lock. */
static void observe(struct metrics *metrics, enum metric_histogram which, double value)
{
    struct histogram *histogram = &metrics->histograms[which];
    const double *ends;
    size_t count = ends_of(&ends, which), bucket = 0;

    while (bucket < count && value > ends[bucket]) bucket++;
    histogram->counts[bucket]++;
    histogram->sum += value;
}

void metrics_observe(struct metrics *metrics, enum metric_histogram which, double value)
{
    pthread_mutex_lock(&metrics->lock);
    observe(metrics, which, value);
    pthread_mutex_unlock(&metrics->lock);
}

void metrics_add_step(struct metrics *metrics, const mf_step_report *step, uint32_t layers)
{
    pthread_mutex_lock(&metrics->lock);
    observe(metrics, METRIC_STEP_ROWS, step->prompt_rows + step->decode_rows);
    observe(metrics, METRIC_EXPERT_WAIT, step->expert_wait_seconds);
    if (layers > 0) observe(metrics, METRIC_UNION_EXPERTS, (double)step->experts / layers);
    metrics->step_seconds += step->seconds;
    for (int i = 0; i < MF_STAGE_COUNT; i++) metrics->stage_seconds[i] += step->stage_seconds[i];
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

static void add_histogram(struct byte_list *out, const struct metrics *metrics,
                          enum metric_histogram which)
{
    const struct histogram_kind *kind = &histogram_kinds[which];
    const struct histogram *histogram = &metrics->histograms[which];
    const char *name = kind->name, *comma = kind->label[0] ? "," : "";
    const char *open = kind->label[0] ? "{" : "", *close = kind->label[0] ? "}" : "";
    const double *ends;
    size_t count = ends_of(&ends, which);
    uint64_t below = 0;

    if (kind->help) add_kind(out, name, "histogram", kind->help);
    for (size_t i = 0; i < count; i++) {
        below += histogram->counts[i];
        add(out, "moeflux_%s_bucket{le=\"%g\"%s%s} %llu\n", name, ends[i], comma, kind->label,
            (unsigned long long)below);
    }
    below += histogram->counts[count];
    add(out, "moeflux_%s_bucket{le=\"+Inf\"%s%s} %llu\n", name, comma, kind->label,
        (unsigned long long)below);
    add(out, "moeflux_%s_sum%s%s%s %.9g\n", name, open, kind->label, close, histogram->sum);
    add(out, "moeflux_%s_count%s%s%s %llu\n", name, open, kind->label, close,
        (unsigned long long)below);
}

/* What the stages do not cover is "other": together they are the time of all steps. */
static void add_stages(struct byte_list *out, const struct metrics *metrics)
{
    double other = metrics->step_seconds;

    add_kind(out, "step_seconds", "counter", "Time of steps, by stage");
    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        other -= metrics->stage_seconds[i];
        add(out, "moeflux_step_seconds{stage=\"%s\"} %.9g\n", mf_stage_name((mf_stage)i),
            metrics->stage_seconds[i]);
    }
    add(out, "moeflux_step_seconds{stage=\"other\"} %.9g\n", other > 0 ? other : 0);
}

/* Counters with one label each: one family for rows with the same name. */
static void add_counters(struct byte_list *out, const struct metrics *metrics)
{
    static const struct {
        enum metric_counter which;
        const char *name, *label, *help;
    } rows[] = {
        { METRIC_PROMPT_TOKENS, "prompt_tokens_total", "", "Tokens of prompts" },
        { METRIC_KV_TOKENS, "prefix_tokens_total", "{outcome=\"kv\"}",
          "Tokens of prompts, by what the prefix cache had of them" },
        { METRIC_CHECKPOINT_TOKENS, "prefix_tokens_total", "{outcome=\"checkpoint\"}", NULL },
        { METRIC_REPLAYED_TOKENS, "prefix_tokens_total", "{outcome=\"replayed\"}", NULL },
        { METRIC_MISSED_TOKENS, "prefix_tokens_total", "{outcome=\"missed\"}", NULL },
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

/* Experts are read into the memory of the CPU. */
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
        "moeflux_expert_bytes_total{device=\"cpu\",why=\"demand\"} %llu\n"
        "moeflux_expert_bytes_total{device=\"cpu\",why=\"ahead\"} %llu\n"
        "moeflux_expert_bytes_total{device=\"cpu\",why=\"wasted\"} %llu\n",
        (unsigned long long)(model->expert_bytes_read - model->expert_ahead_bytes),
        (unsigned long long)model->expert_ahead_bytes,
        (unsigned long long)model->expert_wasted_bytes);
    add_one(out, "expert_evictions_total", "counter", "Experts that made room for others",
            (double)model->expert_evictions);
    add_one(out, "expert_ahead_wasted_total", "counter", "Experts read ahead and not used",
            (double)model->expert_ahead_wasted);
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
    for (int i = 0; i < METRIC_HISTOGRAMS; i++) add_histogram(out, copy, (enum metric_histogram)i);
    add_stages(out, copy);
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
