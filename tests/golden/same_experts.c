/* same_experts.c MODEL ID,ID,…: the logits of the tuned arithmetic where it takes the experts
 * that the reference takes (support/same_experts.h).
 *
 * On stdout: of every token the f32 logits, first with the tokens as one prompt, then again with
 * all but the first one generated.  On stderr: how many decisions of a router were others. */
#include "support/same_experts.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS_MAX = 256 };

static struct same_experts same;
static int32_t tokens[TOKENS_MAX];
static size_t token_count;

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "%s\n", why->text);
    exit(1);
}

struct side {
    mf_engine *engine;
    mf_model *model;
};

static struct side side_open(const char *backend, const char *path)
{
    struct side side;
    mf_error why = { 0 };
    mf_engine_options options = { .backend = backend, .thread_count = 2 };
    must(mf_engine_open(&side.engine, &options, &why), &why);
    must(mf_model_open(&side.model, side.engine, path, NULL, &why), &why);
    return side;
}

static void side_close(struct side side)
{
    mf_model_close(side.model);
    mf_engine_close(side.engine);
}

static void put(void *user, size_t index, const float *logits)
{
    (void)index;
    const size_t *vocab_size = user;
    fwrite(logits, sizeof *logits, *vocab_size, stdout);
}

static void drop(void *user, size_t index, const float *logits)
{
    (void)user;
    (void)index;
    (void)logits;
}

/* The tokens, `prompt` of them as a prompt. */
static void run(struct side side, bool follow, size_t prompt)
{
    mf_session *session;
    mf_error why = { 0 };
    mf_session_options options = { .context_length = (uint32_t)token_count,
                                   .chunk_rows = TOKENS_MAX };
    size_t vocab_size = mf_model_vocab_size(side.model);
    mf_logits_function each = follow ? put : drop;
    must(mf_session_open(&session, side.model, &options, &why), &why);
    follow ? same_experts_follow(&same, session) : same_experts_lead(&same, session);
    must(mf_session_feed_each(session, tokens, prompt, each, &vocab_size, &why), &why);
    for (size_t i = prompt; i < token_count; i++)
        must(mf_session_feed_each(session, tokens + i, 1, each, &vocab_size, &why), &why);
    mf_session_close(session);
}

int main(int count, char **arguments)
{
    if (count != 3) return 2;
    for (char *text = strtok(arguments[2], ","); text && token_count < TOKENS_MAX;)
        tokens[token_count++] = (int32_t)atoi(text), text = strtok(NULL, ",");
    struct side reference = side_open("reference", arguments[1]);
    struct side tuned = side_open("cpu", arguments[1]);
    same_experts_init(&same, reference.model, TOKENS_MAX);
    run(reference, false, token_count);
    run(tuned, true, token_count);
    size_t turned = same.turned, decisions = same.decisions;
    run(tuned, true, 1);
    fprintf(stderr, "%zu %zu\n", turned + same.turned, decisions + same.decisions);
    same_experts_free(&same);
    side_close(tuned);
    side_close(reference);
    return 0;
}
