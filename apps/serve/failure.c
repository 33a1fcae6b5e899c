#include "serve/failure.h"

#include "common/basics.h"
#include "serve/reply.h"

#include <stdarg.h>
#include <stdio.h>

/* By enum failure_kind. */
static const struct kind {
    unsigned status;
    const char *openai_type, *openai_code, *anthropic_type;
} kinds[] = {
    [FAILURE_INVALID] = { 400, "invalid_request_error", NULL, "invalid_request_error" },
    [FAILURE_TOO_LONG] = { 400, "invalid_request_error", "context_length_exceeded",
                           "invalid_request_error" },
    [FAILURE_KEY] = { 401, "invalid_request_error", "invalid_api_key", "authentication_error" },
    [FAILURE_FORBIDDEN] = { 403, "invalid_request_error", "forbidden", "permission_error" },
    [FAILURE_NOT_FOUND] = { 404, "invalid_request_error", "not_found", "not_found_error" },
    [FAILURE_METHOD] = { 405, "invalid_request_error", "method_not_allowed",
                         "invalid_request_error" },
    [FAILURE_CONFLICT] = { 409, "invalid_request_error", "conflict", "invalid_request_error" },
    [FAILURE_TOO_LARGE] = { 413, "invalid_request_error", "request_too_large",
                            "request_too_large" },
    [FAILURE_MEDIA_TYPE] = { 415, "invalid_request_error", "unsupported_media_type",
                             "invalid_request_error" },
    [FAILURE_BUSY] = { 429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error" },
    [FAILURE_ENGINE] = { 500, "server_error", NULL, "api_error" },
    [FAILURE_IMPOSSIBLE] = { 501, "invalid_request_error", "not_supported",
                             "invalid_request_error" },
    [FAILURE_LATE] = { 504, "server_error", "timeout", "timeout_error" },
    [FAILURE_CLOSING] = { 503, "server_error", "overloaded", "overloaded_error" },
};

static void set(struct failure *failure, enum failure_kind kind, const char *param)
{
    *failure = (struct failure){ .kind = kind };
    if (param) snprintf(failure->param, sizeof failure->param, "%s", param);
}

bool refuse(struct failure *failure, enum failure_kind kind, const char *param, const char *format,
            ...)
{
    va_list list;

    set(failure, kind, param);
    va_start(list, format);
    vsnprintf(failure->message, sizeof failure->message, format, list);
    va_end(list);
    return false;
}

bool refuse_code(struct failure *failure, const char *code, const char *param, const char *format,
                 ...)
{
    va_list list;

    set(failure, FAILURE_INVALID, param);
    failure->code = code;
    va_start(list, format);
    vsnprintf(failure->message, sizeof failure->message, format, list);
    va_end(list);
    return false;
}

static enum failure_kind kind_of(mf_status status)
{
    switch (status) {
    case MF_ERR_BUSY:
        return FAILURE_BUSY;
    case MF_ERR_CONTEXT_FULL:
        return FAILURE_TOO_LONG;
    case MF_ERR_MEMORY:
    case MF_ERR_IO:
    case MF_ERR_NOT_FINITE:
        return FAILURE_ENGINE;
    case MF_ERR_CANCELLED:
        return FAILURE_CLOSING;
    default:
        return FAILURE_INVALID;
    }
}

bool refuse_error(struct failure *failure, const mf_error *why)
{
    return refuse(failure, kind_of(why->status), NULL, "%s", why->text);
}

bool refuse_too_long(struct failure *failure, size_t tokens, size_t most)
{
    return refuse(failure, FAILURE_TOO_LONG, NULL,
                  "prompt is too long: %zu tokens > %zu maximum; it exceeds the available context "
                  "size",
                  tokens, most);
}

unsigned failure_status(const struct failure *failure)
{
    return kinds[failure->kind].status;
}

/* What the client cannot use, for those that go on without it. */
static json_t *details_new(const struct failure *failure)
{
    if (!failure->detail) return NULL;
    return json_pack("{s:s, s:[s]}", "error_code", failure->detail, "unsupported", failure->param);
}

json_t *failure_json_new(const struct failure *failure, enum dialect dialect,
                         const char *request_id)
{
    const struct kind *kind = &kinds[failure->kind];
    /* What a request is quoted with may be cut inside a character. */
    json_t *message = json_text_new(failure->message, strlen(failure->message));
    json_t *param = json_text_new(failure->param, strlen(failure->param));
    json_t *out;

    switch (dialect) {
    case DIALECT_ANTHROPIC:
        out = json_pack("{s:s, s:{s:s, s:O, s:o*}, s:s?}", "type", "error", "error", "type",
                        kind->anthropic_type, "message", message, "details", details_new(failure),
                        "request_id", request_id);
        break;
    case DIALECT_OLLAMA:
        out = json_pack("{s:O}", "error", message);
        break;
    default:
        out = json_pack("{s:{s:O, s:s, s:O, s:s?}}", "error", "message", message, "type",
                        kind->openai_type, "param", failure->param[0] ? param : json_null(), "code",
                        failure->code ? failure->code : kind->openai_code);
        break;
    }
    json_decref(message);
    json_decref(param);
    return out;
}

static bool accepts_pages(const struct exchange *exchange)
{
    const char *accept = exchange_header(exchange, "Accept");

    return accept && strstr(accept, "text/html");
}

void failure_reply(struct exchange *exchange, enum dialect dialect, const struct failure *failure)
{
    unsigned status = failure_status(failure);

    if (status == 429) exchange_add_header(exchange, "Retry-After", "2");
    if (status == 503) exchange_add_header(exchange, "Retry-After", "5");
    if (status == 500 || status == 504 || status == 501)
        exchange_add_header(exchange, "x-should-retry", "false");
    /* A browser that opens the page asks its user for the key. */
    bool browser = status == 401 && accepts_pages(exchange);
    if (status == 401)
        exchange_add_header(exchange, "WWW-Authenticate",
                            browser ? "Basic realm=\"moeflux: the key is the password\""
                                    : "Bearer");
    reply_json(exchange, status, failure_json_new(failure, dialect, exchange_id(exchange)));
}
