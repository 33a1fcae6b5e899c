#include "http/http_internal.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/basics.h"

/* ------------------------------------------------------------------ life */

static void choose_id(char out[EXCHANGE_ID_CAPACITY])
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[24];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, 0, sizeof random);
    char *at = out + sprintf(out, "req_");
    for (size_t i = 0; i < sizeof random; i++) *at++ = letters[random[i] % (sizeof letters - 1)];
    *at = '\0';
}

struct exchange *exchange_new(struct http_server *server, struct MHD_Connection *connection,
                              const char *method, const char *path)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    char *copy = strdup(path);

    if (!exchange || !copy) {
        free(exchange);
        free(copy);
        return NULL;
    }
    exchange->server = server;
    exchange->connection = connection;
    exchange->method = method;
    exchange->path = copy;
    exchange->spool = -1;
    exchange->body_limit = server->options.body_limit;
    choose_id(exchange->id);
    return exchange;
}

void exchange_free(struct exchange *exchange)
{
    if (!exchange) return;
    if (exchange->stream.closed) exchange->stream.closed(exchange->stream.user);
    if (exchange->response) MHD_destroy_response(exchange->response);
    for (size_t i = 0; i < exchange->header_count; i++) {
        free(exchange->names[i]);
        free(exchange->values[i]);
    }
    if (exchange->spool >= 0) close(exchange->spool);
    byte_list_free(&exchange->body);
    byte_list_free(&exchange->filled);
    free(exchange->path);
    free(exchange);
}

/* --------------------------------------------------------------- the request */

const char *exchange_method(const struct exchange *exchange)
{
    return exchange->method;
}

const char *exchange_path(const struct exchange *exchange)
{
    return exchange->path;
}

const char *exchange_header(const struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

const char *exchange_query(const struct exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *exchange_body(const struct exchange *exchange, size_t *length)
{
    if (length) *length = exchange->body.count;
    return exchange->body.bytes ? exchange->body.bytes : "";
}

void exchange_spool_body(struct exchange *exchange, int descriptor, uint64_t limit)
{
    exchange->spool = descriptor;
    exchange->body_limit = limit;
}

int exchange_spool(const struct exchange *exchange, uint64_t *length)
{
    *length = exchange->body_bytes;
    return exchange->spool;
}

const char *exchange_id(const struct exchange *exchange)
{
    return exchange->id;
}

void exchange_set_user(struct exchange *exchange, void *user)
{
    exchange->user = user;
}

void *exchange_user(const struct exchange *exchange)
{
    return exchange->user;
}

/* ----------------------------------------------------------------- the reply */

void exchange_add_header(struct exchange *exchange, const char *name, const char *value)
{
    size_t count = exchange->header_count;
    char *own_name = strdup(name), *own_value = strdup(value);

    if (!own_name || !own_value || count == EXTRA_HEADERS_MAX) {
        free(own_name);
        free(own_value);
        return;
    }
    for (char *c = own_value; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = ' ';
    exchange->names[count] = own_name;
    exchange->values[count] = own_value;
    exchange->header_count++;
}

bool exchange_has_reply(const struct exchange *exchange)
{
    return exchange->replied;
}

static void set_reply(struct exchange *exchange, unsigned status, const char *type,
                      struct MHD_Response *response)
{
    if (exchange->response) MHD_destroy_response(exchange->response);
    exchange->response = response;
    exchange->status = status;
    exchange->replied = true;
    if (response && type) MHD_add_response_header(response, "Content-Type", type);
}

void exchange_reply_copy(struct exchange *exchange, unsigned status, const char *type,
                         const char *bytes, size_t length)
{
    set_reply(
        exchange, status, type,
        MHD_create_response_from_buffer(length, (void *)(uintptr_t)bytes, MHD_RESPMEM_MUST_COPY));
}

void exchange_reply_own(struct exchange *exchange, unsigned status, const char *type, char *bytes,
                        size_t length)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, bytes, MHD_RESPMEM_MUST_FREE);

    if (!response) free(bytes);
    set_reply(exchange, status, type, response);
}

void exchange_reply_static(struct exchange *exchange, unsigned status, const char *type,
                           const void *bytes, size_t length)
{
    set_reply(
        exchange, status, type,
        MHD_create_response_from_buffer(length, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT));
}

void exchange_reply_file(struct exchange *exchange, unsigned status, const char *type,
                         int descriptor, uint64_t length)
{
    struct MHD_Response *response = MHD_create_response_from_fd64(length, descriptor);

    if (!response) close(descriptor);
    set_reply(exchange, status, type, response);
}

/* libmicrohttpd counts the time in which a handler or `fill` waits as inactivity of the client:
 * its limit is off meanwhile. */
void exchange_limit_sending(const struct exchange *exchange, bool on)
{
    unsigned seconds = on ? (unsigned)exchange->server->options.send_seconds : 0;

    MHD_set_connection_option(exchange->connection, MHD_CONNECTION_OPTION_TIMEOUT, seconds);
}

/* libmicrohttpd wants the next bytes of a stream. */
static ssize_t read_stream(void *user, uint64_t position, char *out, size_t most)
{
    struct exchange *exchange = user;
    struct byte_list *filled = &exchange->filled;

    (void)position;
    while (exchange->taken == filled->count) {
        if (exchange->stream_over) return MHD_CONTENT_READER_END_OF_STREAM;
        filled->count = exchange->taken = 0;
        connection_enter(exchange->server, exchange->entry, PHASE_HANDLING);
        exchange_limit_sending(exchange, false);
        exchange->stream_over = !exchange->stream.fill(exchange->stream.user, filled);
        exchange_limit_sending(exchange, true);
    }
    connection_enter(exchange->server, exchange->entry, PHASE_SENDING);
    size_t count = min_size(most, filled->count - exchange->taken);
    memcpy(out, filled->bytes + exchange->taken, count);
    exchange->taken += count;
    return (ssize_t)count;
}

enum { STREAM_BLOCK = 16 << 10 };

void exchange_reply_stream(struct exchange *exchange, const char *type,
                           const struct exchange_stream *stream)
{
    exchange->stream = *stream;
    set_reply(exchange, MHD_HTTP_OK, type,
              MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream,
                                                exchange, NULL));
    if (exchange->response) {
        MHD_add_response_header(exchange->response, "Cache-Control", "no-cache");
        MHD_add_response_header(exchange->response, "X-Accel-Buffering", "no");
    }
}

void exchange_limit_buffer(struct exchange *exchange, int bytes)
{
    if (exchange->entry && exchange->entry->descriptor >= 0)
        setsockopt(exchange->entry->descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static void add_headers(const struct exchange *exchange)
{
    struct MHD_Response *response = exchange->response;

    MHD_add_response_header(response, "x-request-id", exchange->id);
    MHD_add_response_header(response, "request-id", exchange->id);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    for (size_t i = 0; i < exchange->header_count; i++)
        MHD_add_response_header(response, exchange->names[i], exchange->values[i]);
}

enum MHD_Result exchange_queue(struct exchange *exchange)
{
    if (!exchange->response) {
        static const char text[] = "{\"error\":{\"message\":\"no memory is left for a reply\","
                                   "\"type\":\"server_error\",\"param\":null,\"code\":null}}";
        exchange_reply_static(exchange, MHD_HTTP_INTERNAL_SERVER_ERROR, "application/json", text,
                              sizeof text - 1);
        if (!exchange->response) return MHD_NO;
    }
    add_headers(exchange);
    exchange->queued = true;
    connection_enter(exchange->server, exchange->entry, PHASE_SENDING);
    return MHD_queue_response(exchange->connection, exchange->status, exchange->response);
}

enum exchange_wait exchange_wait(const struct exchange *exchange, int descriptor, double seconds)
{
    struct pollfd watched[3] = { { .fd = descriptor, .events = POLLIN },
                                 { .fd = exchange->entry ? exchange->entry->descriptor : -1,
                                   .events = POLLRDHUP },
                                 { .fd = exchange->server->stop, .events = POLLIN } };

    if (atomic_load(&exchange->server->hurry)) return EXCHANGE_GONE;
    int found = poll(watched, COUNT_OF(watched), (int)(seconds * 1000));
    if (found <= 0) return EXCHANGE_TIMEOUT;
    if (watched[1].revents || watched[2].revents) return EXCHANGE_GONE;
    return EXCHANGE_READY;
}
