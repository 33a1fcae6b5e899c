#include "support/test.h"
#include "support/small_tokenizer.h"
#include "support/token_vectors.h"

#include <stdio.h>
#include <stdlib.h>

mf_status small_tokenizer_try(struct tokenizer **out, const char *text, mf_error *why)
{
    char *json = strdup(text);
    assert_non_null(json);
    for (char *c = json; *c; c++)
        if (*c == '\'') *c = '"';
    mf_status status = tokenizer_parse_new(out, json, strlen(json), "the file", why);
    free(json);
    return status;
}

struct tokenizer *small_tokenizer(const char *text)
{
    struct tokenizer *tokenizer;
    mf_error why;
    if (small_tokenizer_try(&tokenizer, text, &why) != MF_OK)
        fail_msg("%s (%s)", why.text, why.origin);
    return tokenizer;
}

void assert_encodes(const struct tokenizer *tokenizer, const char *text, enum special_mode mode,
                    const char *wanted)
{
    char found[256] = "";
    struct token_list ids = vectors_encode(tokenizer, text, strlen(text), mode);
    for (size_t i = 0; i < ids.count; i++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, i ? " %d" : "%d", ids.ids[i]);
    }
    assert_string_equal(found, wanted);
    token_list_free(&ids);
}
