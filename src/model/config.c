#include "model/config.h"

#include "base/status.h"
#include "model/families.h"

/* No published model comes near these; a file that does is damaged or hostile. */
enum {
    WIDTH_MAX = 1 << 20,
    LAYERS_MAX = 4096,
    HEADS_MAX = 65536,
    HEAD_WIDTH_MAX = 8192,
    EXPERTS_MAX = 65536,
    VOCAB_MAX = 1 << 24,
    CONTEXT_MAX = 1 << 20,
    TAPS_MAX = 64,
};

/* Reads fields of one object; the first problem sticks and later reads do nothing. */
struct reader {
    const json_t *json;
    const char *where;
    mf_status status;
    mf_error *why;
};

/* Each reader keeps *out, a family's default, when the field is absent. */
static void count(uint32_t *out, struct reader *r, const char *key, uint64_t high)
{
    uint64_t value = *out;
    if (r->status != MF_OK) return;
    r->status = json_maybe_count(&value, r->json, key, 1, high, r->where, r->why);
    if (r->status == MF_OK) *out = (uint32_t)value;
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

static void refuse_if(bool wrong, struct reader *r, const char *sentence)
{
    if (wrong && r->status == MF_OK)
        r->status = fail(r->why, MF_ERR_UNSUPPORTED, "%s: %s", r->where, sentence);
}

static void read_rope(struct reader *r, struct model_config *c)
{
    /* Newer files keep rope's numbers in an object of their own. */
    const json_t *rope = json_object_get(r->json, "rope_parameters");
    if (!json_is_object(rope)) rope = r->json;
    real(&c->rope_theta, r, r->json, "rope_theta");
    real(&c->rope_theta, r, rope, "rope_theta");
    real(&c->rotary_factor, r, r->json, "partial_rotary_factor");
    real(&c->rotary_factor, r, rope, "partial_rotary_factor");

    const json_t *scaling = json_object_get(r->json, "rope_scaling");
    if (!json_is_object(scaling)) scaling = rope;
    const char *kind = text(r, scaling, "rope_type", text(r, scaling, "type", "default"));
    refuse_if(strcmp(kind, "default") != 0, r, "rope_type is not \"default\"");
    refuse_if(!(c->rope_theta > 1.0 && c->rope_theta < 1e12), r, "rope_theta is out of range");
    refuse_if(!(c->rotary_factor > 0.0 && c->rotary_factor <= 1.0), r,
              "partial_rotary_factor is not above 0 and at most 1");
    if (r->status != MF_OK) return;
    c->rotary_width = (uint32_t)(c->head_width * c->rotary_factor);
    refuse_if(c->rotary_width < 2 || c->rotary_width % 2, r,
              "head_dim x partial_rotary_factor is not an even number of channels");
}

static void read_attention(struct reader *r, struct model_config *c)
{
    count(&c->heads, r, "num_attention_heads", HEADS_MAX);
    count(&c->kv_heads, r, "num_key_value_heads", HEADS_MAX);
    count(&c->head_width, r, "head_dim", HEAD_WIDTH_MAX);
    refuse_if(c->heads % c->kv_heads != 0, r,
              "num_attention_heads is not a multiple of num_key_value_heads");
    refuse_if(!flag(r, r->json, "attn_output_gate", true), r, "attn_output_gate is false");
    refuse_if(flag(r, r->json, "attention_bias", false), r, "attention_bias is true");
    refuse_if(flag(r, r->json, "use_sliding_window", false), r, "use_sliding_window is true");
    read_rope(r, c);
}

static void read_delta(struct reader *r, struct model_config *c)
{
    count(&c->delta_key_heads, r, "linear_num_key_heads", HEADS_MAX);
    count(&c->delta_value_heads, r, "linear_num_value_heads", HEADS_MAX);
    count(&c->delta_key_width, r, "linear_key_head_dim", HEAD_WIDTH_MAX);
    count(&c->delta_value_width, r, "linear_value_head_dim", HEAD_WIDTH_MAX);
    count(&c->delta_taps, r, "linear_conv_kernel_dim", TAPS_MAX);
    refuse_if(c->delta_value_heads % c->delta_key_heads != 0, r,
              "linear_num_value_heads is not a multiple of linear_num_key_heads");
    uint64_t channels = 2 * (uint64_t)c->delta_key_heads * c->delta_key_width +
                        (uint64_t)c->delta_value_heads * c->delta_value_width;
    refuse_if(channels > WIDTH_MAX, r, "the linear attention heads are too wide");
}

static void read_experts(struct reader *r, struct model_config *c)
{
    count(&c->experts, r, "num_experts", EXPERTS_MAX);
    count(&c->experts_per_token, r, "num_experts_per_tok", EXPERTS_MAX);
    count(&c->expert_width, r, "moe_intermediate_size", WIDTH_MAX);
    count(&c->shared_width, r, "shared_expert_intermediate_size", WIDTH_MAX);
    refuse_if(c->experts_per_token > c->experts, r,
              "num_experts_per_tok is greater than num_experts");
    refuse_if(strcmp(text(r, r->json, "hidden_act", "silu"), "silu") != 0, r,
              "hidden_act is not \"silu\"");
}

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

static void read_layers(struct reader *r, struct model_config *c, struct arena *arena)
{
    count(&c->layer_count, r, "num_hidden_layers", LAYERS_MAX);
    count(&c->full_attention_interval, r, "full_attention_interval", LAYERS_MAX);
    if (r->status != MF_OK) return;
    c->mixers = ARENA_NEW(arena, enum mixer_kind, c->layer_count);
    if (!c->mixers) {
        r->status = fail_memory(r->why, c->layer_count * sizeof *c->mixers);
        return;
    }
    const json_t *list = json_object_get(r->json, "layer_types");
    if (list && !json_is_null(list)) {
        read_mixer_list(r, c, list);
        return;
    }
    for (uint32_t i = 0; i < c->layer_count; i++)
        c->mixers[i] = (i + 1) % c->full_attention_interval == 0 ? MIXER_ATTENTION : MIXER_DELTA;
}

static void read_sizes(struct reader *r, struct model_config *c)
{
    double epsilon = c->norm_epsilon;
    count(&c->width, r, "hidden_size", WIDTH_MAX);
    count(&c->vocab_size, r, "vocab_size", VOCAB_MAX);
    count(&c->context_length, r, "max_position_embeddings", UINT32_MAX);
    c->context_length = (uint32_t)min_size(c->context_length, CONTEXT_MAX);
    real(&epsilon, r, r->json, "rms_norm_eps");
    refuse_if(!(epsilon >= 0.0 && epsilon < 1.0), r, "rms_norm_eps is not between 0 and 1");
    c->norm_epsilon = (float)epsilon;
}

static mf_status find_family(const struct family **out, struct reader *r)
{
    const char *type = text(r, r->json, "model_type", NULL);
    if (r->status != MF_OK) return r->status;
    if (!type) return fail(r->why, MF_ERR_FORMAT, "%s: model_type is missing", r->where);
    *out = family_find(type);
    if (*out) return MF_OK;
    char known[256] = "";
    for (size_t i = 0; family_at(i); i++) {
        if (i > 0) strncat(known, ", ", sizeof known - strlen(known) - 1);
        strncat(known, family_at(i)->name, sizeof known - strlen(known) - 1);
    }
    return fail(r->why, MF_ERR_UNSUPPORTED, "%s: model_type \"%s\" is not supported; known: %s",
                r->where, type, known);
}

mf_status config_parse(struct model_config *out, const json_t *json, struct arena *arena,
                       const char *where, mf_error *why)
{
    const struct family *family = NULL;
    struct reader r = { json, where, MF_OK, why };
    *out = (struct model_config){ 0 };
    mf_status status = find_family(&family, &r);
    if (status != MF_OK) return status;
    *out = family->defaults;
    out->family = family;

    bool tied = flag(&r, json, "tie_word_embeddings", false);
    /* Models with a vision part nest the language model's numbers. */
    const json_t *nested = json_object_get(json, "text_config");
    if (json_is_object(nested)) r.json = nested;
    out->tied_head = flag(&r, r.json, "tie_word_embeddings", tied);
    read_sizes(&r, out);
    read_layers(&r, out, arena);
    read_attention(&r, out);
    read_delta(&r, out);
    read_experts(&r, out);
    if (r.status != MF_OK) return r.status;
    status = config_add_end_tokens(out, json, where, why);
    if (status == MF_OK && r.json != json) status = config_add_end_tokens(out, r.json, where, why);
    return status;
}

static mf_status add_end_token(struct model_config *config, const json_t *value, const char *where,
                               mf_error *why)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= config->vocab_size)
        return fail(why, MF_ERR_FORMAT,
                    "%s: eos_token_id holds something that is not a token id below %u", where,
                    config->vocab_size);
    for (size_t i = 0; i < config->end_token_count; i++)
        if (config->end_tokens[i] == id) return MF_OK;
    if (config->end_token_count == END_TOKENS_MAX)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: more than %d end tokens", where, END_TOKENS_MAX);
    config->end_tokens[config->end_token_count++] = (int32_t)id;
    return MF_OK;
}

mf_status config_add_end_tokens(struct model_config *config, const json_t *json, const char *where,
                                mf_error *why)
{
    const json_t *value = json_object_get(json, "eos_token_id");
    if (!value || json_is_null(value)) return MF_OK;
    if (!json_is_array(value)) return add_end_token(config, value, where, why);
    mf_status status = MF_OK;
    for (size_t i = 0; i < json_array_size(value) && status == MF_OK; i++)
        status = add_end_token(config, json_array_get(value, i), where, why);
    return status;
}

uint32_t config_delta_channels(const struct model_config *config)
{
    return 2 * config->delta_key_heads * config->delta_key_width +
           config->delta_value_heads * config->delta_value_width;
}
