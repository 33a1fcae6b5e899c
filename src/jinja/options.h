/* options.h: the limits of a rendering, and what went wrong with one. */
#ifndef JINJA_OPTIONS_H
#define JINJA_OPTIONS_H

#include "base/common.h"

#include <time.h>

/* What a failed rendering was about.  The names are those of Python's Jinja. */
#define JINJA_ERROR_LIST(X)                                                                        \
    X(NONE, "none")                                                                                \
    X(SYNTAX, "syntax_error")                                                                      \
    X(RAISED, "raise_exception")    /* the template itself refuses the conversation */             \
    X(UNDEFINED, "undefined_error") /* something was asked of a value that is not there */         \
    X(TYPE, "type_error")           /* an operation that the values do not have */                 \
    X(VALUE, "ValueError")          /* an argument outside of what the operation takes */          \
    X(ZERO_DIVISION, "ZeroDivisionError")                                                          \
    X(LIMIT, "limit") /* output, memory, steps or nesting */                                       \
    X(MEMORY, "memory")

enum jinja_error_kind {
#define JINJA_ERROR_ENUM(id, name) JINJA_ERROR_##id,
    JINJA_ERROR_LIST(JINJA_ERROR_ENUM)
#undef JINJA_ERROR_ENUM
};

/* "raise_exception", "type_error", … */
const char *jinja_error_kind_name(enum jinja_error_kind kind);

struct jinja_error {
    enum jinja_error_kind kind;
    unsigned line, column; /* in the template, from 1 */
    char *message;         /* without the position; owned, see jinja_error_clear */
};

void jinja_error_clear(struct jinja_error *error);

struct jinja_options {
    /* The time that strftime_now formats.  NULL: strftime_now is undefined, as templates that use
     * it expect of hosts without a clock. */
    void (*now)(void *user, struct tm *out);
    void *user;
    /* 0: the default, which a conversation of a million tokens does not reach. */
    size_t output_limit_bytes;
    size_t memory_limit_bytes;
    uint64_t step_limit;
    unsigned depth_limit; /* of macros in macros, expressions in expressions, lists in lists */
};

/* For options.now: the time that `user`, an int64_t, has in seconds since 1970, in the machine's time
 * zone; NULL: the machine's clock. */
void jinja_clock_local(void *user, struct tm *out);

#endif
