#include "common/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void fill(mf_error *why, mf_status status, const char *file, int line, const char *format,
                 va_list list)
{
    const char *slash = strrchr(file, '/');

    why->status = status;
    vsnprintf(why->text, sizeof why->text, format, list);
    snprintf(why->origin, sizeof why->origin, "%s:%d", slash ? slash + 1 : file, line);
}

mf_status error_set(mf_error *why, mf_status status, const char *file, int line, const char *format,
                    ...)
{
    va_list list;

    if (!why) return status;
    va_start(list, format);
    fill(why, status, file, line, format, list);
    va_end(list);
    return status;
}

mf_status error_set_errno(mf_error *why, mf_status status, int number, const char *file, int line,
                          const char *format, ...)
{
    va_list list;
    size_t used;

    if (!why) return status;
    va_start(list, format);
    fill(why, status, file, line, format, list);
    va_end(list);
    used = strlen(why->text);
    snprintf(why->text + used, sizeof why->text - used, ": %s", strerror(number));
    return status;
}
