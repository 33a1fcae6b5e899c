/* A model in the packed layout: its manifest and config.json, beside files of zeroes.
 *
 *     offset  bytes
 *     0       2        length of config.json
 *     2       3        length of resident.bin, at most 4 MiB
 *     5       3        length of each of layer-000.bin to layer-003.bin, at most 1 MiB
 *     8       …        config.json, then moeflux.json
 *
 * What is bound is run: two tokens through a session.  Memory is limited; nothing may leak. */
#include "base/common.h"
#include "support/failing_allocator.h"
#include "support/memory_files.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FRONT = 8, RESIDENT_MAX = 4 << 20, LAYER_MAX = 1 << 20, MEMORY_MAX = 64 << 20 };

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

static size_t load_u24(const uint8_t *data)
{
    return data[0] + 256u * data[1] + 65536u * data[2];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t zeroes[RESIDENT_MAX];
    static const char *const layers[] = { "m/layer-000.bin", "m/layer-001.bin", "m/layer-002.bin",
                                          "m/layer-003.bin" };
    if (size < FRONT) return 0;
    size_t config_bytes = load_u16(data), resident_bytes = load_u24(data + 2),
           layer_bytes = load_u24(data + 5);
    if (config_bytes > size - FRONT || resident_bytes > RESIDENT_MAX || layer_bytes > LAYER_MAX)
        return 0;
    struct memory_files files;
    memory_files_init(&files);
    memory_files_put(&files, "m/config.json", data + FRONT, config_bytes);
    memory_files_put(&files, "m/moeflux.json", data + FRONT + config_bytes,
                     size - FRONT - config_bytes);
    memory_files_put(&files, "m/resident.bin", zeroes, resident_bytes);
    for (size_t i = 0; i < COUNT_OF(layers); i++)
        memory_files_put(&files, layers[i], zeroes, layer_bytes);
    try_files(&files.files);
    must(files.open_count == 0);
    return 0;
}
