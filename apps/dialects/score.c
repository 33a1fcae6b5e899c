#include "dialects/score.h"

#include "common/basics.h"
#include "common/clock.h"

#include <unistd.h>

struct scoring {
    struct score *scores;
    const struct score_ask *ask;
    mf_sampler *sampler;
    size_t first; /* token of the piece that is fed */
};

/* Logits after a token are of the next one. */
static void take_logits(void *user, size_t index, const float *logits)
{
    struct scoring *scoring = user;
    size_t next = scoring->first + index + 1;
    struct score *score = &scoring->scores[next];

    score->logprob = mf_sampler_logprob_of(scoring->sampler, logits, scoring->ask->ids[next]);
    if (scoring->ask->top == 0) return;
    score->count = mf_sampler_logprobs(scoring->sampler, score->best, scoring->ask->top, logits);
}

enum { PIECE_FIRST = 32, PIECE_LEAST = 16, PIECE_MOST = 512 };

/* A piece takes 0.05 to 0.1 s, so that answers under way have tokens as often as beside prompts of
 * the scheduler. */
static size_t next_piece(size_t piece, double seconds)
{
    if (seconds > 0.1) return max_size(piece / 2, PIECE_LEAST);
    return seconds < 0.05 ? min_size(piece * 2, PIECE_MOST) : piece;
}

static mf_status feed(struct scoring *scoring, mf_sequence *sequence, mf_error *why)
{
    size_t count = scoring->ask->count - 1, piece = PIECE_FIRST; /* the last one predicts none */
    mf_status status = MF_OK;

    while (scoring->first < count && status == MF_OK) {
        double begun = clock_seconds();
        size_t next = min_size(piece, count - scoring->first);
        if (scoring->ask->given_up(scoring->ask->user))
            return fail(why, MF_ERR_CANCELLED, "the request was given up");
        status =
            mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, scoring->ask->ids + scoring->first,
                                  next, take_logits, scoring, why);
        scoring->first += next;
        piece = next_piece(piece, clock_seconds() - begun);
        usleep(500); /* a step that waits gets the engine now */
    }
    return status;
}

static mf_status run(struct scoring *scoring, mf_model *model, mf_error *why)
{
    mf_sequence *sequence = NULL;
    mf_status status = mf_sequence_open(&sequence, model, NULL, why);

    if (status == MF_OK) status = mf_sampler_open(&scoring->sampler, model, NULL, why);
    if (status == MF_OK) status = feed(scoring, sequence, why);
    /* The request that follows begins where this ends. */
    if (status == MF_OK) status = mf_sequence_keep(sequence, MF_PLACE_PROMPT_END, why);
    mf_sampler_close(scoring->sampler);
    mf_sequence_close(sequence);
    return status;
}

bool score_prompt(struct score *scores, struct serve *serve, const struct score_ask *ask,
                  struct failure *failure)
{
    struct scoring scoring = { .scores = scores, .ask = ask };
    mf_error why = { .text = "" };

    pthread_mutex_lock(&serve->scoring);
    mf_status status = run(&scoring, serve->model, &why);
    pthread_mutex_unlock(&serve->scoring);
    if (status == MF_OK) return true;
    refuse_error(failure, &why);
    if (status == MF_ERR_POOL_FULL) failure->kind = FAILURE_BUSY; /* others hold the memory now */
    return false;
}
