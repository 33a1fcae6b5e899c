/* Any bytes as a tokenizer.json, and text through whatever tokenizer that gives.
 *
 *     input:  the JSON, and after a NUL the text; without one a fixed text
 *
 * What was encoded must decode, and in plain mode no special token may come of it. */
#include "tokenizer/internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char fixed_text[] =
    "Hello, wor\xFFld!  It's 2024\r\n <|x|> e\u0301 \u4E16\u754C \U0001F600";

static void decode(const struct tokenizer *tokenizer, const struct token_list *ids, bool plain)
{
    size_t capacity = token_stream_capacity(tokenizer);
    char *out = malloc(capacity);
    struct token_stream stream = { 0 };
    if (!out) return;
    for (size_t i = 0; i < ids->count; i++) {
        if (!tokenizer_token_text(tokenizer, ids->ids[i])) abort();
        if (plain && tokenizer_is_special(tokenizer, ids->ids[i])) abort();
        if (token_stream_push(&stream, tokenizer, ids->ids[i], out, capacity) > capacity) abort();
    }
    token_stream_flush(&stream, out, capacity);
    free(out);
}

static void encode(const struct tokenizer *tokenizer, const char *text, size_t length)
{
    static const enum special_mode modes[] = { SPECIAL_PARSE, SPECIAL_AS_TEXT, SPECIAL_NONE };
    mf_error why;
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        struct token_list ids = { 0 };
        if (tokenizer_encode(&ids, tokenizer, text, length, modes[i], &why) == MF_OK)
            decode(tokenizer, &ids, modes[i] != SPECIAL_PARSE);
        token_list_free(&ids);
    }
    tokenizer_find(tokenizer, "<|im_end|>");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *json = (const char *)data, *end = memchr(data, 0, size);
    size_t length = end ? (size_t)(end - json) : size;
    struct tokenizer *tokenizer;
    mf_error why;
    if (tokenizer_parse_new(&tokenizer, json, length, "input", &why) != MF_OK) {
        if (tokenizer || !why.text[0]) abort();
        return 0;
    }
    if (end)
        encode(tokenizer, end + 1, size - length - 1);
    else
        encode(tokenizer, fixed_text, sizeof fixed_text - 1);
    tokenizer_free(tokenizer);
    return 0;
}
