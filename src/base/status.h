/* status.h: reporting errors.
 *
 *     if (rank > 8) return fail(why, MF_ERR_FORMAT, "%s: tensor %s has rank %u, at most 8", ...);
 *
 * `fail` fills *why, unless `why` is NULL, and returns the status, so that an error is one
 * statement.  The text is one sentence for the user: what is wrong, what was found, what was
 * expected. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "moeflux.h"

#define fail(why, status, ...)                                                                     \
    STATUS_IS(status, status_fail((why), (status), __FILE__, __LINE__, __VA_ARGS__))

/* As fail, with ": " and the description of errno value `number` appended. */
#define fail_errno(why, status, number, ...)                                                       \
    STATUS_IS(status, status_fail_errno((why), (status), (number), __FILE__, __LINE__, __VA_ARGS__))

#define fail_memory(why, bytes)                                                                    \
    fail((why), MF_ERR_MEMORY, "out of memory: %zu bytes could not be allocated", (size_t)(bytes))

/* Tells the static analyzer, which does not see into status.c, which status is returned. */
#ifdef __clang_analyzer__
#define STATUS_IS(status, call) ((call), (status))
#else
#define STATUS_IS(status, call) (call)
#endif

mf_status status_fail(mf_error *why, mf_status status, const char *file, int line,
                      const char *format, ...) MF_PRINTF(5, 6);
mf_status status_fail_errno(mf_error *why, mf_status status, int number, const char *file, int line,
                            const char *format, ...) MF_PRINTF(6, 7);

#endif
