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
    struct trace_file *trace; /* NULL: none was asked for */
};

/* As the common settings say.  After a failure nothing stays open. */
mf_status opened_open(struct opened *out, const struct common_settings *settings, mf_error *why);

/* Engine and model alone; the sequence is the caller's to open, and closed with them. */
mf_status opened_open_model(struct opened *out, const struct common_settings *settings,
                            mf_error *why);

/* Writes the trace, too; a trace that cannot be written is said on stderr, and the program
 * will end with EXIT_FAILED. */
void opened_close(struct opened *opened);

/* The ids of a text, every added token recognised. */
mf_status opened_tokenize(struct id_list *out, const struct opened *opened, const char *text,
                          size_t length, mf_error *why);

#endif
