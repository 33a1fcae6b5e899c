/* streams.h: standard input and output, with their failures noticed.
 *
 * The rules, for every command:
 *   - data on stdout, messages on stderr, each message one line "moeflux: …";
 *   - a closed pipe (`moeflux … | head`) ends the program quietly with status 0;
 *   - data that could not be written (disk full, stdout closed) is a failure: status 1;
 *   - a stream that was closed before the program began stays harmless: no file that
 *     is opened later takes its number. */
#ifndef CLI_STREAMS_H
#define CLI_STREAMS_H

#include "common/basics.h"
#include "moeflux.h"

#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* To be called first: SIGPIPE ignored, closed standard streams held. */
void streams_guard(void);

/* Flushes stdout.  Returns `code`, or EXIT_FAILED (said on stderr) where data was lost. */
int streams_finish(int code);

/* To stdout; what goes wrong is remembered for streams_finish. */
void output_write(const void *bytes, size_t length);

/* Flushes stdout; true when what is written there can no longer arrive: time to stop. */
bool output_is_lost(void);

/* "moeflux: <sentence>" on stderr; returns EXIT_FAILED, after report_as_usage EXIT_USAGE. */
int report(const mf_error *why);

/* The failure under way is one of the command line alone: an option's value that is wrong
 * with every model.  (A value that does not fit this model is a failure of the work.) */
void report_as_usage(void);

/* The same, where no caller can return the status: streams_finish returns it. */
void output_failed(const mf_error *why);

/* A hint that is neither data nor failure, "moeflux: note: …" on stderr. */
void note(const char *format, ...) MF_PRINTF(1, 2);

/* All of a file, or of stdin where `path` is NULL or "-"; NUL-terminated, freed with free(). */
const char *input_name(const char *path); /* "standard input" for those two */
mf_status input_read_new(char **out, size_t *length, const char *path, mf_error *why);

/* A file that appears under its name only when it is complete: written beside it,
 * synced and renamed.  After a failure the temporary file is gone. */
struct output_file {
    FILE *stream;
    const char *path; /* borrowed */
    char temporary[4096];
};

mf_status output_file_open(struct output_file *out, const char *path, mf_error *why);
mf_status output_file_commit(struct output_file *file, mf_error *why);
void output_file_abandon(struct output_file *file); /* after a commit: nothing */

#endif
