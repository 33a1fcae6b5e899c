/* arguments.c: what every public function does with its arguments. */
#include "api/handles.h"

#include "base/status.h"

void *api_new_handle(const mf_allocator *allocator, size_t bytes)
{
    void *handle = allocator->allocate(allocator->user, bytes, _Alignof(max_align_t));
    return handle ? memset(handle, 0, bytes) : NULL;
}

mf_status api_missing(mf_error *why, const char *argument)
{
    return fail(why, MF_ERR_ARGUMENT, "the argument `%s` is NULL", argument);
}

/* Every public struct of options or statistics begins with its size. */
static mf_status size_of(size_t *out, const void *sized, const char *initialiser, mf_error *why)
{
    memcpy(out, sized, sizeof *out);
    if (*out >= sizeof *out) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "struct_size is %zu: begin with %s", *out, initialiser);
}

mf_status api_options_in(void *out, size_t own_size, const void *options, const char *initialiser,
                         mf_error *why)
{
    size_t size;
    memset(out, 0, own_size);
    if (!options) return MF_OK;
    mf_status status = size_of(&size, options, initialiser, why);
    if (status == MF_OK) memcpy(out, options, min_size(size, own_size));
    return status;
}

mf_status api_statistics_out(void *out, const void *own, size_t own_size, const char *initialiser,
                             mf_error *why)
{
    size_t size;
    mf_status status = size_of(&size, out, initialiser, why);
    if (status != MF_OK) return status;
    memset(out, 0, size);
    memcpy(out, own, min_size(size, own_size));
    memcpy(out, &size, sizeof size);
    return MF_OK;
}
