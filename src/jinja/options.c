#include "jinja/options.h"

#include "base/clock.h"

#include <stdlib.h>

const char *jinja_error_kind_name(enum jinja_error_kind kind)
{
    switch (kind) {
#define JINJA_ERROR_NAME(id, name)                                                                 \
    case JINJA_ERROR_##id:                                                                         \
        return name;
        JINJA_ERROR_LIST(JINJA_ERROR_NAME)
#undef JINJA_ERROR_NAME
    }
    return "unknown";
}

void jinja_error_clear(struct jinja_error *error)
{
    free(error->message);
    *error = (struct jinja_error){ 0 };
}

void jinja_clock_local(void *user, struct tm *out)
{
    const int64_t *given = user;
    time_t now = (time_t)(given ? *given : clock_calendar_seconds());
    localtime_r(&now, out);
}
