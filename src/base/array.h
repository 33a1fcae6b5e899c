/* array.h: arrays and texts that grow. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include "base/common.h"
#include "moeflux.h"

/* Room in `*array` for `count` elements of `size` bytes; doubles at least, so that filling an
 * array costs time proportional to its length.  The address changes.  Memory comes from `allocator`
 * (array_free gives it back), or from malloc where it is NULL (free does).  After a failure all is
 * as it was. */
mf_status array_reserve(void **array, size_t *capacity, size_t count, size_t size,
                        const mf_allocator *allocator, mf_error *why);
#define ARRAY_RESERVE(array, capacity, count, allocator, why)                                      \
    array_reserve((void **)&(array), &(capacity), (count), sizeof *(array), (allocator), (why))

/* Gives it back; NULL with a capacity of 0 is legal. */
void array_free(void *array, size_t capacity, size_t size, const mf_allocator *allocator);

/* Bytes or text, from malloc; all zeros to begin with.  The first failure sticks, so that a text
 * made of many parts is checked once, at its end. */
struct byte_buffer {
    char *data; /* with a NUL behind the last byte appended; NULL: nothing was appended */
    size_t count, capacity;
    bool failed;
};

/* Room for `more` further bytes and a NUL, to be written behind data[count]. */
bool byte_buffer_reserve(struct byte_buffer *buffer, size_t more);
bool byte_buffer_append(struct byte_buffer *buffer, const void *bytes, size_t count);
bool byte_buffer_append_text(struct byte_buffer *buffer, const char *text);
mf_status byte_buffer_status(const struct byte_buffer *buffer, mf_error *why);
void byte_buffer_free(struct byte_buffer *buffer);

#endif
