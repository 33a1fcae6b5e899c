/* config: what config.json may say, what an absent field means, and each refusal's sentence. */
#include "support/test.h"

#include "model/config_checks.h"
#include "model/families.h"
#include "support/failing_allocator.h"
#include "support/tiny_model.h"

/* Parses `json`; the config's arrays live in *arena. */
static mf_status parse(struct model_config *out, const json_t *json, struct arena *arena,
                       mf_error *why)
{
    arena_init(arena, &allocator_heap);
    *why = (mf_error){ 0 };
    return config_parse(out, json, arena, "some/config.json", why);
}

/* The standard tiny config with the fields of `changes` put in. */
static json_t *changed(const char *changes)
{
    struct tiny_model tiny;
    tiny_model_init(&tiny, &tiny_standard);
    json_error_t problem;
    json_t *config = json_deep_copy(tiny.config);
    json_t *fields = json_loads(changes, 0, &problem);
    if (!fields) fail_msg("%s: %s", changes, problem.text);
    json_object_update(config, fields);
    json_decref(fields);
    tiny_model_free(&tiny);
    return config;
}

static void check_refusal(const char *changes, mf_status status, const char *sentence)
{
    struct model_config config;
    struct arena arena;
    mf_error why;
    json_t *json = changed(changes);
    mf_status found = parse(&config, json, &arena, &why);
    if (found != status)
        fail_msg("%s gave %s (%s), %s was expected", changes, mf_status_name(found), why.text,
                 mf_status_name(status));
    if (!strstr(why.text, sentence) || !strstr(why.text, "some/config.json"))
        fail_msg("%s: the sentence is \"%s\", it should name the file and say \"%s\"", changes,
                 why.text, sentence);
    arena_free(&arena);
    json_decref(json);
}

/* The tiny config as one of another family. */
#define OF_TYPE(type)                                                                              \
    "{\"model_type\": \"" type "\", \"attn_output_gate\": false, "                                 \
    "\"shared_expert_intermediate_size\": 0, \"layer_types\": null, "
#define GLM       OF_TYPE("glm4_moe")
#define MINIMAX   OF_TYPE("minimax_m2")
#define GEMMA     OF_TYPE("gemma4_text") "\"num_experts_per_tok\": 2, \"rope_parameters\": null, "
#define IN_GROUPS "\"topk_method\": \"group_limited_greedy\", "

static const struct {
    const char *changes;
    mf_status status;
    const char *sentence;
} refusals[] = {
    { "{\"model_type\": null}", MF_ERR_FORMAT, "model_type is missing" },
    { "{\"model_type\": 7}", MF_ERR_FORMAT, "model_type" },
    { "{\"model_type\": \"llama\"}", MF_ERR_UNSUPPORTED,
      "model_type \"llama\" is not supported; known: qwen3_moe, qwen3_next, qwen3_5_moe, "
      "qwen3_5_moe_text, deepseek_v3, kimi_k2, deepseek_v2" },
    { "{\"model_type\": \"llama\", \"num_experts\": null, \"num_experts_per_tok\": null, "
      "\"shared_expert_intermediate_size\": null}",
      MF_ERR_UNSUPPORTED,
      "model_type \"llama\" is a dense model, and moeflux runs mixture-of-experts models" },
    { "{\"hidden_size\": 0}", MF_ERR_FORMAT, "hidden_size" },
    { "{\"hidden_size\": -3}", MF_ERR_FORMAT, "hidden_size" },
    { "{\"hidden_size\": 1048577}", MF_ERR_FORMAT, "hidden_size" },
    { "{\"hidden_size\": \"32\"}", MF_ERR_FORMAT, "hidden_size" },
    { "{\"hidden_size\": 32.5}", MF_ERR_FORMAT, "hidden_size" },
    { "{\"vocab_size\": 0}", MF_ERR_FORMAT, "vocab_size" },
    { "{\"vocab_size\": 99999999}", MF_ERR_FORMAT, "vocab_size" },
    { "{\"max_position_embeddings\": 0}", MF_ERR_FORMAT, "max_position_embeddings" },
    { "{\"rms_norm_eps\": 1.5}", MF_ERR_UNSUPPORTED,
      "rms_norm_eps is 1.5, from 0 to below 1 was expected" },
    { "{\"rms_norm_eps\": -1e-6}", MF_ERR_UNSUPPORTED, "rms_norm_eps is -1e-06" },
    { "{\"rms_norm_eps\": true}", MF_ERR_FORMAT, "rms_norm_eps" },
    { "{\"num_hidden_layers\": 0}", MF_ERR_FORMAT, "num_hidden_layers" },
    { "{\"num_hidden_layers\": 5000}", MF_ERR_FORMAT, "num_hidden_layers" },
    { "{\"full_attention_interval\": 0}", MF_ERR_FORMAT, "full_attention_interval" },
    { "{\"layer_types\": [\"linear_attention\"]}", MF_ERR_FORMAT,
      "layer_types has 1 entries, 4 were expected" },
    { "{\"layer_types\": \"linear_attention\"}", MF_ERR_FORMAT, "layer_types" },
    { "{\"layer_types\": [\"linear_attention\", \"full_attention\", \"sliding_attention\", "
      "\"full_attention\"]}",
      MF_ERR_UNSUPPORTED, "layer_types[2] is \"sliding_attention\"" },
    { "{\"layer_types\": [\"linear_attention\", 4, \"full_attention\", \"full_attention\"]}",
      MF_ERR_UNSUPPORTED, "layer_types[1] is \"not a string\"" },
    { "{\"num_attention_heads\": 5}", MF_ERR_UNSUPPORTED,
      "num_attention_heads is 5, a multiple of num_key_value_heads (2) was expected" },
    { "{\"num_key_value_heads\": 0}", MF_ERR_FORMAT, "num_key_value_heads" },
    { "{\"head_dim\": 10000}", MF_ERR_FORMAT, "head_dim" },
    { "{\"num_attention_heads\": 65536, \"head_dim\": 8192}", MF_ERR_UNSUPPORTED,
      "the attention heads together are 536870912 wide, at most 1048576 was expected" },
    { "{\"attn_output_gate\": false}", MF_ERR_UNSUPPORTED,
      "attn_output_gate is false, true was expected" },
    { "{\"attn_output_gate\": \"no\"}", MF_ERR_FORMAT, "attn_output_gate" },
    { "{\"attention_bias\": true}", MF_ERR_UNSUPPORTED,
      "attention_bias is true, false was expected" },
    { "{\"use_sliding_window\": true}", MF_ERR_UNSUPPORTED,
      "use_sliding_window is true, false was expected" },
    { "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}", MF_ERR_UNSUPPORTED,
      "rope_type is \"linear\", default or yarn was expected" },
    { "{\"rope_parameters\": {\"rope_type\": \"longrope\"}}", MF_ERR_UNSUPPORTED,
      "rope_type is \"longrope\", default or yarn was expected" },
    { "{\"rope_scaling\": {\"type\": \"yarn\"}}", MF_ERR_UNSUPPORTED,
      "factor of rope_scaling is 0, at least 1 was expected" },
    { "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0}}",
      MF_ERR_UNSUPPORTED, "beta_fast of rope_scaling is 0, a number above 0 was expected" },
    { "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
      "\"original_max_position_embeddings\": -1}}",
      MF_ERR_UNSUPPORTED, "original_max_position_embeddings of rope_scaling is -1" },
    { "{\"scoring_func\": \"tanh\"}", MF_ERR_UNSUPPORTED,
      "scoring_func is \"tanh\", softmax or sigmoid was expected" },
    { "{\"topk_method\": \"noaux_tc\"}", MF_ERR_UNSUPPORTED,
      "topk_method is \"noaux_tc\", greedy or group_limited_greedy was expected with the "
      "scoring_func softmax" },
    { "{\"scoring_func\": \"sigmoid\", \"topk_method\": \"greedy\"}", MF_ERR_UNSUPPORTED,
      "topk_method is \"greedy\", noaux_tc was expected with the scoring_func sigmoid" },
    { "{" IN_GROUPS "\"n_group\": 4}", MF_ERR_UNSUPPORTED,
      "num_experts or n_routed_experts is 6, a multiple of n_group (4) was expected" },
    { "{" IN_GROUPS "\"n_group\": 3, \"topk_group\": 4}", MF_ERR_UNSUPPORTED,
      "topk_group is 4, from 1 to n_group (3) was expected" },
    { "{" IN_GROUPS "\"n_group\": 6, \"topk_group\": 1}", MF_ERR_UNSUPPORTED,
      "num_experts_per_tok is 2, at most the 1 experts of topk_group groups were expected" },
    { "{\"scoring_func\": \"sigmoid\", \"n_group\": 6, \"topk_group\": 2}", MF_ERR_UNSUPPORTED,
      "n_group is 6, which leaves 1 expert to a group; two were expected" },
    { "{\"moe_layer_freq\": 2}", MF_ERR_UNSUPPORTED, "moe_layer_freq is 2, 1 was expected" },
    { "{\"n_shared_experts\": 1024, \"moe_intermediate_size\": 1048576}", MF_ERR_UNSUPPORTED,
      "n_shared_experts is 1024" },
    { "{\"model_type\": \"qwen3_moe\", \"attn_output_gate\": false}", MF_ERR_UNSUPPORTED,
      "asks for a shared expert 24 wide, and the family qwen3_moe has none" },
    { "{\"routed_scaling_factor\": 1e300}", MF_ERR_UNSUPPORTED,
      "routed_scaling_factor is inf, a finite number was expected" },
    { "{\"mlp_only_layers\": [4]}", MF_ERR_FORMAT,
      "mlp_only_layers holds 4, layers below 4 were expected" },
    { "{\"mlp_only_layers\": [\"0\"]}", MF_ERR_FORMAT,
      "mlp_only_layers holds a string, layers below 4 were expected" },
    { "{\"rope_parameters\": {\"rope_theta\": 0.5}}", MF_ERR_UNSUPPORTED,
      "rope_theta is 0.5, above 1 and below 1e12 was expected" },
    { "{\"rope_parameters\": {\"rope_theta\": 1e13}}", MF_ERR_UNSUPPORTED,
      "rope_theta is 1e+13, above 1" },
    { "{\"rope_parameters\": {\"partial_rotary_factor\": 0}}", MF_ERR_UNSUPPORTED,
      "partial_rotary_factor is 0, above 0 and at most 1 was expected" },
    { "{\"rope_parameters\": {\"partial_rotary_factor\": 1.5}}", MF_ERR_UNSUPPORTED,
      "partial_rotary_factor is 1.5, above 0" },
    { "{\"rope_parameters\": {\"partial_rotary_factor\": 0.4}}", MF_ERR_UNSUPPORTED,
      "makes 3 of a head's 8 channels turn, an even number was expected" },
    { "{\"linear_num_value_heads\": 3}", MF_ERR_UNSUPPORTED,
      "linear_num_value_heads is 3, a multiple of linear_num_key_heads (2) was expected" },
    { "{\"linear_num_key_heads\": 0}", MF_ERR_FORMAT, "linear_num_key_heads" },
    { "{\"linear_conv_kernel_dim\": 65}", MF_ERR_FORMAT, "linear_conv_kernel_dim" },
    { "{\"linear_num_value_heads\": 65536, \"linear_value_head_dim\": 8192}", MF_ERR_UNSUPPORTED,
      "the linear attention heads together are 536870944 wide" },
    { "{\"num_experts\": 0}", MF_ERR_FORMAT, "num_experts" },
    { "{\"num_experts_per_tok\": 7}", MF_ERR_UNSUPPORTED,
      "num_experts_per_tok is 7, at most num_experts or n_routed_experts (6) was expected" },
    { "{\"hidden_act\": \"gelu\"}", MF_ERR_UNSUPPORTED,
      "hidden_act is \"gelu\", silu was expected" },
    { "{\"tie_word_embeddings\": 1}", MF_ERR_FORMAT, "tie_word_embeddings" },
    { "{\"eos_token_id\": 50}", MF_ERR_FORMAT, "not a token id below 50" },
    { "{\"eos_token_id\": [1, -2]}", MF_ERR_FORMAT, "not a token id below 50" },
    { "{\"eos_token_id\": \"</s>\"}", MF_ERR_FORMAT, "eos_token_id holds a string" },
    { "{\"eos_token_id\": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}", MF_ERR_UNSUPPORTED,
      "more than 16 end tokens" },
    { GEMMA "\"hidden_size_per_layer_input\": 256}", MF_ERR_UNSUPPORTED,
      "hidden_size_per_layer_input is 256, 0 was expected" },
    { GEMMA "\"num_kv_shared_layers\": 2}", MF_ERR_UNSUPPORTED,
      "num_kv_shared_layers is 2, 0 was expected" },
    { GEMMA "\"use_double_wide_mlp\": true}", MF_ERR_UNSUPPORTED,
      "use_double_wide_mlp is true, false was expected" },
    { GEMMA "\"enable_moe_block\": false}", MF_ERR_UNSUPPORTED,
      "enable_moe_block is false, true was expected" },
    { GEMMA "\"use_bidirectional_attention\": \"all\"}", MF_ERR_UNSUPPORTED,
      "use_bidirectional_attention is \"all\", null or vision was expected" },
    { GEMMA "\"hidden_activation\": \"silu\"}", MF_ERR_UNSUPPORTED,
      "hidden_activation is \"silu\", gelu_pytorch_tanh was expected" },
    { GEMMA "\"final_logit_softcapping\": -1}", MF_ERR_UNSUPPORTED,
      "final_logit_softcapping is -1, a number above 0 was expected" },
    { GEMMA "\"num_global_key_value_heads\": 3, \"attention_k_eq_v\": true}", MF_ERR_UNSUPPORTED,
      "num_attention_heads is 4, a multiple of num_key_value_heads (3)" },
    { GEMMA "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}}",
      MF_ERR_UNSUPPORTED, "rope_type is \"yarn\", proportional was expected" },
    { GEMMA "\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"yarn\"}}}",
      MF_ERR_UNSUPPORTED, "rope_type of sliding_attention is \"yarn\", default was expected" },
    { GEMMA "\"per_layer_config\": {\"1\": {\"head_dim\": 16}, \"3\": {\"head_dim\": 32}}}",
      MF_ERR_UNSUPPORTED, "per_layer_config has heads of 2 x 32 in layer 3 and 2 x 16 before" },
    { GEMMA "\"per_layer_config\": {\"4\": {\"head_dim\": 16}}}", MF_ERR_UNSUPPORTED,
      "per_layer_config has the layer \"4\", numbers below 4 were expected" },
    { GEMMA "\"per_layer_config\": {\"1st\": {\"head_dim\": 16}}}", MF_ERR_UNSUPPORTED,
      "per_layer_config has the layer \"1st\", numbers below 4 were expected" },
    { GEMMA "\"layer_types\": [\"full_attention\", \"linear_attention\", "
            "\"full_attention\", \"full_attention\"]}",
      MF_ERR_UNSUPPORTED, "sliding_attention or full_attention was expected" },
    { MINIMAX "\"use_qk_norm\": false}", MF_ERR_UNSUPPORTED,
      "use_qk_norm is false, true was expected" },
    { MINIMAX "\"scoring_func\": \"softmax\"}", MF_ERR_UNSUPPORTED,
      "scoring_func is \"softmax\", sigmoid was expected" },
    { MINIMAX "\"shared_intermediate_size\": 64}", MF_ERR_UNSUPPORTED,
      "shared_intermediate_size is 64, 0 was expected" },
    { MINIMAX "\"attn_type_list\": [1, 0, 1, 1]}", MF_ERR_UNSUPPORTED,
      "attn_type_list[1] is 0, 1 was expected" },
    { MINIMAX "\"use_routing_bias\": false}", MF_ERR_UNSUPPORTED,
      "use_routing_bias is false, true was expected" },
    { MINIMAX "\"attention_bias\": true}", MF_ERR_UNSUPPORTED,
      "attention_bias is true, false was expected" },
    { MINIMAX "\"rotary_dim\": 9}", MF_ERR_UNSUPPORTED,
      "rotary_dim or qk_rope_head_dim makes 9 of a head's 8 channels turn" },
    { GLM "\"scoring_func\": \"softmax\"}", MF_ERR_UNSUPPORTED,
      "scoring_func is \"softmax\", sigmoid was expected" },
    { GLM "\"mlp_layer_types\": [\"dense\"]}", MF_ERR_FORMAT,
      "mlp_layer_types has 1 entries, 4 were expected" },
    { GLM "\"mlp_layer_types\": [\"dense\", \"sparse\", \"spars\", \"sparse\"]}",
      MF_ERR_UNSUPPORTED, "mlp_layer_types[2] is \"spars\", dense or sparse was expected" },
    { GLM "\"mlp_layer_types\": [\"dense\", 1, \"sparse\", \"sparse\"]}", MF_ERR_UNSUPPORTED,
      "mlp_layer_types[1] is \"not a string\"" },
    /* sizes that are legal one by one; their product is what a step's buffers have */
    { "{\"hidden_size\": 1048576, \"num_experts\": 65536, \"num_experts_per_tok\": 65536}",
      MF_ERR_UNSUPPORTED, "num_experts_per_tok x hidden_size is 68719476736, at most" },
};

static void every_refusal_names_file_and_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refusals); i++)
        check_refusal(refusals[i].changes, refusals[i].status, refusals[i].sentence);
}

static void json_other_than_an_object_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "[]", "7", "\"x\"", "{}", "null" };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct model_config config;
        struct arena arena;
        mf_error why;
        json_t *json = json_loads(texts[i], JSON_DECODE_ANY, NULL);
        assert_int_equal(parse(&config, json, &arena, &why), MF_ERR_FORMAT);
        assert_non_null(strstr(why.text, "model_type is missing"));
        arena_free(&arena);
        json_decref(json);
    }
}

static void every_field_is_read(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    mf_error why;
    json_t *json = changed("{\"eos_token_id\": [3, 5, 3], \"tie_word_embeddings\": true}");
    assert_int_equal(parse(&c, json, &arena, &why), MF_OK);
    const struct tiny_shape *s = &tiny_standard;
    assert_string_equal(c.family->name, "qwen3_5_moe");
    assert_int_equal(c.width, s->width);
    assert_int_equal(c.vocab_size, s->vocab_size);
    assert_int_equal(c.context_length, s->context_length);
    assert_true(c.norm_epsilon == 1e-6f);
    assert_true(c.tied_head);
    assert_int_equal(c.layer_count, s->layers);
    assert_int_equal(c.heads, s->heads);
    assert_int_equal(c.kv_heads, s->kv_heads);
    assert_int_equal(c.head_width, s->head_width);
    assert_int_equal(c.rope.rotary_width, 4);
    assert_true(c.rope.theta == 10000.0);
    assert_int_equal(c.delta_key_heads, s->key_heads);
    assert_int_equal(c.delta_value_heads, s->value_heads);
    assert_int_equal(c.delta_key_width, s->key_width);
    assert_int_equal(c.delta_value_width, s->value_width);
    assert_int_equal(c.delta_taps, s->taps);
    assert_int_equal(config_delta_channels(&c), 2 * 16 + 32);
    assert_int_equal(c.experts, s->experts);
    assert_int_equal(c.experts_per_token, s->experts_per_token);
    assert_int_equal(c.expert_width, s->expert_width);
    assert_int_equal(c.shared_width, s->shared_width);
    assert_int_equal(c.end_token_count, 2); /* each once */
    assert_int_equal(c.end_tokens[0], 3);
    assert_int_equal(c.end_tokens[1], 5);
    arena_free(&arena);
    json_decref(json);
}

/* A config with nothing but its type is the family's standard model. */
static void absent_fields_have_the_family_defaults(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    mf_error why;
    json_t *json = json_pack("{s:s, s:n}", "model_type", "qwen3_5_moe", "hidden_size");
    assert_int_equal(parse(&c, json, &arena, &why), MF_OK);
    assert_int_equal(c.width, 2048);
    assert_int_equal(c.layer_count, 40);
    assert_int_equal(c.heads, 16);
    assert_int_equal(c.rope.rotary_width, 64);
    assert_int_equal(c.experts, 256);
    assert_int_equal(c.experts_per_token, 8);
    assert_int_equal(c.end_token_count, 0);
    assert_false(c.tied_head);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(c.mixers[i], i % 4 == 3 ? MIXER_ATTENTION : MIXER_DELTA);
    arena_free(&arena);
    json_decref(json);
}

/* What the tiny config becomes with these changes; the arrays live in *arena. */
static void parse_changed(struct model_config *out, struct arena *arena, const char *changes)
{
    mf_error why;
    json_t *json = changed(changes);
    if (parse(out, json, arena, &why) != MF_OK) fail_msg("%s: %s", changes, why.text);
    json_decref(json);
}

/* R is rotary_dim, else the part that a factor says, at either place, else half. */
static void rotary_dim_wins_over_the_factor(void **state)
{
    (void)state;
    static const struct {
        const char *changes;
        uint32_t rotary;
    } cases[] = {
        { MINIMAX "\"rotary_dim\": 2}", 2 },
        { MINIMAX "\"rotary_dim\": 6, \"partial_rotary_factor\": 1.0}", 6 },
        { MINIMAX "\"rotary_dim\": 6, \"rope_parameters\": {\"rope_theta\": 1e4, "
                  "\"rope_type\": \"default\"}}",
          6 },
        { MINIMAX "\"rope_parameters\": {\"partial_rotary_factor\": 0.25}}", 2 },
        { MINIMAX "\"rope_parameters\": null, \"partial_rotary_factor\": 0.75}", 6 },
        { MINIMAX "\"rope_parameters\": null}", 4 },
        { GLM "\"rope_parameters\": {\"rope_theta\": 1e4}}", 4 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct model_config c;
        struct arena arena;
        parse_changed(&c, &arena, cases[i].changes);
        if (c.rope.rotary_width != cases[i].rotary)
            fail_msg("%s: %u channels turn, %u were expected", cases[i].changes,
                     c.rope.rotary_width, cases[i].rotary);
        arena_free(&arena);
    }
}

/* A family whose layers all have experts calls their width intermediate_size. */
static void intermediate_size_is_the_width_of_experts_without_dense_layers(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    parse_changed(&c, &arena,
                  MINIMAX "\"intermediate_size\": 48, \"num_mtp_modules\": 3, "
                          "\"mlp_only_layers\": [0]}");
    assert_int_equal(c.expert_width, 48);
    assert_int_equal(c.prediction_layers, 3);
    assert_int_equal(c.qk_norm, QK_NORM_WHOLE);
    assert_true(c.renormalise);
    for (uint32_t i = 0; i < c.layer_count; i++) assert_int_equal(c.ffns[i], FFN_EXPERTS);
    arena_free(&arena);
}

static void glm_reads_biases_norms_and_dense_layers(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    parse_changed(&c, &arena, GLM "\"head_dim\": null}");
    assert_false(c.attention_bias);
    assert_int_equal(c.qk_norm, QK_NORM_NONE);
    assert_int_equal(c.head_width, c.width / c.heads);
    assert_int_equal(c.shared_width, c.expert_width); /* one shared expert */
    assert_int_equal(c.prediction_layers, 1);
    for (uint32_t i = 0; i < c.layer_count; i++)
        assert_int_equal(c.ffns[i], i == 0 ? FFN_DENSE : FFN_EXPERTS);
    arena_free(&arena);
    parse_changed(&c, &arena,
                  GLM "\"attention_bias\": true, \"use_qk_norm\": true, \"num_mtp_layers\": 2, "
                      "\"n_shared_experts\": 2, \"first_k_dense_replace\": 3, "
                      "\"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\", \"dense\"]}");
    assert_true(c.attention_bias);
    assert_int_equal(c.qk_norm, QK_NORM_HEADS);
    assert_int_equal(c.shared_width, 2 * c.expert_width);
    assert_int_equal(c.prediction_layers, 2);
    for (uint32_t i = 0; i < c.layer_count; i++)
        assert_int_equal(c.ffns[i], i % 2 ? FFN_DENSE : FFN_EXPERTS);
    arena_free(&arena);
}

/* head_dim and num_key_value_heads are those of layers with a window. */
static void gemma_has_wide_heads_without_a_window(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    parse_changed(&c, &arena,
                  GEMMA "\"global_head_dim\": 16, \"num_global_key_value_heads\": 1, "
                        "\"attention_k_eq_v\": true, \"top_k_experts\": 3, "
                        "\"intermediate_size\": 40, \"final_logit_softcapping\": 30, "
                        "\"layer_types\": [\"sliding_attention\", \"full_attention\", "
                        "\"sliding_attention\", \"sliding_attention\"]}");
    struct attention_sizes full = config_attention(&c, MIXER_ATTENTION);
    struct attention_sizes window = config_attention(&c, MIXER_WINDOW);
    assert_true(full.head_width == 16 && full.kv_heads == 1 && full.window == 0);
    assert_true(window.head_width == 8 && window.kv_heads == 2 && window.window == 1024);
    assert_true(full.values_are_keys && !window.values_are_keys);
    assert_true(full.rope->rotary_width == 16 && full.rope->turning == 2);
    assert_true(window.rope->rotary_width == 8 && window.rope->turning == 0);
    assert_true(full.rope->theta == 1e6 && window.rope->theta == 1e4);
    assert_true(full.rope->multiplier == 1 && window.rope->multiplier == 1);
    /* the last layer is full, whatever the list says */
    static const enum mixer_kind expected[] = { MIXER_WINDOW, MIXER_ATTENTION, MIXER_WINDOW,
                                                MIXER_ATTENTION };
    for (size_t i = 0; i < 4; i++) assert_int_equal(c.mixers[i], expected[i]);
    assert_int_equal(c.shared_width, 40);
    assert_int_equal(c.experts_per_token, 3);
    assert_true(c.logit_cap == 30 && c.activation == ACTIVATION_GELU && c.renormalise);
    arena_free(&arena);

    /* without shared keys the number of global heads says nothing; sizes of single layers */
    parse_changed(&c, &arena, GEMMA "\"num_global_key_value_heads\": 1, \"sliding_window\": 7}");
    assert_true(c.kv_heads == 2 && c.head_width == 512 && c.window.positions == 7);
    assert_true(c.logit_cap == 0 && !c.values_are_keys);
    arena_free(&arena);
    parse_changed(&c, &arena,
                  GEMMA "\"per_layer_config\": "
                        "{\"3\": {\"head_dim\": 32, \"num_key_value_heads\": 4}}}");
    assert_true(c.kv_heads == 4 && c.head_width == 32 && c.window.head_width == 8);
    arena_free(&arena);
    parse_changed(&c, &arena,
                  GEMMA "\"layer_types\": [\"full_attention\", \"sliding_attention\", "
                        "\"sliding_attention\", \"full_attention\"], \"per_layer_config\": "
                        "{\"1\": {\"head_dim\": 16}, \"2\": {\"num_key_value_heads\": 2}, "
                        "\"3\": {\"head_dim\": 32, \"num_key_value_heads\": 4}}}");
    assert_true(c.kv_heads == 4 && c.head_width == 32);
    assert_true(c.window.kv_heads == 2 && c.window.head_width == 16);
    arena_free(&arena);
}

/* What no context can reach is left out of the number; a stretched context may still use it all. */
static void a_window_is_bounded_as_contexts_are(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    parse_changed(&c, &arena, GEMMA "\"sliding_window\": 4294967295}");
    assert_int_equal(c.window.positions, CONTEXT_MAX);
    arena_free(&arena);
    parse_changed(&c, &arena, GEMMA "\"sliding_window\": 1000}");
    assert_int_equal(c.context_length, 512);
    assert_int_equal(c.window.positions, 1000);
    arena_free(&arena);
}

static void layer_types_win_over_the_interval(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    mf_error why;
    json_t *json = changed("{\"layer_types\": [\"full_attention\", \"linear_attention\", "
                           "\"linear_attention\", \"full_attention\"]}");
    assert_int_equal(parse(&c, json, &arena, &why), MF_OK);
    static const enum mixer_kind expected[] = { MIXER_ATTENTION, MIXER_DELTA, MIXER_DELTA,
                                                MIXER_ATTENTION };
    for (size_t i = 0; i < 4; i++) assert_int_equal(c.mixers[i], expected[i]);
    arena_free(&arena);
    json_decref(json);
}

/* Models with a vision part keep the numbers in text_config; what stands outside is not
 * theirs, except the end tokens. */
static void text_config_is_the_language_model(void **state)
{
    (void)state;
    struct tiny_model tiny;
    struct model_config c;
    struct arena arena;
    mf_error why;
    tiny_model_init(&tiny, &tiny_odd);
    json_object_set_new(tiny.config, "hidden_size", json_integer(77));
    json_object_set_new(tiny.config, "vision_config", json_pack("{s:i}", "hidden_size", 5));
    json_object_set_new(tiny_model_sizes(&tiny), "eos_token_id", json_integer(9));
    assert_int_equal(parse(&c, tiny.config, &arena, &why), MF_OK);
    assert_int_equal(c.width, tiny_odd.width);
    assert_int_equal(c.end_token_count, 2);
    assert_int_equal(c.end_tokens[0], 1);
    assert_int_equal(c.end_tokens[1], 9);
    arena_free(&arena);
    /* either place may say that the head is the embedding; the inner one is nearer */
    json_object_set_new(tiny.config, "tie_word_embeddings", json_true());
    json_object_del(tiny_model_sizes(&tiny), "tie_word_embeddings");
    assert_int_equal(parse(&c, tiny.config, &arena, &why), MF_OK);
    assert_true(c.tied_head);
    arena_free(&arena);
    json_object_set_new(tiny_model_sizes(&tiny), "tie_word_embeddings", json_false());
    assert_int_equal(parse(&c, tiny.config, &arena, &why), MF_OK);
    assert_false(c.tied_head);
    arena_free(&arena);
    tiny_model_free(&tiny);
}

static void older_files_keep_rope_at_the_top(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    mf_error why;
    json_t *json = changed("{\"rope_parameters\": null, \"rope_theta\": 5000, "
                           "\"partial_rotary_factor\": 0.25, \"rope_scaling\": null}");
    assert_int_equal(parse(&c, json, &arena, &why), MF_OK);
    assert_true(c.rope.theta == 5000.0);
    assert_int_equal(c.rope.rotary_width, 2);
    arena_free(&arena);
    json_decref(json);
}

static void a_vast_context_is_cut_to_the_limit(void **state)
{
    (void)state;
    struct model_config c;
    struct arena arena;
    mf_error why;
    json_t *json = changed("{\"max_position_embeddings\": 4000000000}");
    assert_int_equal(parse(&c, json, &arena, &why), MF_OK);
    assert_int_equal(c.context_length, 1 << 20);
    arena_free(&arena);
    json_decref(json);
}

/* A family's default must be complete: what no file says is refused, never divided by. */
static void config_with_only_a_type_is_complete_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; family_at(i); i++) {
        struct model_config c;
        struct arena arena;
        mf_error why;
        json_t *json = json_pack("{s:s}", "model_type", family_at(i)->model_types[0]);
        if (parse(&c, json, &arena, &why) == MF_OK) {
            assert_true(c.width > 0 && c.heads > 0 && c.kv_heads > 0 && c.head_width > 0);
            assert_true(c.layer_count > 0 && c.vocab_size > 0 && c.context_length > 0);
            assert_true(c.experts > 0 && c.experts_per_token > 0 && c.expert_width > 0);
            assert_true(c.mixers && c.ffns);
        }
        arena_free(&arena);
        json_decref(json);
    }
}

static void no_memory_is_reported(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct model_config c;
    struct arena arena;
    mf_error why;
    json_t *json = changed("{}");
    failing_allocator_init(&heap);
    arena_init(&arena, &heap.allocator);
    failing_allocator_arm(&heap, 1);
    assert_int_equal(config_parse(&c, json, &arena, "x", &why), MF_ERR_MEMORY);
    failing_allocator_disarm(&heap);
    arena_free(&arena);
    assert_int_equal(heap.live_bytes, 0);
    json_decref(json);
}

static void families_are_found_by_every_type(void **state)
{
    (void)state;
    size_t count = 0;
    for (; family_at(count); count++) {
        const struct family *family = family_at(count);
        for (size_t i = 0; i < COUNT_OF(family->model_types); i++)
            if (family->model_types[i])
                assert_ptr_equal(family_find(family->model_types[i]), family);
    }
    assert_true(count >= 1);
    assert_null(family_at(count));
    assert_null(family_find("qwen3_5_mo"));
    assert_null(family_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_refusal_names_file_and_field),
        cmocka_unit_test(json_other_than_an_object_is_refused),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(absent_fields_have_the_family_defaults),
        cmocka_unit_test(layer_types_win_over_the_interval),
        cmocka_unit_test(rotary_dim_wins_over_the_factor),
        cmocka_unit_test(intermediate_size_is_the_width_of_experts_without_dense_layers),
        cmocka_unit_test(glm_reads_biases_norms_and_dense_layers),
        cmocka_unit_test(gemma_has_wide_heads_without_a_window),
        cmocka_unit_test(a_window_is_bounded_as_contexts_are),
        cmocka_unit_test(text_config_is_the_language_model),
        cmocka_unit_test(older_files_keep_rope_at_the_top),
        cmocka_unit_test(a_vast_context_is_cut_to_the_limit),
        cmocka_unit_test(config_with_only_a_type_is_complete_or_refused),
        cmocka_unit_test(no_memory_is_reported),
        cmocka_unit_test(families_are_found_by_every_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
