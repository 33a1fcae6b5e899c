/* server.h: HTTP/1.1 on libmicrohttpd: connections, limits, and a handler for complete requests.
 *
 * A connection has a thread while it is open.  A watch closes connections that are too slow:
 *
 *     accepted ─▶ head ─▶ body ─▶ handling ─▶ idle ─▶ head …
 *                  │ 20 s  │ body_seconds      │ idle_seconds
 *                  └───────┴───────────────────┴──▶ closed
 *
 * and libmicrohttpd those that take no bytes of a reply for send_seconds. */
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
