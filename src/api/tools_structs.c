/* tools_structs.c: structs that several functions of moeflux_tools.h fill. */
#include "api/tools.h"

#include "model/config.h"

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
        .window_layers = config_count_mixers(c, MIXER_WINDOW),
    };
    if (out->window_layers > 0) {
        out->window = c->window.positions;
        out->window_kv_heads = c->window.kv_heads;
        out->window_head_width = c->window.head_width;
    }
    for (uint32_t i = 0; i < c->layer_count; i++) out->expert_layers += c->ffns[i] == FFN_EXPERTS;
}
