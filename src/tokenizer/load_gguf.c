/* load_gguf.c: a tokenizer from the metadata of a GGUF file. */
#include "tokenizer/internal.h"

#include "base/status.h"
#include "checkpoint/metadata.h"

#include <stdlib.h>

/* Owned arrays behind the borrowed ones of `tables`. */
struct copies {
    struct text_span *tokens, *merges;
    int32_t *types;
};

static mf_status copy_texts_new(struct text_span **out, const struct metadata_array *array,
                                mf_error *why)
{
    size_t count = max_size((size_t)array->count, 1);
    *out = calloc(count, sizeof **out);
    if (!*out) return fail_memory(why, count * sizeof **out);
    for (size_t i = 0; i < array->count; i++) {
        struct metadata_text text = metadata_array_text(array, i);
        (*out)[i] = (struct text_span){ text.bytes, text.length };
    }
    return MF_OK;
}

static mf_status copy_types_new(int32_t **out, const struct metadata_array *types,
                                size_t token_count, const struct metadata *metadata, mf_error *why)
{
    if (types->count != token_count)
        return fail(why, MF_ERR_MISMATCH, "%s: there are %zu tokens and %llu token types",
                    metadata->path, token_count, (unsigned long long)types->count);
    size_t count = max_size(token_count, 1);
    *out = calloc(count, sizeof **out);
    if (!*out) return fail_memory(why, count * sizeof **out);
    for (size_t i = 0; i < token_count; i++) {
        int64_t type = metadata_array_int(types, i);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return fail(why, MF_ERR_FORMAT,
                        "%s: token %zu has type %lld, from %d to %d was expected", metadata->path,
                        i, (long long)type, TOKEN_NORMAL, TOKEN_BYTE);
        (*out)[i] = (int32_t)type;
    }
    return MF_OK;
}

static mf_status read_arrays(struct tokenizer_tables *tables, struct copies *copies,
                             const struct metadata *metadata, mf_error *why)
{
    struct metadata_array tokens, merges, types = { 0 };
    mf_status status =
        metadata_need_array(&tokens, metadata, "tokenizer.ggml.tokens", METADATA_TEXT, why);
    if (status == MF_OK)
        status =
            metadata_need_array(&merges, metadata, "tokenizer.ggml.merges", METADATA_TEXT, why);
    if (status == MF_OK)
        status =
            metadata_maybe_array(&types, metadata, "tokenizer.ggml.token_type", METADATA_I64, why);
    if (status == MF_OK) status = copy_texts_new(&copies->tokens, &tokens, why);
    if (status == MF_OK) status = copy_texts_new(&copies->merges, &merges, why);
    if (status == MF_OK && types.count > 0)
        status = copy_types_new(&copies->types, &types, (size_t)tokens.count, metadata, why);
    if (status != MF_OK) return status;
    tables->tokens = copies->tokens;
    tables->token_count = (size_t)tokens.count;
    tables->merges = copies->merges;
    tables->merge_count = (size_t)merges.count;
    tables->types = copies->types;
    return MF_OK;
}

static mf_status read_fields(struct tokenizer_tables *tables, const struct metadata *metadata,
                             mf_error *why)
{
    const char *model = NULL;
    uint64_t bos = UINT64_MAX;
    mf_status status = metadata_need_text(&model, metadata, "tokenizer.ggml.model", why);
    bool gemma4 = status == MF_OK && strcmp(model, "gemma4") == 0;
    if (status == MF_OK && !gemma4 && strcmp(model, "gpt2") != 0)
        status =
            fail(why, MF_ERR_UNSUPPORTED,
                 "%s: tokenizer.ggml.model is \"%.64s\"; byte-level BPE, \"gpt2\", and \"gemma4\" "
                 "are supported",
                 metadata->path, model);
    tables->pre_tokenizer = "gemma4"; /* which says all */
    if (status == MF_OK && !gemma4)
        status = metadata_need_text(&tables->pre_tokenizer, metadata, "tokenizer.ggml.pre", why);
    if (status == MF_OK)
        status =
            metadata_maybe_flag(&tables->add_bos, metadata, "tokenizer.ggml.add_bos_token", why);
    tables->add_bos = tables->add_bos || gemma4; /* some files say otherwise, and are wrong */
    if (status == MF_OK)
        status = metadata_maybe_count(&bos, metadata, "tokenizer.ggml.bos_token_id", 0,
                                      TOKEN_ID_LIMIT - 1, why);
    tables->bos_id = bos < TOKEN_ID_LIMIT ? (int32_t)bos : -1;
    return status;
}

mf_status tokenizer_from_metadata_new(struct tokenizer **out, const struct metadata *metadata,
                                      mf_error *why)
{
    struct tokenizer_tables tables = { 0 };
    struct copies copies = { 0 };
    *out = NULL;
    mf_status status = read_fields(&tables, metadata, why);
    if (status == MF_OK) status = read_arrays(&tables, &copies, metadata, why);
    if (status == MF_OK) status = tokenizer_from_tables_new(out, &tables, metadata->path, why);
    free(copies.tokens);
    free(copies.merges);
    free(copies.types);
    return status;
}
