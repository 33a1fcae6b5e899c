/* find.c: mf_model_find: from a model's name to its path. */
#include "api/handles.h"

#include "base/status.h"
#include "checkpoint/hub.h"

mf_status mf_model_find(char *out, size_t capacity, const char *name, const char *cache,
                        const mf_files *files, mf_error *why)
{
    char path[PATH_CAPACITY];
    if (!out) return api_missing(why, "out");
    if (!name) return api_missing(why, "name");
    mf_status status = hub_find(path, files ? files : &files_posix, name, cache, why);
    if (status != MF_OK) return status;
    if (strlen(path) >= capacity)
        return fail(why, MF_ERR_BUFFER_SIZE, "the path has %zu bytes and a NUL, `out` has %zu",
                    strlen(path), capacity);
    memcpy(out, path, strlen(path) + 1);
    return MF_OK;
}
