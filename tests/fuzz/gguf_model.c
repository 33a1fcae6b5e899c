/* A GGUF file as a model: its header, behind which the tensors' data are zeroes.
 *
 *     offset  bytes
 *     0       3        length of the data, at most 4 MiB
 *     3       …        header, metadata and tensor infos
 *
 * Configuration, tokenizer and weights come from that one header.  What is bound is run: a text
 * through the tokenizer, two tokens through a session.  Memory is limited; nothing may leak. */
#include "api/handles.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRONT = 3, DATA_MAX = 4 << 20, MEMORY_MAX = 64 << 20 };

static const char path[] = "m.gguf";

static void must(bool condition)
{
    if (!condition) abort();
}

static void encode(const struct tokenizer *tokenizer, uint32_t vocab_size)
{
    static const char text[] = "It's 2024 <|im_end|> e\u0301\xFF";
    struct token_list ids = { 0 };
    mf_error why;
    if (!tokenizer) return;
    must(tokenizer_size(tokenizer) <= vocab_size);
    if (tokenizer_encode(&ids, tokenizer, text, sizeof text - 1, SPECIAL_PARSE, &why) == MF_OK)
        for (size_t i = 0; i < ids.count; i++)
            must(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < vocab_size);
    token_list_free(&ids);
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
    mf_status status = mf_model_open(&model, engine, path, NULL, &why);
    must((status == MF_OK) == (model != NULL));
    must(status == MF_OK || why.text[0] != '\0');
    if (model) {
        encode(model->model.tokenizer, mf_model_vocab_size(model));
        run(model);
    }
    mf_model_close(model);
    mf_engine_close(engine);
    must(heap.live_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < FRONT) return 0;
    size_t data_bytes = data[0] + 256u * data[1] + 65536u * data[2];
    if (data_bytes > DATA_MAX) return 0;
    size_t header_bytes = size - FRONT;
    uint8_t *file = calloc(header_bytes + data_bytes + 1, 1);
    must(file != NULL);
    memcpy(file, data + FRONT, header_bytes);

    struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, path, file, header_bytes + data_bytes);
    try_files(&files.files);
    must(files.open_count == 0);
    free(file);
    return 0;
}
