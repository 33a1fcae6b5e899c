/* batch_file.h: the two files of a batch: requests, and results that survive an interruption.
 *
 * Results are appended as whole lines, in the order in which they are ready.  A run that was ended,
 * also by kill -9, leaves at most one unfinished line, which the next run removes; requests whose
 * results are there are not done again. */
#ifndef BATCH_BATCH_FILE_H
#define BATCH_BATCH_FILE_H

#include "common/error.h"
#include "common/json.h"

struct batch_input {
    json_t *lines; /* array of objects, each with a custom_id of its own */
    json_t *ids;   /* object: from custom_ids to the numbers of their lines */
};

/* Reads and checks all lines ("-": stdin).  A line that is no request, or a custom_id that is there
 * twice, is an error that names the line. */
mf_status batch_input_read(struct batch_input *out, const char *path, mf_error *why);
void batch_input_free(struct batch_input *input);

struct batch_output {
    int descriptor;   /* -1: not open */
    const char *path; /* borrowed */
    double synced;    /* seconds of the clock */
    json_t *done;     /* object: the custom_ids whose results are in the file */
};

/* Opens or creates the file.  A result of a request that the input does not have is an error: the
 * file belongs to another batch. */
mf_status batch_output_open(struct batch_output *out, const char *path,
                            const struct batch_input *input, mf_error *why);
mf_status batch_output_add(struct batch_output *output, const json_t *result, mf_error *why);
mf_status batch_output_close(struct batch_output *output, mf_error *why);

#endif
