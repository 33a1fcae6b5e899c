/* `moeflux batch`: the requests of a file, many at a time in shared steps. */
#include "batch_file.h"
#include "batch_request.h"
#include "command.h"
#include "generation.h"
#include "terminal.h"

#include "common/basics.h"
#include "common/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { PARALLEL_MAX = 64, PARALLEL_STANDARD = 16 };

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
    { 0, "cache-dir", OPTION_TEXT, offsetof(struct batch_settings, common.cache_directory), "DIR",
      .help = "keep beginnings of prompts in this directory, for later runs, too; it is made if it "
              "is not there, see `moeflux cache`" },
    { 0, "cache-disk", OPTION_SIZE, offsetof(struct batch_settings, common.cache_disk_bytes),
      "SIZE", .help = "what --cache-dir may take; default: 20G" },
    { 'q', "quiet", OPTION_FLAG, offsetof(struct batch_settings, quiet), NULL,
      .help = "no summary at the end" },
};

static const struct option_group groups[] = {
    { "options", options, COUNT_OF(options), 0 },
};

/* A request that was submitted, or refused. */
struct submitted {
    struct batch_run *run;
    struct batch_request request;
    size_t number; /* of the line, from 1 */
    bool ended;    /* under the run's lock */
};

/* One run of the command. */
struct batch_run {
    const struct batch_settings *settings;
    struct opened opened;
    mf_scheduler *scheduler;
    struct batch_input input;
    struct batch_output output;
    struct submitted *active[2 * PARALLEL_MAX];
    size_t parallel, active_count;
    size_t next;                /* line of the input */
    size_t done, failed, total; /* requests, those of earlier runs included */
    uint64_t answer_tokens;
    struct progress progress;
    pthread_mutex_t lock;
    pthread_cond_t one_ended;
};

/* In the scheduler's thread. */
static void note_end(void *user, const mf_request_result *result)
{
    struct submitted *submitted = user;

    (void)result;
    pthread_mutex_lock(&submitted->run->lock);
    submitted->ended = true;
    pthread_cond_signal(&submitted->run->one_ended);
    pthread_mutex_unlock(&submitted->run->lock);
}

static mf_status submit_line(struct batch_run *run, json_t *line, mf_error *why)
{
    struct submitted *submitted = calloc(1, sizeof *submitted);
    uint64_t seed = run->settings->common.seed.value + run->next;

    if (!submitted) return fail_memory(why, sizeof *submitted);
    submitted->run = run;
    submitted->number = run->next;
    batch_request_init(&submitted->request, &run->opened, json_incref(line));
    run->active[run->active_count++] = submitted;
    if (!batch_request_submit(&submitted->request, run->scheduler, seed,
                              (struct batch_end){ note_end, submitted }))
        submitted->ended = true;
    return MF_OK;
}

/* Lines that have no result yet: twice as many as are answered at a time. */
static mf_status submit_lines(struct batch_run *run, mf_error *why)
{
    mf_status status = MF_OK;

    while (status == MF_OK && run->active_count < 2 * run->parallel && run->next < run->total) {
        json_t *line = json_array_get(run->input.lines, run->next++);
        const char *id = json_string_value(json_object_get(line, "custom_id"));
        if (!json_object_get(run->output.done, id)) status = submit_line(run, line, why);
    }
    return status;
}

static bool has_ended(struct batch_run *run, const struct submitted *submitted)
{
    pthread_mutex_lock(&run->lock);
    bool ended = submitted->ended;
    pthread_mutex_unlock(&run->lock);
    return ended;
}

static void release(struct submitted *submitted)
{
    batch_request_free(&submitted->request);
    free(submitted);
}

static mf_status write_result(struct batch_run *run, struct submitted *submitted, mf_error *why)
{
    struct batch_request *request = &submitted->request;
    json_t *result = batch_request_result_new(request, submitted->number);
    mf_status status = batch_output_add(&run->output, result, why);

    json_decref(result);
    run->failed += request->problem.status != MF_OK;
    run->answer_tokens += request->result.answer_tokens;
    run->done++;
    return status;
}

/* Writes the results of those that have ended, and closes the gaps. */
static mf_status write_results(struct batch_run *run, mf_error *why)
{
    mf_status status = MF_OK;
    size_t kept = 0;

    for (size_t i = 0; i < run->active_count; i++) {
        struct submitted *submitted = run->active[i];
        if (status != MF_OK || !has_ended(run, submitted)) {
            run->active[kept++] = submitted;
            continue;
        }
        status = write_result(run, submitted, why);
        release(submitted);
    }
    run->active_count = kept;
    progress_update(&run->progress, run->done);
    return status;
}

/* Until one has ended, or it is time to look for Ctrl-C. */
static void wait_a_moment(struct batch_run *run)
{
    struct timespec until;
    bool any = false;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&run->lock);
    for (size_t i = 0; i < run->active_count; i++) any |= run->active[i]->ended;
    if (!any) pthread_cond_timedwait(&run->one_ended, &run->lock, &until);
    pthread_mutex_unlock(&run->lock);
}

static mf_status work(struct batch_run *run, bool *interrupted, mf_error *why)
{
    mf_status status = MF_OK;

    while (status == MF_OK && !*interrupted) {
        status = submit_lines(run, why);
        if (run->active_count == 0) break;
        if (status == MF_OK) wait_a_moment(run);
        if (status == MF_OK) status = write_results(run, why);
        *interrupted = interrupt_seen();
    }
    return status;
}

static mf_status open_scheduler(struct batch_run *run, mf_error *why)
{
    mf_scheduler_options scheduler = MF_SCHEDULER_OPTIONS_INIT;

    scheduler.parallel = (uint32_t)run->parallel;
    return mf_scheduler_open(&run->scheduler, run->opened.model, &scheduler, why);
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
    if (!common.cache) common.cache = "exact"; /* the same answers, common beginnings read once */
    status = opened_open_model(&run->opened, &common, why);
    return status == MF_OK ? open_scheduler(run, why) : status;
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
    struct batch_run run = { .settings = settings,
                             .output = { .descriptor = -1 },
                             .lock = PTHREAD_MUTEX_INITIALIZER,
                             .one_ended = PTHREAD_COND_INITIALIZER };
    mf_error why = { .text = "" };
    bool interrupted = false;

    if (arguments->count != 1)
        return usage_error(&command_batch, "the file of requests is missing");
    if (!settings->output) return usage_error(&command_batch, "-o says where the results go");
    mf_status status = run_batch(&run, arguments->values[0], &interrupted, &why);
    mf_scheduler_close(run.scheduler);
    for (size_t i = 0; i < run.active_count; i++) release(run.active[i]);
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
        "as is a beginning that their prompts have in common, and an answer does not depend on\n"
        "the others. A run that was interrupted, also by\n"
        "kill -9, goes on where it was when the command is given again.",
    .examples = "  moeflux batch -m Qwen/Qwen3-30B-A3B questions.jsonl -o answers.jsonl\n"
                "  moeflux batch questions.jsonl -o answers.jsonl --parallel 32 -c 2048\n",
    .settings_bytes = sizeof(struct batch_settings),
    .run = run,
};
