/* `moeflux batch`: the requests of a file, many at a time in shared steps. */
#include "batch_file.h"
#include "batch_request.h"
#include "command.h"
#include "generation.h"
#include "terminal.h"

#include "common/basics.h"
#include "common/clock.h"

#include <stdlib.h>

enum { PARALLEL_MAX = 256, PARALLEL_STANDARD = 16 };

struct batch_settings {
    struct common_settings common;
    const char *output;
    struct maybe_count parallel;
    bool quiet;
};

static const struct option options[] = {
    { 'o', "output", OPTION_TEXT, offsetof(struct batch_settings, output), "OUT.jsonl",
      .help = "results, a line for each request, in the order in which they are ready; those that "
              "are there are not done again" },
    { 0, "parallel", OPTION_COUNT, offsetof(struct batch_settings, parallel), "N",
      .help = "requests at a time; default 16", .low = 1, .high = PARALLEL_MAX },
    { 'q', "quiet", OPTION_FLAG, offsetof(struct batch_settings, quiet), NULL,
      .help = "no summary at the end" },
};

static const struct option_group groups[] = {
    { "options", options, COUNT_OF(options), 0 },
};

/* One run of the command. */
struct batch_run {
    const struct batch_settings *settings;
    struct opened opened;
    struct batch_input input;
    struct batch_output output;
    struct batch_request *active[PARALLEL_MAX];
    size_t parallel, active_count;
    size_t next;                  /* line of the input */
    size_t done, failed, total;   /* requests, those of earlier runs included */
    size_t numbers[PARALLEL_MAX]; /* of the lines that are active, from 1 */
    uint64_t answer_tokens;
    struct progress progress;
};

/* Lines that have no result yet, until as many are active as may be. */
static mf_status begin_requests(struct batch_run *run, mf_error *why)
{
    uint64_t seed = run->settings->common.seed.value;

    while (run->active_count < run->parallel && run->next < run->total) {
        json_t *line = json_array_get(run->input.lines, run->next++);
        const char *id = json_string_value(json_object_get(line, "custom_id"));
        if (json_object_get(run->output.done, id)) continue;
        struct batch_request *request = malloc(sizeof *request);
        if (!request) return fail_memory(why, sizeof *request);
        batch_request_init(request, &run->opened, json_incref(line));
        batch_request_begin(request, seed + run->next);
        run->numbers[run->active_count] = run->next;
        run->active[run->active_count++] = request;
    }
    return MF_OK;
}

/* Writes the results of those that have ended, and closes the gaps. */
static mf_status end_requests(struct batch_run *run, mf_error *why)
{
    mf_status status = MF_OK;
    size_t kept = 0;

    for (size_t i = 0; i < run->active_count; i++) {
        struct batch_request *request = run->active[i];
        if (request->state != REQUEST_DONE || status != MF_OK) {
            run->numbers[kept] = run->numbers[i];
            run->active[kept++] = request;
            continue;
        }
        json_t *result = batch_request_result_new(request, run->numbers[i]);
        status = batch_output_add(&run->output, result, why);
        json_decref(result);
        run->failed += request->problem.status != MF_OK;
        run->answer_tokens += request->count;
        run->done++;
        batch_request_free(request);
        free(request);
    }
    run->active_count = kept;
    progress_update(&run->progress, run->done);
    return status;
}

/* One token, or a whole prompt, for each request that is active. */
static mf_status step(struct batch_run *run, mf_error *why)
{
    mf_part parts[PARALLEL_MAX];
    size_t owners[PARALLEL_MAX], count = 0;

    for (size_t i = 0; i < run->active_count; i++) {
        if (run->active[i]->state == REQUEST_DONE) continue;
        owners[count] = i;
        parts[count++] = batch_request_part(run->active[i]);
    }
    if (count == 0) return MF_OK;
    mf_status status = mf_model_step(run->opened.model, parts, count, why);
    if (status == MF_ERR_ARGUMENT && parts[0].status == MF_OK) return status;
    for (size_t i = 0; i < count; i++)
        batch_request_advance(run->active[owners[i]], &parts[i], count == 1);
    return MF_OK;
}

static mf_status work(struct batch_run *run, bool *interrupted, mf_error *why)
{
    mf_status status = MF_OK;

    while (status == MF_OK && !*interrupted) {
        status = begin_requests(run, why);
        if (run->active_count == 0) break;
        if (status == MF_OK) status = step(run, why);
        if (status == MF_OK) status = end_requests(run, why);
        *interrupted = interrupt_seen();
    }
    return status;
}

static mf_status open_batch(struct batch_run *run, const char *path, mf_error *why)
{
    const struct batch_settings *settings = run->settings;
    struct common_settings common = settings->common;
    mf_status status = batch_input_read(&run->input, path, why);

    if (status != MF_OK) return status;
    status = batch_output_open(&run->output, settings->output, &run->input, why);
    if (status != MF_OK) return status;
    run->total = json_array_size(run->input.lines);
    run->done = json_object_size(run->output.done);
    if (run->done == run->total) return MF_OK;
    run->parallel = settings->parallel.given ? settings->parallel.value : PARALLEL_STANDARD;
    run->parallel = min_size(run->parallel, run->total - run->done);
    common.sequences = (uint32_t)run->parallel;
    return opened_open_model(&run->opened, &common, why);
}

static void print_summary(const struct batch_run *run, double seconds)
{
    fprintf(stderr,
            "%zu of %zu requests done, %zu of them failed; %llu tokens in %.1f s (%.1f/s)\n",
            run->done, run->total, run->failed, (unsigned long long)run->answer_tokens, seconds,
            seconds > 0 ? (double)run->answer_tokens / seconds : 0);
}

static mf_status run_batch(struct batch_run *run, const char *path, bool *interrupted,
                           mf_error *why)
{
    struct terminal terminal;
    mf_status status = open_batch(run, path, why), closed;

    if (status != MF_OK) return status;
    terminal_probe(&terminal);
    progress_begin(&run->progress, &terminal, "answering", "requests", run->total);
    interrupt_begin();
    double begin = clock_seconds();
    status = work(run, interrupted, why);
    double seconds = clock_seconds() - begin;
    interrupt_end();
    progress_end(&run->progress);
    closed = batch_output_close(&run->output, status == MF_OK ? why : NULL);
    if (status == MF_OK) status = closed;
    if (status == MF_OK && !run->settings->quiet) print_summary(run, seconds);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct batch_settings *settings = settings_;
    struct batch_run run = { .settings = settings, .output = { .descriptor = -1 } };
    mf_error why = { .text = "" };
    bool interrupted = false;

    if (arguments->count != 1)
        return usage_error(&command_batch, "the file of requests is missing");
    if (!settings->output) return usage_error(&command_batch, "-o says where the results go");
    mf_status status = run_batch(&run, arguments->values[0], &interrupted, &why);
    for (size_t i = 0; i < run.active_count; i++) {
        batch_request_free(run.active[i]);
        free(run.active[i]);
    }
    opened_close(&run.opened);
    batch_output_close(&run.output, NULL);
    batch_input_free(&run.input);
    if (status != MF_OK) return report(&why);
    return interrupted ? EXIT_INTERRUPTED : run.failed > 0 ? EXIT_FAILED : EXIT_DONE;
}

const struct command command_batch = {
    .name = "batch",
    .summary = "answer the requests of a file, many at a time",
    .arguments = "IN.jsonl",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Each line of the file is a request as in OpenAI's batches: {\"custom_id\":…,\n"
        "\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{…}}; /v1/completions is\n"
        "known, too. Requests share steps: an expert that several of them need is read once,\n"
        "and an answer does not depend on the others. A run that was interrupted, also by\n"
        "kill -9, goes on where it was when the command is given again.",
    .examples = "  moeflux batch -m Qwen/Qwen3-30B-A3B questions.jsonl -o answers.jsonl\n"
                "  moeflux batch questions.jsonl -o answers.jsonl --parallel 32 -c 2048\n",
    .settings_bytes = sizeof(struct batch_settings),
    .run = run,
};
