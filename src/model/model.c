#include "model/model.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/gguf.h"
#include "checkpoint/hub.h"
#include "checkpoint/locate.h"
#include "checkpoint/safetensors.h"
#include "model/families.h"

#include <stdio.h>

/* config.json of the largest published models has some hundred kilobytes. */
enum { CONFIG_BYTES_MAX = 64 << 20 };

static mf_status read_json(json_t **out, const mf_files *files, const char *directory,
                           const char *name, mf_error *why)
{
    char path[PATH_CAPACITY];
    *out = NULL;
    mf_status status = path_join(path, sizeof path, directory, name, why);
    return status == MF_OK ? json_read_file_new(out, files, path, CONFIG_BYTES_MAX, why) : status;
}

static mf_status name_model(struct model *m, const char *path, mf_error *why)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    m->path = arena_text(&m->arena, path, length);
    if (!m->path) return fail_memory(why, length);
    char *slash = strrchr(m->path, '/');
    const char *listed = hub_name_in(&length, m->path);
    m->name = slash && slash[1] ? slash + 1 : m->path;
    if (listed) m->name = arena_text(&m->arena, listed, length);
    return m->name ? MF_OK : fail_memory(why, length);
}

static bool is_packed(const struct model *m)
{
    return strcmp(m->kind, "packed") == 0;
}

static mf_status bind(struct model *m, const json_t *config_json, bool repacked,
                      const struct model_source *from, mf_error *why)
{
    struct weights_source source = { .directory = &m->directory,
                                     .config = &m->config,
                                     .config_json = config_json,
                                     .repacked = repacked,
                                     .describe = from->describe,
                                     .packed = is_packed(m) ? &m->packed : NULL,
                                     .where = m->path,
                                     .logger = from->logger };
    return weights_bind(&m->weights, &source, &m->arena, why);
}

static mf_status check_tokenizer(const struct model *m, const struct tokenizer *tokenizer,
                                 mf_error *why)
{
    if (!tokenizer || tokenizer_size(tokenizer) <= m->config.vocab_size) return MF_OK;
    return fail(why, MF_ERR_MISMATCH,
                "%s: the tokenizer has ids up to %zu, the model's vocabulary ends at %u", m->path,
                tokenizer_size(tokenizer) - 1, m->config.vocab_size - 1);
}

/* What the syntax of the chat template says of end tokens. */
static mf_status settle_end_tokens(struct model *m, const struct model_text *text, mf_error *why)
{
    struct model_text_ends ends;
    mf_status status = MF_OK;
    model_text_find_ends(&ends, text);
    for (size_t i = 0; i < ends.count && status == MF_OK; i++)
        status = config_add_end_token(&m->config, ends.tokens[i], "the chat template", why);
    config_remove_end_token(&m->config, ends.no_end);
    return status;
}

/* ------------------------------------------------ directories with config.json */

/* End tokens that config.json does not know, which is usual. */
static mf_status add_end_tokens(struct model *m, const struct model_text *text, mf_error *why)
{
    mf_status status = MF_OK;
    if (text->generation)
        status = config_add_end_tokens(&m->config, text->generation, "generation_config.json", why);
    if (status != MF_OK || !text->tokenizer || !text->eos) return status;
    int32_t id = tokenizer_find(text->tokenizer, json_string_value(text->eos));
    if (id >= 0) status = config_add_end_token(&m->config, id, "tokenizer_config.json", why);
    return status;
}

/* Where a checkpoint's parts other than its tensors are. */
struct parts {
    const char *config;    /* the directory of config.json and tokenizer */
    const char *artifacts; /* the ancestors' directory of weights and tokenizer.bin, or NULL */
};

/* The tensors have been listed. */
static mf_status open_around_config(struct model *m, const struct model_source *source,
                                    const struct parts *parts, mf_error *why)
{
    json_t *json = NULL;
    const mf_files *files = source->files;
    mf_status status = read_json(&json, files, parts->config, "config.json", why);
    if (status == MF_OK) status = config_parse(&m->config, json, &m->arena, m->path, why);
    bool repacked = parts->artifacts && !is_packed(m);
    if (status == MF_OK) status = bind(m, json, repacked, source, why);
    json_decref(json);
    if (status != MF_OK) return status;
    struct model_text_source text = { files, parts->config, parts->artifacts,
                                      m->config.family->pre_tokenizer };
    status = model_text_open(source->text, &text, why);
    if (status == MF_OK) status = add_end_tokens(m, source->text, why);
    return status == MF_OK ? settle_end_tokens(m, source->text, why) : status;
}

static mf_status open_directory(struct model *m, const struct model_source *source, mf_error *why)
{
    m->kind = "safetensors";
    mf_status status = safetensors_open(&m->directory, source->files, m->path, why);
    struct parts parts = { .config = m->path };
    return status == MF_OK ? open_around_config(m, source, &parts, why) : status;
}

/* The ancestors keep config.json and tokenizer in mlx/ beside artifacts/ and root/; a tokenizer
 * in their own form lies with the weights. */
static mf_status find_seeds_parts(char config[PATH_CAPACITY], char artifacts[PATH_CAPACITY],
                                  const char *parent, mf_error *why)
{
    mf_status status = path_join(config, PATH_CAPACITY, parent, "mlx", why);
    return status == MF_OK ? path_join(artifacts, PATH_CAPACITY, parent, "artifacts", why) : status;
}

static mf_status open_ancestors(struct model *m, const struct model_source *source, mf_error *why)
{
    char config[PATH_CAPACITY], artifacts[PATH_CAPACITY];
    m->kind = "ancestors";
    mf_status status = find_seeds_parts(config, artifacts, m->path, why);
    if (status == MF_OK && source->ancestors)
        status = ancestors_open(&m->directory, source->files, source->ancestors, why);
    else if (status == MF_OK)
        status = ancestors_open_parent(&m->directory, source->files, m->path, false, why);
    struct parts parts = { config, artifacts };
    return status == MF_OK ? open_around_config(m, source, &parts, why) : status;
}

/* --------------------------------------------------------------------- GGUF */

/* The tensors have been listed, the metadata read. */
static mf_status open_around_metadata(struct model *m, const struct model_source *source,
                                      mf_error *why)
{
    const struct tensor *embedding = tensor_find(&m->directory, "token_embd.weight");
    if (!embedding || embedding->rank != 2 || embedding->shape[0] > INT32_MAX)
        return fail(why, MF_ERR_MISMATCH, "%s: the matrix token_embd.weight is missing", m->path);
    mf_status status = config_from_metadata(&m->config, &m->metadata, (uint32_t)embedding->shape[0],
                                            &m->arena, why);
    if (status == MF_OK) config_see_tensors(&m->config, &m->directory);
    if (status == MF_OK) status = config_read_divisors(&m->config, &m->directory, why);
    if (status == MF_OK && m->config.groups_assumed)
        log_note(source->logger, MF_LOG_WARNING,
                 "%s says nothing of the router's groups; %u of %u are taken, as in DeepSeek-V3",
                 m->path, m->config.router_top_groups, m->config.router_groups);
    if (status == MF_OK) status = bind(m, NULL, false, source, why);
    if (status == MF_OK) status = model_text_from_metadata(source->text, &m->metadata, why);
    return status == MF_OK ? settle_end_tokens(m, source->text, why) : status;
}

static mf_status open_gguf(struct model *m, const struct model_source *source, mf_error *why)
{
    m->kind = "GGUF";
    mf_status status =
        checkpoint_gguf_open(&m->directory, &m->metadata, source->files, m->path, why);
    return status == MF_OK ? open_around_metadata(m, source, why) : status;
}

/* ------------------------------------------------------------------- packed */

/* The values that came from a GGUF file; it has no tensors any more. */
static mf_status read_metadata(struct model *m, const struct model_source *source, mf_error *why)
{
    char path[PATH_CAPACITY];
    struct tensor_directory none;
    tensor_directory_init(&none, source->allocator);
    mf_status status = path_join(path, sizeof path, m->path, PACKED_METADATA, why);
    if (status == MF_OK)
        status = checkpoint_gguf_open(&none, &m->metadata, source->files, path, why);
    tensor_directory_free(&none);
    return status;
}

static mf_status open_packed(struct model *m, const struct model_source *source, mf_error *why)
{
    m->kind = "packed";
    mf_status status = packed_open(&m->packed, &m->directory, source->files, m->path, why);
    if (status != MF_OK) return status;
    struct parts parts = { m->path, m->path }; /* whichever kind of tokenizer it had */
    if (m->packed.convention != PACKED_GGUF) return open_around_config(m, source, &parts, why);
    status = read_metadata(m, source, why);
    return status == MF_OK ? open_around_metadata(m, source, why) : status;
}

mf_status model_parts_path(char *out, size_t capacity, const mf_files *files, const char *path,
                           mf_error *why)
{
    bool ancestors = false, packed = false, gguf = false;
    mf_status status = ancestors_probe(&ancestors, files, path, why);
    if (status == MF_OK) status = packed_probe(&packed, files, path, why);
    if (status == MF_OK) status = path_join(out, capacity, path, PACKED_METADATA, why);
    if (status == MF_OK && packed) status = file_probe(&gguf, files, out, why);
    if (status != MF_OK || gguf) return status;
    if (ancestors) return path_join(out, capacity, path, "mlx", why);
    snprintf(out, capacity, "%s", path); /* with a name behind it, it fitted */
    return MF_OK;
}

/* -------------------------------------------------------------------- whole */

static mf_status open_kind(struct model *m, const struct model_source *source,
                           enum checkpoint_kind kind, mf_error *why)
{
    switch (kind) {
    case CHECKPOINT_GGUF:
        return open_gguf(m, source, why);
    case CHECKPOINT_PACKED:
        return open_packed(m, source, why);
    case CHECKPOINT_ANCESTORS:
        return open_ancestors(m, source, why);
    default:
        return open_directory(m, source, why);
    }
}

static mf_status open_parts(struct model *m, const struct model_source *source, mf_error *why)
{
    struct checkpoint_place place = { .kind = CHECKPOINT_ANCESTORS };
    mf_status status = MF_OK;
    if (!source->ancestors) status = checkpoint_locate(&place, source->files, source->path, why);
    if (status == MF_OK) status = name_model(m, source->ancestors ? source->path : place.path, why);
    if (status == MF_OK) status = open_kind(m, source, place.kind, why);
    return status == MF_OK ? check_tokenizer(m, source->text->tokenizer, why) : status;
}

mf_status model_open(struct model *out, const struct model_source *source, mf_error *why)
{
    *out = (struct model){ 0 };
    arena_init(&out->arena, source->allocator);
    tensor_directory_init(&out->directory, source->allocator);
    out->directory.uncached = source->uncached;
    metadata_init(&out->metadata, source->allocator);
    packed_manifest_init(&out->packed, source->allocator);
    struct model_text unwanted = { 0 };
    struct model_source chosen = *source;
    if (!chosen.text) chosen.text = &unwanted;
    *chosen.text = (struct model_text){ 0 };
    mf_status status = open_parts(out, &chosen, why);
    out->text = source->text;
    model_text_clear(&unwanted);
    if (status == MF_OK) return MF_OK;
    model_text_clear(chosen.text);
    model_close(out);
    return status;
}

void model_close(struct model *model)
{
    metadata_free(&model->metadata);
    packed_manifest_free(&model->packed);
    tensor_directory_free(&model->directory);
    arena_free(&model->arena);
    *model = (struct model){ 0 };
}

/* --------------------------------------------------------------- text alone */

static mf_status gguf_text(struct model_text *out, const mf_files *files, const char *path,
                           mf_error *why)
{
    struct tensor_directory directory;
    struct metadata metadata;
    tensor_directory_init(&directory, &allocator_heap);
    metadata_init(&metadata, &allocator_heap);
    mf_status status = checkpoint_gguf_open(&directory, &metadata, files, path, why);
    if (status == MF_OK) status = model_text_from_metadata(out, &metadata, why);
    metadata_free(&metadata);
    tensor_directory_free(&directory);
    return status;
}

/* The family decides how a text is split by the ancestors' tokenizer, and config.json which
 * family it is. */
static mf_status parts_text(struct model_text *out, const mf_files *files,
                            const struct parts *parts, mf_error *why)
{
    struct model_text_source source = { .files = files, .directory = parts->config };
    bool present = true;
    mf_status status = MF_OK;
    if (parts->artifacts) status = tokenizer_probe(&present, files, parts->config, why);
    if (status == MF_OK && !present) {
        json_t *json = NULL;
        const struct family *family = NULL;
        status = read_json(&json, files, parts->config, "config.json", why);
        if (status == MF_OK) status = config_find_family(&family, json, parts->config, why);
        if (status == MF_OK) source.pre_tokenizer = family->pre_tokenizer;
        source.artifacts = parts->artifacts;
        json_decref(json);
    }
    return status == MF_OK ? model_text_open(out, &source, why) : status;
}

static mf_status ancestors_text(struct model_text *out, const mf_files *files, const char *parent,
                                mf_error *why)
{
    char config[PATH_CAPACITY], artifacts[PATH_CAPACITY];
    struct parts parts = { config, artifacts };
    mf_status status = find_seeds_parts(config, artifacts, parent, why);
    return status == MF_OK ? parts_text(out, files, &parts, why) : status;
}

static mf_status packed_text(struct model_text *out, const mf_files *files, const char *path,
                             mf_error *why)
{
    char place[PATH_CAPACITY];
    mf_status status = model_parts_path(place, sizeof place, files, path, why);
    if (status != MF_OK) return status;
    if (checkpoint_is_gguf(files, place)) return gguf_text(out, files, place, why);
    return parts_text(out, files, &(struct parts){ path, path }, why);
}

mf_status model_open_text(struct model_text *out, const mf_files *files, const char *path,
                          mf_error *why)
{
    struct checkpoint_place place;
    *out = (struct model_text){ 0 };
    mf_status status = checkpoint_locate(&place, files, path, why);
    if (status != MF_OK && !checkpoint_is_directory(files, path)) return status;
    /* A directory with tokenizer or template need not have weights. */
    if (status != MF_OK) place.kind = CHECKPOINT_SAFETENSORS;
    if (place.kind == CHECKPOINT_GGUF) return gguf_text(out, files, place.path, why);
    if (place.kind == CHECKPOINT_PACKED)
        status = packed_text(out, files, path, why);
    else if (place.kind == CHECKPOINT_ANCESTORS)
        status = ancestors_text(out, files, path, why);
    else
        status = parts_text(out, files, &(struct parts){ .config = path }, why);
    if (status == MF_OK && !out->tokenizer && !out->chat && out->chat_error.status == MF_OK) {
        model_text_clear(out);
        status = fail(why, MF_ERR_IO, "%s has neither a tokenizer nor a chat template", path);
    }
    return status;
}

uint32_t model_usable_tokens(const struct model *model)
{
    const struct tokenizer *tokenizer = model->text ? model->text->tokenizer : NULL;
    return tokenizer ? (uint32_t)tokenizer_size(tokenizer) : model->config.vocab_size;
}

bool model_is_end_token(const struct model *model, int32_t token)
{
    for (size_t i = 0; i < model->config.end_token_count; i++)
        if (model->config.end_tokens[i] == token) return true;
    return false;
}
