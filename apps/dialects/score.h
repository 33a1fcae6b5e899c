/* score.h: how probable the model finds a prompt's own tokens: what /v1/completions tells of `echo`
 * with `logprobs`.
 *
 * A prompt is fed to a sequence beside the scheduler, in pieces: between two of them other requests
 * have steps.  One prompt at a time is scored; further ones wait. */
#ifndef DIALECTS_SCORE_H
#define DIALECTS_SCORE_H

#include "serve/failure.h"
#include "serve/serve.h"

enum { SCORE_TOP_MAX = 5 };

struct score {
    float logprob; /* of the token that the prompt has there */
    size_t count;
    mf_logprob best[SCORE_TOP_MAX];
};

struct score_ask {
    const int32_t *ids;
    size_t count;                 /* at most as many as the context has */
    uint32_t top;                 /* most probable tokens of each place, up to SCORE_TOP_MAX */
    bool (*given_up)(void *user); /* asked between pieces */
    void *user;
};

/* scores[ask->count], of which the first stays as it is: no token comes before it. */
bool score_prompt(struct score *scores, struct serve *serve, const struct score_ask *ask,
                  struct failure *failure);

#endif
