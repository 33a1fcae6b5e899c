/* `moeflux batch`: the requests of a file, many at a time in shared steps. */
#include "command.h"
#include "generation.h"
#include "opened.h"
#include "terminal.h"

#include "common/basics.h"
#include "batch/batch_run.h"
#include "common/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PARALLEL_MAX = 64, PARALLEL_STANDARD = 16 };

struct batch_settings {
    struct common_settings common;
    const char *output;
    struct maybe_count parallel;
    bool quiet;
};

static const char *const caches[] = { "exact", "reuse", "off", NULL };

static const struct option options[] = {
    { 'o', "output", OPTION_TEXT, offsetof(struct batch_settings, output), "OUT.jsonl",
      .help = "results, a line for each request, in the order in which they are ready; those that "
              "are there are not done again" },
    { 0, "parallel", OPTION_COUNT, offsetof(struct batch_settings, parallel), "N",
      .help = "requests at a time; default 16", .low = 1, .high = PARALLEL_MAX },
    { 0, "cache", OPTION_CHOICE, offsetof(struct batch_settings, common.cache), "HOW",
      .help = "what a request may take from earlier ones: exact (what prompts have made: the same "
              "answers as without), reuse (answers, too) or off; default: exact",
      .choices = caches },
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

/* One run of the command. */
struct batch_command {
    const struct batch_settings *settings;
    struct opened opened;
    struct batch_options options;
    struct terminal terminal;
    struct progress progress;
    double begun; /* clock; 0: not yet */
    int stop;     /* eventfd */
    bool watching, interrupted;
    pthread_t watch;
    atomic_bool over;
};

/* Makes Ctrl-C readable. */
static void *watch_interrupt(void *user)
{
    struct batch_command *command = user;
    uint64_t one = 1;

    while (!atomic_load(&command->over)) {
        usleep(50000);
        if (!interrupt_seen()) continue;
        command->interrupted = true;
        if (write(command->stop, &one, sizeof one) < 0) break; /* it is readable already */
    }
    return NULL;
}

static void show_progress(void *user, const struct batch_counts *counts)
{
    struct batch_command *command = user;

    progress_update(&command->progress, counts->done);
}

/* The files are read, and requests are left. */
static mf_status open_server(void *user, const struct batch_counts *counts, mf_error *why)
{
    struct batch_command *command = user;
    struct common_settings common = command->settings->common;
    struct serve_options serve = { .cache = "exact",
                                   .parallel = (uint32_t)command->options.parallel };

    command->options.parallel = min_size(command->options.parallel, counts->total - counts->done);
    common.sequences = (uint32_t)command->options.parallel;
    if (!common.cache) common.cache = "exact"; /* the same answers, common beginnings read once */
    mf_status status = opened_open_model(&command->opened, &common, why);
    if (status == MF_OK) status = serve_open(&command->options.serve, &serve, why);
    if (status == MF_OK)
        status =
            serve_begin(command->options.serve, command->opened.model, command->opened.path, why);
    if (status != MF_OK) return status;
    progress_begin(&command->progress, &command->terminal, "answering", "requests", counts->total);
    progress_update(&command->progress, counts->done);
    interrupt_begin();
    command->begun = clock_seconds();
    command->watching = pthread_create(&command->watch, NULL, watch_interrupt, command) == 0;
    return MF_OK;
}

static void print_summary(const struct batch_counts *counts, double seconds)
{
    fprintf(stderr,
            "%zu of %zu requests done, %zu of them failed; %llu tokens in %.1f s (%.1f/s)\n",
            counts->done, counts->total, counts->failed, (unsigned long long)counts->answer_tokens,
            seconds, seconds > 0 ? (double)counts->answer_tokens / seconds : 0);
}

static mf_status run_batch(struct batch_command *command, struct batch_counts *counts,
                           mf_error *why)
{
    bool stopped;
    mf_status status = batch_run(counts, &stopped, &command->options, why);
    double seconds = command->begun > 0 ? clock_seconds() - command->begun : 0;

    atomic_store(&command->over, true);
    if (command->watching) pthread_join(command->watch, NULL);
    if (command->begun > 0) {
        interrupt_end();
        progress_end(&command->progress);
    }
    serve_close(command->options.serve, 0);
    opened_close(&command->opened);
    if (status == MF_OK && !command->settings->quiet) print_summary(counts, seconds);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct batch_settings *settings = settings_;
    struct batch_command command = { .settings = settings };
    struct batch_counts counts = { 0 };
    mf_error why = { .text = "" };

    if (arguments->count != 1)
        return usage_error(&command_batch, "the file of requests is missing");
    if (!settings->output) return usage_error(&command_batch, "-o says where the results go");
    command.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    command.options =
        (struct batch_options){ .input = arguments->values[0],
                                .output = settings->output,
                                .parallel = settings->parallel.given ? settings->parallel.value
                                                                     : PARALLEL_STANDARD,
                                .seed = settings->common.seed.value + 1,
                                .stop = command.stop,
                                .ready = open_server,
                                .progress = show_progress,
                                .user = &command };
    terminal_probe(&command.terminal);
    mf_status status = run_batch(&command, &counts, &why);
    if (command.stop >= 0) close(command.stop);
    if (status != MF_OK) return report(&why);
    return command.interrupted ? EXIT_INTERRUPTED : counts.failed > 0 ? EXIT_FAILED : EXIT_DONE;
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
