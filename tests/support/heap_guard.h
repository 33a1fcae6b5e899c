/* heap_guard.h: proof that a stretch of code takes nothing from the heap.
 *
 *     heap_guard_begin();
 *     status = mf_sequence_feed(sequence, &token, 1, &why);
 *     assert_int_equal(heap_guard_end(), 0);
 *
 * The linker sends every allocating call of the test program, the library in it
 * included, through here: the program names `heap_guard` among its dependencies
 * in meson.build.  Calls inside other shared libraries are not seen.
 * Threads: the calls of all are counted; begin and end belong to one. */
#ifndef SUPPORT_HEAP_GUARD_H
#define SUPPORT_HEAP_GUARD_H

#include <stdint.h>

void heap_guard_begin(void);

/* How many allocations there were since begin. */
uint64_t heap_guard_end(void);

#endif
