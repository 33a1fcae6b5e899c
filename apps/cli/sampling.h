/* sampling.h: the options that say how the next token is drawn, shared by the commands
 * that generate, and the checkpoint's own wishes (generation_config.json). */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

#include "options.h"

struct sampling_settings {
    struct maybe_real temperature;
    struct maybe_count top_k;
    struct maybe_real top_p;
    struct maybe_real min_p;
};

/* For a struct sampling_settings at `base` in a command's settings. */
enum { SAMPLING_OPTION_COUNT = 4 };
extern const struct option sampling_options[SAMPLING_OPTION_COUNT];

/* What `model_path`/generation_config.json asks for; where it is silent or absent,
 * temperature 0.7, top-k 40, top-p 0.9. */
mf_status sampling_defaults(mf_sampler_options *out, const char *model_path, mf_error *why);

/* Puts what was given on the command line over `options`. */
void sampling_apply(mf_sampler_options *options, const struct sampling_settings *settings);

#endif
