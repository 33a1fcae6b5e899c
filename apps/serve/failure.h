/* failure.h: what a client is told when a request cannot be answered.
 *
 * The situation is the same in all APIs, its shape is not: failure_reply writes that of the route's
 * dialect.  Texts about a context that is too small are looked for by agents, word by word. */
#ifndef SERVE_FAILURE_H
#define SERVE_FAILURE_H

#include "http/exchange.h"

#include <jansson.h>

enum dialect {
    DIALECT_OPENAI,    /* {"error":{"message","type","param","code"}} */
    DIALECT_ANTHROPIC, /* {"type":"error","error":{"type","message"},"request_id"} */
    DIALECT_OLLAMA     /* {"error":"…"} */
};

enum failure_kind {
    FAILURE_INVALID,    /* 400: the request is wrong */
    FAILURE_TOO_LONG,   /* 400: the prompt does not fit the context */
    FAILURE_KEY,        /* 401 */
    FAILURE_FORBIDDEN,  /* 403 */
    FAILURE_NOT_FOUND,  /* 404 */
    FAILURE_METHOD,     /* 405 */
    FAILURE_CONFLICT,   /* 409 */
    FAILURE_TOO_LARGE,  /* 413 */
    FAILURE_MEDIA_TYPE, /* 415 */
    FAILURE_BUSY,       /* 429, with Retry-After */
    FAILURE_ENGINE,     /* 500, not to be tried again */
    FAILURE_IMPOSSIBLE, /* 501 */
    FAILURE_LATE,
    /* 504: it took too long; not to be tried again */ FAILURE_CLOSING /* 503, with Retry-After */
};

struct failure {
    enum failure_kind kind;
    const char *code;   /* of OpenAI's API: "unknown_parameter", …; NULL: by kind */
    const char *detail; /* of Anthropic's API: error.details.error_code; NULL: none */
    char param[64];     /* the field that is wrong, or "" */
    char message[640];
};

/* Fills it and returns false, so that a reader of fields can end with `return refuse(…)`.
 * `param` may be NULL. */
bool refuse(struct failure *failure, enum failure_kind kind, const char *param, const char *format,
            ...) MF_PRINTF(4, 5);

/* The same with a code of OpenAI's API. */
bool refuse_code(struct failure *failure, const char *code, const char *param, const char *format,
                 ...) MF_PRINTF(4, 5);

/* From an error of the library. */
bool refuse_error(struct failure *failure, const mf_error *why);

/* The prompt has `tokens` of them, `most` fit. */
bool refuse_too_long(struct failure *failure, size_t tokens, size_t most);

unsigned failure_status(const struct failure *failure);

/* The body's object in the shape of a dialect; the caller owns it. */
json_t *failure_json_new(const struct failure *failure, enum dialect dialect,
                         const char *request_id);

void failure_reply(struct exchange *exchange, enum dialect dialect, const struct failure *failure);

#endif
