#include "model/weights.h"

#include "base/status.h"
#include "model/binder.h"

#include <math.h>
#include <stdlib.h>

/* Where the language model's tensors are, depending on the program that wrote the checkpoint. */
static const struct {
    const char *prefix;
    const char *head_prefix;
} naming_schemes[] = {
    { "model.language_model.", "" },                /* Hugging Face, with a vision part */
    { "language_model.model.", "language_model." }, /* MLX, with a vision part */
    { "model.", "" },                               /* text only */
};

static mf_status find_naming(struct binder *b, mf_error *why)
{
    if (b->gguf) return MF_OK;
    for (size_t i = 0; i < COUNT_OF(naming_schemes); i++) {
        char name[TENSOR_NAME_MAX];
        binder_name(name, naming_schemes[i].prefix, "embed_tokens.weight", 0, 0);
        if (!tensor_find(b->source->directory, name)) continue;
        b->prefix = naming_schemes[i].prefix;
        b->head_prefix = naming_schemes[i].head_prefix;
        return MF_OK;
    }
    return fail(why, MF_ERR_MISMATCH,
                "%s: no tensor is called embed_tokens.weight under model., model.language_model. "
                "or language_model.model.",
                b->source->where);
}

/* MLX files hold 1 + w where Hugging Face's hold w; only the layout tells them apart. */
static bool written_by_mlx(const struct tensor_directory *directory)
{
    for (size_t i = 0; i < directory->count; i++) {
        const struct tensor *t = &directory->tensors[i];
        if (strstr(t->name, ".switch_mlp.")) return true;
        if (strstr(t->name, ".conv1d.weight") && t->rank == 3)
            return t->shape[2] == 1 && t->shape[1] != 1;
    }
    return false;
}

/* Two sizes; an absent field leaves those that are usual. */
static mf_status read_tile(struct binder *b, const json_t *entry, const char *key, mf_error *why)
{
    const json_t *size = json_object_get(entry, key);
    if (!size || json_is_null(size)) return MF_OK;
    json_int_t rows = json_integer_value(json_array_get(size, 0));
    json_int_t cols = json_integer_value(json_array_get(size, 1));
    if (rows < 1 || cols < 1 || rows > 65536 || cols > 65536)
        return fail(why, MF_ERR_FORMAT, "%s: %s is not two sizes of a tile", b->source->where, key);
    b->tile_rows = (uint32_t)rows;
    b->tile_cols = (uint32_t)cols;
    return MF_OK;
}

/* How compressed-tensors scales the FP8 weights of one group of modules. */
static mf_status read_float_group(struct binder *b, const json_t *weights, mf_error *why)
{
    const char *type = "float", *strategy = "tensor", *where = b->source->where;
    uint64_t bits = 8;
    mf_status status = json_maybe_text(&type, weights, "type", where, why);
    if (status == MF_OK) status = json_maybe_text(&strategy, weights, "strategy", where, why);
    if (status == MF_OK) status = json_maybe_count(&bits, weights, "num_bits", 1, 64, where, why);
    if (status != MF_OK) return status;
    bool channel = strcmp(strategy, "channel") == 0;
    if (strcmp(type, "float") != 0 || bits != 8 || (!channel && strcmp(strategy, "block") != 0))
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s: weights of config_groups are %llu-bit %.32s by %.32s, 8-bit float by "
                    "channel or block was expected",
                    where, (unsigned long long)bits, type, strategy);
    if (!channel) return read_tile(b, weights, "block_structure", why);
    b->tile_rows = 1;
    b->tile_cols = 0;
    return MF_OK;
}

/* compressed-tensors: FP8 with one scale per row, or per tile. */
static mf_status read_compressed(struct binder *b, const json_t *entry, mf_error *why)
{
    const char *format = NULL, *key;
    const json_t *groups = json_object_get(entry, "config_groups");
    json_t *group;
    mf_status status = json_maybe_text(&format, entry, "format", b->source->where, why);
    if (status != MF_OK) return status;
    if (!format || strcmp(format, "float-quantized") != 0)
        return fail(
            why, MF_ERR_UNSUPPORTED,
            "%s: the format of compressed-tensors is \"%.64s\", float-quantized was expected",
            b->source->where, format ? format : "");
    b->tile_scales = ".weight_scale";
    if (json_object_size(groups) != 1)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: config_groups has %zu groups, 1 was expected",
                    b->source->where, json_object_size(groups));
    json_object_foreach((json_t *)(uintptr_t)groups, key, group) status =
        read_float_group(b, json_object_get(group, "weights"), why);
    return status;
}

/* What config.json says about quantised weights: MLX's list of modules, or FP8's tiles. */
static mf_status read_quantization(struct binder *b, mf_error *why)
{
    const json_t *config = b->source->config_json;
    const json_t *entry = json_object_get(config, "quantization");
    if (!json_is_object(entry)) entry = json_object_get(config, "quantization_config");
    b->tile_rows = b->tile_cols = 128;
    b->tile_scales = ".weight_scale_inv";
    if (!json_is_object(entry) || b->source->repacked) return MF_OK;
    const char *method = NULL;
    mf_status status = json_maybe_text(&method, entry, "quant_method", b->source->where, why);
    if (status != MF_OK) return status;
    if (!method) {
        /* A packed model may have other bits than the checkpoint that this tells of. */
        if (!b->source->packed) b->quantization = entry;
        return MF_OK;
    }
    if (strcmp(method, "compressed-tensors") == 0) return read_compressed(b, entry, why);
    /* What is in MXFP4 says so by its tensors. */
    if (strcmp(method, "mxfp4") == 0 && b->source->config->family->interleaved_experts)
        return MF_OK;
    if (strcmp(method, "fp8") != 0)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s: quant_method is \"%s\", fp8 or compressed-tensors was expected",
                    b->source->where, method);
    return read_tile(b, entry, "weight_block_size", why);
}

/* ------------------------------------------------------- resident weights */

/* Whether the tensor has this shape; 1s may stand anywhere (conv1d has one). */
static bool vector_fits(const struct tensor *t, const uint64_t *shape, size_t rank)
{
    size_t at = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (at < rank && t->shape[i] == shape[at])
            at++;
        else if (t->shape[i] != 1)
            return false;
    }
    return at == rank;
}

static void finish_vector(float *values, uint64_t count, enum rule_kind kind,
                          const struct binder *b)
{
    bool zero_centred = b->source->config->family->zero_centred_norms && !b->keeps_norms;
    for (uint64_t i = 0; i < count; i++) {
        if (kind == RULE_NORM && zero_centred) values[i] += 1.0f;
        if (kind == RULE_ROUTER_NORM)
            values[i] = (float)((double)values[i] / sqrt(b->source->config->width));
        if (kind == RULE_LOG_DECAY && !b->gguf) values[i] = (float)-exp((double)values[i]);
    }
}

static mf_status bind_vector(struct weight *out, const struct binder *b, const char *name,
                             const struct tensor_rule *rule, mf_error *why)
{
    uint64_t shape[COUNT_OF(rule->shape)] = { 0 }, count = 1;
    size_t rank = 0;
    for (; rank < COUNT_OF(shape) && rule->shape[rank] != DIM_NONE; rank++) {
        shape[rank] = binder_size(b, rule->shape[rank]);
        count *= shape[rank];
    }
    struct tensor *tensor = tensor_find(b->source->directory, name);
    struct tensor like = { .rank = (uint32_t)rank };
    memcpy(like.shape, shape, sizeof shape);
    char text[128], expected[128];
    tensor_shape_text(&like, expected, sizeof expected);
    if (!tensor)
        return fail(why, MF_ERR_MISMATCH, "%s: tensor %s is missing; numbers %s were expected",
                    b->source->where, name, expected);
    tensor->used = true;
    bool number = tensor->format == FORMAT_F32 || tensor->format == FORMAT_F16 ||
                  tensor->format == FORMAT_BF16 || tensor->format == FORMAT_F64;
    if (!number || !vector_fits(tensor, shape, rank))
        return fail(why, MF_ERR_MISMATCH, "%s: tensor %s is %s %s; numbers %s were expected",
                    b->source->where, name, format_info(tensor->format)->name,
                    tensor_shape_text(tensor, text, sizeof text), expected);

    if (b->listing) {
        struct weight_origin origin = { .id = rule->id,
                                        .vector = true,
                                        .shape = { .format = tensor->format,
                                                   .rows = 1,
                                                   .cols = count,
                                                   .row_bytes = tensor->bytes },
                                        .values = tensor };
        binder_describe(out, b, &origin);
        return MF_OK;
    }
    uint8_t *stored = arena_take_raw(b->arena, tensor->bytes, 1);
    float *values = arena_take_raw(b->arena, count, sizeof *values);
    if (!stored || !values) return fail_memory(why, tensor->bytes + count * sizeof *values);
    mf_status status = tensor_read(b->source->directory, tensor, stored, why);
    if (status != MF_OK) return status;
    for (uint64_t i = 0; i < count; i++) values[i] = format_load(tensor->format, stored, i);
    finish_vector(values, count, rule->kind, b);
    *out = (struct weight){ .format = FORMAT_F32,
                            .rows = 1,
                            .cols = count,
                            .values = (const uint8_t *)values,
                            .row_bytes = count * sizeof *values };
    return MF_OK;
}

static mf_status bind_matrix(struct weight weights[WEIGHT_COUNT], const struct binder *b,
                             const struct tensor_rule *rule, const char *name, mf_error *why)
{
    bool stacked = rule->shape[2] != DIM_NONE;
    struct matrix_need need = { .name = name,
                                .id = rule->id,
                                .stack = stacked ? binder_size(b, rule->shape[0]) : 0,
                                .rows = binder_size(b, rule->shape[stacked]),
                                .cols = binder_size(b, rule->shape[1 + stacked]) };
    return binder_read_matrix(&weights[rule->id], b, &need, why);
}

/* Rows [first, first + rows) of a matrix whose rows share nothing. */
static struct weight take_rows(const struct weight *from, uint64_t first, uint64_t rows)
{
    struct weight out = *from;
    out.rows = rows;
    out.values += first * from->row_bytes;
    return out;
}

/* Three projections in one tensor of a GGUF file, one below the other. */
static mf_status bind_fused_attention(struct weight weights[WEIGHT_COUNT], const struct binder *b,
                                      const struct tensor_rule *rule, const char *name,
                                      mf_error *why)
{
    uint64_t queries = binder_size(b, DIM_QUERIES_AND_GATES);
    uint64_t keys = binder_size(b, DIM_KEYS);
    struct weight fused[WEIGHT_COUNT] = { { 0 } };
    mf_status status = bind_matrix(fused, b, rule, name, why);
    if (status != MF_OK) return status;
    weights[WEIGHT_Q] = take_rows(&fused[rule->id], 0, queries);
    weights[WEIGHT_K] = take_rows(&fused[rule->id], queries, keys);
    weights[WEIGHT_V] = take_rows(&fused[rule->id], queries + keys, keys);
    return MF_OK;
}

/* `count` numbers of a vector from `first` on. */
static struct weight take_numbers(const struct weight *from, uint64_t first, uint64_t count)
{
    struct weight out = *from;
    out.cols = count;
    out.row_bytes = count * sizeof(float);
    out.values += first * sizeof(float);
    return out;
}

/* Their biases, one behind the other. */
static mf_status bind_fused_biases(struct weight weights[WEIGHT_COUNT], const struct binder *b,
                                   const struct tensor_rule *rule, const char *name, mf_error *why)
{
    uint64_t queries = binder_size(b, DIM_QUERIES_AND_GATES);
    uint64_t keys = binder_size(b, DIM_KEYS);
    struct weight fused = { 0 };
    mf_status status = bind_vector(&fused, b, name, rule, why);
    if (status != MF_OK) return status;
    weights[WEIGHT_Q_BIAS] = take_numbers(&fused, 0, queries);
    weights[WEIGHT_K_BIAS] = take_numbers(&fused, queries, keys);
    weights[WEIGHT_V_BIAS] = take_numbers(&fused, queries + keys, keys);
    return MF_OK;
}

static mf_status bind_rule(struct weight weights[WEIGHT_COUNT], const struct binder *b,
                           const struct tensor_rule *rule, uint32_t layer, mf_error *why)
{
    char name[TENSOR_NAME_MAX];
    if (weights[rule->id].values || !binder_rule_name(name, b, rule, layer)) return MF_OK;
    bool there = tensor_find(b->source->directory, name) != NULL;
    switch (rule->kind) {
    case RULE_MATRIX:
        return bind_matrix(weights, b, rule, name, why);
    case RULE_MATRIX_IF_THERE:
        return there ? bind_matrix(weights, b, rule, name, why) : MF_OK;
    case RULE_VECTOR_IF_THERE:
        return there ? bind_vector(&weights[rule->id], b, name, rule, why) : MF_OK;
    case RULE_HEAD:
        /* A GGUF file ties the two by leaving the head out. */
        if (!b->source->config->tied_head && (there || !b->gguf))
            return bind_matrix(weights, b, rule, name, why);
        weights[rule->id] = weights[WEIGHT_EMBEDDING];
        return MF_OK;
    case RULE_ATTENTION_QKV:
        return there ? bind_fused_attention(weights, b, rule, name, why) : MF_OK;
    case RULE_ATTENTION_BIAS:
        return there ? bind_fused_biases(weights, b, rule, name, why) : MF_OK;
    case RULE_DELTA_QKVZ:
        return there ? binder_bind_fused_delta(weights, b, rule, name, why) : MF_OK;
    case RULE_DELTA_BA:
        return binder_bind_fused_delta(weights, b, rule, name, why);
    default:
        return bind_vector(&weights[rule->id], b, name, rule, why);
    }
}

static bool in_scope(const struct model_config *c, enum rule_scope scope, uint32_t layer,
                     const struct weight *weights)
{
    bool experts = c->ffns[layer] == FFN_EXPERTS, latent = c->mixers[layer] == MIXER_LATENT;
    bool attention = c->mixers[layer] == MIXER_ATTENTION || c->mixers[layer] == MIXER_WINDOW;
    switch (scope) {
    case SCOPE_MODEL:
        return false;
    case SCOPE_LAYER:
        return true;
    case SCOPE_ATTENTION:
        return attention;
    case SCOPE_VALUES:
        return attention && !config_attention(c, c->mixers[layer]).values_are_keys;
    case SCOPE_ATTENTION_BIAS:
        return attention && c->attention_bias;
    case SCOPE_QK_NORM:
        return attention && c->qk_norm != QK_NORM_NONE;
    case SCOPE_LATENT:
        return latent;
    case SCOPE_LATENT_DIRECT:
        return latent && c->query_rank == 0;
    case SCOPE_LATENT_RANKED:
        return latent && c->query_rank > 0;
    case SCOPE_LATENT_SPLIT:
        return latent && !weights[WEIGHT_KV_B].values;
    case SCOPE_LATENT_BIAS:
        return latent && c->attention_bias;
    case SCOPE_LATENT_RANKED_BIAS:
        return latent && c->query_rank > 0 && c->attention_bias;
    case SCOPE_DELTA:
        return c->mixers[layer] == MIXER_DELTA;
    case SCOPE_EXPERTS:
        return experts;
    case SCOPE_BIASED_ROUTER:
        return experts && c->router == ROUTER_SIGMOID;
    case SCOPE_SINKS:
        return attention && c->family->sinks;
    case SCOPE_SHARED:
        return experts && c->shared_width > 0;
    case SCOPE_SCALED_SHARED:
        return experts && c->shared_width > 0 && c->shared_scaled;
    case SCOPE_DENSE:
        return !experts;
    }
    return false;
}

/* All rules of one scope: the model's, or those that hold for a layer. */
static mf_status bind_rules(struct weight weights[WEIGHT_COUNT], const struct binder *b,
                            bool whole_model, uint32_t layer, mf_error *why)
{
    const struct model_config *config = b->source->config;
    struct binder own = *b;
    mf_status status = MF_OK;
    own.mixer = whole_model ? config->family->mixer : config->mixers[layer];
    for (size_t g = 0; g < RULE_GROUPS_MAX; g++) {
        const struct rule_group *group = &config->family->groups[g];
        for (size_t i = 0; i < group->count && status == MF_OK; i++) {
            const struct tensor_rule *rule = &group->rules[i];
            bool wanted = whole_model ? rule->scope == SCOPE_MODEL
                                      : in_scope(config, rule->scope, layer, weights);
            if (wanted) status = bind_rule(weights, &own, rule, layer, why);
        }
    }
    return status;
}

static mf_status bind_layer(struct layer_weights *out, const struct binder *b, uint32_t layer,
                            mf_error *why)
{
    mf_status status = bind_rules(out->weights, b, false, layer, why);
    if (status == MF_OK && b->source->config->ffns[layer] == FFN_EXPERTS)
        status = b->source->packed ? binder_bind_packed(out, b, layer, why)
                                   : binder_bind_experts(out->experts, b, layer, why);
    return status;
}

/* ------------------------------------------------------------- the rest */

/* A layer behind the last one: multi-token prediction, in DeepSeek's and GGUF's way. */
static bool is_later_layer(const char *name, uint32_t layer_count)
{
    static const char *const parts[] = { "layers.", "blk." };
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        const char *at = strstr(name, parts[i]);
        if (at) return strtoul(at + strlen(parts[i]), NULL, 10) >= layer_count;
    }
    return false;
}

bool weights_is_extra(const char *name, uint32_t layer_count)
{
    static const char *const parts[] = {
        "visual.",          "vision_tower.",     "mtp.",
        "embed_vision.",    "audio_tower.",      "embed_audio.",
        "lm_head.",         "output.weight",     "input_scale",
        "activation_scale", "rope_freqs.weight", "rotary_emb.inv_freq"
    };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (strstr(name, parts[i])) return true;
    return is_later_layer(name, layer_count);
}

/* The layer of a tensor of the language model, or -1. */
static long layer_of(const struct binder *b, const char *name)
{
    const char *parts[] = { b->gguf ? "" : b->prefix, b->gguf ? "blk." : "layers." };
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (strncmp(name, parts[i], strlen(parts[i])) != 0) return -1;
        name += strlen(parts[i]);
    }
    char *end;
    long layer = strtol(name, &end, 10);
    return end > name && *end == '.' && layer >= 0 ? layer : -1;
}

/* Names that only layers for multi-token prediction have, in DeepSeek's and GGUF's way. */
static bool is_prediction_tensor(const char *name)
{
    static const char *const parts[] = { ".eh_proj.", ".enorm.", ".hnorm.", ".shared_head.",
                                         ".nextn." };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

static bool layer_predicts(const struct binder *b, long layer)
{
    const struct tensor_directory *directory = b->source->directory;
    for (size_t i = 0; i < directory->count; i++) {
        const char *name = directory->tensors[i].name;
        if (is_prediction_tensor(name) && layer_of(b, name) == layer) return true;
    }
    return false;
}

/* Layers that the configuration neither counts nor declares for prediction would be left out
 * silently, and the model compute nonsense. */
static mf_status refuse_more_layers(const struct binder *b, mf_error *why)
{
    const struct model_config *config = b->source->config;
    const struct tensor_directory *directory = b->source->directory;
    long counted = (long)config->layer_count, declared = counted + (long)config->prediction_layers;
    long predicting = -1; /* the layer last found to be one for prediction */
    for (size_t i = 0; i < directory->count; i++) {
        const char *name = directory->tensors[i].name;
        long layer = layer_of(b, name);
        if (layer < declared || layer == predicting) continue;
        if (layer_predicts(b, layer)) {
            predicting = layer;
            continue;
        }
        return fail(why, MF_ERR_MISMATCH,
                    "%s: tensor %.128s is of layer %ld; the configuration counts %ld layers (%s), "
                    "and %ld for prediction behind them",
                    b->source->where, name, layer, counted,
                    b->gguf ? "block_count" : "num_hidden_layers", declared - counted);
    }
    return MF_OK;
}

static void report_ignored(struct weights *out, const struct weights_source *source)
{
    size_t known = 0, unknown = 0;
    const struct tensor_directory *directory = source->directory;
    for (size_t i = 0; i < directory->count; i++) {
        const struct tensor *t = &directory->tensors[i];
        if (t->used) continue;
        if (weights_is_extra(t->name, source->config->layer_count)) {
            known++;
        } else {
            log_note(source->logger, MF_LOG_WARNING, "%s: tensor %s is not known and not used",
                     source->where, t->name);
            unknown++;
        }
    }
    if (known)
        log_note(source->logger, MF_LOG_INFO,
                 "%s: %zu tensors of the vision part and of multi-token prediction are not used",
                 source->where, known);
    out->ignored_count = known + unknown;
}

static bool norms_are_kept(const struct weights_source *source)
{
    if (source->packed) return source->packed->convention != PACKED_HUGGING_FACE;
    return !source->config_json || written_by_mlx(source->directory);
}

mf_status weights_bind(struct weights *out, const struct weights_source *source,
                       struct arena *arena, mf_error *why)
{
    const struct model_config *config = source->config;
    *out = (struct weights){ .gguf = !source->config_json, .keeps_norms = norms_are_kept(source) };
    struct arena_tally tally = ARENA_TALLY_STARTED;
    struct binder b = { .source = source,
                        .gguf = out->gguf,
                        .keeps_norms = out->keeps_norms,
                        .arena = arena,
                        .listing = source->describe ? out : NULL,
                        .tally = source->describe ? &tally : NULL };
    mf_status status = find_naming(&b, why);
    if (status == MF_OK) status = read_quantization(&b, why);
    if (status != MF_OK) return status;
    arena_start_block(arena); /* so that what follows takes as much as the tally says */
    size_t before = arena->total_bytes;
    size_t weights_max = ((size_t)config->layer_count + 1) * WEIGHT_COUNT;
    out->layers = ARENA_NEW(arena, struct layer_weights, config->layer_count);
    binder_count(&b, config->layer_count, sizeof *out->layers);
    if (source->describe) out->origins = ARENA_NEW(arena, struct weight_origin, weights_max);
    if (!out->layers || (source->describe && !out->origins))
        return fail_memory(why, config->layer_count * sizeof *out->layers);

    status = refuse_more_layers(&b, why);
    if (status == MF_OK) status = bind_rules(out->weights, &b, true, 0, why);
    for (uint32_t i = 0; i < config->layer_count && status == MF_OK; i++)
        status = bind_layer(&out->layers[i], &b, i, why);
    if (status != MF_OK) return status;
    out->resident_bytes = source->describe ? tally.total_bytes : arena->total_bytes - before;
    report_ignored(out, source);
    return MF_OK;
}
