#include "model_parts.h"

#include "model_path.h"

mf_status model_tokenizer_new(struct tokenizer **out, const char *model, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = model_path_resolve(path, model, why);

    *out = NULL;
    if (status != MF_OK) return status;
    return tokenizer_open_new(out, &files_posix, path, why);
}
