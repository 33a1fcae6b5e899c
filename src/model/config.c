/* config.c: config.json of Hugging Face and MLX checkpoints. */
#include "model/config.h"

#include "base/status.h"
#include "model/config_checks.h"
#include "model/families.h"

/* Reads fields of one object; the first problem sticks and later reads do nothing. */
struct reader {
    const json_t *json;
    const char *where;
    mf_status status;
    mf_error *why;
};

/* Whole numbers.  Families call some of them by different names. */
static const struct count_field {
    const char *key;
    size_t offset; /* in struct model_config */
    uint64_t low, high;
} count_fields[] = {
#define COUNT(key, field, low, high)                                                               \
    {                                                                                              \
        key, offsetof(struct model_config, field), low, high                                       \
    }
    COUNT("hidden_size", width, 1, WIDTH_MAX),
    COUNT("vocab_size", vocab_size, 1, VOCAB_MAX),
    COUNT("max_position_embeddings", context_length, 1, UINT32_MAX),
    COUNT("num_hidden_layers", layer_count, 1, LAYERS_MAX),
    COUNT("num_nextn_predict_layers", prediction_layers, 0, LAYERS_MAX),
    COUNT("full_attention_interval", full_attention_interval, 1, LAYERS_MAX),
    COUNT("num_attention_heads", heads, 1, HEADS_MAX),
    COUNT("num_key_value_heads", kv_heads, 1, HEADS_MAX),
    COUNT("head_dim", head_width, 1, HEAD_WIDTH_MAX),
    COUNT("kv_lora_rank", latent_width, 1, WIDTH_MAX),
    COUNT("qk_nope_head_dim", nope_width, 1, HEAD_WIDTH_MAX),
    COUNT("qk_rope_head_dim", rope.rotary_width, 1, HEAD_WIDTH_MAX),
    COUNT("v_head_dim", value_width, 1, HEAD_WIDTH_MAX),
    COUNT("linear_num_key_heads", delta_key_heads, 1, HEADS_MAX),
    COUNT("linear_num_value_heads", delta_value_heads, 1, HEADS_MAX),
    COUNT("linear_key_head_dim", delta_key_width, 1, HEAD_WIDTH_MAX),
    COUNT("linear_value_head_dim", delta_value_width, 1, HEAD_WIDTH_MAX),
    COUNT("linear_conv_kernel_dim", delta_taps, 1, TAPS_MAX),
    COUNT("num_local_experts", experts, 1, EXPERTS_MAX),
    COUNT("num_experts", experts, 1, EXPERTS_MAX),
    COUNT("n_routed_experts", experts, 1, EXPERTS_MAX),
    COUNT("num_experts_per_tok", experts_per_token, 1, EXPERTS_MAX),
    COUNT("moe_intermediate_size", expert_width, 1, WIDTH_MAX),
    COUNT("shared_expert_intermediate_size", shared_width, 0, WIDTH_MAX),
    COUNT("n_group", router_groups, 1, EXPERTS_MAX),
    COUNT("topk_group", router_top_groups, 1, EXPERTS_MAX),
    COUNT("intermediate_size", dense_width, 1, WIDTH_MAX),
    COUNT("first_k_dense_replace", leading_dense_layers, 0, LAYERS_MAX),
    COUNT("decoder_sparse_step", sparse_step, 1, LAYERS_MAX),
#undef COUNT
};

/* An absent field keeps the family's default. */
static void read_counts(struct reader *r, struct model_config *c)
{
    for (size_t i = 0; i < COUNT_OF(count_fields) && r->status == MF_OK; i++) {
        const struct count_field *f = &count_fields[i];
        uint32_t *field = (uint32_t *)(void *)((char *)c + f->offset);
        uint64_t value = *field;
        r->status = json_maybe_count(&value, r->json, f->key, f->low, f->high, r->where, r->why);
        *field = (uint32_t)value;
    }
    c->context_length = (uint32_t)min_size(c->context_length, CONTEXT_MAX);
}

static void real(double *out, struct reader *r, const json_t *json, const char *key)
{
    if (r->status == MF_OK) r->status = json_maybe_real(out, json, key, r->where, r->why);
}

static bool flag(struct reader *r, const json_t *json, const char *key, bool standard)
{
    bool value = standard;
    if (r->status == MF_OK) r->status = json_maybe_flag(&value, json, key, r->where, r->why);
    return value;
}

static const char *text(struct reader *r, const json_t *json, const char *key, const char *standard)
{
    const char *value = standard;
    if (r->status == MF_OK) r->status = json_maybe_text(&value, json, key, r->where, r->why);
    return value;
}

#define REFUSE_IF(wrong, r, format, ...)                                                           \
    do {                                                                                           \
        if ((r)->status == MF_OK && (wrong))                                                       \
            (r)->status =                                                                          \
                fail((r)->why, MF_ERR_UNSUPPORTED, "%s: " format, (r)->where, __VA_ARGS__);        \
    } while (0)

/* A flag that is only understood with one value. */
static void expect_flag(struct reader *r, const json_t *json, const char *key, bool expected)
{
    bool value = flag(r, json, key, expected);
    REFUSE_IF(value != expected, r, "%s is %s, %s was expected", key, value ? "true" : "false",
              expected ? "true" : "false");
}

static const struct field_names field_names = {
    .epsilon = "rms_norm_eps",
    .width = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .rotary = "partial_rotary_factor or qk_rope_head_dim",
    .partial = "partial_rotary_factor",
    .theta = "rope_theta",
    .original_context = "original_max_position_embeddings of rope_scaling",
    .beta_fast = "beta_fast of rope_scaling",
    .beta_slow = "beta_slow of rope_scaling",
    .experts = "num_experts or n_routed_experts",
    .experts_per_token = "num_experts_per_tok",
    .groups = "n_group",
    .top_groups = "topk_group",
    .shared = "shared_expert_intermediate_size or n_shared_experts",
    .routed_scale = "routed_scaling_factor",
    .delta_key_heads = "linear_num_key_heads",
    .delta_value_heads = "linear_num_value_heads",
};

/* ------------------------------------------------------------------- parts */

static void read_rope(struct reader *r, struct rope_config *rope, struct yarn_fields *yarn)
{
    /* Newer files keep rope's numbers in an object of their own. */
    const json_t *own = json_object_get(r->json, "rope_parameters");
    if (!json_is_object(own)) own = r->json;
    real(&rope->theta, r, r->json, "rope_theta");
    real(&rope->theta, r, own, "rope_theta");
    real(&rope->partial, r, r->json, "partial_rotary_factor");
    real(&rope->partial, r, own, "partial_rotary_factor");
    rope->interleaved = flag(r, r->json, "rope_interleave", rope->interleaved);

    const json_t *scaling = json_object_get(r->json, "rope_scaling");
    if (!json_is_object(scaling)) scaling = own;
    const char *kind = text(r, scaling, "rope_type", text(r, scaling, "type", "default"));
    if (strcmp(kind, "default") == 0) return;
    REFUSE_IF(strcmp(kind, "yarn") != 0, r, "rope_type is \"%.64s\", default or yarn was expected",
              kind);
    if (r->status != MF_OK) return;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    real(&rope->factor, r, scaling, "factor");
    real(&rope->original_context, r, scaling, "original_max_position_embeddings");
    real(&rope->beta_fast, r, scaling, "beta_fast");
    real(&rope->beta_slow, r, scaling, "beta_slow");
    real(&yarn->mscale, r, scaling, "mscale");
    real(&yarn->mscale_all_dim, r, scaling, "mscale_all_dim");
    real(&yarn->attention_factor, r, scaling, "attention_factor");
    expect_flag(r, scaling, "truncate", true);
    REFUSE_IF(!(rope->factor >= 1.0 && rope->factor < 1e9), r,
              "factor of rope_scaling is %g, at least 1 was expected", rope->factor);
}

static void read_latent(struct reader *r, struct model_config *c)
{
    /* null, other than an absent field, means: no narrower stream. */
    const json_t *rank = json_object_get(r->json, "q_lora_rank");
    uint64_t value = json_is_null(rank) ? 0 : c->query_rank;
    if (r->status == MF_OK)
        r->status =
            json_maybe_count(&value, r->json, "q_lora_rank", 0, WIDTH_MAX, r->where, r->why);
    c->query_rank = (uint32_t)value;
}

/* How experts are scored and chosen.  Two ways are known:
 *
 *     scoring_func sigmoid, topk_method noaux_tc                        (V3)
 *     scoring_func softmax, topk_method greedy or group_limited_greedy  (V2, Qwen) */
static void read_choice(struct reader *r, struct model_config *c)
{
    const char *scores = text(r, r->json, "scoring_func", NULL);
    const char *method = text(r, r->json, "topk_method", NULL);
    if (r->status != MF_OK) return;
    REFUSE_IF(scores && strcmp(scores, "softmax") != 0 && strcmp(scores, "sigmoid") != 0, r,
              "scoring_func is \"%.64s\", softmax or sigmoid was expected", scores);
    if (scores) c->router = strcmp(scores, "sigmoid") == 0 ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    bool sigmoid = c->router == ROUTER_SIGMOID;
    if (!method) method = sigmoid ? "noaux_tc" : "greedy";
    bool greedy = strcmp(method, "greedy") == 0;
    bool known = sigmoid ? strcmp(method, "noaux_tc") == 0
                         : greedy || strcmp(method, "group_limited_greedy") == 0;
    REFUSE_IF(!known, r, "topk_method is \"%.64s\", %s was expected with the scoring_func %s",
              method, sigmoid ? "noaux_tc" : "greedy or group_limited_greedy",
              sigmoid ? "sigmoid" : "softmax");
    if (greedy) c->router_groups = c->router_top_groups = 1;
}

static void read_shared(struct reader *r, struct model_config *c)
{
    uint64_t shared = 0, frequency = 1;
    if (r->status == MF_OK)
        r->status =
            json_maybe_count(&shared, r->json, "n_shared_experts", 0, 1024, r->where, r->why);
    if (r->status == MF_OK)
        r->status = json_maybe_count(&frequency, r->json, "moe_layer_freq", 1, LAYERS_MAX, r->where,
                                     r->why);
    REFUSE_IF(frequency != 1, r, "moe_layer_freq is %llu, 1 was expected",
              (unsigned long long)frequency);
    REFUSE_IF(shared * c->expert_width > WIDTH_MAX, r,
              "n_shared_experts is %llu, at most %d wide together was expected",
              (unsigned long long)shared, WIDTH_MAX);
    if (shared && r->status == MF_OK) c->shared_width = (uint32_t)(shared * c->expert_width);
}

static void read_router(struct reader *r, struct model_config *c)
{
    double scale = (double)c->routed_scale;
    real(&scale, r, r->json, "routed_scaling_factor");
    c->routed_scale = (float)scale;
    bool renormalise = flag(r, r->json, "norm_topk_prob", c->renormalise);
    c->renormalise = renormalise || c->family->always_renormalise;

    read_choice(r, c);
    read_shared(r, c);
    const char *activation = text(r, r->json, "hidden_act", "silu");
    REFUSE_IF(strcmp(activation, "silu") != 0, r, "hidden_act is \"%.64s\", silu was expected",
              activation);
}

/* ------------------------------------------------------------------- lists */

static void read_mixer_list(struct reader *r, struct model_config *c, const json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) != c->layer_count) {
        r->status = fail(r->why, MF_ERR_FORMAT, "%s: layer_types has %zu entries, %u were expected",
                         r->where, json_array_size(list), c->layer_count);
        return;
    }
    for (uint32_t i = 0; i < c->layer_count; i++) {
        const char *kind = json_string_value(json_array_get(list, i));
        if (kind && strcmp(kind, "linear_attention") == 0) {
            c->mixers[i] = MIXER_DELTA;
        } else if (kind && strcmp(kind, "full_attention") == 0) {
            c->mixers[i] = MIXER_ATTENTION;
        } else {
            r->status = fail(r->why, MF_ERR_UNSUPPORTED,
                             "%s: layer_types[%u] is \"%s\", linear_attention or full_attention "
                             "was expected",
                             r->where, i, kind ? kind : "not a string");
            return;
        }
    }
}

static void list_mixers(struct reader *r, struct model_config *c)
{
    const json_t *list = json_object_get(r->json, "layer_types");
    for (uint32_t i = 0; i < c->layer_count; i++) {
        bool full = !c->family->hybrid || (i + 1) % c->full_attention_interval == 0;
        c->mixers[i] = full ? c->family->mixer : MIXER_DELTA;
    }
    if (c->family->hybrid && list && !json_is_null(list)) read_mixer_list(r, c, list);
}

static void list_ffns(struct reader *r, struct model_config *c)
{
    for (uint32_t i = 0; i < c->layer_count; i++) {
        bool dense = i < c->leading_dense_layers || (i + 1) % c->sparse_step != 0;
        c->ffns[i] = dense ? FFN_DENSE : FFN_EXPERTS;
    }
    const json_t *list = json_object_get(r->json, "mlp_only_layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        json_int_t layer = json_integer_value(entry);
        if (!json_is_integer(entry)) {
            r->status = fail(r->why, MF_ERR_FORMAT,
                             "%s: mlp_only_layers holds %s, layers below %u were expected",
                             r->where, json_kind(entry), c->layer_count);
            return;
        }
        if (layer < 0 || layer >= c->layer_count) {
            r->status = fail(r->why, MF_ERR_FORMAT,
                             "%s: mlp_only_layers holds %lld, layers below %u were expected",
                             r->where, (long long)layer, c->layer_count);
            return;
        }
        c->ffns[layer] = FFN_DENSE;
    }
}

/* ------------------------------------------------------------------- whole */

/* A field such as num_experts, there or in text_config: every mixture of experts has one. */
static bool mentions_experts(const json_t *json)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (strstr(key, "expert") && !json_is_null(value)) return true;
        if (strcmp(key, "text_config") == 0 && mentions_experts(value)) return true;
    }
    return false;
}

mf_status config_find_family(const struct family **out, const json_t *json, const char *where,
                             mf_error *why)
{
    const char *type = NULL;
    *out = NULL;
    mf_status status = json_maybe_text(&type, json, "model_type", where, why);
    if (status != MF_OK) return status;
    if (!type) return fail(why, MF_ERR_FORMAT, "%s: model_type is missing", where);
    *out = family_find(type);
    if (*out) return MF_OK;
    char known[256];
    family_list_names(known, sizeof known, false);
    return config_refuse_family(where, "model_type", type, mentions_experts(json), known, why);
}

static void read_fields(struct reader *r, struct model_config *c, struct yarn_fields *yarn)
{
    double epsilon = (double)c->norm_epsilon;
    real(&epsilon, r, r->json, "rms_norm_eps");
    c->norm_epsilon = (float)epsilon;
    read_counts(r, c);
    read_latent(r, c);
    read_rope(r, &c->rope, yarn);
    read_router(r, c);
    expect_flag(r, r->json, "attn_output_gate", c->output_gate);
    expect_flag(r, r->json, "attention_bias", false);
    expect_flag(r, r->json, "use_sliding_window", false);
}

mf_status config_parse(struct model_config *out, const json_t *json, struct arena *arena,
                       const char *where, mf_error *why)
{
    const struct family *family = NULL;
    struct reader r = { json, where, MF_OK, why };
    struct yarn_fields yarn = { 0 };
    *out = (struct model_config){ 0 };
    mf_status status = config_find_family(&family, json, where, why);
    if (status != MF_OK) return status;
    *out = family->defaults;
    out->family = family;

    bool tied = flag(&r, json, "tie_word_embeddings", false);
    /* Models with a vision part nest the language model's numbers. */
    const json_t *nested = json_object_get(json, "text_config");
    if (json_is_object(nested)) r.json = nested;
    out->tied_head = flag(&r, r.json, "tie_word_embeddings", tied);
    read_fields(&r, out, &yarn);
    if (r.status == MF_OK) r.status = config_finish(out, &yarn, &field_names, where, why);
    if (r.status == MF_OK) r.status = config_new_lists(out, arena, why);
    if (r.status == MF_OK) list_mixers(&r, out);
    if (r.status == MF_OK) list_ffns(&r, out);
    if (r.status == MF_OK) r.status = config_add_end_tokens(out, json, where, why);
    if (r.status == MF_OK && r.json != json)
        r.status = config_add_end_tokens(out, r.json, where, why);
    return r.status;
}

mf_status config_add_end_tokens(struct model_config *config, const json_t *json, const char *where,
                                mf_error *why)
{
    const json_t *value = json_object_get(json, "eos_token_id");
    if (!value || json_is_null(value)) return MF_OK;
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    mf_status status = MF_OK;
    for (size_t i = 0; i < count && status == MF_OK; i++) {
        const json_t *entry = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(entry))
            return fail(why, MF_ERR_FORMAT, "%s: eos_token_id holds %s, a token id was expected",
                        where, json_kind(entry));
        status = config_add_end_token(config, json_integer_value(entry), where, why);
    }
    return status;
}
