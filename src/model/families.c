#include "model/families.h"

#include <stdio.h>

/* Weight, kind and scope; the tensor's name in safetensors and in GGUF files (NULL: not there); its
 * shape, slowest dimension first. */
#define RULE(id, kind, scope, name, gguf_name, ...)                                                \
    {                                                                                              \
        WEIGHT_##id, RULE_##kind, SCOPE_##scope, name, gguf_name,                                  \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
/* The same for a tensor of a layer, whose number stands before the name. */
#define LAYER_RULE(id, kind, scope, name, gguf_name, ...)                                          \
    RULE(id, kind, scope, "layers.%u." name, "blk.%u." gguf_name, __VA_ARGS__)

static const struct tensor_rule common_rules[] = {
    RULE(EMBEDDING, MATRIX, MODEL, "embed_tokens.weight", "token_embd.weight", DIM_VOCAB,
         DIM_WIDTH),
    RULE(FINAL_NORM, NORM, MODEL, "norm.weight", "output_norm.weight", DIM_WIDTH),
    RULE(HEAD, HEAD, MODEL, "lm_head.weight", "output.weight", DIM_VOCAB, DIM_WIDTH),
    LAYER_RULE(MIXER_NORM, NORM, LAYER, "input_layernorm.weight", "attn_norm.weight", DIM_WIDTH),
};

/* The second norm of a layer has two names in GGUF files. */
static const struct tensor_rule ffn_norm_rules[] = {
    LAYER_RULE(FFN_NORM, NORM, LAYER, "post_attention_layernorm.weight", "ffn_norm.weight",
               DIM_WIDTH),
};
static const struct tensor_rule post_attention_norm_rules[] = {
    LAYER_RULE(FFN_NORM, NORM, LAYER, "post_attention_layernorm.weight",
               "post_attention_norm.weight", DIM_WIDTH),
};

/* Newer GGUF files may have the three projections in one. */
static const struct tensor_rule attention_rules[] = {
    RULE(Q, ATTENTION_QKV, ATTENTION, NULL, "blk.%u.attn_qkv.weight", DIM_ATTENTION_FUSED,
         DIM_WIDTH),
    LAYER_RULE(Q, MATRIX, ATTENTION, "self_attn.q_proj.weight", "attn_q.weight",
               DIM_QUERIES_AND_GATES, DIM_WIDTH),
    LAYER_RULE(K, MATRIX, ATTENTION, "self_attn.k_proj.weight", "attn_k.weight", DIM_KEYS,
               DIM_WIDTH),
    LAYER_RULE(V, MATRIX, VALUES, "self_attn.v_proj.weight", "attn_v.weight", DIM_KEYS, DIM_WIDTH),
    LAYER_RULE(ATTENTION_OUT, MATRIX, ATTENTION, "self_attn.o_proj.weight", "attn_output.weight",
               DIM_WIDTH, DIM_QUERIES),
    LAYER_RULE(Q_NORM, NORM, QK_NORM, "self_attn.q_norm.weight", "attn_q_norm.weight", DIM_Q_NORM),
    LAYER_RULE(K_NORM, NORM, QK_NORM, "self_attn.k_norm.weight", "attn_k_norm.weight", DIM_K_NORM),
};

/* Of queries, keys and values; the output's is a rule of its own. */
static const struct tensor_rule attention_bias_rules[] = {
    RULE(Q_BIAS, ATTENTION_BIAS, ATTENTION_BIAS, NULL, "blk.%u.attn_qkv.bias", DIM_ATTENTION_FUSED),
    LAYER_RULE(Q_BIAS, VECTOR, ATTENTION_BIAS, "self_attn.q_proj.bias", "attn_q.bias",
               DIM_QUERIES_AND_GATES),
    LAYER_RULE(K_BIAS, VECTOR, ATTENTION_BIAS, "self_attn.k_proj.bias", "attn_k.bias", DIM_KEYS),
    LAYER_RULE(V_BIAS, VECTOR, ATTENTION_BIAS, "self_attn.v_proj.bias", "attn_v.bias", DIM_KEYS),
};

static const struct tensor_rule latent_rules[] = {
    LAYER_RULE(Q, MATRIX, LATENT_DIRECT, "self_attn.q_proj.weight", "attn_q.weight", DIM_QUERIES,
               DIM_WIDTH),
    LAYER_RULE(Q_A, MATRIX, LATENT_RANKED, "self_attn.q_a_proj.weight", "attn_q_a.weight",
               DIM_QUERY_RANK, DIM_WIDTH),
    LAYER_RULE(Q_A_NORM, NORM, LATENT_RANKED, "self_attn.q_a_layernorm.weight",
               "attn_q_a_norm.weight", DIM_QUERY_RANK),
    LAYER_RULE(Q_B, MATRIX, LATENT_RANKED, "self_attn.q_b_proj.weight", "attn_q_b.weight",
               DIM_QUERIES, DIM_QUERY_RANK),
    LAYER_RULE(KV_A, MATRIX, LATENT, "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight",
               DIM_LATENT_AND_ROPE, DIM_WIDTH),
    LAYER_RULE(KV_A_NORM, NORM, LATENT, "self_attn.kv_a_layernorm.weight", "attn_kv_a_norm.weight",
               DIM_LATENT),
    LAYER_RULE(KV_B, MATRIX_IF_THERE, LATENT, "self_attn.kv_b_proj.weight", "attn_kv_b.weight",
               DIM_KEYS_AND_VALUES, DIM_LATENT),
    LAYER_RULE(K_B, MATRIX, LATENT_SPLIT, "self_attn.embed_q.weight", "attn_k_b.weight", DIM_HEADS,
               DIM_LATENT, DIM_NOPE),
    LAYER_RULE(V_B, MATRIX, LATENT_SPLIT, "self_attn.unembed_out.weight", "attn_v_b.weight",
               DIM_HEADS, DIM_VALUE, DIM_LATENT),
    LAYER_RULE(ATTENTION_OUT, MATRIX, LATENT, "self_attn.o_proj.weight", "attn_output.weight",
               DIM_WIDTH, DIM_ALL_VALUES),
};

static const struct tensor_rule latent_bias_rules[] = {
    RULE(Q_A_BIAS, VECTOR, LATENT_RANKED_BIAS, "layers.%u.self_attn.q_a_proj.bias", NULL,
         DIM_QUERY_RANK),
    RULE(KV_A_BIAS, VECTOR, LATENT_BIAS, "layers.%u.self_attn.kv_a_proj_with_mqa.bias", NULL,
         DIM_LATENT_AND_ROPE),
    RULE(ATTENTION_OUT_BIAS, VECTOR, LATENT_BIAS, "layers.%u.self_attn.o_proj.bias", NULL,
         DIM_WIDTH),
};

/* qwen3_next keeps the delta net's projections fused and grouped by key head; its GGUF
 * files have the first one taken apart, legacy ones not. */
static const struct tensor_rule fused_delta_rules[] = {
    LAYER_RULE(DELTA_QKV, DELTA_QKVZ, DELTA, "linear_attn.in_proj_qkvz.weight", "ssm_in.weight",
               DIM_DELTA_FUSED, DIM_WIDTH),
    LAYER_RULE(DELTA_B, DELTA_BA, DELTA, "linear_attn.in_proj_ba.weight", "ssm_ba.weight",
               DIM_DELTA_GATES, DIM_WIDTH),
};

static const struct tensor_rule separate_delta_rules[] = {
    LAYER_RULE(DELTA_B, MATRIX, DELTA, "linear_attn.in_proj_b.weight", "ssm_beta.weight",
               DIM_DELTA_VALUE_HEADS, DIM_WIDTH),
    LAYER_RULE(DELTA_A, MATRIX, DELTA, "linear_attn.in_proj_a.weight", "ssm_alpha.weight",
               DIM_DELTA_VALUE_HEADS, DIM_WIDTH),
};

static const struct tensor_rule delta_rules[] = {
    LAYER_RULE(DELTA_QKV, MATRIX, DELTA, "linear_attn.in_proj_qkv.weight", "attn_qkv.weight",
               DIM_DELTA_CHANNELS, DIM_WIDTH),
    LAYER_RULE(DELTA_Z, MATRIX, DELTA, "linear_attn.in_proj_z.weight", "attn_gate.weight",
               DIM_DELTA_VALUES, DIM_WIDTH),
    LAYER_RULE(DELTA_CONV, VECTOR, DELTA, "linear_attn.conv1d.weight", "ssm_conv1d.weight",
               DIM_DELTA_CHANNELS, DIM_DELTA_TAPS),
    LAYER_RULE(DELTA_DECAY, LOG_DECAY, DELTA, "linear_attn.A_log", "ssm_a", DIM_DELTA_VALUE_HEADS),
    LAYER_RULE(DELTA_DT_BIAS, VECTOR, DELTA, "linear_attn.dt_bias", "ssm_dt.bias",
               DIM_DELTA_VALUE_HEADS),
    LAYER_RULE(DELTA_NORM, VECTOR, DELTA, "linear_attn.norm.weight", "ssm_norm.weight",
               DIM_DELTA_VALUE_WIDTH),
    LAYER_RULE(DELTA_OUT, MATRIX, DELTA, "linear_attn.out_proj.weight", "ssm_out.weight", DIM_WIDTH,
               DIM_DELTA_VALUES),
};

static const struct tensor_rule ffn_rules[] = {
    LAYER_RULE(ROUTER, MATRIX, EXPERTS, "mlp.gate.weight", "ffn_gate_inp.weight", DIM_EXPERTS,
               DIM_WIDTH),
    LAYER_RULE(ROUTER_BIAS, VECTOR, BIASED_ROUTER, "mlp.gate.e_score_correction_bias",
               "exp_probs_b.bias", DIM_EXPERTS),
    LAYER_RULE(DENSE_GATE, MATRIX, DENSE, "mlp.gate_proj.weight", "ffn_gate.weight",
               DIM_DENSE_WIDTH, DIM_WIDTH),
    LAYER_RULE(DENSE_UP, MATRIX, DENSE, "mlp.up_proj.weight", "ffn_up.weight", DIM_DENSE_WIDTH,
               DIM_WIDTH),
    LAYER_RULE(DENSE_DOWN, MATRIX, DENSE, "mlp.down_proj.weight", "ffn_down.weight", DIM_WIDTH,
               DIM_DENSE_WIDTH),
};

/* MiniMax's block has another name; it has no dense layers. */
static const struct tensor_rule sparse_block_rules[] = {
    LAYER_RULE(ROUTER, MATRIX, EXPERTS, "block_sparse_moe.gate.weight", "ffn_gate_inp.weight",
               DIM_EXPERTS, DIM_WIDTH),
    LAYER_RULE(ROUTER_BIAS, VECTOR, BIASED_ROUTER, "block_sparse_moe.e_score_correction_bias",
               "exp_probs_b.bias", DIM_EXPERTS),
};

/* gpt-oss: every head has a sink, and every product of a layer a bias. */
static const struct tensor_rule gpt_oss_rules[] = {
    LAYER_RULE(ATTENTION_OUT_BIAS, VECTOR, ATTENTION_BIAS, "self_attn.o_proj.bias",
               "attn_output.bias", DIM_WIDTH),
    LAYER_RULE(SINKS, VECTOR, SINKS, "self_attn.sinks", "attn_sinks.weight", DIM_HEADS),
    LAYER_RULE(ROUTER, MATRIX, EXPERTS, "mlp.router.weight", "ffn_gate_inp.weight", DIM_EXPERTS,
               DIM_WIDTH),
    LAYER_RULE(ROUTER_ADDENDS, VECTOR, EXPERTS, "mlp.router.bias", "ffn_gate_inp.bias",
               DIM_EXPERTS),
};

/* Qwen has one shared expert behind a gate, DeepSeek several in one matrix. */
static const struct tensor_rule qwen_shared_rules[] = {
    LAYER_RULE(SHARED_GATE, MATRIX, SHARED, "mlp.shared_expert.gate_proj.weight",
               "ffn_gate_shexp.weight", DIM_SHARED_WIDTH, DIM_WIDTH),
    LAYER_RULE(SHARED_UP, MATRIX, SHARED, "mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight",
               DIM_SHARED_WIDTH, DIM_WIDTH),
    LAYER_RULE(SHARED_DOWN, MATRIX, SHARED, "mlp.shared_expert.down_proj.weight",
               "ffn_down_shexp.weight", DIM_WIDTH, DIM_SHARED_WIDTH),
    LAYER_RULE(SHARED_SCALE, MATRIX, SCALED_SHARED, "mlp.shared_expert_gate.weight",
               "ffn_gate_inp_shexp.weight", DIM_ONE, DIM_WIDTH),
};
static const struct tensor_rule deepseek_shared_rules[] = {
    LAYER_RULE(SHARED_GATE, MATRIX, SHARED, "mlp.shared_experts.gate_proj.weight",
               "ffn_gate_shexp.weight", DIM_SHARED_WIDTH, DIM_WIDTH),
    LAYER_RULE(SHARED_UP, MATRIX, SHARED, "mlp.shared_experts.up_proj.weight",
               "ffn_up_shexp.weight", DIM_SHARED_WIDTH, DIM_WIDTH),
    LAYER_RULE(SHARED_DOWN, MATRIX, SHARED, "mlp.shared_experts.down_proj.weight",
               "ffn_down_shexp.weight", DIM_WIDTH, DIM_SHARED_WIDTH),
};

/* gemma4 normalises what each part of a layer reads and what it adds; its dense feed-forward stands
 * where others have a shared expert. */
static const struct tensor_rule gemma_rules[] = {
    RULE(ROPE_DIVISORS, VECTOR_IF_THERE, MODEL, NULL, "rope_freqs.weight", DIM_ROPE_PAIRS),
    LAYER_RULE(MIXER_POST_NORM, NORM, LAYER, "post_attention_layernorm.weight",
               "post_attention_norm.weight", DIM_WIDTH),
    LAYER_RULE(SHARED_NORM, NORM, LAYER, "pre_feedforward_layernorm.weight", "ffn_norm.weight",
               DIM_WIDTH),
    LAYER_RULE(SHARED_GATE, MATRIX, SHARED, "mlp.gate_proj.weight", "ffn_gate.weight",
               DIM_SHARED_WIDTH, DIM_WIDTH),
    LAYER_RULE(SHARED_UP, MATRIX, SHARED, "mlp.up_proj.weight", "ffn_up.weight", DIM_SHARED_WIDTH,
               DIM_WIDTH),
    LAYER_RULE(SHARED_DOWN, MATRIX, SHARED, "mlp.down_proj.weight", "ffn_down.weight", DIM_WIDTH,
               DIM_SHARED_WIDTH),
    LAYER_RULE(SHARED_POST_NORM, NORM, LAYER, "post_feedforward_layernorm_1.weight",
               "post_ffw_norm_1.weight", DIM_WIDTH),
    LAYER_RULE(FFN_NORM, NORM, LAYER, "pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight",
               DIM_WIDTH),
    LAYER_RULE(ROUTER_NORM, ROUTER_NORM, EXPERTS, "router.scale", "ffn_gate_inp.scale", DIM_WIDTH),
    LAYER_RULE(ROUTER, MATRIX, EXPERTS, "router.proj.weight", "ffn_gate_inp.weight", DIM_EXPERTS,
               DIM_WIDTH),
    LAYER_RULE(EXPERT_SCALE, VECTOR, EXPERTS, "router.per_expert_scale", "ffn_down_exps.scale",
               DIM_EXPERTS),
    LAYER_RULE(EXPERTS_POST_NORM, NORM, LAYER, "post_feedforward_layernorm_2.weight",
               "post_ffw_norm_2.weight", DIM_WIDTH),
    LAYER_RULE(FFN_POST_NORM, NORM, LAYER, "post_feedforward_layernorm.weight",
               "post_ffw_norm.weight", DIM_WIDTH),
    LAYER_RULE(LAYER_SCALE, VECTOR, LAYER, "layer_scalar", "layer_output_scale.weight", DIM_ONE),
};

#define GROUP(rules)                                                                               \
    {                                                                                              \
        (rules), COUNT_OF(rules)                                                                   \
    }

/* What all hybrid families of Qwen leave out. */
#define QWEN_HYBRID_DEFAULTS                                                                       \
    .width = 2048, .context_length = 32768, .norm_epsilon = 1e-6f, .full_attention_interval = 4,   \
    .heads = 16, .kv_heads = 2, .head_width = 256, .output_gate = true, .qk_norm = QK_NORM_HEADS,  \
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
                    .qk_norm = QK_NORM_HEADS,
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
      .groups = { GROUP(common_rules), GROUP(post_attention_norm_rules), GROUP(attention_rules),
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
      .groups = { GROUP(common_rules), GROUP(post_attention_norm_rules), GROUP(attention_rules),
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
      .groups = { GROUP(common_rules), GROUP(ffn_norm_rules), GROUP(latent_rules),
                  GROUP(latent_bias_rules), GROUP(ffn_rules), GROUP(deepseek_shared_rules) } },
    { .name = "deepseek_v2",
      .model_types = { "deepseek_v2" },
      .pre_tokenizer = "deepseek-llm",
      .mixer = MIXER_LATENT,
      .defaults = { DEEPSEEK_DEFAULTS, .width = 4096, .vocab_size = 102400, .layer_count = 32,
                    .heads = 32, .query_rank = 1536, .experts = 64, .experts_per_token = 6,
                    .expert_width = 1407, .router = ROUTER_SOFTMAX, .dense_width = 11008 },
      .groups = { GROUP(common_rules), GROUP(ffn_norm_rules), GROUP(latent_rules),
                  GROUP(latent_bias_rules), GROUP(ffn_rules), GROUP(deepseek_shared_rules) } },
    { .name = "gpt_oss",
      .model_types = { "gpt_oss" },
      .gguf_architecture = "gpt-oss",
      .pre_tokenizer = "gpt-4o",
      .mixer = MIXER_ATTENTION,
      .windowed = true,
      .sinks = true,
      .expert_biases = true,
      .interleaved_experts = true,
      .experts_alone = true,
      .always_renormalise = true,
      .defaults = { .width = 2880,
                    .vocab_size = 201088,
                    .context_length = 131072,
                    .norm_epsilon = 1e-5f,
                    .layer_count = 36,
                    .full_attention_interval = 2,
                    .heads = 64,
                    .kv_heads = 8,
                    .head_width = 64,
                    .attention_bias = true,
                    .window = { .positions = 128 },
                    .rope = { .theta = 150000,
                              .partial = 1.0,
                              .factor = 32,
                              .original_context = 4096,
                              .beta_fast = 32,
                              .beta_slow = 1,
                              .untruncated = true },
                    .experts = 128,
                    .experts_per_token = 4,
                    .expert_width = 2880,
                    .activation = ACTIVATION_CLAMPED },
      .groups = { GROUP(common_rules), GROUP(post_attention_norm_rules), GROUP(attention_rules),
                  GROUP(attention_bias_rules), GROUP(gpt_oss_rules) } },
    { .name = "glm4_moe",
      .model_types = { "glm4_moe" },
      .gguf_architecture = "glm4moe",
      .pre_tokenizer = "glm4",
      .mixer = MIXER_ATTENTION,
      .optional_qk_norm = true,
      .fixed_router = true,
      .shared_experts = 1,
      .defaults = { .width = 4096,
                    .vocab_size = 151552,
                    .context_length = 131072,
                    .norm_epsilon = 1e-5f,
                    .layer_count = 46,
                    .prediction_layers = 1,
                    .heads = 96,
                    .kv_heads = 8,
                    .rope = { .theta = 1e6, .partial = 0.5 },
                    .experts = 128,
                    .experts_per_token = 8,
                    .expert_width = 1408,
                    .router = ROUTER_SIGMOID,
                    .renormalise = true,
                    .dense_width = 10944,
                    .leading_dense_layers = 1 },
      .groups = { GROUP(common_rules), GROUP(post_attention_norm_rules), GROUP(attention_rules),
                  GROUP(attention_bias_rules), GROUP(ffn_rules), GROUP(deepseek_shared_rules) } },
    { .name = "glm4_moe_lite",
      .model_types = { "glm4_moe_lite" },
      .pre_tokenizer = "glm4",
      .mixer = MIXER_LATENT,
      .fixed_router = true,
      .shared_experts = 1,
      .defaults = { .width = 2048,
                    .vocab_size = 154880,
                    .context_length = 202752,
                    .norm_epsilon = 1e-5f,
                    .layer_count = 47,
                    .prediction_layers = 1,
                    .heads = 20,
                    .query_rank = 768,
                    .latent_width = 512,
                    .nope_width = 192,
                    .value_width = 256,
                    .rope = { .theta = 1e6,
                              .partial = 1.0,
                              .rotary_width = 64,
                              .interleaved = true },
                    .experts = 64,
                    .experts_per_token = 4,
                    .expert_width = 1536,
                    .router = ROUTER_SIGMOID,
                    .renormalise = true,
                    .routed_scale = 1.8f,
                    .dense_width = 10240,
                    .leading_dense_layers = 1 },
      .groups = { GROUP(common_rules), GROUP(ffn_norm_rules), GROUP(latent_rules),
                  GROUP(latent_bias_rules), GROUP(ffn_rules), GROUP(deepseek_shared_rules) } },
    { .name = "gemma4",
      .model_types = { "gemma4", "gemma4_text" },
      .gguf_architecture = "gemma4",
      .pre_tokenizer = "gemma4",
      .mixer = MIXER_ATTENTION,
      .windowed = true,
      .wider_full_layers = true,
      .last_layer_full = true,
      .always_renormalise = true,
      .fixed_router = true,
      .dense_beside = true,
      .defaults = { .width = 2816,
                    .vocab_size = 262144,
                    .context_length = 262144,
                    .norm_epsilon = 1e-6f,
                    .tied_head = true,
                    .embedding_scaled = true,
                    .layer_count = 30,
                    .full_attention_interval = 6,
                    .heads = 16,
                    .kv_heads = 8,
                    .head_width = 512,
                    .qk_norm = QK_NORM_HEADS,
                    .value_norm = true,
                    .score_scale = 1,
                    .rope = { .theta = 1e6, .partial = 0.25, .proportional = true },
                    .window = { .positions = 1024,
                                .kv_heads = 8,
                                .head_width = 256,
                                .rope = { .theta = 1e4, .partial = 1.0 } },
                    .experts = 128,
                    .experts_per_token = 8,
                    .expert_width = 704,
                    .activation = ACTIVATION_GELU,
                    .dense_width = 2112 },
      .groups = { GROUP(common_rules), GROUP(attention_rules), GROUP(gemma_rules) } },
    { .name = "minimax_m2",
      .model_types = { "minimax_m2", "minimax" },
      .gguf_architecture = "minimax-m2",
      .pre_tokenizer = "minimax-m2",
      .mixer = MIXER_ATTENTION,
      .always_renormalise = true,
      .fixed_router = true,
      .experts_alone = true,
      .defaults = { .width = 3072,
                    .vocab_size = 200064,
                    .context_length = 196608,
                    .norm_epsilon = 1e-6f,
                    .layer_count = 62,
                    .heads = 48,
                    .kv_heads = 8,
                    .head_width = 128,
                    .qk_norm = QK_NORM_WHOLE,
                    .rope = { .theta = 5e6, .partial = 0.5 },
                    .experts = 256,
                    .experts_per_token = 8,
                    .expert_width = 1536,
                    .router = ROUTER_SIGMOID },
      .groups = { GROUP(common_rules), GROUP(ffn_norm_rules), GROUP(attention_rules),
                  GROUP(sparse_block_rules) } },
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

enum mixer_kind family_other_mixer(const struct family *family)
{
    return family->windowed ? MIXER_WINDOW : MIXER_DELTA;
}

bool family_has_weight(const struct family *family, enum weight_id id)
{
    for (size_t g = 0; g < RULE_GROUPS_MAX; g++) {
        const struct rule_group *group = &family->groups[g];
        for (size_t i = 0; i < group->count; i++)
            if (group->rules[i].id == id) return true;
    }
    return false;
}

static uint64_t delta_size(const struct model_config *c, enum dimension dimension)
{
    uint64_t delta_keys = (uint64_t)c->delta_key_heads * c->delta_key_width;
    uint64_t delta_values = (uint64_t)c->delta_value_heads * c->delta_value_width;
    switch (dimension) {
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
    default:
        return 0;
    }
}

uint64_t dimension_size(const struct model_config *c, enum mixer_kind mixer,
                        enum dimension dimension)
{
    struct attention_sizes a = config_attention(c, mixer);
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
        return a.head_width;
    case DIM_QUERIES:
        return (uint64_t)a.heads * a.head_width;
    case DIM_QUERIES_AND_GATES:
        return (uint64_t)a.heads * a.head_width * (c->output_gate ? 2 : 1);
    case DIM_KEYS:
        return (uint64_t)a.kv_heads * a.head_width;
    case DIM_Q_NORM:
        return c->qk_norm == QK_NORM_WHOLE ? (uint64_t)a.heads * a.head_width : a.head_width;
    case DIM_K_NORM:
        return c->qk_norm == QK_NORM_WHOLE ? (uint64_t)a.kv_heads * a.head_width : a.head_width;
    case DIM_ATTENTION_FUSED:
        return dimension_size(c, mixer, DIM_QUERIES_AND_GATES) +
               2 * dimension_size(c, mixer, DIM_KEYS);
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
    case DIM_ROPE_PAIRS:
        return a.rope->rotary_width / 2;
    case DIM_EXPERTS:
        return c->experts;
    case DIM_SHARED_WIDTH:
        return c->shared_width;
    case DIM_DENSE_WIDTH:
        return c->dense_width;
    default:
        return delta_size(c, dimension);
    }
}
