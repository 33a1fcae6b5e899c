/* generation.h: read a prompt, then draw one token after another.
 *
 *     prompt ids ── fed, progress shown ── pick ── text out ── fed ── pick …
 *
 * The first Ctrl-C ends the generation (or the reading of the prompt, after the present
 * layer) and not the program; see interrupt_begin. */
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
    mf_constraint *constraint; /* NULL: anything may be said */
    size_t count_limit;        /* SIZE_MAX: as many as the context holds */
    bool ignore_end;           /* end tokens are tokens like others */
    token_function each;
    void *user;
    /* results */
    size_t count; /* tokens handed to `each`; an end token that ended it is not one */
    enum generation_end end;
};

/* Feeds the ids.  A bar is drawn when it takes long.  MF_ERR_CANCELLED after Ctrl-C:
 * the sequence is then as it was before the call. */
mf_status prompt_feed(mf_sequence *sequence, const int32_t *ids, size_t count,
                      const struct terminal *terminal, mf_error *why);

/* Draws from the sequence's present logits until something ends it.  Every token that
 * `each` saw has been fed, except the last one where the generation ended with it. */
mf_status generation_run(struct generation *generation, mf_error *why);

/* From here on SIGINT sets a mark; a second one before the mark is looked at ends the
 * program as usual.  A terminal does not show what is typed.  The last interrupt_end, if it was
 * begun more than once, gives both their old meaning back. */
void interrupt_begin(void);
bool interrupt_seen(void); /* true once per Ctrl-C */
void interrupt_end(void);

#endif
