/* lists.h: arrays that grow, on the C heap.
 *
 * A list that is all zeros is empty and legal everywhere; after a failure it is as it was.
 * Threads: a list has one owner. */
#ifndef COMMON_LISTS_H
#define COMMON_LISTS_H

#include "common/error.h"

#include <stddef.h>
#include <stdint.h>

/* Room for `wanted` elements of `size` bytes; the capacity at least doubles, so that filling an
 * array takes time proportional to its length.  The address may change. */
mf_status list_reserve(void **array, size_t *capacity, size_t size, size_t wanted, mf_error *why);

/* Bytes; `bytes` is terminated by a NUL that is not counted once something was appended. */
struct byte_list {
    char *bytes;
    size_t count, capacity;
};

mf_status byte_list_append(struct byte_list *list, const void *bytes, size_t count, mf_error *why);
void byte_list_free(struct byte_list *list);

/* Token ids. */
struct id_list {
    int32_t *ids;
    size_t count, capacity;
};

mf_status id_list_append(struct id_list *list, int32_t id, mf_error *why);
void id_list_free(struct id_list *list);

#endif
