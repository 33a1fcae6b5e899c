#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *mf_status_name(mf_status status)
{
    switch (status) {
#define NAME_CASE(name, value, text)                                                               \
    case name:                                                                                     \
        return #name;
        MF_STATUS_LIST(NAME_CASE)
#undef NAME_CASE
    }
    return "MF_ERR_UNKNOWN";
}

const char *mf_status_text(mf_status status)
{
    switch (status) {
#define TEXT_CASE(name, value, text)                                                               \
    case name:                                                                                     \
        return text;
        MF_STATUS_LIST(TEXT_CASE)
#undef TEXT_CASE
    }
    return "unknown status";
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void fill(mf_error *why, mf_status status, const char *file, int line, const char *format,
                 va_list arguments)
{
    why->status = status;
    vsnprintf(why->text, sizeof why->text, format, arguments);
    snprintf(why->origin, sizeof why->origin, "%s:%d", base_name(file), line);
}

mf_status status_fail(mf_error *why, mf_status status, const char *file, int line,
                      const char *format, ...)
{
    if (why) {
        va_list arguments;
        va_start(arguments, format);
        fill(why, status, file, line, format, arguments);
        va_end(arguments);
    }
    return status;
}

mf_status status_fail_errno(mf_error *why, mf_status status, int number, const char *file, int line,
                            const char *format, ...)
{
    if (why) {
        va_list arguments;
        va_start(arguments, format);
        fill(why, status, file, line, format, arguments);
        va_end(arguments);
        size_t used = strlen(why->text);
        char buffer[128];
        /* GNU strerror_r: the returned text may or may not be `buffer`. */
        snprintf(why->text + used, sizeof why->text - used, ": %s",
                 strerror_r(number, buffer, sizeof buffer));
    }
    return status;
}
