/* sampling.h: the options that say how the next token is drawn, shared by the commands
 * that generate, and the checkpoint's own wishes (generation_config.json). */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

#include "sampling/sampler.h"
#include "chat/stop_strings.h"
#include "opened.h"
#include "options.h"

struct sampling_settings {
    struct maybe_real temperature;
    struct maybe_count top_k;
    struct maybe_real top_p, min_p, typical_p;
    struct maybe_real repetition_penalty, frequency_penalty, presence_penalty;
    struct maybe_real dry;
    struct text_list biases, stops;
};

/* For a struct sampling_settings at `base` in a command's settings. */
enum { SAMPLING_OPTION_COUNT = 11 };
extern const struct option sampling_options[SAMPLING_OPTION_COUNT];

/* Puts what was given on the command line over `options`. */
void sampling_apply(struct sampler_options *options, const struct sampling_settings *settings);

/* What --logit-bias says, into out[TEXT_LIST_LIMIT]: `options` then names them. */
mf_status sampling_read_biases(struct logit_bias *out, struct sampler_options *options,
                               const struct sampling_settings *settings,
                               const struct opened *opened, mf_error *why);

/* What ends an answer, as --stop says; NULL in *out: nothing.  Freed with stop_strings_free. */
mf_status sampling_stops_new(struct stop_strings **out, const struct sampling_settings *settings,
                             mf_error *why);

/* A sampler for the rows of this model; freed with sampler_free. */
mf_status sampling_open_new(struct sampler **out, const struct opened *opened,
                            const struct sampler_options *options, mf_error *why);

#endif
