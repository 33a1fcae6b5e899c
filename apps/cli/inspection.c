#include "inspection.h"

#include "model_path.h"

#include "base/status.h"
#include "files/gguf_file.h"
#include "files/safetensors.h"
#include "files/seeds_layout.h"
#include "model/families.h"
#include "state/sequence.h"

enum { CONFIG_LIMIT = 64 << 20 };

/* ----------------------------------------------------------------- opening */

static void note_problem(struct inspection *i, mf_status status, const mf_error *problem)
{
    i->supported = status == MF_OK;
    if (i->supported) i->family = i->config.family->name;
    snprintf(i->problem, sizeof i->problem, "%s", i->supported ? "" : problem->text);
}

static mf_status open_tensors(struct inspection *i, const char *parts, mf_error *why)
{
    bool packed = false;
    mf_status status = packed_probe(&packed, &files_posix, i->path, why);

    if (status != MF_OK) return status;
    if (packed) {
        i->layout = "packed";
        return packed_open(&i->packed, &i->directory, &files_posix, i->path, why);
    }
    if (strcmp(parts, i->path) == 0) {
        i->layout = "safetensors";
        return safetensors_open(&i->directory, &files_posix, i->path, why);
    }
    i->layout = "ancestors";
    return seeds_layout_open_parent(&i->directory, &files_posix, i->path, false, why);
}

static mf_status open_directory(struct inspection *i, const char *parts, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_error problem = { .text = "" };
    mf_status status = path_join(path, sizeof path, parts, "config.json", why);
    if (status == MF_OK) {
        status = json_read_file_new(&i->config_json, &files_posix, path, CONFIG_LIMIT, why);
    }
    if (status == MF_OK) status = open_tensors(i, parts, why);
    if (status != MF_OK) return status;
    i->family = json_string_value(json_object_get(i->config_json, "model_type"));
    note_problem(i, config_parse(&i->config, i->config_json, &i->arena, path, &problem), &problem);
    return MF_OK;
}

/* The tensors have been listed, the metadata read. */
static mf_status read_metadata(struct inspection *i, mf_error *why)
{
    const struct tensor *embedding;
    mf_error problem = { .text = "" };
    mf_status status = metadata_maybe_text(&i->family, &i->metadata, "general.architecture", why);

    if (status != MF_OK) return status;
    embedding = tensor_find(&i->directory, "token_embd.weight");
    if (!embedding || embedding->rank != 2 || embedding->shape[0] > INT32_MAX) {
        snprintf(i->problem, sizeof i->problem, "the matrix token_embd.weight is missing");
        return MF_OK;
    }
    status = config_from_metadata(&i->config, &i->metadata, (uint32_t)embedding->shape[0],
                                  &i->arena, &problem);
    note_problem(i, status, &problem);
    return MF_OK;
}

static mf_status open_gguf(struct inspection *i, mf_error *why)
{
    mf_status status =
        checkpoint_gguf_open(&i->directory, &i->metadata, &files_posix, i->path, why);

    i->layout = "GGUF";
    return status == MF_OK ? read_metadata(i, why) : status;
}

/* A packed model that was made from a GGUF file: `path` has its values. */
static mf_status open_packed_metadata(struct inspection *i, const char *path, mf_error *why)
{
    struct tensor_directory none;
    mf_status status = packed_open(&i->packed, &i->directory, &files_posix, i->path, why);

    i->layout = "packed";
    tensor_directory_init(&none, &allocator_heap);
    if (status == MF_OK) {
        status = checkpoint_gguf_open(&none, &i->metadata, &files_posix, path, why);
    }
    tensor_directory_free(&none);
    return status == MF_OK ? read_metadata(i, why) : status;
}

static mf_status open_any(struct inspection *i, mf_error *why)
{
    char parts[PATH_CAPACITY];
    mf_status status = MF_OK;

    if (model_path_is_gguf(i->path)) return open_gguf(i, why);
    status = model_path_of_parts(parts, i->path, why);
    if (status != MF_OK) return status;
    if (model_path_is_gguf(parts)) return open_packed_metadata(i, parts, why);
    return open_directory(i, parts, why);
}

/* --------------------------------------------------------------- counting */

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t end_length = strlen(end);

    return length >= end_length && memcmp(text + length - end_length, end, end_length) == 0;
}

/* For NAME.scales or NAME.biases the tensor NAME.weight, which they belong to; or NULL. */
static const struct tensor *owner(const struct inspection *i, const struct tensor *tensor)
{
    size_t length = strlen(tensor->name);
    char name[512];

    if (!ends_with(tensor->name, length, ".scales") &&
        !ends_with(tensor->name, length, ".biases")) {
        return NULL;
    }
    if (length >= sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s.weight", (int)(length - strlen(".scales")), tensor->name);
    return tensor_find(&i->directory, name);
}

/* Bits of an MLX matrix, from the list in config.json; 0: it is not one. */
static unsigned affine_bits(const struct inspection *i, const struct tensor *tensor)
{
    const json_t *list = json_object_get(i->config_json, "quantization");
    size_t length = strlen(tensor->name);
    const json_t *own;
    char module[512];

    if (tensor->format != FORMAT_U32 || !ends_with(tensor->name, length, ".weight")) return 0;
    if (length >= sizeof module) return 0;
    snprintf(module, sizeof module, "%.*s", (int)(length - strlen(".weight")), tensor->name);
    own = json_object_get(list, module);
    json_int_t bits = json_integer_value(json_object_get(json_is_object(own) ? own : list, "bits"));
    return bits > 0 && bits <= 8 ? (unsigned)bits : 0;
}

static enum format number_format(const struct inspection *i, const struct tensor *tensor)
{
    unsigned bits = affine_bits(i, tensor);
    enum format affine = bits ? format_affine(bits) : FORMAT_COUNT;

    return affine != FORMAT_COUNT ? affine : tensor->format;
}

static uint64_t number_count(const struct inspection *i, const struct tensor *tensor)
{
    unsigned bits = affine_bits(i, tensor);
    uint64_t count = 1;

    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (!checked_multiply(&count, count, tensor->shape[d])) return 0;
    }
    return bits ? count / bits * 32 : count; /* 32 / bits numbers in a word, also for 3, 5, 6 */
}

static bool is_expert(const struct tensor *tensor)
{
    return strstr(tensor->name, ".experts.") || strstr(tensor->name, ".switch_mlp.") ||
           strstr(tensor->name, "_exps.");
}

/* Scales of other kinds (FP8) are not parameters of the model either. */
static bool is_scale(const struct tensor *tensor)
{
    return ends_with(tensor->name, strlen(tensor->name), "_scale_inv");
}

static void count_tensors(struct inspection *i)
{
    for (size_t t = 0; t < i->directory.count; t++) {
        const struct tensor *tensor = &i->directory.tensors[t];
        const struct tensor *whole = owner(i, tensor);
        struct format_share *share = &i->formats[number_format(i, whole ? whole : tensor)];
        share->bytes += tensor->bytes;
        i->bytes += tensor->bytes;
        if (is_expert(tensor)) i->expert_bytes += tensor->bytes;
        if (whole) continue;
        share->tensors++;
        if (is_scale(tensor)) continue;
        i->parameters += number_count(i, tensor);
        if (is_expert(tensor)) i->expert_parameters += number_count(i, tensor);
    }
}

/* The experts of a packed model are no tensors. */
static void count_packed(struct inspection *i)
{
    for (size_t l = 0; l < i->packed.layer_count; l++) {
        for (size_t p = 0; p < PACKED_PARTS; p++) {
            const struct packed_matrix *m = &i->packed.layers[l].parts[p];
            uint64_t bytes = (m->bytes[0] + m->bytes[1] + m->bytes[2]) * i->packed.experts;
            uint64_t count = m->shape.rows * m->shape.cols * i->packed.experts;
            i->formats[m->shape.format].tensors += i->packed.experts;
            i->formats[m->shape.format].bytes += bytes;
            i->bytes += bytes;
            i->expert_bytes += bytes;
            i->parameters += count;
            i->expert_parameters += count;
        }
    }
}

mf_status inspection_open(struct inspection *out, const char *model, mf_error *why)
{
    const char *slash;
    size_t length;
    mf_status status;

    *out = (struct inspection){ .family = NULL };
    arena_init(&out->arena, &allocator_heap);
    tensor_directory_init(&out->directory, &allocator_heap);
    metadata_init(&out->metadata, &allocator_heap);
    packed_manifest_init(&out->packed, &allocator_heap);
    status = model_path_resolve(out->path, model, why);
    if (status == MF_OK) {
        length = strlen(out->path);
        while (length > 1 && out->path[length - 1] == '/') out->path[--length] = '\0';
        slash = strrchr(out->path, '/');
        out->name = slash && slash[1] ? slash + 1 : out->path;
        status = open_any(out, why);
    }
    if (status != MF_OK) {
        inspection_close(out);
        return status;
    }
    count_tensors(out);
    count_packed(out);
    return MF_OK;
}

void inspection_close(struct inspection *inspection)
{
    json_decref(inspection->config_json);
    metadata_free(&inspection->metadata);
    packed_manifest_free(&inspection->packed);
    tensor_directory_free(&inspection->directory);
    arena_free(&inspection->arena);
}

/* ---------------------------------------------------------------- placement */

uint64_t inspection_active_parameters(const struct inspection *inspection)
{
    const struct model_config *config = &inspection->config;
    uint64_t always = inspection->parameters - inspection->expert_parameters;

    if (!inspection->supported || config->experts == 0) return inspection->parameters;
    return always + inspection->expert_parameters / config->experts * config->experts_per_token;
}

uint32_t inspection_expert_layers(const struct inspection *inspection)
{
    const struct model_config *config = &inspection->config;
    uint32_t count = 0;

    for (uint32_t i = 0; i < config->layer_count; i++) count += config->ffns[i] == FFN_EXPERTS;
    return count;
}

void inspection_place(struct placement *out, const struct inspection *inspection,
                      uint64_t memory_bytes, bool promise, uint64_t context)
{
    const struct model_config *config = &inspection->config;
    uint64_t fixed, needed, per_expert;

    *out = (struct placement){
        .memory_bytes = memory_bytes,
        .resident_bytes = inspection->bytes - inspection->expert_bytes,
        .state_bytes =
            context * sequence_bytes_per_token(config, KV_F16) + sequence_fixed_bytes(config),
        .expert_count = (uint64_t)inspection_expert_layers(inspection) * config->experts,
    };
    if (out->expert_count == 0) return;
    per_expert = inspection->expert_bytes / out->expert_count;
    fixed = out->resident_bytes + out->state_bytes;
    needed = fixed + per_expert * (config->experts_per_token + 2);
    out->fits = memory_bytes >= needed;
    if (!out->fits || per_expert == 0) return;
    out->expert_slots = (memory_bytes - fixed) / per_expert;
    if (out->expert_slots > out->expert_count) out->expert_slots = out->expert_count;
    out->slot_bytes = out->expert_slots * per_expert;
    out->mode =
        expert_mode_choose(&(struct expert_mode_sizes){ .slot_bytes = inspection->expert_bytes,
                                                        .file_bytes = inspection->bytes,
                                                        .budget_bytes = memory_bytes - fixed,
                                                        .promise = promise,
                                                        .mappable = true });
}
