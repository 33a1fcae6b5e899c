#include "base/array.h"

#include "base/status.h"

#include <stdlib.h>

enum { FIRST_COUNT = 4, FIRST_BYTES = 64 };

mf_status array_reserve(void **array, size_t *capacity, size_t count, size_t size,
                        const mf_allocator *allocator, mf_error *why)
{
    if (count <= *capacity) return MF_OK;
    size_t least = max_size(FIRST_COUNT, FIRST_BYTES / size);
    size_t wanted = max_size(max_size(count, least), 2 * *capacity);
    return array_enlarge(array, capacity, wanted, size, allocator, why);
}

mf_status array_enlarge(void **array, size_t *capacity, size_t wanted, size_t size,
                        const mf_allocator *allocator, mf_error *why)
{
    uint64_t bytes;
    if (!checked_multiply(&bytes, wanted, size) || bytes > SIZE_MAX / 4)
        return fail_memory(why, SIZE_MAX);
    void *grown = allocator ? allocator->allocate(allocator->user, bytes, CACHE_LINE)
                            : realloc(*array, bytes);
    if (!grown) return fail_memory(why, bytes);
    if (allocator) {
        if (*capacity) memcpy(grown, *array, *capacity * size);
        array_free(*array, *capacity, size, allocator);
    }
    *array = grown;
    *capacity = wanted;
    return MF_OK;
}

void array_free(void *array, size_t capacity, size_t size, const mf_allocator *allocator)
{
    if (array) allocator->release(allocator->user, array, capacity * size);
}

bool byte_buffer_reserve(struct byte_buffer *buffer, size_t more)
{
    uint64_t end;
    if (!buffer->failed && buffer->capacity - buffer->count > more) return true;
    buffer->failed = buffer->failed || !checked_add(&end, buffer->count + 1, more) ||
                     ARRAY_RESERVE(buffer->data, buffer->capacity, end, NULL, NULL) != MF_OK;
    return !buffer->failed;
}

bool byte_buffer_append(struct byte_buffer *buffer, const void *bytes, size_t count)
{
    if (!byte_buffer_reserve(buffer, count)) return false;
    if (count) memcpy(buffer->data + buffer->count, bytes, count);
    buffer->count += count;
    buffer->data[buffer->count] = '\0';
    return true;
}

bool byte_buffer_append_text(struct byte_buffer *buffer, const char *text)
{
    return byte_buffer_append(buffer, text, strlen(text));
}

mf_status byte_buffer_status(const struct byte_buffer *buffer, mf_error *why)
{
    return buffer->failed ? fail_memory(why, 2 * buffer->capacity) : MF_OK;
}

void byte_buffer_free(struct byte_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct byte_buffer){ 0 };
}
