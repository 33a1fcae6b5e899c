/* text.c: mf_text_*: tokenizer, special tokens and generation defaults of a checkpoint. */
#include "api/handles.h"

#include "base/file.h"
#include "base/status.h"
#include "chat/output_parser.h"

#include <stdlib.h>

const mf_text *mf_model_text(const mf_model *model)
{
    return model ? &model->text : NULL;
}

mf_status mf_text_open(mf_text **out, const char *path, const mf_files *files, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!path) return api_missing(why, "path");
    mf_text *text = calloc(1, sizeof *text);
    if (!text) return fail_memory(why, sizeof *text);
    mf_status status = model_open_text(&text->parts, files ? files : &files_posix, path, why);
    text->chat.chat = text->parts.chat;
    if (status == MF_OK)
        *out = text;
    else
        free(text);
    return status;
}

void mf_text_close(mf_text *text)
{
    if (!text) return;
    model_text_clear(&text->parts);
    free(text);
}

/* ------------------------------------------------------------------ tokens */

mf_status api_need_tokenizer(const mf_text *text, mf_error *why)
{
    if (!text) return api_missing(why, "text");
    if (text->parts.tokenizer) return MF_OK;
    return fail(why, MF_ERR_UNSUPPORTED, "the checkpoint has no tokenizer");
}

mf_status mf_text_tokenize(const mf_text *text, int32_t *out, size_t capacity, size_t *count,
                           const char *bytes, size_t length, mf_special special, mf_error *why)
{
    if (!text) return api_missing(why, "text");
    if (!count) return api_missing(why, "count");
    if (!bytes && length > 0) return api_missing(why, "bytes");
    if (!out && capacity > 0) return api_missing(why, "out");
    static const enum special_mode modes[] = { [MF_SPECIAL_PARSE] = SPECIAL_PARSE,
                                               [MF_SPECIAL_AS_TEXT] = SPECIAL_AS_TEXT,
                                               [MF_SPECIAL_NONE] = SPECIAL_NONE };
    if ((size_t)special >= COUNT_OF(modes))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_special", (int)special);
    struct token_list list = { 0 };
    *count = 0;
    mf_status status = api_need_tokenizer(text, why);
    if (status == MF_OK)
        status = tokenizer_encode(&list, text->parts.tokenizer, bytes, length, modes[special], why);
    if (status == MF_OK) {
        *count = list.count;
        if (list.count > capacity)
            status = fail(why, MF_ERR_BUFFER_SIZE, "the text has %zu tokens, there is room for %zu",
                          list.count, capacity);
        else if (list.count > 0)
            memcpy(out, list.ids, list.count * sizeof *out);
    }
    token_list_free(&list);
    return status;
}

/* NULL where there is none, also for a NULL text. */
static const struct tokenizer *tokenizer_of(const mf_text *text)
{
    return text ? text->parts.tokenizer : NULL;
}

size_t mf_text_token_count(const mf_text *text)
{
    return tokenizer_of(text) ? tokenizer_size(tokenizer_of(text)) : 0;
}

const char *mf_text_token_bytes(const mf_text *text, int32_t token, size_t *length)
{
    size_t unwanted;
    if (!length) length = &unwanted;
    *length = 0;
    return tokenizer_of(text) ? tokenizer_token_bytes(tokenizer_of(text), token, length) : NULL;
}

const char *mf_text_token_name(const mf_text *text, int32_t token)
{
    return tokenizer_of(text) ? tokenizer_token_text(tokenizer_of(text), token) : NULL;
}

int32_t mf_text_find_token(const mf_text *text, const char *name)
{
    return tokenizer_of(text) && name ? tokenizer_find(tokenizer_of(text), name) : -1;
}

bool mf_text_is_special(const mf_text *text, int32_t token)
{
    return tokenizer_of(text) && tokenizer_is_special(tokenizer_of(text), token);
}

int32_t mf_text_bos(const mf_text *text)
{
    return tokenizer_of(text) ? tokenizer_bos(tokenizer_of(text)) : -1;
}

const char *mf_text_bos_token(const mf_text *text)
{
    return text ? json_string_value(text->parts.bos) : NULL;
}

const char *mf_text_eos_token(const mf_text *text)
{
    return text ? json_string_value(text->parts.eos) : NULL;
}

/* ------------------------------------------------------------------ families */

const char *mf_text_family(const mf_text *text)
{
    if (!text) return NULL;
    const struct chat_template *chat = text->parts.chat;
    const struct output_family *family =
        chat ? output_family_detect(chat_template_source(chat)) : output_family_find("think");
    return output_family_name(family);
}

const char *mf_family_name(size_t index)
{
    const struct output_family *family = output_family_at(index);
    return family ? output_family_name(family) : NULL;
}

mf_status api_find_family(const struct output_family **out, const char *name, mf_error *why)
{
    *out = output_family_find(name);
    return *out ? MF_OK : fail(why, MF_ERR_ARGUMENT, "there is no family \"%.64s\"", name);
}

/* ------------------------------------------------------------------ defaults */

mf_status mf_text_sampling(const mf_text *text, mf_sampler_options *out, mf_error *why)
{
    if (!text) return api_missing(why, "text");
    if (!out) return api_missing(why, "out");
    const struct sampler_options *from = &text->parts.sampling;
    mf_sampler_options own = { .temperature = from->temperature,
                               .top_k = (uint32_t)from->top_k,
                               .top_p = from->top_p,
                               .min_p = from->min_p,
                               .repetition_penalty = from->repetition_penalty };
    return api_statistics_out(out, &own, sizeof own, "MF_SAMPLER_OPTIONS_INIT", why);
}
