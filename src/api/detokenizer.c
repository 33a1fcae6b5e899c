/* detokenizer.c: mf_detokenizer_*: tokens to whole characters. */
#include "api/handles.h"

#include "base/status.h"
#include "base/unicode.h"
#include "base/utf8.h"
#include "chat/output_family.h"

#include <stdlib.h>

struct mf_detokenizer {
    const mf_text *text;
    bool show_special;
    const struct output_family *family; /* NULL: no special token is shown */
    struct token_stream stream;
    char *bytes;  /* [capacity] what the stream makes ready */
    char *output; /* [capacity * 3] the same as UTF-8: a byte becomes at most U+FFFD */
    size_t capacity;
};

mf_status mf_detokenizer_open(mf_detokenizer **out, const mf_text *text,
                              const mf_detokenizer_options *options, mf_error *why)
{
    mf_detokenizer_options own;
    const struct output_family *family = NULL;
    if (!out) return api_missing(why, "out");
    *out = NULL;
    mf_status status = api_need_tokenizer(text, why);
    if (status == MF_OK)
        status = api_options_in(&own, sizeof own, options, "MF_DETOKENIZER_OPTIONS_INIT", why);
    if (status == MF_OK && own.family) status = api_find_family(&family, own.family, why);
    if (status != MF_OK) return status;
    mf_detokenizer *detokenizer = calloc(1, sizeof *detokenizer);
    if (!detokenizer) return fail_memory(why, sizeof *detokenizer);
    size_t capacity = token_stream_capacity(text->parts.tokenizer);
    *detokenizer = (mf_detokenizer){ .text = text,
                                     .show_special = own.show_special,
                                     .family = family,
                                     .bytes = malloc(capacity),
                                     .output = malloc(capacity * 3),
                                     .capacity = capacity };
    if (!detokenizer->bytes || !detokenizer->output) {
        mf_detokenizer_close(detokenizer);
        return fail_memory(why, capacity * 4);
    }
    *out = detokenizer;
    return MF_OK;
}

void mf_detokenizer_close(mf_detokenizer *detokenizer)
{
    if (!detokenizer) return;
    free(detokenizer->bytes);
    free(detokenizer->output);
    free(detokenizer);
}

/* The first `count` bytes as UTF-8. */
static const char *as_text(mf_detokenizer *detokenizer, size_t count, size_t *length)
{
    const char *bytes = detokenizer->bytes;
    size_t used = 0;
    for (size_t at = 0; at < count;) {
        size_t valid = unicode_check(bytes + at, count - at);
        memcpy(detokenizer->output + used, bytes + at, valid);
        used += valid;
        at += valid;
        if (at == count) break;
        memcpy(detokenizer->output + used, UTF8_REPLACEMENT, 3);
        used += 3;
        at++;
    }
    *length = used;
    return detokenizer->output;
}

static bool is_shown(const mf_detokenizer *detokenizer, int32_t token)
{
    const struct tokenizer *tokenizer = detokenizer->text->parts.tokenizer;
    size_t length;
    if (detokenizer->show_special || !tokenizer_is_special(tokenizer, token)) return true;
    const char *bytes = tokenizer_token_bytes(tokenizer, token, &length);
    return bytes && detokenizer->family &&
           output_family_has_markup(detokenizer->family, bytes, length);
}

const char *mf_detokenizer_push(mf_detokenizer *detokenizer, int32_t token, size_t *length)
{
    size_t unwanted;
    if (!length) length = &unwanted;
    *length = 0;
    if (!detokenizer || !is_shown(detokenizer, token)) return "";
    size_t count = token_stream_push(&detokenizer->stream, detokenizer->text->parts.tokenizer,
                                     token, detokenizer->bytes, detokenizer->capacity);
    return as_text(detokenizer, count, length);
}

const char *mf_detokenizer_flush(mf_detokenizer *detokenizer, size_t *length)
{
    size_t unwanted;
    if (!length) length = &unwanted;
    *length = 0;
    if (!detokenizer) return "";
    size_t count =
        token_stream_flush(&detokenizer->stream, detokenizer->bytes, detokenizer->capacity);
    detokenizer->stream = (struct token_stream){ 0 };
    if (count == 0) return detokenizer->output;
    *length = 3;
    return memcpy(detokenizer->output, UTF8_REPLACEMENT, 3);
}
