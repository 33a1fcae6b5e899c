/* basics.h: the few helpers that every file of the programs needs. */
#ifndef COMMON_BASICS_H
#define COMMON_BASICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

enum { PATH_CAPACITY = 4096 }; /* of every path, its NUL included */

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* False when the result does not fit. */
static inline bool checked_multiply(uint64_t *out, uint64_t a, uint64_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool checked_add(uint64_t *out, uint64_t a, uint64_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

#endif
