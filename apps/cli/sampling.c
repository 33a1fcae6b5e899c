#include "sampling.h"

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
};

static mf_status read_wishes(mf_sampler_options *out, const char *path, mf_error *why)
{
    json_t *json = NULL;
    bool samples = true;
    double temperature = (double)out->temperature, top_p = (double)out->top_p;
    double min_p = (double)out->min_p;
    uint64_t top_k = out->top_k;
    mf_status status = json_read_file_new(&json, &files_posix, path, 1 << 20, why);

    if (status == MF_OK) status = json_maybe_flag(&samples, json, "do_sample", path, why);
    if (status == MF_OK) status = json_maybe_real(&temperature, json, "temperature", path, why);
    if (status == MF_OK) status = json_maybe_real(&top_p, json, "top_p", path, why);
    if (status == MF_OK) status = json_maybe_real(&min_p, json, "min_p", path, why);
    if (status == MF_OK) status = json_maybe_count(&top_k, json, "top_k", 0, 1 << 24, path, why);
    json_decref(json);
    if (status != MF_OK) return status;
    out->temperature = samples ? (float)temperature : 0.0f;
    out->top_p = (float)top_p;
    out->min_p = (float)min_p;
    out->top_k = (uint32_t)top_k;
    return MF_OK;
}

mf_status sampling_defaults(mf_sampler_options *out, const char *model_path, mf_error *why)
{
    char path[PATH_CAPACITY];

    *out = (mf_sampler_options){ .temperature = 0.7f, .top_k = 40, .top_p = 0.9f };
    /* A .gguf file has no such neighbour, and path_join's answer does not exist either. */
    if (path_join(path, sizeof path, model_path, "generation_config.json", why) != MF_OK ||
        !file_exists(&files_posix, path)) {
        return MF_OK;
    }
    return read_wishes(out, path, why);
}

void sampling_apply(mf_sampler_options *options, const struct sampling_settings *settings)
{
    if (settings->temperature.given) options->temperature = (float)settings->temperature.value;
    if (settings->top_k.given) options->top_k = (uint32_t)settings->top_k.value;
    if (settings->top_p.given) options->top_p = (float)settings->top_p.value;
    if (settings->min_p.given) options->min_p = (float)settings->min_p.value;
}
