/* config.c: config.json of Hugging Face and MLX checkpoints. */
#include "model/config.h"

#include "base/status.h"
#include "model/config_checks.h"
#include "model/families.h"

#include <stdlib.h>

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
    COUNT("num_mtp_layers", prediction_layers, 0, LAYERS_MAX),
    COUNT("num_mtp_modules", prediction_layers, 0, LAYERS_MAX),
    COUNT("num_nextn_predict_layers", prediction_layers, 0, LAYERS_MAX),
    COUNT("full_attention_interval", full_attention_interval, 1, LAYERS_MAX),
    COUNT("num_attention_heads", heads, 1, HEADS_MAX),
    COUNT("num_key_value_heads", kv_heads, 1, HEADS_MAX),
    COUNT("head_dim", head_width, 1, HEAD_WIDTH_MAX),
    COUNT("sliding_window", window.positions, 1, UINT32_MAX),
    COUNT("kv_lora_rank", latent_width, 1, WIDTH_MAX),
    COUNT("qk_nope_head_dim", nope_width, 1, HEAD_WIDTH_MAX),
    COUNT("rotary_dim", rope.rotary_width, 1, HEAD_WIDTH_MAX),
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
    COUNT("experts_per_token", experts_per_token, 1, EXPERTS_MAX),
    COUNT("num_experts_per_tok", experts_per_token, 1, EXPERTS_MAX),
    COUNT("top_k_experts", experts_per_token, 1, EXPERTS_MAX),
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
    if (c->family->experts_alone && c->dense_width) c->expert_width = c->dense_width;
    if (c->family->dense_beside) c->shared_width = c->dense_width;
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
    .rotary = "partial_rotary_factor, rotary_dim or qk_rope_head_dim",
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

/* A size that only one value is understood of. */
static void expect_zero(struct reader *r, const char *key)
{
    uint64_t value = 0;
    if (r->status == MF_OK)
        r->status = json_maybe_count(&value, r->json, key, 0, UINT32_MAX, r->where, r->why);
    REFUSE_IF(value != 0, r, "%s is %llu, 0 was expected", key, (unsigned long long)value);
}

static void read_size(uint32_t *out, struct reader *r, const json_t *json, const char *key,
                      uint32_t high)
{
    uint64_t value = *out;
    if (r->status == MF_OK)
        r->status = json_maybe_count(&value, json, key, 1, high, r->where, r->why);
    *out = (uint32_t)value;
}

/* Before the list of mixers is there. */
static bool is_full(const struct reader *r, const struct model_config *c, uint32_t layer)
{
    const json_t *list = json_object_get(r->json, "layer_types");
    const char *kind = json_string_value(json_array_get(list, layer));
    if (c->family->last_layer_full && layer == c->layer_count - 1) return true;
    if (kind) return strcmp(kind, "full_attention") == 0;
    return (layer + 1) % c->full_attention_interval == 0;
}

static uint32_t layer_number(struct reader *r, const struct model_config *c, const char *key)
{
    char *end;
    unsigned long number = strtoul(key, &end, 10);
    bool right = key[0] >= '0' && key[0] <= '9' && *end == '\0' && number < c->layer_count;
    REFUSE_IF(!right, r, "per_layer_config has the layer \"%.16s\", numbers below %u were expected",
              key, c->layer_count);
    return right ? (uint32_t)number : 0;
}

/* Sizes of single layers, by number: those of all layers of a kind are the same. */
static void read_layer_sizes(struct reader *r, struct model_config *c)
{
    const char *layer;
    json_t *sizes;
    bool seen[2] = { false, false };
    json_object_foreach(json_object_get(r->json, "per_layer_config"), layer, sizes)
    {
        bool full = is_full(r, c, layer_number(r, c, layer));
        uint32_t *of_width = full ? &c->head_width : &c->window.head_width;
        uint32_t *of_heads = full ? &c->kv_heads : &c->window.kv_heads;
        uint32_t width = *of_width, heads = *of_heads;
        read_size(&width, r, sizes, "head_dim", HEAD_WIDTH_MAX);
        read_size(&heads, r, sizes, "num_key_value_heads", HEADS_MAX);
        REFUSE_IF(seen[full] && (width != *of_width || heads != *of_heads), r,
                  "per_layer_config has heads of %u x %u in layer %.16s and %u x %u before, the "
                  "same were expected",
                  heads, width, layer, *of_heads, *of_width);
        *of_width = width;
        *of_heads = heads;
        seen[full] = true;
    }
}

/* What has been read as the heads' sizes is that of layers with a window. */
static void read_wider_layers(struct reader *r, struct model_config *c)
{
    c->values_are_keys = flag(r, r->json, "attention_k_eq_v", c->values_are_keys);
    c->window.head_width = c->window.kv_heads = 0;
    read_size(&c->window.head_width, r, r->json, "head_dim", HEAD_WIDTH_MAX);
    c->window.kv_heads = c->kv_heads;
    if (c->window.head_width == 0) c->window.head_width = c->family->defaults.window.head_width;
    c->head_width = c->family->defaults.head_width;
    read_size(&c->head_width, r, r->json, "global_head_dim", HEAD_WIDTH_MAX);
    if (c->values_are_keys)
        read_size(&c->kv_heads, r, r->json, "num_global_key_value_heads", HEADS_MAX);
    read_layer_sizes(r, c);
}

/* Parts of the small models of a family, which are not known. */
static void refuse_parts(struct reader *r)
{
    const char *bidirectional = text(r, r->json, "use_bidirectional_attention", "vision");
    expect_zero(r, "hidden_size_per_layer_input");
    expect_zero(r, "num_kv_shared_layers");
    expect_flag(r, r->json, "use_double_wide_mlp", false);
    expect_flag(r, r->json, "enable_moe_block", true);
    REFUSE_IF(strcmp(bidirectional, "all") == 0, r,
              "use_bidirectional_attention is \"%s\", null or vision was expected", bidirectional);
}

/* Layers with a window have an object of their own. */
static void read_window_rope(struct reader *r, struct rope_config *rope)
{
    const json_t *own =
        json_object_get(json_object_get(r->json, "rope_parameters"), "sliding_attention");
    const char *kind = text(r, own, "rope_type", "default");
    real(&rope->theta, r, own, "rope_theta");
    REFUSE_IF(strcmp(kind, "default") != 0, r,
              "rope_type of sliding_attention is \"%.64s\", default was expected", kind);
}

static void read_rope(struct reader *r, struct rope_config *rope, struct yarn_fields *yarn)
{
    /* Newer files keep rope's numbers in an object of their own. */
    const json_t *own = json_object_get(r->json, "rope_parameters");
    const json_t *full = json_object_get(own, "full_attention");
    if (json_is_object(full)) own = full;
    if (!json_is_object(own)) own = r->json;
    real(&rope->theta, r, r->json, "rope_theta");
    real(&rope->theta, r, own, "rope_theta");
    real(&rope->partial, r, r->json, "partial_rotary_factor");
    real(&rope->partial, r, own, "partial_rotary_factor");
    rope->interleaved = flag(r, r->json, "rope_interleave", rope->interleaved);

    const char *usual = rope->proportional ? "proportional" : "default";
    const json_t *scaling = json_object_get(r->json, "rope_scaling");
    /* A family whose default it is has YaRN where a file says nothing at all. */
    if (!json_is_object(scaling) && own == r->json && rope->factor > 1) return;
    if (!json_is_object(scaling)) scaling = own;
    rope->factor = 0;
    const char *kind = text(r, scaling, "rope_type", text(r, scaling, "type", usual));
    if (rope->proportional) {
        REFUSE_IF(strcmp(kind, "proportional") != 0, r,
                  "rope_type is \"%.64s\", proportional was expected", kind);
        return;
    }
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
    rope->untruncated = !flag(r, scaling, "truncate", true);
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
    bool other = c->family->fixed_router && c->router != c->family->defaults.router;
    REFUSE_IF(other, r, "scoring_func is \"%.64s\", %s was expected", scores,
              sigmoid ? "softmax" : "sigmoid");
    if (!method) method = sigmoid ? "noaux_tc" : "greedy";
    bool greedy = strcmp(method, "greedy") == 0;
    bool known = sigmoid ? strcmp(method, "noaux_tc") == 0
                         : greedy || strcmp(method, "group_limited_greedy") == 0;
    REFUSE_IF(!known, r, "topk_method is \"%.64s\", %s was expected with the scoring_func %s",
              method, sigmoid ? "noaux_tc" : "greedy or group_limited_greedy",
              sigmoid ? "sigmoid" : "softmax");
    if (greedy) c->router_groups = c->router_top_groups = 1;
}

/* Biases of projections, and norms of queries and keys. */
static void read_projections(struct reader *r, struct model_config *c)
{
    bool known = family_has_weight(c->family, WEIGHT_Q_BIAS) ||
                 family_has_weight(c->family, WEIGHT_KV_A_BIAS);
    if (known)
        c->attention_bias = flag(r, r->json, "attention_bias", c->attention_bias);
    else
        expect_flag(r, r->json, "attention_bias", false);
    if (c->family->optional_qk_norm)
        c->qk_norm = flag(r, r->json, "use_qk_norm", c->qk_norm != QK_NORM_NONE) ? QK_NORM_HEADS
                                                                                 : QK_NORM_NONE;
    else
        expect_flag(r, r->json, "use_qk_norm", c->qk_norm != QK_NORM_NONE);
    /* 1 is full attention. */
    const json_t *kinds = json_object_get(r->json, "attn_type_list");
    for (size_t i = 0; i < json_array_size(kinds); i++)
        REFUSE_IF(json_integer_value(json_array_get(kinds, i)) != 1, r,
                  "attn_type_list[%zu] is %lld, 1 was expected", i,
                  (long long)json_integer_value(json_array_get(kinds, i)));
}

static void read_shared(struct reader *r, struct model_config *c)
{
    uint64_t shared = c->family->shared_experts, frequency = 1, other = 0;
    if (r->status == MF_OK)
        r->status =
            json_maybe_count(&shared, r->json, "n_shared_experts", 0, 1024, r->where, r->why);
    if (r->status == MF_OK)
        r->status = json_maybe_count(&frequency, r->json, "moe_layer_freq", 1, LAYERS_MAX, r->where,
                                     r->why);
    if (r->status == MF_OK)
        r->status = json_maybe_count(&other, r->json, "shared_intermediate_size", 0, WIDTH_MAX,
                                     r->where, r->why);
    REFUSE_IF(other != 0, r, "shared_intermediate_size is %llu, 0 was expected",
              (unsigned long long)other);
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
    expect_flag(r, r->json, "use_routing_bias", true);
    static const char *const activations[ACTIVATION_COUNT] = {
        [ACTIVATION_SILU] = "silu",
        [ACTIVATION_GELU] = "gelu_pytorch_tanh",
        [ACTIVATION_CLAMPED] = "silu" /* as gpt-oss calls it */
    };
    const char *known = activations[c->activation];
    const char *key =
        json_object_get(r->json, "hidden_activation") ? "hidden_activation" : "hidden_act";
    const char *activation = text(r, r->json, key, known);
    REFUSE_IF(strcmp(activation, known) != 0, r, "%s is \"%.64s\", %s was expected", key,
              activation, known);
}

/* ------------------------------------------------------------------- lists */

static void read_mixer_list(struct reader *r, struct model_config *c, const json_t *list)
{
    const char *other = c->family->windowed ? "sliding_attention" : "linear_attention";
    if (!json_is_array(list) || json_array_size(list) != c->layer_count) {
        r->status = fail(r->why, MF_ERR_FORMAT, "%s: layer_types has %zu entries, %u were expected",
                         r->where, json_array_size(list), c->layer_count);
        return;
    }
    for (uint32_t i = 0; i < c->layer_count; i++) {
        const char *kind = json_string_value(json_array_get(list, i));
        if (kind && strcmp(kind, other) == 0) {
            c->mixers[i] = family_other_mixer(c->family);
        } else if (kind && strcmp(kind, "full_attention") == 0) {
            c->mixers[i] = MIXER_ATTENTION;
        } else {
            r->status = fail(r->why, MF_ERR_UNSUPPORTED,
                             "%s: layer_types[%u] is \"%s\", %s or full_attention was expected",
                             r->where, i, kind ? kind : "not a string", other);
            return;
        }
    }
}

static void list_mixers(struct reader *r, struct model_config *c)
{
    bool mixed = c->family->hybrid || c->family->windowed;
    const json_t *list = json_object_get(r->json, "layer_types");
    for (uint32_t i = 0; i < c->layer_count; i++) {
        bool full = !mixed || (i + 1) % c->full_attention_interval == 0;
        c->mixers[i] = full ? c->family->mixer : family_other_mixer(c->family);
    }
    if (mixed && list && !json_is_null(list)) read_mixer_list(r, c, list);
    if (c->family->last_layer_full) c->mixers[c->layer_count - 1] = c->family->mixer;
    REFUSE_IF(config_count_mixers(c, MIXER_WINDOW) > 0 && c->window.positions == 0, r,
              "sliding_window is missing, which %u layers need",
              config_count_mixers(c, MIXER_WINDOW));
}

static void read_ffn_list(struct reader *r, struct model_config *c, const json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) != c->layer_count) {
        r->status =
            fail(r->why, MF_ERR_FORMAT, "%s: mlp_layer_types has %zu entries, %u were expected",
                 r->where, json_array_size(list), c->layer_count);
        return;
    }
    for (uint32_t i = 0; i < c->layer_count; i++) {
        const char *kind = json_string_value(json_array_get(list, i));
        bool dense = kind && strcmp(kind, "dense") == 0;
        REFUSE_IF(!dense && (!kind || strcmp(kind, "sparse") != 0), r,
                  "mlp_layer_types[%u] is \"%.64s\", dense or sparse was expected", i,
                  kind ? kind : "not a string");
        c->ffns[i] = dense ? FFN_DENSE : FFN_EXPERTS;
    }
}

static void list_ffns(struct reader *r, struct model_config *c)
{
    const json_t *types = json_object_get(r->json, "mlp_layer_types");
    if (c->family->experts_alone) return;
    if (types && !json_is_null(types)) {
        read_ffn_list(r, c, types);
        return;
    }
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
    if (c->family->wider_full_layers) read_wider_layers(r, c);
    read_rope(r, &c->rope, yarn);
    if (c->family->windowed) read_window_rope(r, &c->window.rope);
    read_router(r, c);
    expect_flag(r, r->json, "attn_output_gate", c->output_gate);
    read_projections(r, c);
    expect_flag(r, r->json, "use_sliding_window", false);
    real(&c->logit_cap, r, r->json, "final_logit_softcapping");
    REFUSE_IF(!(c->logit_cap >= 0 && c->logit_cap < 1e9), r,
              "final_logit_softcapping is %g, a number above 0 was expected", c->logit_cap);
    refuse_parts(r);
    double limit = 7;
    real(&limit, r, r->json, "swiglu_limit");
    REFUSE_IF(limit != 7, r, "swiglu_limit is %g, 7 was expected", limit);
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

    bool tied = flag(&r, json, "tie_word_embeddings", out->tied_head);
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
