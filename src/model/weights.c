#include "model/weights.h"

#include "base/status.h"
#include "model/binder.h"

#include <math.h>

/* Where the language model's tensors are, by whoever wrote the checkpoint. */
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

static const json_t *find_quantization(const json_t *config)
{
    const json_t *entry = json_object_get(config, "quantization");
    if (!json_is_object(entry)) entry = json_object_get(config, "quantization_config");
    /* With a quant_method it belongs to another scheme. */
    bool mlx = json_is_object(entry) && !json_object_get(entry, "quant_method");
    return mlx ? entry : NULL;
}

/* ------------------------------------------------------- resident weights */

static mf_status read_tensor(const uint8_t **out, const struct binder *b,
                             const struct tensor *tensor, mf_error *why)
{
    if (!tensor) return MF_OK;
    uint8_t *bytes = arena_take_raw(b->arena, tensor->bytes, 1);
    if (!bytes) return fail_memory(why, tensor->bytes);
    *out = bytes;
    return tensor_read(b->source->directory, tensor, bytes, why);
}

static mf_status bind_matrix(struct weight *out, const struct binder *b,
                             const struct matrix_need *need, mf_error *why)
{
    struct matrix_source source;
    mf_status status = binder_find_matrix(&source, b, need, why);
    if (status != MF_OK) return status;
    *out = source.shape;
    status = read_tensor(&out->values, b, source.values, why);
    if (status == MF_OK) status = read_tensor(&out->scales, b, source.scales, why);
    if (status == MF_OK) status = read_tensor(&out->biases, b, source.biases, why);
    return status;
}

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
    bool add_one = kind == RULE_NORM && b->source->config->family->zero_centred_norms && !b->mlx;
    for (uint64_t i = 0; i < count; i++) {
        if (add_one) values[i] += 1.0f;
        if (kind == RULE_LOG_DECAY) values[i] = (float)-exp((double)values[i]);
    }
}

static mf_status bind_vector(struct weight *out, const struct binder *b, const char *name,
                             const struct tensor_rule *rule, mf_error *why)
{
    uint64_t shape[COUNT_OF(rule->shape)], count = 1;
    size_t rank = 0;
    for (; rank < COUNT_OF(shape) && rule->shape[rank] != DIM_NONE; rank++) {
        shape[rank] = dimension_size(b->source->config, rule->shape[rank]);
        count *= shape[rank];
    }
    struct tensor *tensor = tensor_find(b->source->directory, name);
    if (!tensor)
        return fail(why, MF_ERR_MISMATCH, "%s: tensor %s is missing; %llu numbers were expected",
                    b->source->where, name, (unsigned long long)count);
    tensor->used = true;
    char text[128];
    bool number = tensor->format == FORMAT_F32 || tensor->format == FORMAT_F16 ||
                  tensor->format == FORMAT_BF16 || tensor->format == FORMAT_F64;
    if (!number || !vector_fits(tensor, shape, rank))
        return fail(why, MF_ERR_MISMATCH,
                    "%s: tensor %s is %s %s; %llu numbers [%llu%s] were expected", b->source->where,
                    name,
                    tensor->format < FORMAT_COUNT ? format_info(tensor->format)->name : "unknown",
                    tensor_shape_text(tensor, text, sizeof text), (unsigned long long)count,
                    (unsigned long long)shape[0], rank > 1 ? ", …" : "");

    const uint8_t *stored = NULL;
    mf_status status = read_tensor(&stored, b, tensor, why);
    if (status != MF_OK) return status;
    float *values = arena_take_raw(b->arena, count, sizeof *values);
    if (!values) return fail_memory(why, count * sizeof *values);
    for (uint64_t i = 0; i < count; i++) values[i] = format_load(tensor->format, stored, i);
    finish_vector(values, count, rule->kind, b);
    *out = (struct weight){ .format = FORMAT_F32,
                            .rows = 1,
                            .cols = count,
                            .values = (const uint8_t *)values,
                            .row_bytes = count * sizeof *values };
    return MF_OK;
}

static mf_status bind_rule(struct weight slots[SLOT_COUNT], const struct binder *b,
                           const struct tensor_rule *rule, uint32_t layer, mf_error *why)
{
    const struct model_config *config = b->source->config;
    char name[TENSOR_NAME_MAX];
    bool head = rule->kind == RULE_HEAD;
    binder_name(name, head ? b->head_prefix : b->prefix, rule->name, layer, 0);
    if (rule->kind != RULE_MATRIX && !head)
        return bind_vector(&slots[rule->slot], b, name, rule, why);
    if (head && config->tied_head) {
        slots[rule->slot] = slots[SLOT_EMBEDDING];
        return MF_OK;
    }
    struct matrix_need need = { .name = name,
                                .rows = dimension_size(config, rule->shape[0]),
                                .cols = dimension_size(config, rule->shape[1]) };
    return bind_matrix(&slots[rule->slot], b, &need, why);
}

static bool in_scope(const struct model_config *config, enum rule_scope scope, uint32_t layer)
{
    switch (scope) {
    case SCOPE_MODEL:
        return false;
    case SCOPE_EVERY_LAYER:
        return true;
    case SCOPE_ATTENTION:
        return config->mixers[layer] == MIXER_ATTENTION;
    case SCOPE_DELTA:
        return config->mixers[layer] == MIXER_DELTA;
    }
    return false;
}

static mf_status bind_layer(struct layer_weights *out, const struct binder *b, uint32_t layer,
                            mf_error *why)
{
    const struct model_config *config = b->source->config;
    mf_status status = MF_OK;
    for (size_t i = 0; i < config->family->rule_count && status == MF_OK; i++) {
        const struct tensor_rule *rule = &config->family->rules[i];
        if (in_scope(config, rule->scope, layer))
            status = bind_rule(out->slots, b, rule, layer, why);
    }
    if (status == MF_OK) status = binder_bind_experts(out->experts, b, layer, why);
    return status;
}

/* ------------------------------------------------------------- the rest */

/* Vision towers and multi-token prediction heads: known, not needed for text. */
static bool is_known_extra(const char *name)
{
    static const char *const parts[] = { "visual.", "vision_tower.", "mtp.", "lm_head." };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

static void report_ignored(struct weights *out, const struct weights_source *source)
{
    size_t known = 0, unknown = 0;
    const struct tensor_directory *directory = source->directory;
    for (size_t i = 0; i < directory->count; i++) {
        const struct tensor *t = &directory->tensors[i];
        if (t->used) continue;
        if (is_known_extra(t->name)) {
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

mf_status weights_bind(struct weights *out, const struct weights_source *source,
                       struct arena *arena, mf_error *why)
{
    const struct model_config *config = source->config;
    struct binder b = { .source = source,
                        .quantization = find_quantization(source->config_json),
                        .mlx = written_by_mlx(source->directory),
                        .arena = arena };
    *out = (struct weights){ 0 };
    mf_status status = find_naming(&b, why);
    if (status != MF_OK) return status;
    size_t before = arena->total_bytes;
    out->layers = ARENA_NEW(arena, struct layer_weights, config->layer_count);
    if (!out->layers) return fail_memory(why, config->layer_count * sizeof *out->layers);

    for (size_t i = 0; i < config->family->rule_count && status == MF_OK; i++) {
        const struct tensor_rule *rule = &config->family->rules[i];
        if (rule->scope == SCOPE_MODEL) status = bind_rule(out->slots, &b, rule, 0, why);
    }
    for (uint32_t i = 0; i < config->layer_count && status == MF_OK; i++)
        status = bind_layer(&out->layers[i], &b, i, why);
    if (status != MF_OK) return status;
    out->resident_bytes = arena->total_bytes - before;
    report_ignored(out, source);
    return MF_OK;
}
