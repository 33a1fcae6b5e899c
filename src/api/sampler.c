/* sampler.c: mf_sampler_*. */
#include "api/handles.h"

#include "base/status.h"

mf_status mf_sampler_open(mf_sampler **out, const mf_model *model,
                          const mf_sampler_options *options, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    const mf_allocator *allocator = &model->engine->allocator;
    struct sampler_options chosen;
    sampler_options_default(&chosen);
    chosen.temperature = 0.0f;
    if (options) {
        chosen.temperature = options->temperature;
        chosen.top_k = (int32_t)min_size(options->top_k, INT32_MAX);
        chosen.top_p = options->top_p;
        chosen.min_p = options->min_p;
        chosen.seed = options->seed;
    }
    mf_sampler *sampler = api_new_handle(allocator, sizeof *sampler);
    if (!sampler) return fail_memory(why, sizeof *sampler);
    sampler->allocator = allocator;
    mf_status status =
        sampler_new(&sampler->sampler, allocator, &chosen, model->model.config.vocab_size,
                    model_usable_tokens(&model->model), why);
    if (status == MF_OK)
        *out = sampler;
    else
        mf_sampler_close(sampler);
    return status;
}

void mf_sampler_close(mf_sampler *sampler)
{
    if (!sampler) return;
    sampler_free(sampler->sampler);
    sampler->allocator->release(sampler->allocator->user, sampler, sizeof *sampler);
}

int32_t mf_sampler_pick(mf_sampler *sampler, const float *logits)
{
    return logits ? sampler_pick(sampler->sampler, logits) : -1;
}
