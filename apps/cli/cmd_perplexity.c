/* `moeflux perplexity`: how surprised the model is by a text. */
#include "command.h"
#include "perplexity.h"
#include "recording.h"
#include "statistics.h"

#include <math.h>

struct perplexity_settings {
    struct common_settings common;
    struct maybe_count window;
    struct recording_settings recording;
};

static const struct option options[] = {
    { 0, "window", OPTION_COUNT, offsetof(struct perplexity_settings, window), "N",
      .help = "predicted tokens in a window; default 512", .low = 1, .high = 1 << 24 },
};

static const struct option_group groups[] = {
    { "options", options, COUNT_OF(options), 0 },
    { "recording", recording_options, RECORDING_OPTION_COUNT,
      offsetof(struct perplexity_settings, recording) },
};

static int run(const void *settings_, const struct arguments *arguments)
{
    struct perplexity_settings settings = *(const struct perplexity_settings *)settings_;
    uint64_t window = settings.window.given ? settings.window.value : PERPLEXITY_WINDOW;
    struct opened opened = { 0 };
    struct perplexity found = { 0 };
    struct recording recording = { 0 };
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    if (arguments->count == 0) {
        return usage_error(&command_perplexity, "which text? Give a file, or - for stdin");
    }
    if (settings.common.context.given && settings.common.context.value < window) {
        return usage_error(
            &command_perplexity, "a window of %llu does not fit in a context of %llu",
            (unsigned long long)window, (unsigned long long)settings.common.context.value);
    }
    settings.common.context = (struct maybe_count){ true, window };
    if (opened_open(&opened, &settings.common, &why) != MF_OK ||
        recording_begin(&recording, &settings.recording, &opened, &why) != MF_OK ||
        perplexity_measure(&found, &opened, arguments->values[0], window, &why) != MF_OK) {
        code = report(&why);
    } else {
        printf("tokens %zu\nnll %.6f\nperplexity %.6f\n", found.tokens, found.nll, exp(found.nll));
    }
    code = recording_end(&recording, code);
    if (opened.sequence) statistics_report(&opened, &settings.common);
    opened_close(&opened);
    return code;
}

const struct command command_perplexity = {
    .name = "perplexity",
    .summary = "measure how well the model predicts a text",
    .arguments = "FILE",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Prints the number of predicted tokens, the mean negative log-likelihood and the\n"
        "perplexity, a line each. The text is tokenised whole and cut into windows, each read\n"
        "with an empty state; the mean is over all predicted tokens.",
    .examples = "  moeflux perplexity book.txt\n"
                "  moeflux perplexity -m Qwen/Qwen3-30B-A3B --window 1024 book.txt\n",
    .settings_bytes = sizeof(struct perplexity_settings),
    .run = run,
};
