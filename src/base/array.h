/* array.h: arrays that grow, from the allocator given at open. */
#ifndef BASE_ARRAY_H
#define BASE_ARRAY_H

#include "base/common.h"
#include "moeflux.h"

/* Room for at least one more element of `size` bytes behind the first `*capacity`:
 * doubles, so that filling an array costs time proportional to its end.  The
 * address changes.  False: no memory, and everything is as it was. */
bool array_grow(void **array, size_t *capacity, size_t size, const mf_allocator *allocator);

/* Gives it back; NULL with a capacity of 0 is legal. */
void array_free(void *array, size_t capacity, size_t size, const mf_allocator *allocator);

#endif
