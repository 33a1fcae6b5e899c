#include "model/families.h"

#include <stdio.h>

static const struct tensor_rule common_rules[] = {
    { WEIGHT_EMBEDDING,
      RULE_MATRIX,
      SCOPE_MODEL,
      "embed_tokens.weight",
      "token_embd.weight",
      { DIM_VOCAB, DIM_WIDTH } },
    { WEIGHT_FINAL_NORM,
      RULE_NORM,
      SCOPE_MODEL,
      "norm.weight",
      "output_norm.weight",
      { DIM_WIDTH } },
    { WEIGHT_HEAD,
      RULE_HEAD,
      SCOPE_MODEL,
      "lm_head.weight",
      "output.weight",
      { DIM_VOCAB, DIM_WIDTH } },
    { WEIGHT_MIXER_NORM,
      RULE_NORM,
      SCOPE_LAYER,
      "layers.%u.input_layernorm.weight",
      "blk.%u.attn_norm.weight",
      { DIM_WIDTH } },
};

/* The second norm of a layer has two names in GGUF files. */
static const struct tensor_rule ffn_norm_rules[] = {
    { WEIGHT_FFN_NORM,
      RULE_NORM,
      SCOPE_LAYER,
      "layers.%u.post_attention_layernorm.weight",
      "blk.%u.ffn_norm.weight",
      { DIM_WIDTH } },
};
static const struct tensor_rule hybrid_ffn_norm_rules[] = {
    { WEIGHT_FFN_NORM,
      RULE_NORM,
      SCOPE_LAYER,
      "layers.%u.post_attention_layernorm.weight",
      "blk.%u.post_attention_norm.weight",
      { DIM_WIDTH } },
};

/* Newer GGUF files may have the three projections in one. */
static const struct tensor_rule attention_rules[] = {
    { WEIGHT_Q,
      RULE_ATTENTION_QKV,
      SCOPE_ATTENTION,
      NULL,
      "blk.%u.attn_qkv.weight",
      { DIM_ATTENTION_FUSED, DIM_WIDTH } },
    { WEIGHT_Q,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.q_proj.weight",
      "blk.%u.attn_q.weight",
      { DIM_QUERIES_AND_GATES, DIM_WIDTH } },
    { WEIGHT_K,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.k_proj.weight",
      "blk.%u.attn_k.weight",
      { DIM_KEYS, DIM_WIDTH } },
    { WEIGHT_V,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.v_proj.weight",
      "blk.%u.attn_v.weight",
      { DIM_KEYS, DIM_WIDTH } },
    { WEIGHT_ATTENTION_OUT,
      RULE_MATRIX,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.o_proj.weight",
      "blk.%u.attn_output.weight",
      { DIM_WIDTH, DIM_QUERIES } },
    { WEIGHT_Q_NORM,
      RULE_NORM,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.q_norm.weight",
      "blk.%u.attn_q_norm.weight",
      { DIM_HEAD_WIDTH } },
    { WEIGHT_K_NORM,
      RULE_NORM,
      SCOPE_ATTENTION,
      "layers.%u.self_attn.k_norm.weight",
      "blk.%u.attn_k_norm.weight",
      { DIM_HEAD_WIDTH } },
};

static const struct tensor_rule latent_rules[] = {
    { WEIGHT_Q,
      RULE_MATRIX,
      SCOPE_LATENT_DIRECT,
      "layers.%u.self_attn.q_proj.weight",
      "blk.%u.attn_q.weight",
      { DIM_QUERIES, DIM_WIDTH } },
    { WEIGHT_Q_A,
      RULE_MATRIX,
      SCOPE_LATENT_RANKED,
      "layers.%u.self_attn.q_a_proj.weight",
      "blk.%u.attn_q_a.weight",
      { DIM_QUERY_RANK, DIM_WIDTH } },
    { WEIGHT_Q_A_NORM,
      RULE_NORM,
      SCOPE_LATENT_RANKED,
      "layers.%u.self_attn.q_a_layernorm.weight",
      "blk.%u.attn_q_a_norm.weight",
      { DIM_QUERY_RANK } },
    { WEIGHT_Q_B,
      RULE_MATRIX,
      SCOPE_LATENT_RANKED,
      "layers.%u.self_attn.q_b_proj.weight",
      "blk.%u.attn_q_b.weight",
      { DIM_QUERIES, DIM_QUERY_RANK } },
    { WEIGHT_KV_A,
      RULE_MATRIX,
      SCOPE_LATENT,
      "layers.%u.self_attn.kv_a_proj_with_mqa.weight",
      "blk.%u.attn_kv_a_mqa.weight",
      { DIM_LATENT_AND_ROPE, DIM_WIDTH } },
    { WEIGHT_KV_A_NORM,
      RULE_NORM,
      SCOPE_LATENT,
      "layers.%u.self_attn.kv_a_layernorm.weight",
      "blk.%u.attn_kv_a_norm.weight",
      { DIM_LATENT } },
    { WEIGHT_KV_B,
      RULE_MATRIX_IF_THERE,
      SCOPE_LATENT,
      "layers.%u.self_attn.kv_b_proj.weight",
      "blk.%u.attn_kv_b.weight",
      { DIM_KEYS_AND_VALUES, DIM_LATENT } },
    { WEIGHT_K_B,
      RULE_MATRIX,
      SCOPE_LATENT_SPLIT,
      "layers.%u.self_attn.embed_q.weight",
      "blk.%u.attn_k_b.weight",
      { DIM_HEADS, DIM_LATENT, DIM_NOPE } },
    { WEIGHT_V_B,
      RULE_MATRIX,
      SCOPE_LATENT_SPLIT,
      "layers.%u.self_attn.unembed_out.weight",
      "blk.%u.attn_v_b.weight",
      { DIM_HEADS, DIM_VALUE, DIM_LATENT } },
    { WEIGHT_ATTENTION_OUT,
      RULE_MATRIX,
      SCOPE_LATENT,
      "layers.%u.self_attn.o_proj.weight",
      "blk.%u.attn_output.weight",
      { DIM_WIDTH, DIM_ALL_VALUES } },
};

/* qwen3_next keeps the delta net's projections fused and grouped by key head; its GGUF
 * files have the first one taken apart, legacy ones not. */
static const struct tensor_rule fused_delta_rules[] = {
    { WEIGHT_DELTA_QKV,
      RULE_DELTA_QKVZ,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_qkvz.weight",
      "blk.%u.ssm_in.weight",
      { DIM_DELTA_FUSED, DIM_WIDTH } },
    { WEIGHT_DELTA_QKV,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_qkv.weight",
      "blk.%u.attn_qkv.weight",
      { DIM_DELTA_CHANNELS, DIM_WIDTH } },
    { WEIGHT_DELTA_Z,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_z.weight",
      "blk.%u.attn_gate.weight",
      { DIM_DELTA_VALUES, DIM_WIDTH } },
    { WEIGHT_DELTA_B,
      RULE_DELTA_BA,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_ba.weight",
      "blk.%u.ssm_ba.weight",
      { DIM_DELTA_GATES, DIM_WIDTH } },
};

static const struct tensor_rule separate_delta_rules[] = {
    { WEIGHT_DELTA_QKV,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_qkv.weight",
      "blk.%u.attn_qkv.weight",
      { DIM_DELTA_CHANNELS, DIM_WIDTH } },
    { WEIGHT_DELTA_Z,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_z.weight",
      "blk.%u.attn_gate.weight",
      { DIM_DELTA_VALUES, DIM_WIDTH } },
    { WEIGHT_DELTA_B,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_b.weight",
      "blk.%u.ssm_beta.weight",
      { DIM_DELTA_VALUE_HEADS, DIM_WIDTH } },
    { WEIGHT_DELTA_A,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.in_proj_a.weight",
      "blk.%u.ssm_alpha.weight",
      { DIM_DELTA_VALUE_HEADS, DIM_WIDTH } },
};

static const struct tensor_rule delta_rules[] = {
    { WEIGHT_DELTA_CONV,
      RULE_VECTOR,
      SCOPE_DELTA,
      "layers.%u.linear_attn.conv1d.weight",
      "blk.%u.ssm_conv1d.weight",
      { DIM_DELTA_CHANNELS, DIM_DELTA_TAPS } },
    { WEIGHT_DELTA_DECAY,
      RULE_LOG_DECAY,
      SCOPE_DELTA,
      "layers.%u.linear_attn.A_log",
      "blk.%u.ssm_a",
      { DIM_DELTA_VALUE_HEADS } },
    { WEIGHT_DELTA_DT_BIAS,
      RULE_VECTOR,
      SCOPE_DELTA,
      "layers.%u.linear_attn.dt_bias",
      "blk.%u.ssm_dt.bias",
      { DIM_DELTA_VALUE_HEADS } },
    { WEIGHT_DELTA_NORM,
      RULE_VECTOR,
      SCOPE_DELTA,
      "layers.%u.linear_attn.norm.weight",
      "blk.%u.ssm_norm.weight",
      { DIM_DELTA_VALUE_WIDTH } },
    { WEIGHT_DELTA_OUT,
      RULE_MATRIX,
      SCOPE_DELTA,
      "layers.%u.linear_attn.out_proj.weight",
      "blk.%u.ssm_out.weight",
      { DIM_WIDTH, DIM_DELTA_VALUES } },
};

static const struct tensor_rule ffn_rules[] = {
    { WEIGHT_ROUTER,
      RULE_MATRIX,
      SCOPE_EXPERTS,
      "layers.%u.mlp.gate.weight",
      "blk.%u.ffn_gate_inp.weight",
      { DIM_EXPERTS, DIM_WIDTH } },
    { WEIGHT_ROUTER_BIAS,
      RULE_VECTOR,
      SCOPE_BIASED_ROUTER,
      "layers.%u.mlp.gate.e_score_correction_bias",
      "blk.%u.exp_probs_b.bias",
      { DIM_EXPERTS } },
    { WEIGHT_DENSE_GATE,
      RULE_MATRIX,
      SCOPE_DENSE,
      "layers.%u.mlp.gate_proj.weight",
      "blk.%u.ffn_gate.weight",
      { DIM_DENSE_WIDTH, DIM_WIDTH } },
    { WEIGHT_DENSE_UP,
      RULE_MATRIX,
      SCOPE_DENSE,
      "layers.%u.mlp.up_proj.weight",
      "blk.%u.ffn_up.weight",
      { DIM_DENSE_WIDTH, DIM_WIDTH } },
    { WEIGHT_DENSE_DOWN,
      RULE_MATRIX,
      SCOPE_DENSE,
      "layers.%u.mlp.down_proj.weight",
      "blk.%u.ffn_down.weight",
      { DIM_WIDTH, DIM_DENSE_WIDTH } },
};

/* Qwen has one shared expert behind a gate, DeepSeek several in one matrix. */
static const struct tensor_rule qwen_shared_rules[] = {
    { WEIGHT_SHARED_GATE,
      RULE_MATRIX,
      SCOPE_SHARED,
      "layers.%u.mlp.shared_expert.gate_proj.weight",
      "blk.%u.ffn_gate_shexp.weight",
      { DIM_SHARED_WIDTH, DIM_WIDTH } },
    { WEIGHT_SHARED_UP,
      RULE_MATRIX,
      SCOPE_SHARED,
      "layers.%u.mlp.shared_expert.up_proj.weight",
      "blk.%u.ffn_up_shexp.weight",
      { DIM_SHARED_WIDTH, DIM_WIDTH } },
    { WEIGHT_SHARED_DOWN,
      RULE_MATRIX,
      SCOPE_SHARED,
      "layers.%u.mlp.shared_expert.down_proj.weight",
      "blk.%u.ffn_down_shexp.weight",
      { DIM_WIDTH, DIM_SHARED_WIDTH } },
    { WEIGHT_SHARED_SCALE,
      RULE_MATRIX,
      SCOPE_SCALED_SHARED,
      "layers.%u.mlp.shared_expert_gate.weight",
      "blk.%u.ffn_gate_inp_shexp.weight",
      { DIM_ONE, DIM_WIDTH } },
};
static const struct tensor_rule deepseek_shared_rules[] = {
    { WEIGHT_SHARED_GATE,
      RULE_MATRIX,
      SCOPE_SHARED,
      "layers.%u.mlp.shared_experts.gate_proj.weight",
      "blk.%u.ffn_gate_shexp.weight",
      { DIM_SHARED_WIDTH, DIM_WIDTH } },
    { WEIGHT_SHARED_UP,
      RULE_MATRIX,
      SCOPE_SHARED,
      "layers.%u.mlp.shared_experts.up_proj.weight",
      "blk.%u.ffn_up_shexp.weight",
      { DIM_SHARED_WIDTH, DIM_WIDTH } },
    { WEIGHT_SHARED_DOWN,
      RULE_MATRIX,
      SCOPE_SHARED,
      "layers.%u.mlp.shared_experts.down_proj.weight",
      "blk.%u.ffn_down_shexp.weight",
      { DIM_WIDTH, DIM_SHARED_WIDTH } },
};

#define GROUP(rules)                                                                               \
    {                                                                                              \
        (rules), COUNT_OF(rules)                                                                   \
    }

/* What all hybrid families of Qwen leave out. */
#define QWEN_HYBRID_DEFAULTS                                                                       \
    .width = 2048, .context_length = 32768, .norm_epsilon = 1e-6f, .full_attention_interval = 4,   \
    .heads = 16, .kv_heads = 2, .head_width = 256, .output_gate = true,                            \
    .rope = { .theta = 1e7, .partial = 0.25 }, .delta_key_heads = 16, .delta_value_heads = 32,     \
    .delta_key_width = 128, .delta_value_width = 128, .delta_taps = 4, .expert_width = 512,        \
    .shared_width = 512, .shared_scaled = true, .renormalise = true, .dense_width = 5632

#define DEEPSEEK_DEFAULTS                                                                          \
    .norm_epsilon = 1e-6f, .context_length = 4096, .value_width = 128, .nope_width = 128,          \
    .rope = { .theta = 1e4, .partial = 1.0, .rotary_width = 64, .interleaved = true },             \
    .latent_width = 512

static const struct family families[] = {
    { .name = "qwen3_moe",
      .model_types = { "qwen3_moe" },
      .gguf_architecture = "qwen3moe",
      .pre_tokenizer = "qwen2",
      .mixer = MIXER_ATTENTION,
      .defaults = { .width = 2048,
                    .vocab_size = 151936,
                    .context_length = 32768,
                    .norm_epsilon = 1e-6f,
                    .layer_count = 24,
                    .heads = 32,
                    .kv_heads = 4,
                    .rope = { .theta = 1e4, .partial = 1.0 },
                    .experts = 128,
                    .experts_per_token = 8,
                    .expert_width = 768,
                    .dense_width = 6144 },
      .groups = { GROUP(common_rules), GROUP(ffn_norm_rules), GROUP(attention_rules),
                  GROUP(ffn_rules) } },
    { .name = "qwen3_next",
      .model_types = { "qwen3_next" },
      .gguf_architecture = "qwen3next",
      .pre_tokenizer = "qwen2",
      .mixer = MIXER_ATTENTION,
      .hybrid = true,
      .zero_centred_norms = true,
      .defaults = { QWEN_HYBRID_DEFAULTS, .vocab_size = 151936, .layer_count = 48, .experts = 512,
                    .experts_per_token = 10 },
      .groups = { GROUP(common_rules), GROUP(hybrid_ffn_norm_rules), GROUP(attention_rules),
                  GROUP(fused_delta_rules), GROUP(delta_rules), GROUP(ffn_rules),
                  GROUP(qwen_shared_rules) } },
    { .name = "qwen3_5_moe",
      .model_types = { "qwen3_5_moe", "qwen3_5_moe_text" },
      .gguf_architecture = "qwen35moe",
      .pre_tokenizer = "qwen35",
      .mixer = MIXER_ATTENTION,
      .hybrid = true,
      .zero_centred_norms = true,
      .always_renormalise = true,
      .defaults = { QWEN_HYBRID_DEFAULTS, .vocab_size = 248320, .layer_count = 40, .experts = 256,
                    .experts_per_token = 8 },
      .groups = { GROUP(common_rules), GROUP(hybrid_ffn_norm_rules), GROUP(attention_rules),
                  GROUP(separate_delta_rules), GROUP(delta_rules), GROUP(ffn_rules),
                  GROUP(qwen_shared_rules) } },
    { .name = "deepseek_v3",
      .model_types = { "deepseek_v3", "kimi_k2" },
      .gguf_architecture = "deepseek2",
      .pre_tokenizer = "deepseek-v3",
      .mixer = MIXER_LATENT,
      .defaults = { DEEPSEEK_DEFAULTS, .width = 7168, .vocab_size = 129280, .layer_count = 61,
                    .heads = 128, .query_rank = 1536, .experts = 256, .experts_per_token = 8,
                    .expert_width = 2048, .router = ROUTER_SIGMOID, .renormalise = true,
                    .routed_scale = 2.5f, .router_groups = 8, .router_top_groups = 4,
                    .dense_width = 18432, .leading_dense_layers = 3 },
      .groups = { GROUP(common_rules), GROUP(ffn_norm_rules), GROUP(latent_rules), GROUP(ffn_rules),
                  GROUP(deepseek_shared_rules) } },
    { .name = "deepseek_v2",
      .model_types = { "deepseek_v2" },
      .pre_tokenizer = "deepseek-llm",
      .mixer = MIXER_LATENT,
      .defaults = { DEEPSEEK_DEFAULTS, .width = 4096, .vocab_size = 102400, .layer_count = 32,
                    .heads = 32, .query_rank = 1536, .experts = 64, .experts_per_token = 6,
                    .expert_width = 1407, .router = ROUTER_SOFTMAX, .dense_width = 11008 },
      .groups = { GROUP(common_rules), GROUP(ffn_norm_rules), GROUP(latent_rules), GROUP(ffn_rules),
                  GROUP(deepseek_shared_rules) } },
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

const struct family *family_find_gguf(const char *architecture)
{
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        const char *name = families[i].gguf_architecture;
        if (name && strcmp(name, architecture) == 0) return &families[i];
    }
    return NULL;
}

static void append_name(char *out, size_t capacity, const char *name)
{
    size_t length = strlen(out);
    if (name) snprintf(out + length, capacity - length, "%s%s", length ? ", " : "", name);
}

void family_list_names(char *out, size_t capacity, bool gguf)
{
    out[0] = '\0';
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        if (gguf) append_name(out, capacity, families[i].gguf_architecture);
        for (size_t j = 0; j < COUNT_OF(families[i].model_types) && !gguf; j++)
            append_name(out, capacity, families[i].model_types[j]);
    }
}

bool family_has_slot(const struct family *family, enum weight_id id)
{
    for (size_t g = 0; g < RULE_GROUPS_MAX; g++) {
        const struct rule_group *group = &family->groups[g];
        for (size_t i = 0; i < group->count; i++)
            if (group->rules[i].id == id) return true;
    }
    return false;
}

uint64_t dimension_size(const struct model_config *c, enum dimension dimension)
{
    uint64_t delta_keys = (uint64_t)c->delta_key_heads * c->delta_key_width;
    uint64_t delta_values = (uint64_t)c->delta_value_heads * c->delta_value_width;
    switch (dimension) {
    case DIM_NONE:
        return 0;
    case DIM_ONE:
        return 1;
    case DIM_WIDTH:
        return c->width;
    case DIM_VOCAB:
        return c->vocab_size;
    case DIM_HEADS:
        return c->heads;
    case DIM_HEAD_WIDTH:
        return c->head_width;
    case DIM_QUERIES:
        return (uint64_t)c->heads * c->head_width;
    case DIM_QUERIES_AND_GATES:
        return (uint64_t)c->heads * c->head_width * (c->output_gate ? 2 : 1);
    case DIM_KEYS:
        return (uint64_t)c->kv_heads * c->head_width;
    case DIM_ATTENTION_FUSED:
        return dimension_size(c, DIM_QUERIES_AND_GATES) + 2 * dimension_size(c, DIM_KEYS);
    case DIM_QUERY_RANK:
        return c->query_rank;
    case DIM_LATENT:
        return c->latent_width;
    case DIM_LATENT_AND_ROPE:
        return (uint64_t)c->latent_width + c->rope.rotary_width;
    case DIM_NOPE:
        return c->nope_width;
    case DIM_VALUE:
        return c->value_width;
    case DIM_KEYS_AND_VALUES:
        return (uint64_t)c->heads * (c->nope_width + c->value_width);
    case DIM_ALL_VALUES:
        return (uint64_t)c->heads * c->value_width;
    case DIM_DELTA_CHANNELS:
        return 2 * delta_keys + delta_values;
    case DIM_DELTA_FUSED:
        return 2 * delta_keys + 2 * delta_values;
    case DIM_DELTA_GATES:
        return 2 * (uint64_t)c->delta_value_heads;
    case DIM_DELTA_VALUES:
        return delta_values;
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
    case DIM_DENSE_WIDTH:
        return c->dense_width;
    }
    return 0;
}
