/* sampling.h: the options that say how the next token is drawn, shared by the commands
 * that generate. */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

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
void sampling_apply(mf_sampler_options *options, const struct sampling_settings *settings);

/* What --logit-bias says, into out[TEXT_LIST_LIMIT]: `options` then names them. */
mf_status sampling_read_biases(mf_logit_bias *out, mf_sampler_options *options,
                               const struct sampling_settings *settings,
                               const struct opened *opened, mf_error *why);

/* What ends an answer, as --stop says; NULL in *out: nothing.  Closed with mf_stops_close. */
mf_status sampling_stops_new(mf_stops **out, const struct sampling_settings *settings,
                             mf_error *why);

#endif
