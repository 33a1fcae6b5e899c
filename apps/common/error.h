/* error.h: how a function of the programs says what went wrong.
 *
 *     if (count > 8) return fail(why, MF_ERR_ARGUMENT, "%s has %zu fields, at most 8", ...);
 *
 * `fail` fills *why (may be NULL) and returns the status; `fail_errno` appends the description
 * of an errno value; `fail_memory` names the bytes that were asked for. */
#ifndef COMMON_ERROR_H
#define COMMON_ERROR_H

#include "moeflux.h"

#define fail(why, status, ...)                                                                     \
    ERROR_STATUS(status, error_set((why), (status), __FILE__, __LINE__, __VA_ARGS__))
#define fail_errno(why, status, number, ...)                                                       \
    ERROR_STATUS(status,                                                                           \
                 error_set_errno((why), (status), (number), __FILE__, __LINE__, __VA_ARGS__))
#define fail_memory(why, bytes)                                                                    \
    fail((why), MF_ERR_MEMORY, "out of memory: %zu bytes could not be allocated", (size_t)(bytes))

/* The static analyzer does not see into error.c: tell it which status comes back. */
#ifdef __clang_analyzer__
#define ERROR_STATUS(status, call) ((call), (status))
#else
#define ERROR_STATUS(status, call) (call)
#endif

mf_status error_set(mf_error *why, mf_status status, const char *file, int line, const char *format,
                    ...) MF_PRINTF(5, 6);
mf_status error_set_errno(mf_error *why, mf_status status, int number, const char *file, int line,
                          const char *format, ...) MF_PRINTF(6, 7);

#endif
