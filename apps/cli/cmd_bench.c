/* `moeflux bench`: prefill and decode speed of this model on this machine. */
#include "command.h"
#include "opened.h"
#include "statistics.h"
#include "terminal.h"

#include "base/json.h"
#include "base/machine.h"
#include "base/status.h"
#include "json_lines.h"

#include <math.h>
#include <stdlib.h>

struct bench_settings {
    struct common_settings common;
    struct maybe_count prompt, count, rounds;
    bool json;
};

static const struct option options[] = {
    { 'p', "prompt", OPTION_COUNT, offsetof(struct bench_settings, prompt), "N",
      .help = "tokens of the prompt; default 512", .low = 2, .high = 1 << 24 },
    { 'n', "count", OPTION_COUNT, offsetof(struct bench_settings, count), "N",
      .help = "tokens to generate; default 64", .low = 1, .high = 1 << 24 },
    { 'r', "rounds", OPTION_COUNT, offsetof(struct bench_settings, rounds), "N",
      .help = "how often both are measured; default 5", .low = 1, .high = 1000 },
    { 0, "json", OPTION_FLAG, offsetof(struct bench_settings, json), NULL,
      .help = "one line of JSON instead of a table" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

struct measure {
    double *rates; /* tokens per second, one per round */
    size_t count;
};

/* Middle value and how far half of the rounds lie from it. */
struct spread {
    double median, low, high;
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static struct spread measure_spread(struct measure *measure)
{
    size_t last = measure->count - 1;

    qsort(measure->rates, measure->count, sizeof *measure->rates, compare_doubles);
    return (struct spread){
        .median = (measure->rates[last / 2] + measure->rates[last - last / 2]) / 2,
        .low = measure->rates[0],
        .high = measure->rates[last],
    };
}

/* Ids that are spread over the vocabulary and the same every time: real routing, no text needed. */
static void fill_prompt(int32_t *ids, size_t count, uint32_t vocab_size)
{
    uint32_t state = 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)(state % vocab_size);
    }
}

static mf_status run_round(struct measure *prefill, struct measure *decode,
                           const struct opened *opened, const struct token_list *prompt,
                           size_t count, mf_error *why)
{
    mf_session *session = opened->session;
    mf_sampler *sampler = NULL;
    double started = clock_seconds();
    mf_status status;

    mf_session_clear(session);
    status = mf_session_feed(session, prompt->ids, prompt->count, why);
    if (status != MF_OK) return status;
    prefill->rates[prefill->count++] = rate_per_second(prompt->count, clock_seconds() - started);
    status = mf_sampler_open(&sampler, opened->model, NULL, why);
    started = clock_seconds();
    for (size_t i = 0; i < count && status == MF_OK; i++) {
        int32_t token = mf_sampler_pick(sampler, mf_session_logits(session));
        if (token < 0) token = 0;
        status = mf_session_feed(session, &token, 1, why);
    }
    mf_sampler_close(sampler);
    if (status == MF_OK) {
        decode->rates[decode->count++] = rate_per_second(count, clock_seconds() - started);
    }
    return status;
}

static void print_table(const struct spread *prefill, const struct spread *decode,
                        const mf_stats *stats)
{
    uint64_t uses = stats->expert_hits + stats->expert_misses;
    char size[32];

    printf("prefill  %9.1f tokens/s  (%.1f … %.1f)\n", prefill->median, prefill->low,
           prefill->high);
    printf("decode   %9.1f tokens/s  (%.1f … %.1f)\n", decode->median, decode->low, decode->high);
    printf("experts  %9.1f %% from memory, %s read\n",
           uses ? 100.0 * (double)stats->expert_hits / (double)uses : 100.0,
           size_text(stats->expert_bytes_read, size, sizeof size));
}

static json_t *spread_json_new(const struct spread *spread, size_t tokens)
{
    return json_pack("{s:I,s:f,s:f,s:f}", "tokens", (json_int_t)tokens, "median", spread->median,
                     "min", spread->low, "max", spread->high);
}

static void print_json(const struct opened *opened, const struct bench_settings *settings,
                       const struct spread *prefill, const struct spread *decode,
                       const mf_stats *stats)
{
    json_t *line =
        json_pack("{s:s,s:s,s:s,s:I,s:o,s:o,s:I,s:I,s:I}", "version", mf_version(), "model",
                  mf_model_name(opened->model), "family", mf_model_family(opened->model), "threads",
                  (json_int_t)settings->common.threads.value, "prefill_tokens_per_second",
                  spread_json_new(prefill, settings->prompt.value), "decode_tokens_per_second",
                  spread_json_new(decode, settings->count.value), "expert_hits",
                  (json_int_t)stats->expert_hits, "expert_misses", (json_int_t)stats->expert_misses,
                  "expert_bytes_read", (json_int_t)stats->expert_bytes_read);

    json_print_line(line);
    json_decref(line);
}

static mf_status bench(const struct opened *opened, const struct bench_settings *settings,
                       mf_error *why)
{
    size_t rounds = settings->rounds.value;
    struct token_list prompt = { .count = settings->prompt.value };
    struct measure prefill = { calloc(rounds, sizeof(double)), 0 };
    struct measure decode = { calloc(rounds, sizeof(double)), 0 };
    struct terminal terminal;
    struct progress progress;
    mf_status status = MF_OK;
    mf_stats stats;

    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "round", "rounds", rounds);
    prompt.ids = malloc(prompt.count * sizeof *prompt.ids);
    if (!prompt.ids || !prefill.rates || !decode.rates) status = fail_memory(why, prompt.count);
    if (status == MF_OK) {
        fill_prompt(prompt.ids, prompt.count, mf_model_vocab_size(opened->model));
    }
    for (size_t i = 0; i < rounds && status == MF_OK; i++) {
        progress_update(&progress, i);
        status = run_round(&prefill, &decode, opened, &prompt, settings->count.value, why);
    }
    progress_end(&progress);
    if (status == MF_OK) {
        struct spread read = measure_spread(&prefill), write = measure_spread(&decode);
        mf_session_stats(opened->session, &stats);
        if (settings->json) {
            print_json(opened, settings, &read, &write, &stats);
        } else {
            print_table(&read, &write, &stats);
        }
    }
    token_list_free(&prompt);
    free(prefill.rates);
    free(decode.rates);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    struct bench_settings settings = *(const struct bench_settings *)settings_;
    struct opened opened = { 0 };
    struct machine machine;
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    (void)arguments;
    if (!settings.prompt.given) settings.prompt.value = 512;
    if (!settings.count.given) settings.count.value = 64;
    if (!settings.rounds.given) settings.rounds.value = 5;
    if (!settings.common.threads.given) {
        machine_probe(&machine);
        settings.common.threads = (struct maybe_count){ true, machine.core_count };
    }
    if (!settings.common.context.given) {
        settings.common.context =
            (struct maybe_count){ true, settings.prompt.value + settings.count.value };
    }
    if (opened_open(&opened, &settings.common, &why) != MF_OK ||
        bench(&opened, &settings, &why) != MF_OK) {
        code = report(&why);
    }
    if (opened.session && settings.common.stats) statistics_print(&opened);
    opened_close(&opened);
    return code;
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure prefill and decode speed",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes = "Shows the median over the rounds and the slowest and fastest round.",
    .examples = "  moeflux bench -p 512 -n 64 -t 2\n"
                "  moeflux bench -m Qwen/Qwen3-30B-A3B --memory 8G --json\n",
    .settings_bytes = sizeof(struct bench_settings),
    .run = run,
};
