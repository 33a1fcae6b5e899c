/* failing_allocator.h: a heap that counts, and that fails when it is told to.
 *
 *     struct failing_allocator heap;
 *     failing_allocator_init(&heap);
 *     for (uint64_t nth = 1;; nth++) {
 *         failing_allocator_arm(&heap, nth);
 *         mf_status status = thing_new(&thing, &heap.allocator, ...);
 *         bool fired = failing_allocator_disarm(&heap);
 *         assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
 *         thing_free(thing);
 *         assert_int_equal(heap.live_bytes, 0);
 *         if (!fired) break;
 *     }
 *
 * It also checks its user: an alignment that is no power of two and a release
 * with the wrong size or of memory it did not give end the test.
 * Threads: any; arm and disarm while no thread allocates. */
#ifndef SUPPORT_FAILING_ALLOCATOR_H
#define SUPPORT_FAILING_ALLOCATOR_H

#include "moeflux.h"

#include <stdatomic.h>

struct failing_allocator {
    mf_allocator allocator;
    atomic_uint_fast64_t calls;      /* of allocate, since init or arm */
    atomic_uint_fast64_t live_bytes; /* given and not yet released */
    atomic_uint_fast64_t live_blocks;
    uint64_t fail_at;     /* the call that gets NULL, from 1; 0: none */
    uint64_t limit_bytes; /* limit of live bytes; 0: none */
    atomic_bool fired;
};

void failing_allocator_init(struct failing_allocator *heap);

/* The nth call from now, from 1, gets NULL; those after it succeed again. */
void failing_allocator_arm(struct failing_allocator *heap, uint64_t nth);

/* No more failures; true if there was one since arm. */
bool failing_allocator_disarm(struct failing_allocator *heap);

#endif
