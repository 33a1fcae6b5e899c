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
