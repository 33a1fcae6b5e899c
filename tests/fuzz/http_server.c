/* Any bytes on a connection to apps/http, with a handler that uses all of an exchange: each reply is
 * one of HTTP, the connection ends, and the next honest request is answered. */
#include "http/server.h"
#include "support/fuzzed_model.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* PATIENCE: of both sides, in seconds.  Clients close their side, so that nothing waits for its end but
 * what hangs, which libFuzzer's own limit of 10 s finds; a starved machine does not reach it. */
enum { INPUT_MAX = 1 << 16, BODY_LIMIT = 4096, HONEST_EACH = 16, PIECES = 3, PATIENCE = 60 };

/* ---------------------------------------------------------------------- the server */

static bool fill(void *user, struct byte_list *out)
{
    int *pieces = user;
    must(byte_list_append(out, "piece\n", 6, NULL) == MF_OK);
    return ++*pieces < PIECES;
}

static bool admit(void *user, struct exchange *exchange)
{
    (void)user;
    must(exchange_method(exchange) && exchange_path(exchange) && exchange_id(exchange));
    const char *host = exchange_header(exchange, "Host"), *query = exchange_query(exchange, "q");
    if (host) exchange_add_header(exchange, "x-host", host);
    if (query) exchange_add_header(exchange, "x-query", query);
    if (strncmp(exchange_path(exchange), "/no", 3) != 0) return true;
    exchange_reply_static(exchange, 403, "text/plain", "no", 2);
    return false;
}

static void handle(void *user, struct exchange *exchange)
{
    (void)user;
    size_t length;
    const char *body = exchange_body(exchange, &length);
    must(length <= BODY_LIMIT && body[length] == '\0');
    if (strcmp(exchange_path(exchange), "/stream") == 0) {
        int *pieces = calloc(1, sizeof *pieces);
        must(pieces != NULL);
        exchange_reply_stream(exchange, "text/plain",
                              &(struct exchange_stream){ fill, free, pieces });
    } else if (strcmp(exchange_path(exchange), "/none") != 0) { /* none: no reply is one, too */
        exchange_reply_copy(exchange, 200, "text/plain", body, length);
    }
}

static void oversize(void *user, struct exchange *exchange)
{
    (void)user;
    exchange_reply_static(exchange, 413, "text/plain", "large", 5);
}

static struct http_server *open_server(void)
{
    static struct http_server *server;
    static const struct http_options options = { .host = "127.0.0.1",
                                                 .body_limit = BODY_LIMIT,
                                                 .connection_limit = 16,
                                                 .body_seconds = PATIENCE,
                                                 .idle_seconds = PATIENCE,
                                                 .send_seconds = PATIENCE,
                                                 .admit = admit,
                                                 .handle = handle,
                                                 .oversize = oversize };
    if (!server) must(http_server_open(&server, &options, NULL) == MF_OK);
    return server;
}

/* ---------------------------------------------------------------------- the client */

static int connect_to(const struct http_server *server)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons(http_server_port(server)) };
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(client >= 0);
    must(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = PATIENCE },
               sizeof(struct timeval));
    return client;
}

/* Sends, closes its side, and reads to the end; at most `capacity` bytes are kept. */
static size_t ask(char *out, size_t capacity, const void *bytes, size_t count)
{
    int client = connect_to(open_server());
    size_t sent = 0, kept = 0;
    char piece[4096];
    ssize_t got;
    while (sent < count) {
        ssize_t now = send(client, (const char *)bytes + sent, count - sent, MSG_NOSIGNAL);
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0) break; /* it has been cut off */
        sent += (size_t)now;
    }
    shutdown(client, SHUT_WR);
    /* With a time limit recv ends with EINTR at each of libFuzzer's alarms. */
    while ((got = recv(client, piece, sizeof piece, 0)) > 0 || (got < 0 && errno == EINTR)) {
        if (got < 0) continue;
        size_t room = capacity - kept, taken = (size_t)got < room ? (size_t)got : room;
        memcpy(out + kept, piece, taken);
        kept += taken;
    }
    must(got == 0 || errno != EAGAIN); /* the connection was closed */
    close(client);
    return kept;
}

static void ask_honestly(void)
{
    static const char request[] = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
                                  "Connection: close\r\n\r\nhello";
    char reply[2048];
    size_t length = ask(reply, sizeof reply, request, sizeof request - 1);
    must(length > 12 && memcmp(reply, "HTTP/1.1 200", 12) == 0);
    must(memcmp(reply + length - 5, "hello", 5) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static unsigned runs;
    char reply[16];
    if (size > INPUT_MAX) return 0;
    size_t length = ask(reply, sizeof reply, data, size);
    must(length == 0 || (length >= 8 && memcmp(reply, "HTTP/1.", 7) == 0));
    /* The thread of the connection ends with what it holds. */
    for (int i = 0; i < 1000 * PATIENCE && http_server_connections(open_server()) > 0; i++)
        usleep(1000);
    must(http_server_connections(open_server()) == 0);
    if (runs++ % HONEST_EACH == 0) ask_honestly();
    return 0;
}
