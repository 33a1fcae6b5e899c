/* log.h: log messages, passed to the callback given at engine open.  The library never prints;
 * without a callback messages are dropped. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "moeflux.h"

struct logger {
    mf_log_function write; /* may be NULL */
    void *user;
};

void log_note(const struct logger *logger, mf_log_level level, const char *format, ...)
    MF_PRINTF(3, 4);

#endif
