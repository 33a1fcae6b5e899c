#include "model_parts.h"

#include "model_path.h"

#include "base/arena.h"
#include "base/status.h"
#include "files/gguf_file.h"

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

static mf_status gguf_tokenizer_new(struct tokenizer **out, const char *path, mf_error *why)
{
    struct gguf_head head;
    mf_status status = gguf_open(&head, path, why);

    if (status == MF_OK) status = tokenizer_from_metadata_new(out, &head.metadata, why);
    gguf_close(&head);
    return status;
}

/* --------------------------------------------------------------------- both */

mf_status model_tokenizer_new(struct tokenizer **out, const char *model, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = model_path_resolve(path, model, why);

    *out = NULL;
    if (status != MF_OK) return status;
    if (model_path_is_gguf(path)) return gguf_tokenizer_new(out, path, why);
    return tokenizer_open_new(out, &files_posix, path, why);
}
