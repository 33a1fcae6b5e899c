/* `moeflux convert`: a checkpoint into the packed layout. */
#include "command.h"
#include "model_path.h"
#include "perplexity.h"
#include "terminal.h"

#include "common/error.h"
#include "moeflux_tools.h"

#include <math.h>
#include <stdlib.h>

struct convert_settings {
    struct common_settings common;
    const char *experts;
    const char *rest;
    const char *report;
    bool verify;
};

static const char *const expert_choices[] = { "q8", "q4", "q3", "q2", NULL };
static const char *const rest_choices[] = { "bf16", "q8", NULL };

static const struct option convert_options[] = {
    { 0, "experts", OPTION_CHOICE, offsetof(struct convert_settings, experts), "BITS",
      .help = "requantise the experts: q8, q4, q3 or q2; default: unchanged",
      .choices = expert_choices },
    { 0, "rest", OPTION_CHOICE, offsetof(struct convert_settings, rest), "TYPE",
      .help = "requantise the other matrices: bf16 or q8; default: unchanged",
      .choices = rest_choices },
    { 0, "verify", OPTION_FLAG, offsetof(struct convert_settings, verify), NULL,
      .help = "read the result again and compare it with the source; without requantising also "
              "compare the logits of a few tokens" },
    { 0, "report", OPTION_TEXT, offsetof(struct convert_settings, report), "FILE",
      .help = "report the perplexity of this text before and after" },
};

static const struct option_group groups[] = { { "options", convert_options,
                                                COUNT_OF(convert_options), 0 } };

/* -------------------------------------------------------------- converting */

struct watcher {
    struct terminal terminal;
    struct progress progress;
    int stage; /* that is shown; -1: none yet */
};

static void show_progress(void *user, mf_convert_stage stage, uint64_t done, uint64_t total)
{
    struct watcher *watcher = user;

    if (watcher->stage != (int)stage) {
        if (watcher->stage >= 0) progress_end(&watcher->progress);
        watcher->stage = (int)stage;
        progress_begin(&watcher->progress, &watcher->terminal,
                       stage == MF_CONVERT_WRITING ? "converting" : "verifying", "MiB",
                       total >> 20);
    }
    progress_update(&watcher->progress, done >> 20);
}

static void pass_note(void *user, mf_log_level level, const char *text)
{
    (void)user;
    if (level == MF_LOG_WARNING) note("%s", text);
}

static mf_status convert(mf_convert_result *out, const char *source, const char *target,
                         const struct convert_settings *settings, mf_error *why)
{
    struct watcher watcher = { .stage = -1 };
    mf_convert_options options = MF_CONVERT_OPTIONS_INIT;
    mf_status status;

    terminal_probe(&watcher.terminal);
    options.experts = settings->experts;
    options.rest = settings->rest;
    options.thread_count = (uint32_t)settings->common.threads.value;
    options.verify = settings->verify;
    options.log = pass_note;
    options.progress = show_progress;
    options.progress_user = &watcher;
    status = mf_convert(out, source, target, &options, why);
    if (watcher.stage >= 0) progress_end(&watcher.progress);
    return status;
}

/* Said whether or not a terminal listens: it was asked for. */
static void print_verified(const mf_convert_result *result, const char *target)
{
    char size[32];

    note("%s verified: %s read again and compared with the source%s", target,
         size_text(result->resident_bytes + result->expert_bytes, size, sizeof size),
         result->exact ? "; the logits of a few tokens have the same bits" : "");
}

/* What a person at a terminal wants to hear. */
static void print_summary(const mf_convert_result *result, const char *target)
{
    struct terminal terminal;
    char before[32], after[32];

    terminal_probe(&terminal);
    if (!terminal.err) return;
    if (result->already) note("%s was there already, made from this source", target);
    note("%s: %llu experts in %llu layers; %s became %s%s", target,
         (unsigned long long)result->experts, (unsigned long long)result->expert_layers,
         size_text(result->source_bytes, before, sizeof before),
         size_text(result->resident_bytes + result->expert_bytes, after, sizeof after),
         result->exact ? ", every bit kept" : "");
    if (result->kept) {
        note("%llu of the matrices that were to be requantised were as small already, or do not "
             "fit, and stayed",
             (unsigned long long)result->kept);
    }
}

/* --------------------------------------------------------------- comparing */

enum { PROBE_TOKENS = 24 };

/* Logits of a few tokens, all positions of a prompt and some more one by one, to be freed. */
static mf_status probe_logits_new(float **out, size_t *count, const char *model,
                                  const struct common_settings *common, mf_error *why)
{
    struct common_settings settings = *common;
    struct opened opened = { 0 };
    mf_status status;
    uint32_t random = 1, vocab_size;

    settings.model = model;
    settings.context = (struct maybe_count){ true, PROBE_TOKENS };
    *out = NULL;
    status = opened_open(&opened, &settings, why);
    if (status != MF_OK) return status;
    vocab_size = mf_model_vocab_size(opened.model);
    *count = (size_t)PROBE_TOKENS * vocab_size;
    *out = malloc(*count * sizeof **out);
    if (!*out) status = fail_memory(why, *count * sizeof **out);
    for (size_t i = 0; i < PROBE_TOKENS && status == MF_OK; i++) {
        random = random * 1664525u + 1013904223u;
        int32_t token = (int32_t)((random >> 8) % vocab_size);
        status = mf_sequence_feed(opened.sequence, MF_PHASE_GENERATED, &token, 1, why);
        if (status == MF_OK) {
            memcpy(*out + i * vocab_size, mf_sequence_logits(opened.sequence),
                   vocab_size * sizeof **out);
        }
    }
    opened_close(&opened);
    return status;
}

static mf_status compare_logits(const char *source, const char *target,
                                const struct common_settings *common, mf_error *why)
{
    float *before = NULL, *after = NULL;
    size_t before_count = 0, after_count = 0;
    mf_status status = probe_logits_new(&before, &before_count, source, common, why);

    if (status == MF_OK) status = probe_logits_new(&after, &after_count, target, common, why);
    if (status == MF_OK && (before_count != after_count ||
                            memcmp(before, after, before_count * sizeof *before) != 0)) {
        status = fail(why, MF_ERR_MISMATCH, "%s gives other logits than %s", target, source);
    }
    free(before);
    free(after);
    return status;
}

static mf_status measure(struct perplexity *out, const char *model, const char *text,
                         const struct common_settings *common, mf_error *why)
{
    struct common_settings settings = *common;
    struct opened opened = { 0 };
    mf_status status;

    settings.model = model;
    settings.context = (struct maybe_count){ true, PERPLEXITY_WINDOW };
    status = opened_open(&opened, &settings, why);
    if (status == MF_OK) status = perplexity_measure(out, &opened, text, PERPLEXITY_WINDOW, why);
    opened_close(&opened);
    return status;
}

static mf_status print_report(const mf_convert_result *result, const char *source,
                              const char *target, const struct convert_settings *settings,
                              mf_error *why)
{
    struct perplexity before = { 0 }, after = { 0 };
    unsigned long long bytes = result->resident_bytes + result->expert_bytes;
    mf_status status = measure(&before, source, settings->report, &settings->common, why);

    if (status == MF_OK) status = measure(&after, target, settings->report, &settings->common, why);
    if (status != MF_OK) return status;
    printf("%-12s %14s %14s\n", "", "before", "after");
    printf("%-12s %14llu %14llu\n", "bytes", (unsigned long long)result->source_bytes, bytes);
    printf("%-12s %14zu %14zu\n", "tokens", before.tokens, after.tokens);
    printf("%-12s %14.6f %14.6f\n", "nll", before.nll, after.nll);
    printf("%-12s %14.6f %14.6f\n", "perplexity", exp(before.nll), exp(after.nll));
    return MF_OK;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct convert_settings *settings = settings_;
    mf_convert_result result = MF_CONVERT_RESULT_INIT;
    char source[PATH_CAPACITY];
    const char *target;
    mf_error why = { .text = "" };
    mf_status status;

    if (settings->common.model) {
        return usage_error(&command_convert, "the source is an argument, as in SRC DST, not -m");
    }
    if (arguments->count < 2) {
        return usage_error(&command_convert, arguments->count
                                                 ? "where to? Give a source and a target"
                                                 : "from what to where? Give a source and a "
                                                   "target");
    }
    target = arguments->values[1];
    status = model_path_resolve(source, arguments->values[0], &why);
    if (status == MF_OK) status = convert(&result, source, target, settings, &why);
    if (status == MF_OK && settings->verify && result.exact) {
        status = compare_logits(source, target, &settings->common, &why);
    }
    if (status == MF_OK) print_summary(&result, target);
    if (status == MF_OK && settings->verify) print_verified(&result, target);
    if (status == MF_OK && settings->report) {
        status = print_report(&result, source, target, settings, &why);
    }
    if (status == MF_OK) return EXIT_DONE;
    int code = report(&why);
    if (result.interrupted) {
        note("the finished part is in %s.partial; the same command resumes it", target);
    }
    return code;
}

const struct command command_convert = {
    .name = "convert",
    .summary = "repack a checkpoint so that each expert is one aligned read",
    .arguments = "SRC DST",
    .argument_limit = 2,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "SRC is any model that the other commands accept, DST a directory that does not exist\n"
        "yet. The result includes tokenizer, template and configuration and can be given to -m.\n"
        "Without requantising, weights keep every bit. After an interruption (Ctrl-C, full disk,\n"
        "power cut) the same command resumes; DST appears when it is complete.",
    .examples = "  moeflux convert model.gguf packed --verify\n"
                "  moeflux convert Qwen/Qwen3-30B-A3B packed --experts q4 --rest q8\n"
                "  moeflux convert big small --experts q3 --report book.txt\n"
                "  moeflux run -m packed --memory 8G \"Hello\"\n",
    .settings_bytes = sizeof(struct convert_settings),
    .run = run,
};
