/* array.h: growing arrays and byte buffers. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include "base/common.h"
#include "moeflux.h"

/* Makes room in `*array` for `count` elements of `size` bytes; the array may move.  The capacity at
 * least doubles, so that appending costs amortised constant time.  Memory comes from `allocator`
 * (release it with array_free), or from malloc if that is NULL (release it with free).  After a
 * failure the array is unchanged. */
mf_status array_reserve(void **array, size_t *capacity, size_t count, size_t size,
                        const mf_allocator *allocator, mf_error *why);
#define ARRAY_RESERVE(array, capacity, count, allocator, why)                                      \
    array_reserve((void **)&(array), &(capacity), (count), sizeof *(array), (allocator), (why))

/* The same for a caller that decides how arrays grow: the capacity, which was less, becomes `wanted`. */
mf_status array_enlarge(void **array, size_t *capacity, size_t wanted, size_t size,
                        const mf_allocator *allocator, mf_error *why);

/* Releases the array; NULL with a capacity of 0 is legal. */
void array_free(void *array, size_t capacity, size_t size, const mf_allocator *allocator);

/* Bytes or text, from malloc; initialise with zeroes.  The first failure is sticky, so that code
 * that appends many parts checks once, at the end. */
struct byte_buffer {
    char *data; /* a NUL follows the last byte; NULL before the first append */
    size_t count, capacity;
    bool failed;
};

/* Makes room for `more` bytes and a NUL at data + count. */
bool byte_buffer_reserve(struct byte_buffer *buffer, size_t more);
bool byte_buffer_append(struct byte_buffer *buffer, const void *bytes, size_t count);
bool byte_buffer_append_text(struct byte_buffer *buffer, const char *text);
mf_status byte_buffer_status(const struct byte_buffer *buffer, mf_error *why);
void byte_buffer_free(struct byte_buffer *buffer);

#endif
