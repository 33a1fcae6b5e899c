/* exchange.h: one HTTP request and its reply.
 *
 *     head arrives ─▶ checked ─▶ body arrives ─▶ the handler runs, in a thread of this connection
 *                                                   │ replies once: bytes, or a stream
 *                                                   ▼
 *                                     a stream's `fill` runs until it says that it is over
 *
 * Lifetimes: an exchange is valid in the handler, and for a stream until `closed`; texts are
 * borrowed from it.
 * Threads: a handler may block; other connections have threads of their own. */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include "common/lists.h"

struct exchange;

enum { EXCHANGE_ID_CAPACITY = 40 };

/* "POST"; and the path without its query, "/v1/models". */
const char *exchange_method(const struct exchange *exchange);
const char *exchange_path(const struct exchange *exchange);

/* NULL: there is none.  Names of headers are compared without regard to case. */
const char *exchange_header(const struct exchange *exchange, const char *name);
const char *exchange_query(const struct exchange *exchange, const char *name);

/* Terminated by a NUL that is not counted; "" where there is none. */
const char *exchange_body(const struct exchange *exchange, size_t *length);

/* In admit: the body goes to a file, which is closed with the exchange, instead of memory; `limit`
 * takes the place of http_options.body_limit.  -1: it was not asked for. */
void exchange_spool_body(struct exchange *exchange, int descriptor, uint64_t limit);
int exchange_spool(const struct exchange *exchange, uint64_t *length);

/* As in the headers x-request-id and request-id of the reply: "req_…". */
const char *exchange_id(const struct exchange *exchange);

/* What the handler's caller attached to it; NULL before. */
void exchange_set_user(struct exchange *exchange, void *user);
void *exchange_user(const struct exchange *exchange);

/* A further header of the reply; control characters in the value become spaces. */
void exchange_add_header(struct exchange *exchange, const char *name, const char *value);

/* Exactly one of these replies.  `bytes` are copied by the first, freed with free() by the second,
 * and borrowed for the life of the program by the third. */
void exchange_reply_copy(struct exchange *exchange, unsigned status, const char *type,
                         const char *bytes, size_t length);
void exchange_reply_own(struct exchange *exchange, unsigned status, const char *type, char *bytes,
                        size_t length);
void exchange_reply_static(struct exchange *exchange, unsigned status, const char *type,
                           const void *bytes, size_t length);

/* `length` bytes of a file; takes the descriptor over. */
void exchange_reply_file(struct exchange *exchange, unsigned status, const char *type,
                         int descriptor, uint64_t length);

struct exchange_stream {
    /* Appends at least a byte to `out`, waiting for it if need be; false: the stream is over, what
     * was appended is still sent. */
    bool (*fill)(void *user, struct byte_list *out);
    /* The last call, also when the client has gone away. */
    void (*closed)(void *user);
    void *user;
};

/* The reply is status 200 with a body of unknown length.  If the stream cannot begin, `closed` is
 * called. */
void exchange_reply_stream(struct exchange *exchange, const char *type,
                           const struct exchange_stream *stream);

/* The kernel keeps about `bytes` for a client that does not read, and `fill` waits: for streams
 * of which only the newest part is of use. */
void exchange_limit_buffer(struct exchange *exchange, int bytes);

/* Whether a reply was given. */
bool exchange_has_reply(const struct exchange *exchange);

/* Waits until `descriptor` is readable (an eventfd), for `seconds` at most.  EXCHANGE_GONE: the
 * client has closed its side, or the server shuts down at once. */
enum exchange_wait { EXCHANGE_READY, EXCHANGE_TIMEOUT, EXCHANGE_GONE };
enum exchange_wait exchange_wait(const struct exchange *exchange, int descriptor, double seconds);

#endif
