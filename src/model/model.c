#include "model/model.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "files/gguf_file.h"
#include "files/safetensors.h"

/* config.json of the largest published models has some hundred kilobytes. */
enum { CONFIG_BYTES_MAX = 64 << 20 };

static mf_status read_json(json_t **out, const mf_files *files, const char *directory,
                           const char *name, bool required, mf_error *why)
{
    char path[PATH_CAPACITY];
    *out = NULL;
    mf_status status = path_join(path, sizeof path, directory, name, why);
    if (status != MF_OK) return status;
    if (!required && !file_exists(files, path)) return MF_OK;
    return json_read_file_new(out, files, path, CONFIG_BYTES_MAX, why);
}

static mf_status name_model(struct model *m, const char *path, mf_error *why)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    m->path = arena_text(&m->arena, path, length);
    if (!m->path) return fail_memory(why, length);
    char *slash = strrchr(m->path, '/');
    m->name = slash && slash[1] ? slash + 1 : m->path;
    return MF_OK;
}

static mf_status bind(struct model *m, const json_t *config_json, bool repacked,
                      const struct logger *logger, mf_error *why)
{
    struct weights_source source = { .directory = &m->directory,
                                     .config = &m->config,
                                     .config_json = config_json,
                                     .repacked = repacked,
                                     .where = m->path,
                                     .logger = logger };
    return weights_bind(&m->weights, &source, &m->arena, why);
}

static mf_status check_tokenizer(const struct model *m, mf_error *why)
{
    if (!m->tokenizer || tokenizer_size(m->tokenizer) <= m->config.vocab_size) return MF_OK;
    return fail(why, MF_ERR_MISMATCH,
                "%s: the tokenizer has ids up to %zu, the model's vocabulary ends at %u", m->path,
                tokenizer_size(m->tokenizer) - 1, m->config.vocab_size - 1);
}

/* ------------------------------------------------ directories with config.json */

/* End tokens that config.json does not know, which is usual. */
static mf_status read_more_end_tokens(struct model *m, const mf_files *files, const char *directory,
                                      mf_error *why)
{
    json_t *json;
    mf_status status = read_json(&json, files, directory, "generation_config.json", false, why);
    if (status == MF_OK && json)
        status = config_add_end_tokens(&m->config, json, "generation_config.json", why);
    json_decref(json);
    if (status != MF_OK || !m->tokenizer) return status;

    status = read_json(&json, files, directory, "tokenizer_config.json", false, why);
    const json_t *entry = json_object_get(json, "eos_token");
    if (json_is_object(entry)) entry = json_object_get(entry, "content");
    int32_t id =
        json_is_string(entry) ? tokenizer_find(m->tokenizer, json_string_value(entry)) : -1;
    if (status == MF_OK && id >= 0)
        status = config_add_end_token(&m->config, id, "tokenizer_config.json", why);
    json_decref(json);
    return status;
}

static mf_status open_tokenizer(struct model *m, const mf_files *files, const char *directory,
                                mf_error *why)
{
    static const char *const names[] = { "tokenizer.json", "tiktoken.model" };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char path[PATH_CAPACITY];
        mf_status status = path_join(path, sizeof path, directory, names[i], why);
        if (status != MF_OK) return status;
        if (file_exists(files, path))
            return tokenizer_open_new(&m->tokenizer, files, directory, why);
    }
    return MF_OK;
}

/* `directory` has config.json and tokenizer; the tensors have been listed. */
static mf_status open_around_config(struct model *m, const struct model_source *source,
                                    const char *directory, mf_error *why)
{
    json_t *json = NULL;
    mf_status status = read_json(&json, source->files, directory, "config.json", true, why);
    if (status == MF_OK) status = config_parse(&m->config, json, &m->arena, m->path, why);
    bool repacked = directory != m->path;
    if (status == MF_OK) status = bind(m, json, repacked, source->logger, why);
    if (status == MF_OK) status = open_tokenizer(m, source->files, directory, why);
    if (status == MF_OK) status = read_more_end_tokens(m, source->files, directory, why);
    json_decref(json);
    return status;
}

static mf_status open_directory(struct model *m, const struct model_source *source, mf_error *why)
{
    mf_status status = safetensors_open(&m->directory, source->files, m->path, why);
    return status == MF_OK ? open_around_config(m, source, m->path, why) : status;
}

/* The ancestors keep config.json and tokenizer in mlx/ beside artifacts/ and root/. */
static mf_status open_seeds(struct model *m, const struct model_source *source, mf_error *why)
{
    char directory[PATH_CAPACITY];
    mf_status status = path_join(directory, sizeof directory, m->path, "mlx", why);
    if (status == MF_OK && source->seeds)
        status = seeds_layout_open(&m->directory, source->files, source->seeds, why);
    else if (status == MF_OK)
        status = seeds_layout_open_parent(&m->directory, source->files, m->path, false, why);
    return status == MF_OK ? open_around_config(m, source, directory, why) : status;
}

/* --------------------------------------------------------------------- GGUF */

static mf_status open_gguf(struct model *m, const struct model_source *source, mf_error *why)
{
    mf_status status =
        checkpoint_gguf_open(&m->directory, &m->metadata, source->files, m->path, why);
    if (status != MF_OK) return status;
    const struct tensor *embedding = tensor_find(&m->directory, "token_embd.weight");
    if (!embedding || embedding->rank != 2 || embedding->shape[0] > INT32_MAX)
        return fail(why, MF_ERR_MISMATCH, "%s: the matrix token_embd.weight is missing", m->path);
    status = config_from_metadata(&m->config, &m->metadata, (uint32_t)embedding->shape[0],
                                  &m->arena, why);
    if (status == MF_OK) status = bind(m, NULL, false, source->logger, why);
    if (status == MF_OK && metadata_find(&m->metadata, "tokenizer.ggml.tokens"))
        status = tokenizer_from_metadata_new(&m->tokenizer, &m->metadata, why);
    return status;
}

/* -------------------------------------------------------------------- whole */

static bool is_gguf_path(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

static mf_status open_parts(struct model *m, const struct model_source *source, mf_error *why)
{
    mf_status status = name_model(m, source->path, why);
    if (status != MF_OK) return status;
    bool seeds = source->seeds != NULL;
    if (!seeds && !is_gguf_path(m->path))
        status = seeds_layout_probe(&seeds, source->files, m->path, why);
    if (status != MF_OK) return status;
    if (seeds)
        status = open_seeds(m, source, why);
    else if (is_gguf_path(m->path))
        status = open_gguf(m, source, why);
    else
        status = open_directory(m, source, why);
    return status == MF_OK ? check_tokenizer(m, why) : status;
}

mf_status model_open(struct model *out, const struct model_source *source, mf_error *why)
{
    *out = (struct model){ 0 };
    arena_init(&out->arena, source->allocator);
    tensor_directory_init(&out->directory, source->allocator);
    metadata_init(&out->metadata, source->allocator);
    mf_status status = open_parts(out, source, why);
    if (status != MF_OK) model_close(out);
    return status;
}

void model_close(struct model *model)
{
    tokenizer_free(model->tokenizer);
    metadata_free(&model->metadata);
    tensor_directory_free(&model->directory);
    arena_free(&model->arena);
    *model = (struct model){ 0 };
}

uint32_t model_usable_tokens(const struct model *model)
{
    return model->tokenizer ? (uint32_t)tokenizer_size(model->tokenizer) : model->config.vocab_size;
}

bool model_is_end_token(const struct model *model, int32_t token)
{
    for (size_t i = 0; i < model->config.end_token_count; i++)
        if (model->config.end_tokens[i] == token) return true;
    return false;
}
