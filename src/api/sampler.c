/* sampler.c: mf_sampler_*. */
#include "api/handles.h"

#include "base/status.h"

#include <math.h>

/* What is 0 and has another default. */
static void choose(struct sampler_options *out, const mf_sampler_options *from)
{
    sampler_options_default(out);
    out->temperature = from->temperature;
    out->top_k = (int32_t)min_size(from->top_k, INT32_MAX);
    out->top_p = from->top_p;
    out->min_p = from->min_p;
    out->typical_p = from->typical_p;
    out->seed = from->seed;
    if (from->penalty_window)
        out->penalty_window = (int32_t)min_size(from->penalty_window, 1 << 20);
    if (from->repetition_penalty != 0.0f) out->repetition_penalty = from->repetition_penalty;
    out->frequency_penalty = from->frequency_penalty;
    out->presence_penalty = from->presence_penalty;
    out->dry_multiplier = from->dry_multiplier;
    if (from->dry_base != 0.0f) out->dry_base = from->dry_base;
    if (from->dry_allowed_length)
        out->dry_allowed_length = (int32_t)min_size(from->dry_allowed_length, INT32_MAX);
    out->dry_breakers = from->dry_breakers;
    out->dry_breaker_count = from->dry_breaker_count;
    out->biases = from->biases;
    out->bias_count = from->bias_count;
}

mf_status mf_sampler_open(mf_sampler **out, const mf_model *model,
                          const mf_sampler_options *options, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    const mf_allocator *allocator = &model->engine->allocator;
    mf_sampler_options own;
    struct sampler_options chosen;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_SAMPLER_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    if (!own.biases && own.bias_count) return api_missing(why, "options->biases");
    if (!own.dry_breakers && own.dry_breaker_count)
        return api_missing(why, "options->dry_breakers");
    choose(&chosen, &own);
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

void mf_sampler_accept_prompt(mf_sampler *sampler, const int32_t *tokens, size_t count)
{
    if (sampler && tokens) sampler_accept_prompt(sampler->sampler, tokens, count);
}

void mf_sampler_accept(mf_sampler *sampler, int32_t token)
{
    if (sampler) sampler_accept(sampler->sampler, token);
}

void mf_sampler_reset(mf_sampler *sampler)
{
    if (sampler) sampler_reset(sampler->sampler);
}

size_t mf_sampler_logprobs(mf_sampler *sampler, mf_logprob *out, size_t count, const float *logits)
{
    return sampler && out && logits ? sampler_logprobs(sampler->sampler, out, count, logits) : 0;
}

float mf_sampler_logprob_of(mf_sampler *sampler, const float *logits, int32_t token)
{
    return sampler && logits ? sampler_logprob_of(sampler->sampler, logits, token) : -INFINITY;
}
