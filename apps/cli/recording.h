/* recording.h: `--routes FILE` of the commands that run a model: writes the choices of every router
 * to a trace for `moeflux simulate`. */
#ifndef CLI_RECORDING_H
#define CLI_RECORDING_H

#include "opened.h"

#include "moeflux_tools.h"

struct recording_settings {
    const char *routes; /* path, or NULL */
};

enum { RECORDING_OPTION_COUNT = 1 };
extern const struct option recording_options[RECORDING_OPTION_COUNT];

/* Zeroed: nothing is recorded. */
struct recording {
    mf_route_recorder *recorder; /* NULL: nothing is recorded */
    struct output_file file;
};

/* Starts recording the sequence if the settings ask for it. */
mf_status recording_begin(struct recording *out, const struct recording_settings *settings,
                          const struct opened *opened, mf_error *why);

/* Completes the file, or discards it if `code` is EXIT_FAILED; call it before the sequence closes.
 * Reports a failure on stderr.  Returns `code`, or the code of the failure. */
int recording_end(struct recording *recording, int code);

#endif
