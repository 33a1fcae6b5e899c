/* config_gguf.c: the configuration in a GGUF file's metadata. */
#include "base/status.h"
#include "model/binder.h"
#include "model/config_checks.h"
#include "model/families.h"

#include <stdio.h>

/* Reads keys of one architecture; the first problem sticks and later reads do nothing. */
struct reader {
    const struct metadata *metadata;
    const char *architecture;
    mf_status status;
    mf_error *why;
};

enum { KEY_CAPACITY = 128 };

/* After the architecture's name. */
static const struct field_names field_names = {
    .epsilon = "attention.layer_norm_rms_epsilon",
    .width = "embedding_length",
    .heads = "attention.head_count",
    .kv_heads = "attention.head_count_kv",
    .rotary = "rope.dimension_count",
    .partial = "rope.dimension_count",
    .theta = "rope.freq_base",
    .original_context = "rope.scaling.original_context_length",
    .beta_fast = "rope.scaling.yarn_beta_fast",
    .beta_slow = "rope.scaling.yarn_beta_slow",
    .experts = "expert_count",
    .experts_per_token = "expert_used_count",
    .groups = "expert_group_count",
    .top_groups = "expert_group_used_count",
    .shared = "expert_shared_feed_forward_length",
    .routed_scale = "expert_weights_scale",
    .delta_key_heads = "ssm.group_count",
    .delta_value_heads = "ssm.time_step_rank",
};

static void key_of(char out[KEY_CAPACITY], const struct reader *r, const char *name)
{
    snprintf(out, KEY_CAPACITY, "%s.%s", r->architecture, name);
}

static bool has(const struct reader *r, const char *name)
{
    char key[KEY_CAPACITY];
    key_of(key, r, name);
    return metadata_find(r->metadata, key) != NULL;
}

/* *out stays as it is when the key is absent. */
static void count(uint32_t *out, struct reader *r, const char *name, uint64_t low, uint64_t high)
{
    char key[KEY_CAPACITY];
    uint64_t value = *out;
    key_of(key, r, name);
    if (r->status == MF_OK)
        r->status = metadata_maybe_count(&value, r->metadata, key, low, high, r->why);
    if (r->status == MF_OK) *out = (uint32_t)value;
}

static void real(double *out, struct reader *r, const char *name)
{
    char key[KEY_CAPACITY];
    key_of(key, r, name);
    if (r->status == MF_OK) r->status = metadata_maybe_real(out, r->metadata, key, r->why);
}

static void read_sizes(struct reader *r, struct model_config *c)
{
    double epsilon = (double)c->norm_epsilon;
    count(&c->width, r, "embedding_length", 1, WIDTH_MAX);
    count(&c->context_length, r, "context_length", 1, UINT32_MAX);
    c->context_length = (uint32_t)min_size(c->context_length, CONTEXT_MAX);
    real(&epsilon, r, "attention.layer_norm_rms_epsilon");
    c->norm_epsilon = (float)epsilon;
    /* Layers for multi-token prediction are counted with the others and not used. */
    count(&c->layer_count, r, "block_count", 1, LAYERS_MAX);
    c->prediction_layers = 0;
    count(&c->prediction_layers, r, "nextn_predict_layers", 0, LAYERS_MAX);
    if (c->prediction_layers < c->layer_count) c->layer_count -= c->prediction_layers;
    count(&c->heads, r, "attention.head_count", 1, HEADS_MAX);
    count(&c->dense_width, r, "feed_forward_length", 1, WIDTH_MAX);
    count(&c->leading_dense_layers, r, "leading_dense_block_count", 0, LAYERS_MAX);
    if (c->family->dense_beside) c->shared_width = c->dense_width;
    real(&c->logit_cap, r, "final_logit_softcapping");
    c->tied_head = false; /* a file without a head ties it */
}

static void read_yarn(struct reader *r, struct rope_config *rope, struct yarn_fields *yarn)
{
    double log_multiplier = 0;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    real(&rope->original_context, r, "rope.scaling.original_context_length");
    real(&rope->beta_fast, r, "rope.scaling.yarn_beta_fast");
    real(&rope->beta_slow, r, "rope.scaling.yarn_beta_slow");
    real(&yarn->attention_factor, r, "rope.scaling.yarn_attn_factor");
    real(&yarn->more, r, "rope.scaling.attn_factor");
    real(&log_multiplier, r, "rope.scaling.yarn_log_multiplier");
    /* Stored as 0.1 x mscale_all_dim; mscale itself is not stored and equal to it. */
    if (log_multiplier > 0) yarn->mscale = yarn->mscale_all_dim = 10 * log_multiplier;
}

static void read_rope(struct reader *r, struct rope_config *rope, struct yarn_fields *yarn)
{
    char key[KEY_CAPACITY];
    const char *kind = "none";
    double factor = 1;
    rope->factor = 0;
    real(&rope->theta, r, "rope.freq_base");
    count(&rope->rotary_width, r, "rope.dimension_count", 2, HEAD_WIDTH_MAX);
    real(&factor, r, "rope.scaling.factor");
    key_of(key, r, "rope.scaling.type");
    if (r->status == MF_OK) r->status = metadata_maybe_text(&kind, r->metadata, key, r->why);
    if (r->status != MF_OK || strcmp(kind, "none") == 0) return;
    if (strcmp(kind, "linear") == 0 && factor == 1) return; /* which scales nothing */
    if (strcmp(kind, "yarn") != 0) {
        r->status =
            fail(r->why, MF_ERR_UNSUPPORTED, "%s: %s is \"%.64s\", none or yarn was expected",
                 r->metadata->path, key, kind);
        return;
    }
    if (!(factor >= 1 && factor < 1e9)) {
        r->status = fail(r->why, MF_ERR_UNSUPPORTED,
                         "%s: rope.scaling.factor is %g, at least 1 was expected",
                         r->metadata->path, factor);
        return;
    }
    rope->factor = factor;
    read_yarn(r, rope, yarn);
}

static void array(struct metadata_array *out, struct reader *r, const char *name,
                  enum metadata_type kind, uint32_t expected)
{
    char key[KEY_CAPACITY];
    const struct metadata_entry *entry;
    *out = (struct metadata_array){ 0 };
    key_of(key, r, name);
    entry = metadata_find(r->metadata, key);
    if (r->status != MF_OK || !entry || !entry->is_array) return;
    r->status = metadata_maybe_array(out, r->metadata, key, kind, r->why);
    if (r->status == MF_OK && out->count < expected)
        r->status = fail(r->why, MF_ERR_FORMAT, "%s: %s has %llu entries for %u layers",
                         r->metadata->path, key, (unsigned long long)out->count, expected);
}

/* Whether a layer has a window, where a file lists it. */
static bool is_window(const struct model_config *c, const struct metadata_array *pattern,
                      uint32_t layer)
{
    if (pattern->count > 0) return pattern->bytes[layer] != 0;
    bool last = c->family->last_layer_full && layer == c->layer_count - 1;
    return !last && (layer + 1) % c->full_attention_interval != 0;
}

/* The heads of keys of each layer, which are as many in all layers of a kind. */
static void read_kv_heads(struct reader *r, struct model_config *c)
{
    struct metadata_array heads, pattern;
    array(&heads, r, "attention.head_count_kv", METADATA_I64, c->layer_count);
    array(&pattern, r, "attention.sliding_window_pattern", METADATA_FLAG, c->layer_count);
    if (r->status != MF_OK || heads.count == 0) {
        count(&c->kv_heads, r, "attention.head_count_kv", 1, HEADS_MAX);
        c->window.kv_heads = c->kv_heads;
        return;
    }
    c->kv_heads = c->window.kv_heads = 0;
    for (uint32_t i = 0; i < c->layer_count && r->status == MF_OK; i++) {
        int64_t found = metadata_array_int(&heads, i);
        uint32_t *kind = is_window(c, &pattern, i) ? &c->window.kv_heads : &c->kv_heads;
        if (found < 1 || found > HEADS_MAX || (*kind && *kind != (uint32_t)found))
            r->status = fail(r->why, MF_ERR_UNSUPPORTED,
                             "%s: attention.head_count_kv of layer %u is %lld, %u was expected as "
                             "in other layers of its kind",
                             r->metadata->path, i, (long long)found, *kind);
        *kind = (uint32_t)found;
    }
    if (c->kv_heads == 0) c->kv_heads = c->window.kv_heads;
}

/* A key that is understood only when it is 0. */
static void expect_zero(struct reader *r, const char *name)
{
    uint32_t value = 0;
    count(&value, r, name, 0, UINT32_MAX);
    if (r->status == MF_OK && value != 0)
        r->status = fail(r->why, MF_ERR_UNSUPPORTED, "%s: %s.%s is %u, 0 was expected",
                         r->metadata->path, r->architecture, name, value);
}

/* Keys of layers with a window end in _swa where those are otherwise than the full ones. */
static void read_wider_layers(struct reader *r, struct model_config *c)
{
    read_kv_heads(r, c);
    count(&c->window.head_width, r, "attention.key_length_swa", 1, HEAD_WIDTH_MAX);
    count(&c->window.rope.rotary_width, r, "rope.dimension_count_swa", 2, HEAD_WIDTH_MAX);
    real(&c->window.rope.theta, r, "rope.freq_base_swa");
    expect_zero(r, "attention.shared_kv_layers");
    expect_zero(r, "embedding_length_per_layer_input");
}

static void read_attention(struct reader *r, struct model_config *c)
{
    count(&c->head_width, r, "attention.key_length", 1, HEAD_WIDTH_MAX);
    if (c->family->windowed)
        count(&c->window.positions, r, "attention.sliding_window", 1, UINT32_MAX);
    char key[KEY_CAPACITY]; /* a period, where it is not a list */
    key_of(key, r, "attention.sliding_window_pattern");
    const struct metadata_entry *pattern = metadata_find(r->metadata, key);
    if (c->family->windowed && pattern && !pattern->is_array)
        count(&c->full_attention_interval, r, "attention.sliding_window_pattern", 1, LAYERS_MAX);
    if (c->family->wider_full_layers)
        read_wider_layers(r, c);
    else
        count(&c->kv_heads, r, "attention.head_count_kv", 1, HEADS_MAX);
}

/* Newer files tell the width of a head in the *_mla keys; the others then speak of the
 * cache, [latent | rope] and latent. */
static void read_latent(struct reader *r, struct model_config *c)
{
    bool newer = has(r, "attention.key_length_mla");
    uint32_t key_width = c->nope_width + c->rope.rotary_width;
    c->query_rank = 0;
    count(&c->query_rank, r, "attention.q_lora_rank", 0, WIDTH_MAX);
    count(&c->latent_width, r, "attention.kv_lora_rank", 1, WIDTH_MAX);
    count(&key_width, r, newer ? "attention.key_length_mla" : "attention.key_length", 1,
          HEAD_WIDTH_MAX);
    count(&c->value_width, r, newer ? "attention.value_length_mla" : "attention.value_length", 1,
          HEAD_WIDTH_MAX);
    if (r->status == MF_OK && key_width <= c->rope.rotary_width)
        r->status = fail(r->why, MF_ERR_FORMAT,
                         "%s: a key is %u wide, which leaves nothing beside its rotary %u",
                         r->metadata->path, key_width, c->rope.rotary_width);
    if (r->status == MF_OK) c->nope_width = key_width - c->rope.rotary_width;
}

static void read_delta(struct reader *r, struct model_config *c)
{
    uint32_t inner = c->delta_value_heads * c->delta_value_width;
    count(&c->delta_taps, r, "ssm.conv_kernel", 1, TAPS_MAX);
    count(&c->delta_key_width, r, "ssm.state_size", 1, HEAD_WIDTH_MAX);
    count(&c->delta_key_heads, r, "ssm.group_count", 1, HEADS_MAX);
    count(&c->delta_value_heads, r, "ssm.time_step_rank", 1, HEADS_MAX);
    count(&inner, r, "ssm.inner_size", 1, WIDTH_MAX);
    count(&c->full_attention_interval, r, "full_attention_interval", 1, LAYERS_MAX);
    if (r->status == MF_OK && inner % c->delta_value_heads)
        r->status = fail(r->why, MF_ERR_FORMAT,
                         "%s: ssm.inner_size is %u, which is not a multiple of the %u value heads",
                         r->metadata->path, inner, c->delta_value_heads);
    if (r->status == MF_OK) c->delta_value_width = inner / c->delta_value_heads;
    /* This architecture's converter reorders the value heads. */
    c->delta_heads_tiled = strcmp(r->architecture, "qwen35moe") == 0;
}

enum { GATING_SOFTMAX = 1, GATING_SIGMOID = 2 };

/* What a file means that does not say it: the family's way; but of those with latent attention only
 * GLM-4.7-Flash has scores without saying so, the others are DeepSeek-V2. */
static uint32_t silent_gating(const struct model_config *c)
{
    bool latent = c->family->mixer == MIXER_LATENT;
    bool flash = c->vocab_size == 154880 && (c->layer_count == 47 || c->layer_count == 48);
    return c->router == ROUTER_SIGMOID && (!latent || flash) ? GATING_SIGMOID : GATING_SOFTMAX;
}

static void read_router(struct reader *r, struct model_config *c)
{
    uint32_t gating = silent_gating(c), shared = 0;
    double scale = 1.0;
    char key[KEY_CAPACITY];
    bool latent = c->family->mixer == MIXER_LATENT;
    count(&c->experts, r, "expert_count", 1, EXPERTS_MAX);
    count(&c->experts_per_token, r, "expert_used_count", 1, EXPERTS_MAX);
    if (c->family->experts_alone && c->dense_width) c->expert_width = c->dense_width;
    count(&c->expert_width, r, "expert_feed_forward_length", 1, WIDTH_MAX);
    count(&c->shared_width, r, "expert_shared_feed_forward_length", 0, WIDTH_MAX);
    count(&shared, r, "expert_shared_count", 0, 1024);
    if (shared) c->shared_width = (uint32_t)min_size((uint64_t)shared * c->expert_width, WIDTH_MAX);
    /* Files of families with a softmax do not say it. */
    c->renormalise = c->router == ROUTER_SOFTMAX || c->family->always_renormalise;
    key_of(key, r, "expert_weights_norm");
    if (r->status == MF_OK)
        r->status = metadata_maybe_flag(&c->renormalise, r->metadata, key, r->why);
    real(&scale, r, "expert_weights_scale");
    c->routed_scale = (float)scale;
    count(&gating, r, "expert_gating_func", GATING_SOFTMAX, GATING_SIGMOID);
    c->router = gating == GATING_SIGMOID ? ROUTER_SIGMOID : ROUTER_SOFTMAX;

    /* Older files of DeepSeek-V3 lack the groups, without which it routes otherwise. */
    bool v3 = latent && c->router == ROUTER_SIGMOID && c->layer_count == 61 && c->experts == 256;
    c->groups_assumed = v3 && !has(r, "expert_group_count");
    c->router_groups = v3 ? 8 : 1;
    c->router_top_groups = v3 ? 4 : 1;
    count(&c->router_groups, r, "expert_group_count", 1, EXPERTS_MAX);
    count(&c->router_top_groups, r, "expert_group_used_count", 1, EXPERTS_MAX);
}

static void list_layers(struct reader *r, struct model_config *c)
{
    char key[KEY_CAPACITY];
    struct metadata_array recurrent, pattern;
    array(&pattern, r, "attention.sliding_window_pattern", METADATA_FLAG, c->layer_count);
    bool mixed = c->family->hybrid || c->family->windowed;
    key_of(key, r, "attention.recurrent_layers");
    if (r->status == MF_OK)
        r->status = metadata_maybe_array(&recurrent, r->metadata, key, METADATA_FLAG, r->why);
    if (r->status != MF_OK) return;
    if (recurrent.count > 0 && recurrent.count < c->layer_count) {
        r->status =
            fail(r->why, MF_ERR_FORMAT, "%s: %s has %llu entries for %u layers", r->metadata->path,
                 key, (unsigned long long)recurrent.count, c->layer_count);
        return;
    }
    for (uint32_t i = 0; i < c->layer_count; i++) {
        bool other = c->family->windowed ? is_window(c, &pattern, i)
                                         : mixed && (i + 1) % c->full_attention_interval != 0;
        if (c->family->hybrid && recurrent.count > 0) other = recurrent.bytes[i] != 0;
        c->mixers[i] = other ? family_other_mixer(c->family) : c->family->mixer;
        bool dense = !c->family->experts_alone && i < c->leading_dense_layers;
        c->ffns[i] = dense ? FFN_DENSE : FFN_EXPERTS;
    }
}

/* Whether layer 0 has the weight's tensor, under any of its names. */
static bool file_has(const struct family *family, const struct tensor_directory *directory,
                     enum weight_id id)
{
    for (size_t g = 0; g < RULE_GROUPS_MAX; g++) {
        const struct rule_group *group = &family->groups[g];
        for (size_t i = 0; i < group->count; i++) {
            const struct tensor_rule *rule = &group->rules[i];
            char name[TENSOR_NAME_MAX];
            if (rule->id != id || !rule->gguf_name) continue;
            binder_name(name, "", rule->gguf_name, 0, 0);
            if (tensor_find(directory, name)) return true;
        }
    }
    return false;
}

/* Whether layers without a window do without a projection of values. */
static bool values_are_keys(const struct model_config *c, const struct tensor_directory *directory)
{
    for (uint32_t i = 0; i < c->layer_count && c->family->wider_full_layers; i++) {
        char name[TENSOR_NAME_MAX];
        if (c->mixers[i] != MIXER_ATTENTION) continue;
        binder_name(name, "", "blk.%u.attn_v.weight", i, 0);
        return !tensor_find(directory, name);
    }
    return false;
}

/* Pairs that stand still have their frequencies divided by 1e30. */
mf_status config_read_divisors(struct model_config *config,
                               const struct tensor_directory *directory, mf_error *why)
{
    struct rope_config *rope = &config->rope;
    const struct tensor *t = tensor_find(directory, "rope_freqs.weight");
    uint64_t pairs = rope->rotary_width / 2;
    float divisors[HEAD_WIDTH_MAX / 2];
    if (!rope->proportional || !t) return MF_OK;
    if (t->format != FORMAT_F32 || t->rank != 1 || t->shape[0] != pairs)
        return fail(why, MF_ERR_MISMATCH, "rope_freqs.weight is not %llu numbers in f32",
                    (unsigned long long)pairs);
    mf_status status = tensor_read(directory, t, divisors, why);
    if (status != MF_OK) return status;
    uint32_t turning = 0;
    while (turning < pairs && divisors[turning] == 1.0f) turning++;
    for (uint32_t i = turning; i < pairs; i++)
        if (!(divisors[i] > 1e20f))
            return fail(why, MF_ERR_UNSUPPORTED,
                        "rope_freqs.weight divides by %g at pair %u; 1 was expected, then 1e30",
                        (double)divisors[i], i);
    rope->turning = turning;
    return MF_OK;
}

static bool layer_predicts(const struct tensor_directory *directory, uint32_t layer)
{
    char name[TENSOR_NAME_MAX];
    binder_name(name, "", "blk.%u.nextn.eh_proj.weight", layer, 0);
    return tensor_find(directory, name) != NULL;
}

void config_see_tensors(struct model_config *config, const struct tensor_directory *directory)
{
    const struct family *family = config->family;
    config->attention_bias = file_has(family, directory, WEIGHT_Q_BIAS);
    if (family->optional_qk_norm)
        config->qk_norm = file_has(family, directory, WEIGHT_Q_NORM) ? QK_NORM_HEADS : QK_NORM_NONE;
    config->values_are_keys = values_are_keys(config, directory);
    /* Where nextn_predict_layers is missing. */
    for (; config->layer_count > 1 && layer_predicts(directory, config->layer_count - 1);
         config->layer_count--)
        config->prediction_layers++;
}

static mf_status read_end_tokens(struct model_config *c, const struct metadata *metadata,
                                 mf_error *why)
{
    static const char *const keys[] = { "tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id" };
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(keys) && status == MF_OK; i++) {
        uint64_t id = 0;
        if (!metadata_find(metadata, keys[i])) continue;
        status = metadata_need_count(&id, metadata, keys[i], 0, INT32_MAX, why);
        if (status == MF_OK) status = config_add_end_token(c, (int64_t)id, metadata->path, why);
    }
    return status;
}

static mf_status refuse_family(const struct reader *r)
{
    char known[256];
    family_list_names(known, sizeof known, true);
    return config_refuse_family(r->metadata->path, "general.architecture", r->architecture,
                                has(r, "expert_count"), known, r->why);
}

static mf_status find_family(struct reader *r, struct model_config *out)
{
    mf_status status =
        metadata_need_text(&r->architecture, r->metadata, "general.architecture", r->why);
    if (status != MF_OK) return status;
    const struct family *family = family_find_gguf(r->architecture);
    if (!family) return refuse_family(r);
    *out = family->defaults;
    out->family = family;
    return MF_OK;
}

mf_status config_from_metadata(struct model_config *out, const struct metadata *metadata,
                               uint32_t vocab_size, struct arena *arena, mf_error *why)
{
    struct reader r = { .metadata = metadata, .why = why };
    struct yarn_fields yarn = { 0 };
    *out = (struct model_config){ 0 };
    r.status = find_family(&r, out);
    if (r.status != MF_OK) return r.status;
    out->vocab_size = vocab_size;
    read_sizes(&r, out);
    read_rope(&r, &out->rope, &yarn);
    if (out->family->mixer == MIXER_LATENT)
        read_latent(&r, out);
    else
        read_attention(&r, out);
    if (out->family->hybrid) read_delta(&r, out);
    read_router(&r, out);
    if (r.status == MF_OK) r.status = config_finish(out, &yarn, &field_names, metadata->path, why);
    if (r.status == MF_OK) r.status = config_new_lists(out, arena, why);
    if (r.status == MF_OK) list_layers(&r, out);
    if (r.status == MF_OK) r.status = read_end_tokens(out, metadata, why);
    return r.status;
}
