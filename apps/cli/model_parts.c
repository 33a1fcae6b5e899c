#include "model_parts.h"

#include "model_path.h"

#include "common/error.h"

#include <stdlib.h>

mf_status model_parts_open(mf_text **out, const char *model, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = model_path_resolve(path, model, why);

    *out = NULL;
    return status == MF_OK ? mf_text_open(out, path, NULL, why) : status;
}

mf_status model_parts_open_tokenizer(mf_text **out, const char *model, mf_error *why)
{
    mf_status status = model_parts_open(out, model, why);

    if (status != MF_OK || mf_text_token_count(*out) > 0) return status;
    mf_text_close(*out);
    *out = NULL;
    return fail(why, MF_ERR_UNSUPPORTED, "%.256s has no tokenizer", model ? model : "the model");
}

mf_status text_tokenize(struct id_list *out, const mf_text *text, const char *bytes, size_t length,
                        mf_special special, mf_error *why)
{
    size_t count = length / 2 + 64; /* most texts have fewer; otherwise the call says how many */
    mf_status status;

    *out = (struct id_list){ 0 };
    do {
        int32_t *larger = realloc(out->ids, count * sizeof *out->ids);
        if (!larger) {
            status = fail_memory(why, count * sizeof *out->ids);
            break;
        }
        out->ids = larger;
        out->capacity = count;
        status =
            mf_text_tokenize(text, out->ids, out->capacity, &count, bytes, length, special, why);
    } while (status == MF_ERR_BUFFER_SIZE && count > out->capacity);
    out->count = count;
    if (status != MF_OK) id_list_free(out);
    return status;
}
