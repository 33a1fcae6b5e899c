#include "perplexity.h"

#include "terminal.h"

#include "common/error.h"

#include <math.h>
#include <stdlib.h>

/* Negative log-likelihoods, added up token by token. */
struct score {
    const int32_t *targets; /* of the current window: the token after each fed one */
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
static mf_status score_text(struct score *score, mf_sequence *sequence,
                            const struct id_list *tokens, size_t window, mf_error *why)
{
    struct terminal terminal;
    struct progress progress;
    mf_status status = MF_OK;

    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "perplexity", "tokens", tokens->count - 1);
    for (size_t start = 0; start + 1 < tokens->count && status == MF_OK; start += window) {
        size_t count = min_size(window, tokens->count - 1 - start);
        mf_sequence_clear(sequence);
        score->targets = tokens->ids + start + 1;
        status = mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, tokens->ids + start, count,
                                       add_position, score, why);
        progress_update(&progress, start + count);
    }
    progress_end(&progress);
    return status;
}

mf_status perplexity_measure(struct perplexity *out, const struct opened *opened, const char *path,
                             size_t window, mf_error *why)
{
    struct score score = { .vocab_size = mf_model_vocab_size(opened->model) };
    struct id_list tokens = { 0 };
    char *text = NULL;
    size_t length = 0;
    mf_status status = input_read_new(&text, &length, path, why);

    if (status == MF_OK) status = opened_tokenize(&tokens, opened, text, length, why);
    if (status == MF_OK && tokens.count < 2) {
        status = fail(why, MF_ERR_ARGUMENT, "the text has %zu tokens, at least 2 are needed",
                      tokens.count);
    }
    if (status == MF_OK) status = score_text(&score, opened->sequence, &tokens, window, why);
    if (status == MF_OK) {
        *out = (struct perplexity){ score.count, score.sum / (double)score.count };
    }
    id_list_free(&tokens);
    free(text);
    return status;
}
