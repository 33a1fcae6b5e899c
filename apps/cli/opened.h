/* opened.h: engine, model and sequence of a command, opened and closed together. */
#ifndef CLI_OPENED_H
#define CLI_OPENED_H

#include "command.h"
#include "common/lists.h"
#include "trace_file.h"

struct opened {
    char *path; /* of the checkpoint, resolved */
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    struct trace_file *trace; /* NULL: not requested */
};

/* Opens all three by the common settings.  After a failure nothing is open. */
mf_status opened_open(struct opened *out, const struct common_settings *settings, mf_error *why);

/* Opens engine and model; the caller may open the sequence, which opened_close closes. */
mf_status opened_open_model(struct opened *out, const struct common_settings *settings,
                            mf_error *why);

/* Also writes the trace.  If that fails, a message goes to stderr and the program will end with
 * EXIT_FAILED. */
void opened_close(struct opened *opened);

/* Tokenises a text; all added tokens are recognised. */
mf_status opened_tokenize(struct id_list *out, const struct opened *opened, const char *text,
                          size_t length, mf_error *why);

#endif
