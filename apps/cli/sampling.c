#include "sampling.h"

#include "api/handles.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"

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
};

static mf_status read_wishes(struct sampler_options *out, const char *path, mf_error *why)
{
    json_t *json = NULL;
    bool samples = true;
    double temperature = (double)out->temperature, top_p = (double)out->top_p;
    double min_p = (double)out->min_p, repetition = (double)out->repetition_penalty;
    uint64_t top_k = (uint64_t)out->top_k;
    mf_status status = json_read_file_new(&json, &files_posix, path, 1 << 20, why);

    if (status == MF_OK) status = json_maybe_flag(&samples, json, "do_sample", path, why);
    if (status == MF_OK) status = json_maybe_real(&temperature, json, "temperature", path, why);
    if (status == MF_OK) status = json_maybe_real(&top_p, json, "top_p", path, why);
    if (status == MF_OK) status = json_maybe_real(&min_p, json, "min_p", path, why);
    if (status == MF_OK) {
        status = json_maybe_real(&repetition, json, "repetition_penalty", path, why);
    }
    if (status == MF_OK) status = json_maybe_count(&top_k, json, "top_k", 0, 1 << 24, path, why);
    json_decref(json);
    if (status != MF_OK) return status;
    out->temperature = samples ? (float)temperature : 0.0f;
    out->top_p = (float)top_p;
    out->min_p = (float)min_p;
    out->repetition_penalty = (float)repetition;
    out->top_k = (int32_t)top_k;
    return MF_OK;
}

mf_status sampling_wishes(struct sampler_options *out, const char *model_path, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status;

    sampler_options_default(out);
    out->temperature = 0.7f;
    out->top_k = 40;
    out->top_p = 0.9f;
    status = path_join(path, sizeof path, model_path, "generation_config.json", why);
    /* A .gguf file has no files below it: there is none then. */
    if (status != MF_OK || !file_exists(&files_posix, path)) return status;
    return read_wishes(out, path, why);
}

static void apply_real(float *out, const struct maybe_real *given)
{
    if (given->given) *out = (float)given->value;
}

void sampling_apply(struct sampler_options *options, const struct sampling_settings *settings)
{
    apply_real(&options->temperature, &settings->temperature);
    apply_real(&options->top_p, &settings->top_p);
    apply_real(&options->min_p, &settings->min_p);
    apply_real(&options->typical_p, &settings->typical_p);
    apply_real(&options->repetition_penalty, &settings->repetition_penalty);
    apply_real(&options->frequency_penalty, &settings->frequency_penalty);
    apply_real(&options->presence_penalty, &settings->presence_penalty);
    apply_real(&options->dry_multiplier, &settings->dry);
    if (settings->top_k.given) options->top_k = (int32_t)settings->top_k.value;
}

mf_status sampling_open_new(struct sampler **out, const struct opened *opened,
                            const struct sampler_options *options, mf_error *why)
{
    return sampler_new(out, &allocator_heap, options, mf_model_vocab_size(opened->model),
                       model_usable_tokens(&opened->model->model), why);
}
