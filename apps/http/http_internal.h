/* http_internal.h: what server.c and exchange.c share. */
#ifndef HTTP_INTERNAL_H
#define HTTP_INTERNAL_H

#include "http/server.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

enum connection_phase {
    PHASE_HEAD,
    PHASE_BODY,
    PHASE_HANDLING, /* the server's turn: a handler or a stream's `fill` runs */
    PHASE_SENDING   /* the client's turn: it is to take bytes of the reply */
};

/* One for each open connection, in a list under the server's lock. */
struct connection {
    struct connection *next, *previous;
    int descriptor;
    enum connection_phase phase;
    bool served;    /* at least one request */
    bool ending;    /* it has been shut down, its thread is about to end */
    double since;   /* that it is in this phase */
    double touched; /* bytes came or went, as far as libmicrohttpd tells; at least `since` */
};

struct http_server {
    struct http_options options;
    struct MHD_Daemon *daemon;
    char address[64];
    uint16_t port;
    pthread_t watch;
    bool watching;
    int stop; /* eventfd: readable when handlers must end and the watch, too */
    atomic_bool hurry;
    pthread_mutex_t lock; /* of the list */
    struct connection *connections;
    size_t connection_count, ending_count;
    size_t spare; /* connections above the limit, while others end */
};

enum { EXTRA_HEADERS_MAX = 12 };

struct exchange {
    struct http_server *server;
    struct MHD_Connection *connection;
    struct connection *entry;
    const char *method;
    char *path;
    char id[EXCHANGE_ID_CAPACITY];
    struct byte_list body;
    int spool; /* file of the body; -1: it is in `body` */
    uint64_t body_bytes, body_limit;
    bool admitted, too_large, replied, queued;
    struct MHD_Response *response;
    unsigned status;
    char *names[EXTRA_HEADERS_MAX], *values[EXTRA_HEADERS_MAX];
    size_t header_count;
    struct exchange_stream stream;
    struct byte_list filled; /* of the stream, … */
    size_t taken;            /* … of which so much was handed on */
    bool stream_over;
    void *user;
};

struct exchange *exchange_new(struct http_server *server, struct MHD_Connection *connection,
                              const char *method, const char *path);
void exchange_free(struct exchange *exchange);

/* Queues the response that a handler gave, or 500 where it gave none. */
enum MHD_Result exchange_queue(struct exchange *exchange);

/* Whether a client that takes no bytes is cut off. */
void exchange_limit_sending(const struct exchange *exchange, bool on);

void connection_enter(struct http_server *server, struct connection *entry,
                      enum connection_phase phase);

/* The client has sent a part of a body. */
void connection_touch(struct http_server *server, struct connection *entry);

#endif
