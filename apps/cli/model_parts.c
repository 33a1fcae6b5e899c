#include "model_parts.h"

#include "model_path.h"

#include "base/arena.h"
#include "base/status.h"
#include "checkpoint/gguf.h"
#include "model/model.h"

/* ------------------------------------------------------------------- GGUF */

struct gguf_head {
    struct tensor_directory directory;
    struct metadata metadata;
};

static mf_status gguf_open(struct gguf_head *out, const char *path, mf_error *why)
{
    tensor_directory_init(&out->directory, &allocator_heap);
    metadata_init(&out->metadata, &allocator_heap);
    return checkpoint_gguf_open(&out->directory, &out->metadata, &files_posix, path, why);
}

static void gguf_close(struct gguf_head *head)
{
    metadata_free(&head->metadata);
    tensor_directory_free(&head->directory);
}

static mf_status gguf_template_new(struct chat_template **out, const char *path, mf_error *why)
{
    struct gguf_head head;
    const char *source = NULL;
    mf_status status = gguf_open(&head, path, why);

    if (status == MF_OK) {
        status = metadata_maybe_text(&source, &head.metadata, "tokenizer.chat_template", why);
    }
    if (status == MF_OK && source) {
        status = chat_template_parse_new(out, source, strlen(source), path, why);
    }
    gguf_close(&head);
    return status;
}

/* The text of the token whose id stands under `key`; NULL where there is none. */
static json_t *gguf_token_text_new(const struct metadata *metadata, const char *key)
{
    struct metadata_array tokens;
    struct metadata_text text;
    uint64_t id = UINT64_MAX;

    if (metadata_maybe_count(&id, metadata, key, 0, INT32_MAX, NULL) != MF_OK) return NULL;
    if (metadata_maybe_array(&tokens, metadata, "tokenizer.ggml.tokens", METADATA_TEXT, NULL) !=
        MF_OK) {
        return NULL;
    }
    if (id >= tokens.count) return NULL;
    text = metadata_array_text(&tokens, id);
    return json_stringn(text.bytes, text.length);
}

static mf_status gguf_special_texts_new(json_t **bos, json_t **eos, const char *path, mf_error *why)
{
    struct gguf_head head;
    mf_status status = gguf_open(&head, path, why);

    if (status == MF_OK) {
        *bos = gguf_token_text_new(&head.metadata, "tokenizer.ggml.bos_token_id");
        *eos = gguf_token_text_new(&head.metadata, "tokenizer.ggml.eos_token_id");
    }
    gguf_close(&head);
    return status;
}

/* --------------------------------------------------------------- directory */

/* "<s>", or {"content": "<s>", …} as older files have it. */
static json_t *token_text_new(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    const json_t *content = json_object_get(value, "content");

    if (json_is_string(content)) value = content;
    return json_is_string(value) ? json_stringn(json_string_value(value), json_string_length(value))
                                 : NULL;
}

static mf_status directory_special_texts_new(json_t **bos, json_t **eos, const char *directory,
                                             mf_error *why)
{
    char path[PATH_CAPACITY];
    json_t *config = NULL;
    mf_status status = path_join(path, sizeof path, directory, "tokenizer_config.json", why);

    if (status != MF_OK || !file_exists(&files_posix, path)) return status;
    status = json_read_file_new(&config, &files_posix, path, 64 << 20, why);
    if (status != MF_OK) return status;
    *bos = token_text_new(config, "bos_token");
    *eos = token_text_new(config, "eos_token");
    json_decref(config);
    return MF_OK;
}

/* --------------------------------------------------------------------- both */

/* A .gguf file, or the directory that has tokenizer and template. */
static mf_status find_parts(char out[PATH_CAPACITY], const char *model, mf_error *why)
{
    char resolved[PATH_CAPACITY];
    mf_status status = model_path_resolve(resolved, model, why);

    if (status != MF_OK) return status;
    if (!model_path_is_gguf(resolved)) return model_path_of_parts(out, resolved, why);
    memcpy(out, resolved, PATH_CAPACITY);
    return MF_OK;
}

mf_status model_tokenizer_new(struct tokenizer **out, const char *model, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = model_path_resolve(path, model, why);

    *out = NULL;
    return status == MF_OK ? model_open_tokenizer_new(out, &files_posix, path, why) : status;
}

mf_status model_template_new(struct chat_template **out, const char *model, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = find_parts(path, model, why);

    *out = NULL;
    if (status != MF_OK) return status;
    if (model_path_is_gguf(path)) return gguf_template_new(out, path, why);
    return chat_template_open_new(out, &files_posix, path, why);
}

mf_status model_special_texts_new(json_t **bos, json_t **eos, const char *model, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = find_parts(path, model, why);

    *bos = *eos = NULL;
    if (status != MF_OK) return status;
    if (model_path_is_gguf(path)) return gguf_special_texts_new(bos, eos, path, why);
    return directory_special_texts_new(bos, eos, path, why);
}
