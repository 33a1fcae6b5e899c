#include "model_parts.h"

#include "model_path.h"

#include "base/status.h"
#include "model/model.h"

mf_status model_parts_open(struct model_text *out, const char *model, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = model_path_resolve(path, model, why);

    *out = (struct model_text){ 0 };
    return status == MF_OK ? model_open_text(out, &files_posix, path, why) : status;
}

mf_status model_parts_open_tokenizer(struct model_text *out, const char *model, mf_error *why)
{
    mf_status status = model_parts_open(out, model, why);

    if (status != MF_OK || out->tokenizer) return status;
    model_text_clear(out);
    return fail(why, MF_ERR_UNSUPPORTED, "%.256s has no tokenizer", model ? model : "the model");
}
