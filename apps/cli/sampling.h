/* sampling.h: the options that say how the next token is drawn, shared by the commands
 * that generate, and the checkpoint's own wishes (generation_config.json). */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

#include "engine/sampler.h"
#include "opened.h"
#include "options.h"

struct sampling_settings {
    struct maybe_real temperature;
    struct maybe_count top_k;
    struct maybe_real top_p, min_p, typical_p;
    struct maybe_real repetition_penalty, frequency_penalty, presence_penalty;
    struct maybe_real dry;
};

/* For a struct sampling_settings at `base` in a command's settings. */
enum { SAMPLING_OPTION_COUNT = 9 };
extern const struct option sampling_options[SAMPLING_OPTION_COUNT];

/* What `model_path`/generation_config.json asks for; where it is silent or absent,
 * temperature 0.7, top-k 40, top-p 0.9. */
mf_status sampling_wishes(struct sampler_options *out, const char *model_path, mf_error *why);

/* Puts what was given on the command line over `options`. */
void sampling_apply(struct sampler_options *options, const struct sampling_settings *settings);

/* A sampler for the rows of this model; freed with sampler_free. */
mf_status sampling_open_new(struct sampler **out, const struct opened *opened,
                            const struct sampler_options *options, mf_error *why);

#endif
