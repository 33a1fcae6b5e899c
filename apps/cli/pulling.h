/* pulling.h: a download as a person sees it: what is going to happen, a bar, Ctrl-C.
 *
 * Messages and the bar go to stderr.  Ctrl-C ends a download with EXIT_INTERRUPTED and keeps what is
 * there; the same command then goes on. */
#ifndef CLI_PULLING_H
#define CLI_PULLING_H

#include "command.h"

struct pulling {
    const char *name; /* org/name[:QUANT] */
    unsigned connections, idle_seconds;
    uint64_t memory_bytes;
    const char *kernels; /* of which the speed is told before the question; NULL: the best */
    unsigned threads;    /* likewise; 0: one for every core */
    bool ask;            /* before it begins; a no is EXIT_FAILED */
    bool *declined;      /* set by a no; may be NULL */
    bool list;           /* do not download: write what the hub has to stdout */
};

/* Returns an exit status; `path` is the checkpoint after EXIT_DONE (of `list`: ""). */
int pulling_run(const struct pulling *pulling, char path[PATH_CAPACITY]);

/* Before `model` is opened: if it is a name, and nothing of it is in the cache, downloads it after a
 * yes (--yes, or an answer on a terminal).  Without a terminal nothing is asked: the command that
 * downloads it is printed.  EXIT_DONE: go on.  *declined (may be NULL): the answer was no. */
int pulling_offer(const struct common_settings *common, const char *model, bool *declined);

#endif
