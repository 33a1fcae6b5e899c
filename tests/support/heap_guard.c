#include "support/heap_guard.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static atomic_bool watching;
static atomic_uint_fast64_t allocations;

static void note(void)
{
    if (atomic_load_explicit(&watching, memory_order_relaxed)) atomic_fetch_add(&allocations, 1);
}

/* With -Wl,--wrap=malloc the linker makes `malloc` of every caller __wrap_malloc, and of
 * __real_malloc the C library's. */
#define WRAP(result, name, parameters, arguments)                                                  \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        note();                                                                                    \
        return __real_##name arguments;                                                            \
    }

WRAP(void *, malloc, (size_t bytes), (bytes))
WRAP(void *, calloc, (size_t count, size_t bytes), (count, bytes))
WRAP(void *, realloc, (void *old, size_t bytes), (old, bytes))
WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
WRAP(int, posix_memalign, (void **out, size_t alignment, size_t bytes), (out, alignment, bytes))
WRAP(char *, strdup, (const char *text), (text))
WRAP(char *, strndup, (const char *text, size_t limit), (text, limit))

void heap_guard_begin(void)
{
    atomic_store(&allocations, 0);
    atomic_store(&watching, true);
}

uint64_t heap_guard_end(void)
{
    atomic_store(&watching, false);
    return atomic_load(&allocations);
}
