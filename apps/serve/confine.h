/* confine.h: what the server gives up before it listens, so that a defect in it reaches less.
 *
 *   no_new_privs  set-user-ID programs give nothing
 *   seccomp       no program is started, no other process is looked into
 *   Landlock      files: reads of the model's directory and of the system's own; writes below the
 *                 directories that the command line names, and of a GPU's devices where one is
 *                 used; no TCP connection to anywhere
 *
 * Where the kernel lacks one of the last two, the others hold. */
#ifndef SERVE_CONFINE_H
#define SERVE_CONFINE_H

#include "common/error.h"

enum { CONFINE_PATHS_MAX = 8 };

struct confine_paths {
    const char *readable[CONFINE_PATHS_MAX]; /* files and directories; NULL entries are skipped */
    const char *writable[CONFINE_PATHS_MAX]; /* directories, which are there */
    const char *devices; /* in /dev, all whose names begin so are written to; NULL: none */
};

/* Of this thread and those that it starts from now on.  `done`, of at least 64 bytes, says what is
 * in force: "no_new_privs, seccomp, Landlock". */
mf_status confine(char *done, size_t capacity, const struct confine_paths *paths, mf_error *why);

#endif
