#include "model/model.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
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

/* generation_config.json may name end tokens that config.json does not. */
static mf_status read_generation_config(struct model *m, const mf_files *files, mf_error *why)
{
    json_t *json;
    mf_status status = read_json(&json, files, m->path, "generation_config.json", false, why);
    if (status == MF_OK && json)
        status = config_add_end_tokens(&m->config, json, "generation_config.json", why);
    json_decref(json);
    return status;
}

static mf_status open_tokenizer(struct model *m, const mf_files *files, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = path_join(path, sizeof path, m->path, "tokenizer.json", why);
    if (status != MF_OK || !file_exists(files, path)) return status;
    status = tokenizer_open_new(&m->tokenizer, files, m->path, why);
    if (status == MF_OK && tokenizer_size(m->tokenizer) > m->config.vocab_size)
        status = fail(why, MF_ERR_MISMATCH,
                      "%s: the tokenizer has ids up to %zu, the model's vocabulary ends at %u",
                      m->path, tokenizer_size(m->tokenizer) - 1, m->config.vocab_size - 1);
    return status;
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

static mf_status open_parts(struct model *m, const mf_files *files, const char *path,
                            const struct logger *logger, mf_error *why)
{
    json_t *json = NULL;
    mf_status status = name_model(m, path, why);
    if (status == MF_OK) status = read_json(&json, files, m->path, "config.json", true, why);
    if (status == MF_OK) status = config_parse(&m->config, json, &m->arena, m->path, why);
    if (status == MF_OK) status = read_generation_config(m, files, why);
    if (status == MF_OK) status = safetensors_open(&m->directory, files, m->path, why);
    if (status == MF_OK) {
        struct weights_source source = { .directory = &m->directory,
                                         .config = &m->config,
                                         .config_json = json,
                                         .where = m->path,
                                         .logger = logger };
        status = weights_bind(&m->weights, &source, &m->arena, why);
    }
    if (status == MF_OK) status = open_tokenizer(m, files, why);
    json_decref(json);
    return status;
}

mf_status model_open(struct model *out, const mf_files *files, const mf_allocator *allocator,
                     const char *path, const struct logger *logger, mf_error *why)
{
    *out = (struct model){ 0 };
    arena_init(&out->arena, allocator);
    tensor_directory_init(&out->directory, allocator);
    mf_status status = open_parts(out, files, path, logger, why);
    if (status != MF_OK) model_close(out);
    return status;
}

void model_close(struct model *model)
{
    tokenizer_free(model->tokenizer);
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
