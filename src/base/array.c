#include "base/array.h"

bool array_grow(void **array, size_t *capacity, size_t size, const mf_allocator *allocator)
{
    size_t wider = *capacity ? *capacity * 2 : 16;
    uint64_t bytes;
    if (wider < *capacity || !checked_multiply(&bytes, wider, size) || bytes > SIZE_MAX / 2)
        return false;
    void *copy = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!copy) return false;
    if (*capacity) memcpy(copy, *array, *capacity * size);
    array_free(*array, *capacity, size, allocator);
    *array = copy;
    *capacity = wider;
    return true;
}

void array_free(void *array, size_t capacity, size_t size, const mf_allocator *allocator)
{
    if (array) allocator->release(allocator->user, array, capacity * size);
}
