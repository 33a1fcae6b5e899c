/* recording.h: `--routes FILE`, for the commands that compute: what every router chose goes
 * into a trace, for `moeflux simulate`. */
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

/* From here on the sequence is watched, if the settings say so. */
mf_status recording_begin(struct recording *out, const struct recording_settings *settings,
                          const struct opened *opened, mf_error *why);

/* The file appears under its name, if it is to be kept; call it before the sequence closes.
 * What goes wrong is reported: returns `code`, or the code of the failure. */
int recording_end(struct recording *recording, int code);

#endif
