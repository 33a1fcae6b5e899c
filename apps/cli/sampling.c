#include "sampling.h"
#include "streams.h"

#include "common/basics.h"
#include "common/error.h"

#include <math.h>

const struct option sampling_options[SAMPLING_OPTION_COUNT] = {
    { 0, "temp", OPTION_REAL, offsetof(struct sampling_settings, temperature), "X",
      .help = "temperature; 0 always takes the most likely token", .low = 0, .high = 100 },
    { 0, "top-k", OPTION_COUNT, offsetof(struct sampling_settings, top_k), "N",
      .help = "draw from the N most likely tokens; 0: from all", .low = 0, .high = 1 << 24 },
    { 0, "top-p", OPTION_REAL, offsetof(struct sampling_settings, top_p), "X",
      .help = "draw from the fewest tokens that reach this probability; 1: off", .low = 0,
      .high = 1 },
    { 0, "min-p", OPTION_REAL, offsetof(struct sampling_settings, min_p), "X",
      .help = "leave out tokens below this fraction of the best one's probability", .low = 0,
      .high = 1 },
    { 0, "typical-p", OPTION_REAL, offsetof(struct sampling_settings, typical_p), "X",
      .help = "draw from the most typical tokens that reach this probability; 1: off", .low = 0,
      .high = 1 },
    { 0, "repetition-penalty", OPTION_REAL, offsetof(struct sampling_settings, repetition_penalty),
      "X", .help = "make tokens of the text so far less likely; 1: off", .low = 0.01, .high = 100 },
    { 0, "frequency-penalty", OPTION_REAL, offsetof(struct sampling_settings, frequency_penalty),
      "X", .help = "subtract this for every time a token was generated", .low = -100, .high = 100 },
    { 0, "presence-penalty", OPTION_REAL, offsetof(struct sampling_settings, presence_penalty), "X",
      .help = "subtract this from every token that was generated", .low = -100, .high = 100 },
    { 0, "dry", OPTION_REAL, offsetof(struct sampling_settings, dry), "X",
      .help = "weight of the DRY penalty on repeated sequences; 0: off", .low = 0, .high = 100 },
    { 0, "logit-bias", OPTION_TEXTS, offsetof(struct sampling_settings, biases), "ID=X",
      .help = "add X to the logit of a token; -inf: never this one; may be given several times" },
    { 0, "stop", OPTION_TEXTS, offsetof(struct sampling_settings, stops), "TEXT",
      .help = "end before this text, wherever it begins; may be given several times" },
};

static void apply_real(float *out, const struct maybe_real *given)
{
    if (given->given) *out = (float)given->value;
}

void sampling_apply(mf_sampler_options *options, const struct sampling_settings *settings)
{
    apply_real(&options->temperature, &settings->temperature);
    apply_real(&options->top_p, &settings->top_p);
    apply_real(&options->min_p, &settings->min_p);
    apply_real(&options->typical_p, &settings->typical_p);
    apply_real(&options->repetition_penalty, &settings->repetition_penalty);
    apply_real(&options->frequency_penalty, &settings->frequency_penalty);
    apply_real(&options->presence_penalty, &settings->presence_penalty);
    apply_real(&options->dry_multiplier, &settings->dry);
    if (settings->top_k.given) options->top_k = (uint32_t)settings->top_k.value;
}

/* "42=-3.5" */
static bool parse_bias(mf_logit_bias *out, const char *text)
{
    char id[24];
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : 0;
    uint64_t token;
    double bias = -INFINITY;

    if (length == 0 || length >= sizeof id) return false;
    memcpy(id, text, length);
    id[length] = '\0';
    if (!parse_count(&token, id) || token > INT32_MAX) return false;
    if (strcmp(equals + 1, "-inf") != 0 && !parse_real(&bias, equals + 1)) return false;
    *out = (mf_logit_bias){ (int32_t)token, (float)bias };
    return true;
}

mf_status sampling_read_biases(mf_logit_bias *out, mf_sampler_options *options,
                               const struct sampling_settings *settings,
                               const struct opened *opened, mf_error *why)
{
    const struct text_list *list = &settings->biases;

    for (size_t i = 0; i < list->count; i++) {
        if (!parse_bias(&out[i], list->values[i])) {
            report_as_usage();
            return fail(why, MF_ERR_ARGUMENT,
                        "--logit-bias: \"%.64s\" is not a token's id and a number, as in 42=-3.5",
                        list->values[i]);
        }
        if ((uint32_t)out[i].token >= mf_model_vocab_size(opened->model)) {
            return fail(why, MF_ERR_ARGUMENT, "--logit-bias: the model has no token %d",
                        out[i].token);
        }
    }
    options->biases = out;
    options->bias_count = list->count;
    return MF_OK;
}

mf_status sampling_stops_new(mf_stops **out, const struct sampling_settings *settings,
                             mf_error *why)
{
    *out = NULL;
    if (settings->stops.count == 0) return MF_OK;
    return mf_stops_open(out, settings->stops.values, settings->stops.count, why);
}
