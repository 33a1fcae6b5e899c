/* perplexity.h: how surprised a model is by a text; for `perplexity` and `convert --report`. */
#ifndef CLI_PERPLEXITY_H
#define CLI_PERPLEXITY_H

#include "opened.h"

struct perplexity {
    size_t tokens; /* predicted */
    double nll;    /* mean negative log-likelihood */
};

enum { PERPLEXITY_WINDOW = 512 };

/* The text at `path` (- is stdin), tokenised whole and cut into windows of this many predicted
 * tokens, each read with an empty state; the context must hold a window. */
mf_status perplexity_measure(struct perplexity *out, const struct opened *opened, const char *path,
                             size_t window, mf_error *why);

#endif
