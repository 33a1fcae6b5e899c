/* Any bytes as the ancestors' tokenizer.bin or, behind a first byte that is odd, vocab.bin.  What
 * opens must decode what it encodes to. */
#include "tokenizer/internal.h"
#include "support/memory_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

static void encode(const struct tokenizer *tokenizer)
{
    static const char text[] = "It's 2024 <|im_end|> e\u0301\xFF";
    struct token_list ids = { 0 };
    mf_error why;
    if (tokenizer_encode(&ids, tokenizer, text, sizeof text - 1, SPECIAL_PARSE, &why) == MF_OK)
        for (size_t i = 0; i < ids.count; i++)
            must(tokenizer_token_text(tokenizer, ids.ids[i]) != NULL);
    token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ancestors_tokenizer packed = { "p", NULL, "qwen35" };
    struct memory_files files;
    struct tokenizer *tokenizer;
    mf_error why = { 0 };
    if (size == 0) return 0;
    memory_files_init(&files);
    memory_files_put(&files, data[0] % 2 ? "p/vocab.bin" : "p/tokenizer.bin", data + 1, size - 1);
    mf_status status = tokenizer_open_ancestors_new(&tokenizer, &files.files, &packed, &why);
    must((status == MF_OK) == (tokenizer != NULL));
    must(status == MF_OK || why.text[0] != '\0');
    if (tokenizer) encode(tokenizer);
    tokenizer_free(tokenizer);
    must(files.open_count == 0);
    return 0;
}
