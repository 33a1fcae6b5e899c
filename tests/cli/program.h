/* program.h: run build/moeflux as a user does, and look at what it said.
 *
 *     struct run run = PROGRAM("text on stdin", "tokenize", "--no-special");
 *     assert_int_equal(run.code, 0);
 *     run_free(&run);
 *
 * The program is that of MOEFLUX_BUILD; models and fixtures lie under MOEFLUX_SOURCE.
 * A program that ends by a signal has code 128 + its number. */
#ifndef CLI_PROGRAM_H
#define CLI_PROGRAM_H

#include "support/test.h"

#include <stdbool.h>

struct run {
    int code;
    bool killed;     /* by a signal */
    char *out, *err; /* terminated */
    size_t out_length, err_length;
    long peak_kib; /* of the resident set */
};

/* `input` NULL: stdin is /dev/null.  `words` ends with NULL. */
struct run program_run(const char *input, const char *const *words);
void run_free(struct run *run);

#define PROGRAM(input, ...) program_run((input), (const char *const[]){ __VA_ARGS__, NULL })

/* The same with one Ctrl-C as soon as the program catches it. */
struct run program_interrupted(const char *input, const char *const *words);

/* A line for /bin/sh in which $MOEFLUX is the program and $SOURCE the repository. */
struct run shell_run(const char *line);

/* Path below the repository; static, overwritten by the next call. */
const char *source_path(const char *below);

/* Where `part` must stand in `text`; the message shows both. */
void assert_contains(const char *text, const char *part);

/* The run is `code`, nothing on stdout, and one sentence "moeflux…: …part…" on stderr. */
void assert_refused(struct run *run, int code, const char *part);

#endif
