#include "api/tools.h"

#include "base/common.h"
#include "base/status.h"
#include "model/config.h"

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

mf_status tools_take(void *own, size_t own_size, const void *given, const char *initialiser,
                     mf_error *why)
{
    if (!given) return MF_OK;
    if (size_of(given) == 0)
        return fail(why, MF_ERR_ARGUMENT, "struct_size is 0: begin with %s", initialiser);
    memcpy(own, given, min_size(size_of(given), own_size));
    return MF_OK;
}

void tools_give(void *given, const void *own, size_t own_size)
{
    if (!given) return;
    size_t size = size_of(given);
    if (size < sizeof size) return;
    memcpy(given, own, min_size(size, own_size));
    memcpy(given, &size, sizeof size);
}

void tools_fill_shape(mf_model_shape *out, const struct model_config *c)
{
    *out = (mf_model_shape){
        .layer_count = c->layer_count,
        .attention_layers = config_count_mixers(c, MIXER_ATTENTION),
        .latent_layers = config_count_mixers(c, MIXER_LATENT),
        .delta_layers = config_count_mixers(c, MIXER_DELTA),
        .vocab_size = c->vocab_size,
        .context_length = c->context_length,
        .width = c->width,
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_width = c->head_width,
        .nope_width = c->nope_width,
        .rotary_width = c->rope.rotary_width,
        .value_width = c->value_width,
        .latent_width = c->latent_width,
        .delta_key_heads = c->delta_key_heads,
        .delta_key_width = c->delta_key_width,
        .delta_value_heads = c->delta_value_heads,
        .delta_value_width = c->delta_value_width,
        .experts = c->experts,
        .experts_per_token = c->experts_per_token,
        .expert_width = c->expert_width,
        .shared_width = c->shared_width,
        .dense_width = c->dense_width,
    };
    for (uint32_t i = 0; i < c->layer_count; i++) out->expert_layers += c->ffns[i] == FFN_EXPERTS;
}
