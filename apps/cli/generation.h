/* generation.h: feeds a prompt and samples tokens.
 *
 *     prompt ids ── fed, progress shown ── pick ── text out ── fed ── pick …
 *
 * The first Ctrl-C ends the generation (or the prompt, after the current layer), not the program;
 * see interrupt_begin. */
#ifndef CLI_GENERATION_H
#define CLI_GENERATION_H

#include "opened.h"
#include "terminal.h"

/* Called with every token as it is picked; false ends the generation after it. */
typedef bool (*token_function)(void *user, int32_t token);

enum generation_end { END_OF_TEXT, END_OF_COUNT, END_OF_CONTEXT, END_BY_CALLER, END_BY_INTERRUPT };

struct generation {
    mf_sequence *sequence;
    const mf_model *model;
    mf_sampler *sampler;
    mf_constraint *constraint; /* NULL: none */
    size_t count_limit;        /* SIZE_MAX: as many as the context holds */
    bool ignore_end;           /* continue after end tokens */
    token_function each;
    void *user;
    /* results */
    size_t count; /* tokens passed to `each`; a final end token is not counted */
    enum generation_end end;
};

/* Feeds the ids, with a progress bar if it takes long.  MF_ERR_CANCELLED after Ctrl-C: the sequence
 * is then unchanged. */
mf_status prompt_feed(mf_sequence *sequence, const int32_t *ids, size_t count,
                      const struct terminal *terminal, mf_error *why);

/* Samples from the sequence's current logits until the generation ends.  Every token passed to
 * `each` has been fed, except a last one that ended the generation. */
mf_status generation_run(struct generation *generation, mf_error *why);

/* From now on SIGINT sets a flag that interrupt_seen reads; a second SIGINT before that ends the
 * program.  The terminal's echo is off.  Calls nest; the last interrupt_end restores both. */
void interrupt_begin(void);
bool interrupt_seen(void); /* true once per Ctrl-C */
void interrupt_end(void);

#endif
