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
    mf_sampler_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_SAMPLER_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    struct sampler_options chosen;
    sampler_options_default(&chosen);
    chosen.temperature = own.temperature;
    if (options) {
        chosen.top_k = (int32_t)min_size(own.top_k, INT32_MAX);
        chosen.top_p = own.top_p;
        chosen.min_p = own.min_p;
        chosen.seed = own.seed;
    }
    mf_sampler *sampler = api_new_handle(allocator, sizeof *sampler);
    if (!sampler) return fail_memory(why, sizeof *sampler);
    sampler->allocator = allocator;
    status = sampler_new(&sampler->sampler, allocator, &chosen, model->model.config.vocab_size,
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
    return sampler && logits ? sampler_pick(sampler->sampler, logits) : -1;
}
