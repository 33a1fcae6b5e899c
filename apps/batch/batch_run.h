/* batch_run.h: the requests of a file, many at a time in shared steps.
 *
 *     workers, one for each request under way:  next line ─▶ answer (serve/api.h) ─▶ a line of output
 *
 * Lines are answered by the code that answers connections.  A run that was ended in any way goes on
 * where it was when it is started again with the same files. */
#ifndef BATCH_BATCH_RUN_H
#define BATCH_BATCH_RUN_H

#include "serve/serve.h"

struct batch_counts {
    size_t total, done, failed; /* done: with a result in a file; failed: of these */
    uint64_t answer_tokens;     /* of this run */
};

struct batch_options {
    struct serve *serve;
    const char *input;    /* file of requests; "-": standard input */
    const char *output;   /* file of results … */
    const char *failures; /* … and of those that failed; NULL: they are in `output`, too */
    const char *path;     /* "/v1/chat/completions", which all lines must name; NULL: any */
    size_t parallel;      /* requests at a time, at least 1 */
    uint64_t seed;        /* that of a line is this plus its number; 0: random ones */
    bool background;
    uint32_t owner; /* guard_owner */
    int stop;       /* readable when the run is to end early; -1: never */
    /* When the files have been read and lines are left: opens what `serve` points to by then.  A
     * failure ends the run.  May be NULL. */
    mf_status (*ready)(void *user, const struct batch_counts *counts, mf_error *why);
    /* After each line, in the thread of a worker, never two at a time; may be NULL. */
    void (*progress)(void *user, const struct batch_counts *counts);
    void *user;
};

/* Reads the input and what the outputs have, and answers the lines that have no result.  True in
 * *stopped: lines are left, because `stop` was readable. */
mf_status batch_run(struct batch_counts *out, bool *stopped, const struct batch_options *options,
                    mf_error *why);

#endif
