#include "batch/batch_run.h"

#include "batch/batch_file.h"
#include "common/basics.h"
#include "serve/api.h"
#include "serve/reply.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct run {
    const struct batch_options *options;
    struct batch_input input;
    struct batch_output output, failures;
    pthread_mutex_t lock; /* of what follows, and of the outputs */
    size_t next;          /* line of the input */
    struct batch_counts counts;
    mf_status status; /* of writing */
    mf_error why;
};

/* --------------------------------------------------------------------- a line */

static json_t *wrong_line_new(unsigned *status, const char *sentence, const char *param)
{
    struct failure failure;

    *status = 400;
    refuse_code(&failure, "invalid_value", param, "%s", sentence);
    return failure_json_new(&failure, DIALECT_OPENAI, NULL);
}

static json_t *answer_new(unsigned *status, const struct run *run, const json_t *line,
                          size_t number)
{
    const struct batch_options *options = run->options;
    const char *url = json_string_value(json_object_get(line, "url"));
    const struct api *api = url ? api_find(url) : NULL;
    json_t *body = json_object_get(line, "body");

    if (!api || (options->path && strcmp(options->path, url) != 0))
        return wrong_line_new(status,
                              options->path
                                  ? "\"url\" is not the endpoint of the batch"
                                  : "\"url\" is none of /v1/chat/completions, /v1/completions",
                              "url");
    if (!json_is_object(body))
        return wrong_line_new(status, "the line has no object \"body\"", "body");
    struct api_call call = { .body = json_deep_copy(body),
                             .seed = options->seed ? options->seed + number : 0,
                             .background = options->background,
                             .stop = options->stop,
                             .owner = options->owner };
    return api_call_new(status, api, options->serve, &call);
}

/* Takes `body` over. */
static json_t *result_new(const json_t *line, size_t number, unsigned status, json_t *body)
{
    char id[48];

    snprintf(id, sizeof id, "batch_req_%zu", number);
    return json_pack("{s:s, s:O, s:{s:i, s:s, s:o}, s:n}", "id", id, "custom_id",
                     json_object_get(line, "custom_id"), "response", "status_code", (int)status,
                     "request_id", id, "body", body, "error");
}

/* -------------------------------------------------------------------- workers */

/* Whether the run is to end, within some milliseconds. */
static bool is_stopped(const struct run *run, int milliseconds)
{
    struct pollfd stop = { .fd = run->options->stop, .events = POLLIN }; /* -1 is ignored */

    return poll(&stop, 1, milliseconds) > 0;
}

static bool is_done(const struct run *run, const json_t *line)
{
    const char *id = json_string_value(json_object_get(line, "custom_id"));

    return json_object_get(run->output.done, id) ||
           (run->failures.done && json_object_get(run->failures.done, id));
}

/* The next line without a result; 0: there is none, or the run ends. */
static size_t take_line(struct run *run)
{
    size_t number = 0;

    pthread_mutex_lock(&run->lock);
    while (number == 0 && run->status == MF_OK && run->next < run->counts.total) {
        if (!is_done(run, json_array_get(run->input.lines, run->next))) number = run->next + 1;
        run->next++;
    }
    pthread_mutex_unlock(&run->lock);
    return is_stopped(run, 0) ? 0 : number;
}

/* Takes `body` over. */
static void keep_result(struct run *run, size_t number, unsigned status, json_t *body)
{
    const json_t *line = json_array_get(run->input.lines, number - 1);
    const json_t *usage = json_object_get(body, "usage");
    json_int_t tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
    bool apart = status != 200 && run->options->failures;
    json_t *result = result_new(line, number, status, body);

    pthread_mutex_lock(&run->lock);
    if (run->status == MF_OK)
        run->status = batch_output_add(apart ? &run->failures : &run->output, result, &run->why);
    run->counts.done++;
    run->counts.failed += status != 200;
    run->counts.answer_tokens += (uint64_t)tokens;
    if (run->options->progress) run->options->progress(run->options->user, &run->counts);
    pthread_mutex_unlock(&run->lock);
    json_decref(result);
}

enum { BUSY_MS = 200 };

static void *work(void *user)
{
    struct run *run = user;
    size_t number;

    while ((number = take_line(run)) > 0) {
        const json_t *line = json_array_get(run->input.lines, number - 1);
        unsigned status;
        json_t *body = answer_new(&status, run, line, number);
        /* Others have filled the queue: that is no failure of the line. */
        while (status == 429 && !is_stopped(run, BUSY_MS)) {
            json_decref(body);
            body = answer_new(&status, run, line, number);
        }
        /* What was given up has no result: the next run answers it. */
        if (status == 429 || status == 503)
            json_decref(body);
        else
            keep_result(run, number, status, body);
    }
    return NULL;
}

static mf_status start_workers(struct run *run, mf_error *why)
{
    size_t left = run->counts.total - run->counts.done;
    size_t count = min_size(run->options->parallel, left), started = 0;
    pthread_t *threads = calloc(count + 1, sizeof *threads);

    if (!threads) return fail_memory(why, count * sizeof *threads);
    while (started < count && pthread_create(&threads[started], NULL, work, run) == 0) started++;
    if (started == 0 && count > 0) work(run);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    free(threads);
    if (run->status != MF_OK && why) *why = run->why;
    return run->status;
}

/* ------------------------------------------------------------------------ run */

static mf_status open_files(struct run *run, mf_error *why)
{
    const struct batch_options *options = run->options;
    mf_status status = batch_input_read(&run->input, options->input, why);

    if (status == MF_OK)
        status = batch_output_open(&run->output, options->output, &run->input, why);
    if (status == MF_OK && options->failures)
        status = batch_output_open(&run->failures, options->failures, &run->input, why);
    if (status != MF_OK) return status;
    size_t failed = run->failures.done ? json_object_size(run->failures.done) : 0;
    run->counts = (struct batch_counts){ .total = json_array_size(run->input.lines),
                                         .done = json_object_size(run->output.done) + failed,
                                         .failed = failed };
    return MF_OK;
}

static mf_status close_files(struct run *run, mf_error *why)
{
    mf_status status = batch_output_close(&run->output, why), other = MF_OK;

    if (run->options->failures) other = batch_output_close(&run->failures, why);
    batch_input_free(&run->input);
    return status != MF_OK ? status : other;
}

mf_status batch_run(struct batch_counts *out, bool *stopped, const struct batch_options *options,
                    mf_error *why)
{
    struct run run = { .options = options,
                       .output = { .descriptor = -1 },
                       .failures = { .descriptor = -1 },
                       .lock = PTHREAD_MUTEX_INITIALIZER };
    mf_status status = open_files(&run, why), closed;

    bool left = run.counts.done < run.counts.total;
    if (status == MF_OK && left && options->ready)
        status = options->ready(options->user, &run.counts, why);
    if (status == MF_OK && left) status = start_workers(&run, why);
    closed = close_files(&run, status == MF_OK ? why : NULL);
    pthread_mutex_destroy(&run.lock);
    *out = run.counts;
    *stopped = run.counts.done < run.counts.total;
    return status != MF_OK ? status : closed;
}
