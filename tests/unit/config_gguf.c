/* config_gguf: what the metadata of a GGUF file may say, and each refusal's sentence. */
#include "support/test.h"

#include "checkpoint/gguf.h"
#include "model/config_checks.h"
#include "model/families.h"
#include "support/byte_writer.h"
#include "support/memory_files.h"

#include <math.h>
#include <stdlib.h>

/* A value as a test writes it. */
struct value {
    const char *key; /* '.' first: after the architecture's name; NULL ends a list */
    enum metadata_type type;
    double number;
    const char *text; /* a text, or the flags of an array as '0' and '1' */
};

#define NUMBER(key, number)                                                                        \
    {                                                                                              \
        (key), METADATA_U32, (number), NULL                                                        \
    }
#define REAL(key, number)                                                                          \
    {                                                                                              \
        (key), METADATA_F64, (number), NULL                                                        \
    }
#define TEXT(key, text)                                                                            \
    {                                                                                              \
        (key), METADATA_TEXT, 0, (text)                                                            \
    }

static void put_value(struct byte_writer *w, const struct value *v, const char *architecture)
{
    char key[128];
    snprintf(key, sizeof key, "%s%s", v->key[0] == '.' ? architecture : "", v->key);
    put_text(w, key);
    put_u32(w, v->type);
    switch (v->type) {
    case METADATA_TEXT:
        put_text(w, v->text);
        break;
    case METADATA_FLAG:
        put_u8(w, v->number != 0);
        break;
    case METADATA_ARRAY:
        put_u32(w, METADATA_FLAG);
        put_u64(w, strlen(v->text));
        for (const char *at = v->text; *at; at++) put_u8(w, *at == '1');
        break;
    case METADATA_F64:
        put_bytes(w, &v->number, 8);
        break;
    default:
        put_u32(w, (uint32_t)v->number);
    }
}

struct parsed {
    struct memory_files files;
    struct tensor_directory directory;
    struct metadata metadata;
    struct arena arena;
    struct model_config config;
    mf_error why;
    mf_status status;
};

/* The values of `standard`, those of `changes` instead of or beside them. */
static void parse_vocabulary(struct parsed *out, const char *architecture,
                             const struct value *standard, const struct value *changes,
                             uint32_t vocab_size)
{
    struct byte_writer values = { 0 }, file = { 0 };
    uint64_t count = 1;
    *out = (struct parsed){ 0 };
    put_value(&values, &(struct value)TEXT("general.architecture", architecture), architecture);
    for (const struct value *v = changes; v && v->key; v++, count++)
        put_value(&values, v, architecture);
    for (const struct value *v = standard; v && v->key; v++) {
        bool replaced = false;
        for (const struct value *c = changes; c && c->key; c++)
            replaced |= strcmp(c->key, v->key) == 0;
        if (replaced) continue;
        put_value(&values, v, architecture);
        count++;
    }
    put_bytes(&file, "GGUF", 4);
    put_u32(&file, 3);
    put_u64(&file, 0);
    put_u64(&file, count);
    put_bytes(&file, values.bytes, values.count);
    put_padding(&file, 32);

    memory_files_init(&out->files);
    memory_files_put(&out->files, "m.gguf", file.bytes, file.count);
    tensor_directory_init(&out->directory, &allocator_heap);
    metadata_init(&out->metadata, &allocator_heap);
    arena_init(&out->arena, &allocator_heap);
    out->status = checkpoint_gguf_open(&out->directory, &out->metadata, &out->files.files, "m.gguf",
                                       &out->why);
    if (out->status != MF_OK) fail_msg("%s", out->why.text);
    out->status =
        config_from_metadata(&out->config, &out->metadata, vocab_size, &out->arena, &out->why);
    byte_writer_free(&values);
    byte_writer_free(&file);
}

static void parse(struct parsed *out, const char *architecture, const struct value *standard,
                  const struct value *changes)
{
    parse_vocabulary(out, architecture, standard, changes, 100);
}

static void close_parsed(struct parsed *p)
{
    arena_free(&p->arena);
    metadata_free(&p->metadata);
    tensor_directory_free(&p->directory);
}

static const struct value attention[] = {
    NUMBER(".block_count", 4),
    NUMBER(".embedding_length", 64),
    NUMBER(".context_length", 4096),
    NUMBER(".attention.head_count", 4),
    NUMBER(".attention.head_count_kv", 2),
    NUMBER(".attention.key_length", 16),
    NUMBER(".expert_count", 8),
    NUMBER(".expert_used_count", 2),
    NUMBER(".expert_feed_forward_length", 32),
    { 0 },
};
static const struct value hybrid[] = {
    NUMBER(".block_count", 4),
    NUMBER(".embedding_length", 64),
    NUMBER(".attention.head_count", 4),
    NUMBER(".attention.head_count_kv", 2),
    NUMBER(".attention.key_length", 16),
    NUMBER(".rope.dimension_count", 4),
    NUMBER(".ssm.conv_kernel", 4),
    NUMBER(".ssm.state_size", 8),
    NUMBER(".ssm.group_count", 2),
    NUMBER(".ssm.time_step_rank", 4),
    NUMBER(".ssm.inner_size", 40),
    NUMBER(".full_attention_interval", 2),
    NUMBER(".expert_count", 8),
    NUMBER(".expert_used_count", 2),
    { 0 },
};
static const struct value latent[] = {
    NUMBER(".block_count", 4),
    NUMBER(".embedding_length", 64),
    NUMBER(".attention.head_count", 4),
    NUMBER(".attention.kv_lora_rank", 32),
    NUMBER(".attention.key_length", 36),
    NUMBER(".attention.value_length", 32),
    NUMBER(".attention.key_length_mla", 20),
    NUMBER(".attention.value_length_mla", 12),
    NUMBER(".rope.dimension_count", 4),
    NUMBER(".expert_count", 8),
    NUMBER(".expert_used_count", 2),
    NUMBER(".expert_feed_forward_length", 32),
    NUMBER(".expert_gating_func", 2),
    { 0 },
};

/* ---------------------------------------------------------------- accepted */

static void attention_is_read(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, "qwen3moe", attention, NULL);
    assert_int_equal(p.status, MF_OK);
    const struct model_config *c = &p.config;
    assert_string_equal(c->family->name, "qwen3_moe");
    assert_int_equal(c->vocab_size, 100);
    assert_int_equal(c->layer_count, 4);
    assert_int_equal(c->rope.rotary_width, 16);
    assert_true(c->renormalise); /* the files do not say it */
    assert_true(c->rope.multiplier == 1.0);
    close_parsed(&p);
}

static void hybrids_are_read(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, "qwen35moe", hybrid, NULL);
    assert_int_equal(p.status, MF_OK);
    assert_int_equal(p.config.delta_value_width, 10);
    assert_int_equal(p.config.delta_key_width, 8);
    assert_true(p.config.delta_heads_tiled);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(p.config.mixers[i], i % 2 ? MIXER_ATTENTION : MIXER_DELTA);
    close_parsed(&p);

    /* a list wins, and the prediction layer at the end does not count */
    const struct value list[] = { { ".attention.recurrent_layers", METADATA_ARRAY, 0, "0110" },
                                  NUMBER(".nextn_predict_layers", 1),
                                  { 0 } };
    parse(&p, "qwen3next", hybrid, list);
    assert_int_equal(p.status, MF_OK);
    assert_int_equal(p.config.layer_count, 3);
    assert_false(p.config.delta_heads_tiled);
    static const enum mixer_kind expected[] = { MIXER_ATTENTION, MIXER_DELTA, MIXER_DELTA };
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(p.config.mixers[i], expected[i]);
    close_parsed(&p);
}

static void latent_attention_is_read_from_old_and_new_files(void **state)
{
    (void)state;
    struct parsed p;
    parse(&p, "deepseek2", latent, NULL);
    assert_int_equal(p.status, MF_OK);
    assert_int_equal(p.config.nope_width, 16);
    assert_int_equal(p.config.value_width, 12);
    assert_int_equal(p.config.query_rank, 0);
    assert_int_equal(p.config.router, ROUTER_SIGMOID);
    assert_int_equal(p.config.router_groups, 1);
    assert_false(p.config.renormalise);
    close_parsed(&p);

    /* without the newer keys the others speak of a head */
    const struct value *const older[] = { &latent[0], &latent[1], &latent[2], &latent[3] };
    struct value old[16] = { { 0 } };
    size_t count = 0;
    for (; count < COUNT_OF(older); count++) old[count] = *older[count];
    old[count++] = (struct value)NUMBER(".attention.key_length", 20);
    old[count++] = (struct value)NUMBER(".attention.value_length", 12);
    old[count++] = (struct value)NUMBER(".rope.dimension_count", 4);
    old[count++] = (struct value)NUMBER(".expert_count", 8);
    old[count++] = (struct value)NUMBER(".expert_used_count", 2);
    parse(&p, "deepseek2", old, NULL);
    assert_int_equal(p.status, MF_OK);
    assert_int_equal(p.config.nope_width, 16);
    assert_int_equal(p.config.value_width, 12);
    assert_int_equal(p.config.router, ROUTER_SOFTMAX);
    close_parsed(&p);
}

/* Older files of DeepSeek-V3 do not tell its groups. */
static void groups_of_v3_are_assumed(void **state)
{
    (void)state;
    struct parsed p;
    const struct value v3[] = { NUMBER(".block_count", 61), NUMBER(".expert_count", 256), { 0 } };
    parse(&p, "deepseek2", latent, v3);
    assert_int_equal(p.status, MF_OK);
    assert_true(p.config.groups_assumed);
    assert_int_equal(p.config.router_groups, 8);
    assert_int_equal(p.config.router_top_groups, 4);
    close_parsed(&p);
    const struct value said[] = { NUMBER(".block_count", 61),
                                  NUMBER(".expert_count", 256),
                                  NUMBER(".expert_group_count", 1),
                                  NUMBER(".expert_group_used_count", 1),
                                  { 0 } };
    parse(&p, "deepseek2", latent, said);
    assert_int_equal(p.status, MF_OK);
    assert_false(p.config.groups_assumed);
    assert_int_equal(p.config.router_groups, 1);
    close_parsed(&p);
}

/* Where the key is missing: DeepSeek-V2 has a softmax, GLM-4.7-Flash and the families of the
 * other architectures a sigmoid. */
static void scores_follow_the_model_where_the_file_is_silent(void **state)
{
    (void)state;
    static const struct {
        const char *architecture;
        const struct value *standard;
        uint32_t blocks, predicting;
        uint32_t vocab_size;
        enum router_kind expected;
    } cases[] = {
        { "deepseek2", latent, 47, 0, 154880, ROUTER_SIGMOID },
        { "deepseek2", latent, 48, 1, 154880, ROUTER_SIGMOID },
        { "deepseek2", latent, 48, 0, 154880, ROUTER_SIGMOID },
        { "deepseek2", latent, 46, 0, 154880, ROUTER_SOFTMAX },
        { "deepseek2", latent, 47, 0, 102400, ROUTER_SOFTMAX },
        { "glm4moe", attention, 4, 1, 1000, ROUTER_SIGMOID },
        { "minimax-m2", attention, 4, 0, 1000, ROUTER_SIGMOID },
        { "qwen3moe", attention, 47, 0, 154880, ROUTER_SOFTMAX },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct parsed p;
        struct value silent[16] = { NUMBER(".block_count", cases[i].blocks),
                                    NUMBER(".nextn_predict_layers", cases[i].predicting) };
        size_t count = 2;
        for (const struct value *v = cases[i].standard; v->key; v++)
            if (strcmp(v->key, ".block_count") != 0 && strcmp(v->key, ".expert_gating_func") != 0)
                silent[count++] = *v;
        parse_vocabulary(&p, cases[i].architecture, silent, NULL, cases[i].vocab_size);
        assert_int_equal(p.status, MF_OK);
        assert_int_equal(p.config.layer_count, cases[i].blocks - cases[i].predicting);
        if (p.config.router != cases[i].expected) fail_msg("case %zu has other scores", i);
        close_parsed(&p);
    }
}

static void glm_and_minimax_are_read(void **state)
{
    (void)state;
    struct parsed p;
    const struct value glm[] = { NUMBER(".block_count", 5),
                                 NUMBER(".nextn_predict_layers", 1),
                                 NUMBER(".leading_dense_block_count", 2),
                                 NUMBER(".rope.dimension_count", 8),
                                 NUMBER(".expert_shared_count", 2),
                                 REAL(".expert_weights_scale", 2.5),
                                 NUMBER("tokenizer.ggml.eos_token_id", 3),
                                 NUMBER("tokenizer.ggml.eot_token_id", 4),
                                 NUMBER("tokenizer.ggml.eom_token_id", 5),
                                 { 0 } };
    parse(&p, "glm4moe", attention, glm);
    assert_int_equal(p.status, MF_OK);
    assert_int_equal(p.config.layer_count, 4);
    assert_int_equal(p.config.prediction_layers, 1);
    assert_int_equal(p.config.rope.rotary_width, 8);
    assert_int_equal(p.config.shared_width, 2 * p.config.expert_width);
    assert_false(p.config.renormalise); /* the file would say so */
    assert_int_equal(p.config.end_token_count, 3);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(p.config.ffns[i], i < 2 ? FFN_DENSE : FFN_EXPERTS);
    close_parsed(&p);
    /* what nothing is said of: half of a head turns, weights add up to 1 */
    parse(&p, "minimax-m2", attention, NULL);
    assert_int_equal(p.status, MF_OK);
    assert_int_equal(p.config.rope.rotary_width, 8);
    assert_int_equal(p.config.qk_norm, QK_NORM_WHOLE);
    assert_true(p.config.renormalise);
    assert_int_equal(p.config.shared_width, 0);
    close_parsed(&p);
}

static void layers_with_a_window_have_keys_of_their_own(void **state)
{
    (void)state;
    struct parsed p;
    const struct value gemma[] = { { ".attention.sliding_window_pattern", METADATA_ARRAY, 0,
                                     "1010" },
                                   NUMBER(".attention.sliding_window", 9),
                                   NUMBER(".attention.key_length", 32),
                                   NUMBER(".attention.key_length_swa", 16),
                                   NUMBER(".rope.dimension_count", 32),
                                   NUMBER(".rope.dimension_count_swa", 16),
                                   REAL(".rope.freq_base_swa", 5000),
                                   NUMBER(".feed_forward_length", 48),
                                   REAL(".final_logit_softcapping", 20),
                                   { 0 } };
    parse(&p, "gemma4", attention, gemma);
    if (p.status != MF_OK) fail_msg("%s", p.why.text);
    const struct window_config *window = &p.config.window;
    assert_true(p.config.head_width == 32 && p.config.kv_heads == 2);
    assert_true(window->head_width == 16 && window->kv_heads == 2 && window->positions == 9);
    assert_true(window->rope.theta == 5000 && window->rope.rotary_width == 16);
    assert_true(p.config.rope.rotary_width == 32 && p.config.rope.turning == 4);
    assert_true(p.config.shared_width == 48 && p.config.logit_cap == 20);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(p.config.mixers[i], i % 2 ? MIXER_ATTENTION : MIXER_WINDOW);
    close_parsed(&p);
    const struct value endless[] = { NUMBER(".attention.sliding_window", UINT32_MAX), { 0 } };
    parse(&p, "gemma4", attention, endless);
    if (p.status != MF_OK) fail_msg("%s", p.why.text);
    assert_int_equal(p.config.window.positions, CONTEXT_MAX);
    close_parsed(&p);
}

static void yarn_is_read(void **state)
{
    (void)state;
    struct parsed p;
    const struct value yarn[] = { TEXT(".rope.scaling.type", "yarn"),
                                  REAL(".rope.scaling.factor", 40),
                                  NUMBER(".rope.scaling.original_context_length", 4096),
                                  REAL(".rope.scaling.yarn_log_multiplier", 0.1),
                                  { 0 } };
    parse(&p, "deepseek2", latent, yarn);
    assert_int_equal(p.status, MF_OK);
    assert_true(fabs(p.config.rope.score_multiplier - 1.87385) < 1e-5); /* V3's own number */
    assert_true(p.config.rope.multiplier == 1.0);
    close_parsed(&p);

    /* the context stands in for an original one; a factor of the file's own on top */
    const struct value bare[] = { TEXT(".rope.scaling.type", "yarn"),
                                  REAL(".rope.scaling.factor", 4),
                                  REAL(".rope.scaling.yarn_attn_factor", 1.5),
                                  REAL(".rope.scaling.attn_factor", 2),
                                  { 0 } };
    parse(&p, "qwen3moe", attention, bare);
    assert_int_equal(p.status, MF_OK);
    assert_true(p.config.rope.original_context == 4096);
    assert_true(p.config.rope.multiplier == 3.0);
    close_parsed(&p);

    const struct value nothing[] = { TEXT(".rope.scaling.type", "linear"),
                                     REAL(".rope.scaling.factor", 1),
                                     { 0 } };
    parse(&p, "qwen3moe", attention, nothing);
    assert_int_equal(p.status, MF_OK);
    close_parsed(&p);
}

/* ----------------------------------------------------------------- refused */

static const struct refusal {
    const char *architecture;
    const struct value *standard;
    struct value changes[4];
    mf_status status;
    const char *sentence;
} refusals[] = {
    { "llama",
      NULL,
      { { 0 } },
      MF_ERR_UNSUPPORTED,
      "general.architecture \"llama\" is a dense model, and moeflux runs mixture-of-experts "
      "models; "
      "known: qwen3moe, qwen3next, qwen35moe, deepseek2" },
    { "gemma4",
      attention,
      { NUMBER(".attention.shared_kv_layers", 2) },
      MF_ERR_UNSUPPORTED,
      "gemma4.attention.shared_kv_layers is 2, 0 was expected" },
    { "gemma4",
      attention,
      { NUMBER(".embedding_length_per_layer_input", 256) },
      MF_ERR_UNSUPPORTED,
      "gemma4.embedding_length_per_layer_input is 256, 0 was expected" },
    { "gemma4",
      attention,
      { { ".attention.sliding_window_pattern", METADATA_ARRAY, 0, "10" } },
      MF_ERR_FORMAT,
      "gemma4.attention.sliding_window_pattern has 2 entries for 4 layers" },
    { "grok",
      NULL,
      { NUMBER(".expert_count", 8) },
      MF_ERR_UNSUPPORTED,
      "general.architecture \"grok\" is not supported; known: qwen3moe, " },
    { "qwen3moe", attention, { NUMBER(".block_count", 0) }, MF_ERR_FORMAT, "qwen3moe.block_count" },
    { "qwen3moe",
      attention,
      { NUMBER(".embedding_length", 4e9) },
      MF_ERR_FORMAT,
      "qwen3moe.embedding_length" },
    { "qwen3moe",
      attention,
      { TEXT(".expert_count", "8") },
      MF_ERR_FORMAT,
      "qwen3moe.expert_count is a text" },
    { "qwen3moe",
      attention,
      { NUMBER(".attention.head_count", 3) },
      MF_ERR_UNSUPPORTED,
      "attention.head_count is 3, a multiple of attention.head_count_kv (2) was expected" },
    { "qwen3moe",
      attention,
      { NUMBER(".rope.dimension_count", 18) },
      MF_ERR_UNSUPPORTED,
      "rope.dimension_count makes 18 of a head's 16 channels turn" },
    { "qwen3moe",
      attention,
      { REAL(".rope.freq_base", NAN) },
      MF_ERR_UNSUPPORTED,
      "rope.freq_base is nan, above 1 and below 1e12 was expected" },
    { "qwen3moe",
      attention,
      { REAL(".attention.layer_norm_rms_epsilon", -1) },
      MF_ERR_UNSUPPORTED,
      "attention.layer_norm_rms_epsilon is -1, from 0 to below 1 was expected" },
    { "qwen3moe",
      attention,
      { TEXT(".rope.scaling.type", "longrope") },
      MF_ERR_UNSUPPORTED,
      "qwen3moe.rope.scaling.type is \"longrope\", none or yarn was expected" },
    { "qwen3moe",
      attention,
      { TEXT(".rope.scaling.type", "linear"), REAL(".rope.scaling.factor", 4) },
      MF_ERR_UNSUPPORTED,
      "is \"linear\", none or yarn was expected" },
    { "qwen3moe",
      attention,
      { TEXT(".rope.scaling.type", "yarn"), REAL(".rope.scaling.factor", NAN) },
      MF_ERR_UNSUPPORTED,
      "rope.scaling.factor is nan, at least 1 was expected" },
    { "qwen3moe",
      attention,
      { TEXT(".rope.scaling.type", "yarn"), REAL(".rope.scaling.factor", 4),
        REAL(".rope.scaling.yarn_attn_factor", INFINITY) },
      MF_ERR_UNSUPPORTED,
      "YaRN's factors multiply angles by inf" },
    { "qwen3moe",
      attention,
      { NUMBER(".expert_used_count", 9) },
      MF_ERR_UNSUPPORTED,
      "expert_used_count is 9, at most expert_count (8) was expected" },
    { "qwen3moe",
      attention,
      { NUMBER(".expert_shared_feed_forward_length", 8) },
      MF_ERR_UNSUPPORTED,
      "expert_shared_feed_forward_length asks for a shared expert 8 wide" },
    { "qwen3moe",
      attention,
      { NUMBER("tokenizer.ggml.eos_token_id", 100) },
      MF_ERR_FORMAT,
      "the end token 100 is not a token id below 100" },
    { "qwen3next",
      hybrid,
      { NUMBER(".ssm.inner_size", 42) },
      MF_ERR_FORMAT,
      "ssm.inner_size is 42, which is not a multiple of the 4 value heads" },
    { "qwen3next",
      hybrid,
      { NUMBER(".ssm.group_count", 3) },
      MF_ERR_UNSUPPORTED,
      "ssm.time_step_rank is 4, a multiple of ssm.group_count (3) was expected" },
    { "qwen3next",
      hybrid,
      { { ".attention.recurrent_layers", METADATA_ARRAY, 0, "010" } },
      MF_ERR_FORMAT,
      "qwen3next.attention.recurrent_layers has 3 entries for 4 layers" },
    { "deepseek2",
      latent,
      { NUMBER(".attention.key_length_mla", 4) },
      MF_ERR_FORMAT,
      "a key is 4 wide, which leaves nothing beside its rotary 4" },
    { "deepseek2",
      latent,
      { NUMBER(".expert_gating_func", 3) },
      MF_ERR_FORMAT,
      "deepseek2.expert_gating_func" },
    { "deepseek2",
      latent,
      { NUMBER(".expert_group_count", 3), NUMBER(".expert_group_used_count", 1) },
      MF_ERR_UNSUPPORTED,
      "expert_count is 8, a multiple of expert_group_count (3) was expected" },
    { "deepseek2",
      latent,
      { NUMBER(".expert_group_count", 4), NUMBER(".expert_group_used_count", 5) },
      MF_ERR_UNSUPPORTED,
      "expert_group_used_count is 5, from 1 to expert_group_count (4)" },
};

static void every_refusal_names_file_and_key(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(refusals); i++) {
        const struct refusal *r = &refusals[i];
        struct parsed p;
        parse(&p, r->architecture, r->standard, r->changes);
        if (p.status != r->status || !strstr(p.why.text, r->sentence) ||
            !strstr(p.why.text, "m.gguf"))
            fail_msg("expected '%s' (%d), got '%s' (%d)", r->sentence, r->status, p.why.text,
                     p.status);
        close_parsed(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_read),
        cmocka_unit_test(hybrids_are_read),
        cmocka_unit_test(latent_attention_is_read_from_old_and_new_files),
        cmocka_unit_test(groups_of_v3_are_assumed),
        cmocka_unit_test(scores_follow_the_model_where_the_file_is_silent),
        cmocka_unit_test(glm_and_minimax_are_read),
        cmocka_unit_test(layers_with_a_window_have_keys_of_their_own),
        cmocka_unit_test(yarn_is_read),
        cmocka_unit_test(every_refusal_names_file_and_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
