/* error.c: compiled for the program and for its tests, that is twice in one run of clang-tidy 14,
 * which takes every va_list of the second time for uninitialised: hence NOLINT. */
#include "common/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void begin(mf_error *why, mf_status status, const char *file, int line)
{
    const char *slash = strrchr(file, '/');

    why->status = status;
    snprintf(why->origin, sizeof why->origin, "%s:%d", slash ? slash + 1 : file, line);
}

mf_status error_set(mf_error *why, mf_status status, const char *file, int line, const char *format,
                    ...)
{
    if (why) {
        va_list list;
        begin(why, status, file, line);
        va_start(list, format);
        vsnprintf(why->text, sizeof why->text, format, list); /* NOLINT(clang-analyzer-valist*) */
        va_end(list);
    }
    return status;
}

mf_status error_set_errno(mf_error *why, mf_status status, int number, const char *file, int line,
                          const char *format, ...)
{
    if (why) {
        va_list list;
        begin(why, status, file, line);
        va_start(list, format);
        vsnprintf(why->text, sizeof why->text, format, list); /* NOLINT(clang-analyzer-valist*) */
        va_end(list);
        size_t used = strlen(why->text);
        snprintf(why->text + used, sizeof why->text - used, ": %s", strerror(number));
    }
    return status;
}
