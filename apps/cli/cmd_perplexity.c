/* `moeflux perplexity`: how surprised the model is by a text. */
#include "command.h"
#include "generation.h"
#include "statistics.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>

struct perplexity_settings {
    struct common_settings common;
    struct maybe_count window;
};

static const struct option options[] = {
    { 0, "window", OPTION_COUNT, offsetof(struct perplexity_settings, window), "N",
      .help = "predicted tokens in a window; default 512", .low = 1, .high = 1 << 24 },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* Negative log-likelihoods, added up token by token. */
struct score {
    const int32_t *targets; /* of the window at hand: the token after each fed one */
    size_t vocab_size;
    double sum;
    size_t count;
};

static void add_position(void *user, size_t index, const float *logits)
{
    struct score *score = user;
    float largest = logits[0];
    double sum = 0;

    for (size_t i = 1; i < score->vocab_size; i++) largest = fmaxf(largest, logits[i]);
    for (size_t i = 0; i < score->vocab_size; i++) sum += exp((double)(logits[i] - largest));
    score->sum += log(sum) - (double)(logits[score->targets[index]] - largest);
    score->count++;
}

/* Window i sees ids window*i … window*(i + 1); its state is empty at the start. */
static mf_status score_text(struct score *score, mf_session *session,
                            const struct token_list *tokens, size_t window, mf_error *why)
{
    struct terminal terminal;
    struct progress progress;
    mf_status status = MF_OK;

    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "perplexity", "tokens", tokens->count - 1);
    for (size_t start = 0; start + 1 < tokens->count && status == MF_OK; start += window) {
        size_t count = min_size(window, tokens->count - 1 - start);
        mf_session_clear(session);
        score->targets = tokens->ids + start + 1;
        status =
            mf_session_feed_each(session, tokens->ids + start, count, add_position, score, why);
        progress_update(&progress, start + count);
    }
    progress_end(&progress);
    return status;
}

static mf_status perplexity(const struct opened *opened, const char *path, size_t window,
                            mf_error *why)
{
    struct score score = { .vocab_size = mf_model_vocab_size(opened->model) };
    struct token_list tokens = { 0 };
    char *text = NULL;
    size_t length = 0;
    mf_status status = input_read_new(&text, &length, path, why);

    if (status == MF_OK) status = opened_tokenize(&tokens, opened, text, length, why);
    if (status == MF_OK && tokens.count < 2) {
        status = fail(why, MF_ERR_ARGUMENT, "the text has %zu tokens, at least 2 are needed",
                      tokens.count);
    }
    if (status == MF_OK) status = score_text(&score, opened->session, &tokens, window, why);
    if (status == MF_OK) {
        double mean = score.sum / (double)score.count;
        printf("tokens %zu\nnll %.6f\nperplexity %.6f\n", score.count, mean, exp(mean));
    }
    token_list_free(&tokens);
    free(text);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    struct perplexity_settings settings = *(const struct perplexity_settings *)settings_;
    uint64_t window = settings.window.given ? settings.window.value : 512;
    struct opened opened = { 0 };
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
        perplexity(&opened, arguments->values[0], window, &why) != MF_OK) {
        code = report(&why);
    }
    if (opened.session && settings.common.stats) statistics_print(&opened);
    opened_close(&opened);
    return code;
}

const struct command command_perplexity = {
    .name = "perplexity",
    .summary = "how well the model predicts a text",
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
