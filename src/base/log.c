#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_note(const struct logger *logger, mf_log_level level, const char *format, ...)
{
    if (!logger || !logger->write) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    logger->write(logger->user, level, text);
}
