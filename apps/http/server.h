/* server.h: HTTP/1.1 on libmicrohttpd: connections, limits, and a handler for complete requests.
 *
 * A connection has a thread while it is open.  A watch closes connections that are too slow:
 *
 *     accepted ─▶ head ─▶ body ─▶ handling ◀─▶ sending ─▶ idle ─▶ head …
 *                  │ 20 s  │ body_seconds         │          │ idle_seconds
 *                  └───────┴──────────────────────┴──────────┴──▶ closed
 *
 * and libmicrohttpd those that neither send nor take a byte for send_seconds.
 *
 * Above connection_limit connections are closed, those that have waited longest first: in `head`
 * before their first request; then in `idle`; then in `body` or `sending` without a byte for 2 s; then
 * bodies that take more than 10 s.  Not closed are those that are handled, that have only come, and
 * that have sent bytes which have not been read.  Where none can be closed new ones wait, in the
 * kernel. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "http/exchange.h"

struct http_server;

struct http_options {
    const char *host;  /* an address, or "localhost" */
    uint16_t port;     /* 0: the kernel chooses */
    size_t body_limit; /* bytes */
    uint32_t connection_limit;
    double body_seconds, idle_seconds, send_seconds;
    /* When the head is there: true to read the body; false: it has replied. */
    bool (*admit)(void *user, struct exchange *exchange);
    /* When the body is there: replies.  A body above the limit gets `oversize` instead. */
    void (*handle)(void *user, struct exchange *exchange);
    void (*oversize)(void *user, struct exchange *exchange);
    void *user;
};

/* Connections beyond the limit that may be open for a moment, while others end. */
uint32_t http_spare_connections(uint32_t limit);

mf_status http_server_open(struct http_server **out, const struct http_options *options,
                           mf_error *why);

/* "127.0.0.1", and the port that it listens on. */
const char *http_server_address(const struct http_server *server);
uint16_t http_server_port(const struct http_server *server);

/* Connections now. */
size_t http_server_connections(const struct http_server *server);

/* No new connections; those that are handled go on. */
void http_server_quiesce(struct http_server *server);

/* From now on exchange_wait returns EXCHANGE_GONE. */
void http_server_hurry(struct http_server *server);

/* Waits until handlers have returned.  NULL is legal. */
void http_server_close(struct http_server *server);

#endif
