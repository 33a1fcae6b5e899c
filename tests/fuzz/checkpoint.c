/* A whole checkpoint: config.json and the header of model.safetensors, whose data are zeroes.
 *
 *     offset  bytes
 *     0       2        length of config.json
 *     2       3        length of the data, at most 4 MiB
 *     5       …        config.json, then the header
 *
 * What is bound is run: two tokens through a session, so that a slot that nobody filled, or
 * that has another shape than the recipe thinks, is found by the sanitizers.  Memory is
 * limited; nothing may leak. */
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRONT = 5, DATA_MAX = 4 << 20, MEMORY_MAX = 64 << 20 };

static void must(bool condition)
{
    if (!condition) abort();
}

static void run(mf_model *model)
{
    mf_session *session;
    mf_session_options options = { .context_length = 4, .chunk_rows = 2 };
    const int32_t tokens[] = { 0, (int32_t)mf_model_vocab_size(model) - 1 };
    if (mf_model_context_length(model) < options.context_length) options.context_length = 1;
    if (mf_session_open(&session, model, &options, NULL) != MF_OK) return;
    mf_status status = mf_session_feed(session, tokens, options.context_length == 1 ? 1 : 2, NULL);
    /* weights of zero and an epsilon of zero make NaN, which has an error of its own */
    must(status == MF_ERR_NOT_FINITE || (status == MF_OK && mf_session_logits(session)));
    mf_session_close(session);
}

static void try_files(const mf_files *files)
{
    struct failing_allocator heap;
    mf_engine *engine;
    mf_model *model;
    mf_error why = { 0 };
    failing_allocator_init(&heap);
    mf_engine_options options = {
        .thread_count = 1, .backend = "reference", .allocator = &heap.allocator, .files = files
    };
    must(mf_engine_open(&engine, &options, &why) == MF_OK);
    heap.limit_bytes = MEMORY_MAX;
    mf_status status = mf_model_open(&model, engine, "m", NULL, &why);
    must((status == MF_OK) == (model != NULL));
    must(status == MF_OK || why.text[0] != '\0');
    if (model) run(model);
    mf_model_close(model);
    mf_engine_close(engine);
    must(heap.live_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < FRONT) return 0;
    size_t config_bytes = data[0] + 256u * data[1];
    size_t data_bytes = data[2] + 256u * data[3] + 65536u * data[4];
    if (config_bytes > size - FRONT || data_bytes > DATA_MAX) return 0;
    uint64_t header_bytes = size - FRONT - config_bytes;
    size_t file_bytes = 8 + (size_t)header_bytes + data_bytes;
    uint8_t *file = calloc(file_bytes, 1);
    must(file != NULL);
    memcpy(file, &header_bytes, 8);
    memcpy(file + 8, data + FRONT + config_bytes, (size_t)header_bytes);

    struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, "m/config.json", data + FRONT, config_bytes);
    memory_files_put(&files, "m/model.safetensors", file, file_bytes);
    try_files(&files.files);
    must(files.open_count == 0);
    free(file);
    return 0;
}
