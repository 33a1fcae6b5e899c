#include "model/families.h"

/* qwen3_5_moe.  Three of four layers are gated delta nets, the fourth is full
 * attention with an output gate; every layer has routed experts and a shared one. */
static const struct tensor_rule qwen3_5_moe_rules[] = {
    { SLOT_EMBEDDING, RULE_MATRIX, SCOPE_MODEL, "embed_tokens.weight", { DIM_VOCAB, DIM_WIDTH } },
    { SLOT_FINAL_NORM, RULE_NORM, SCOPE_MODEL, "norm.weight", { DIM_WIDTH } },
    { SLOT_HEAD, RULE_HEAD, SCOPE_MODEL, "lm_head.weight", { DIM_VOCAB, DIM_WIDTH } },

    { SLOT_MIXER_NORM,
      RULE_NORM,
      SCOPE_EVERY_LAYER,
      "layers.%u.input_layernorm.weight",
      { DIM_WIDTH } },
    { SLOT_FFN_NORM,
      RULE_NORM,
      SCOPE_EVERY_LAYER,
      "layers.%u.post_attention_layernorm.weight",
      { DIM_WIDTH } },

    { SLOT_Q,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.q_proj.weight",
      { DIM_QUERIES_AND_GATES, DIM_WIDTH } },
    { SLOT_K,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.k_proj.weight",
      { DIM_KEYS, DIM_WIDTH } },
    { SLOT_V,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.v_proj.weight",
      { DIM_KEYS, DIM_WIDTH } },
    { SLOT_ATTENTION_OUT,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.o_proj.weight",
      { DIM_WIDTH, DIM_QUERIES } },
    { SLOT_Q_NORM,
      RULE_NORM,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.q_norm.weight",
      { DIM_HEAD_WIDTH } },
    { SLOT_K_NORM,
      RULE_NORM,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.k_norm.weight",
      { DIM_HEAD_WIDTH } },

    { SLOT_DELTA_QKV,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_qkv.weight",
      { DIM_DELTA_CHANNELS, DIM_WIDTH } },
    { SLOT_DELTA_Z,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_z.weight",
      { DIM_DELTA_VALUES, DIM_WIDTH } },
    { SLOT_DELTA_B,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_b.weight",
      { DIM_DELTA_VALUE_HEADS, DIM_WIDTH } },
    { SLOT_DELTA_A,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_a.weight",
      { DIM_DELTA_VALUE_HEADS, DIM_WIDTH } },
    { SLOT_DELTA_CONV,
      RULE_CONV,
      SCOPE_DELTA,
      "layers.%u.linear_attn.conv1d.weight",
      { DIM_DELTA_CHANNELS, DIM_DELTA_TAPS } },
    { SLOT_DELTA_DECAY,
      RULE_LOG_DECAY,
      SCOPE_DELTA,
      "layers.%u.linear_attn.A_log",
      { DIM_DELTA_VALUE_HEADS } },
    { SLOT_DELTA_DT_BIAS,
      RULE_VECTOR,
      SCOPE_DELTA,
      "layers.%u.linear_attn.dt_bias",
      { DIM_DELTA_VALUE_HEADS } },
    { SLOT_DELTA_NORM,
      RULE_VECTOR,
      SCOPE_DELTA,
      "layers.%u.linear_attn.norm.weight",
      { DIM_DELTA_VALUE_WIDTH } },
    { SLOT_DELTA_OUT,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.out_proj.weight",
      { DIM_WIDTH, DIM_DELTA_VALUES } },

    { SLOT_ROUTER,
      RULE_MATRIX,
      SCOPE_EVERY_LAYER,
      "layers.%u.mlp.gate.weight",
      { DIM_EXPERTS, DIM_WIDTH } },
    { SLOT_SHARED_GATE,
      RULE_MATRIX,
      SCOPE_EVERY_LAYER,
      "layers.%u.mlp.shared_expert.gate_proj.weight",
      { DIM_SHARED_WIDTH, DIM_WIDTH } },
    { SLOT_SHARED_UP,
      RULE_MATRIX,
      SCOPE_EVERY_LAYER,
      "layers.%u.mlp.shared_expert.up_proj.weight",
      { DIM_SHARED_WIDTH, DIM_WIDTH } },
    { SLOT_SHARED_DOWN,
      RULE_MATRIX,
      SCOPE_EVERY_LAYER,
      "layers.%u.mlp.shared_expert.down_proj.weight",
      { DIM_WIDTH, DIM_SHARED_WIDTH } },
    { SLOT_SHARED_SCALE,
      RULE_MATRIX,
      SCOPE_EVERY_LAYER,
      "layers.%u.mlp.shared_expert_gate.weight",
      { DIM_ONE, DIM_WIDTH } },
};

static const struct family families[] = {
    { .name = "qwen3_5_moe",
      .model_types = { "qwen3_5_moe", "qwen3_5_moe_text" },
      .defaults = { .width = 2048,
                    .vocab_size = 248320,
                    .context_length = 32768,
                    .norm_epsilon = 1e-6f,
                    .layer_count = 40,
                    .full_attention_interval = 4,
                    .heads = 16,
                    .kv_heads = 2,
                    .head_width = 256,
                    .rope_theta = 1e7,
                    .rotary_factor = 0.25,
                    .delta_key_heads = 16,
                    .delta_value_heads = 32,
                    .delta_key_width = 128,
                    .delta_value_width = 128,
                    .delta_taps = 4,
                    .experts = 256,
                    .experts_per_token = 8,
                    .expert_width = 512,
                    .shared_width = 512 },
      .rules = qwen3_5_moe_rules,
      .rule_count = COUNT_OF(qwen3_5_moe_rules),
      .zero_centred_norms = true },
};

const struct family *family_at(size_t index)
{
    return index < COUNT_OF(families) ? &families[index] : NULL;
}

const struct family *family_find(const char *model_type)
{
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        for (size_t j = 0; j < COUNT_OF(families[i].model_types); j++) {
            const char *name = families[i].model_types[j];
            if (name && strcmp(name, model_type) == 0) return &families[i];
        }
    }
    return NULL;
}

uint64_t dimension_size(const struct model_config *c, enum dimension dimension)
{
    switch (dimension) {
    case DIM_NONE:
        return 0;
    case DIM_ONE:
        return 1;
    case DIM_WIDTH:
        return c->width;
    case DIM_VOCAB:
        return c->vocab_size;
    case DIM_HEAD_WIDTH:
        return c->head_width;
    case DIM_QUERIES:
        return (uint64_t)c->heads * c->head_width;
    case DIM_QUERIES_AND_GATES:
        return 2 * (uint64_t)c->heads * c->head_width;
    case DIM_KEYS:
        return (uint64_t)c->kv_heads * c->head_width;
    case DIM_DELTA_CHANNELS:
        return config_delta_channels(c);
    case DIM_DELTA_VALUES:
        return (uint64_t)c->delta_value_heads * c->delta_value_width;
    case DIM_DELTA_VALUE_HEADS:
        return c->delta_value_heads;
    case DIM_DELTA_VALUE_WIDTH:
        return c->delta_value_width;
    case DIM_DELTA_TAPS:
        return c->delta_taps;
    case DIM_EXPERTS:
        return c->experts;
    case DIM_SHARED_WIDTH:
        return c->shared_width;
    }
    return 0;
}
