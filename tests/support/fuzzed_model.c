#include "support/fuzzed_model.h"

#include "support/failing_allocator.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY_MAX = 64 << 20 };

void must(bool condition)
{
    if (!condition) abort();
}

void fuzzed_model_run(mf_model *model)
{
    mf_sequence *sequence;
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = 4,
                                    .chunk_rows = 2 };
    const int32_t tokens[] = { 0, (int32_t)mf_model_vocab_size(model) - 1 };
    if (mf_model_context_length(model) < options.context_length) options.context_length = 1;
    mf_error why = { 0 };
    if (mf_sequence_open(&sequence, model, &options, NULL) != MF_OK) return;
    mf_status status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens,
                                        options.context_length == 1 ? 1 : 2, &why);
    /* Weights of zero and an epsilon of zero make NaN, which has an error of its own.  Experts are
     * read and compared with their checksums only when they are routed to. */
    bool damaged = status == MF_ERR_IO && strstr(why.text, "the checksum does not match");
    must(status == MF_OK || status == MF_ERR_NOT_FINITE || damaged);
    must(status == MF_OK ? mf_sequence_logits(sequence) != NULL : why.text[0] != '\0');
    must(status == MF_OK || mf_sequence_position(sequence) == 0);
    mf_sequence_close(sequence);
}

void fuzzed_model_encode(const mf_model *model)
{
    static const char text[] = "It's 2024 <|im_end|> e\u0301\xFF";
    const struct tokenizer *tokenizer = model->text.parts.tokenizer;
    uint32_t vocab_size = mf_model_vocab_size(model);
    struct token_list ids = { 0 };
    mf_error why;
    if (!tokenizer) return;
    must(tokenizer_size(tokenizer) <= vocab_size);
    must(tokenizer_bos(tokenizer) < (int32_t)vocab_size);
    if (tokenizer_encode(&ids, tokenizer, text, sizeof text - 1, SPECIAL_PARSE, &why) == MF_OK) {
        for (size_t i = 0; i < ids.count; i++) {
            must(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < vocab_size);
            must(tokenizer_token_text(tokenizer, ids.ids[i]) != NULL);
        }
    }
    token_list_free(&ids);
}

void fuzzed_model_try(struct memory_files *files, const char *path, void (*use)(mf_model *model))
{
    struct failing_allocator heap;
    mf_engine *engine;
    mf_model *model;
    mf_error why = { 0 };
    failing_allocator_init(&heap);
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 1,
                                  .backend = "reference",
                                  .allocator = &heap.allocator,
                                  .files = &files->files };
    must(mf_engine_open(&engine, &options, &why) == MF_OK);
    heap.limit_bytes = MEMORY_MAX;
    mf_status status = mf_model_open(&model, engine, path, NULL, &why);
    must((status == MF_OK) == (model != NULL));
    must(status == MF_OK || why.text[0] != '\0');
    if (model) use(model);
    mf_model_close(model);
    mf_engine_close(engine);
    must(heap.live_bytes == 0);
    must(files->open_count == 0);
}
