/* tokenize.c: text to token ids and back. */
#include "api/handles.h"

#include "base/status.h"

static mf_status need_tokenizer(const mf_model *model, mf_error *why)
{
    if (model->text.tokenizer) return MF_OK;
    return fail(why, MF_ERR_UNSUPPORTED, "%s has no tokenizer.json", model->model.path);
}

mf_status mf_model_tokenize(const mf_model *model, int32_t *out, size_t capacity, size_t *count,
                            const char *text, size_t length, mf_special special, mf_error *why)
{
    if (!model) return api_missing(why, "model");
    if (!count) return api_missing(why, "count");
    if (!text && length > 0) return api_missing(why, "text");
    if (!out && capacity > 0) return api_missing(why, "out");
    static const enum special_mode modes[] = { [MF_SPECIAL_PARSE] = SPECIAL_PARSE,
                                               [MF_SPECIAL_AS_TEXT] = SPECIAL_AS_TEXT,
                                               [MF_SPECIAL_NONE] = SPECIAL_NONE };
    if ((size_t)special >= COUNT_OF(modes))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_special", (int)special);
    struct token_list list = { 0 };
    *count = 0;
    mf_status status = need_tokenizer(model, why);
    if (status == MF_OK)
        status = tokenizer_encode(&list, model->text.tokenizer, text, length, modes[special], why);
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

const char *mf_model_token_bytes(const mf_model *model, int32_t token, size_t *length)
{
    size_t unused;
    if (!length) length = &unused;
    *length = 0;
    if (!model || !model->text.tokenizer) return NULL;
    return tokenizer_token_bytes(model->text.tokenizer, token, length);
}
