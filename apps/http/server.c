#include "http/http_internal.h"

#include "common/basics.h"
#include "common/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTION_MEMORY = 64 << 10,
    STACK_BYTES = 1 << 20,
    HEAD_SECONDS = 20,
    BACKLOG = 512,
    SEND_BUFFER = 128 << 10, /* of the kernel, which keeps up to 4 MiB for a client otherwise */
    STALLED_SECONDS = 2,     /* a client sends or takes nothing of what is under way */
    TRICKLING_SECONDS = 10,  /* a body comes, and slowly */
    PAUSES_MS = 2200,        /* of the thread that accepts, in a crowd */
    FAREWELL_MS = 3000
};

uint32_t http_spare_connections(uint32_t limit)
{
    return limit > 64 ? limit / 8 : 8;
}

/* --------------------------------------------------------------- connections */

void connection_enter(struct http_server *server, struct connection *entry,
                      enum connection_phase phase)
{
    if (!entry) return;
    pthread_mutex_lock(&server->lock);
    entry->served |= entry->phase == PHASE_HANDLING;
    entry->phase = phase;
    entry->since = entry->touched = clock_seconds();
    pthread_mutex_unlock(&server->lock);
}

void connection_touch(struct http_server *server, struct connection *entry)
{
    if (!entry) return;
    pthread_mutex_lock(&server->lock);
    entry->touched = clock_seconds();
    pthread_mutex_unlock(&server->lock);
}

/* Under the lock. */
static void end_connection(struct http_server *server, struct connection *entry)
{
    if (entry->ending || entry->descriptor < 0) return;
    entry->ending = true;
    server->ending_count++;
    shutdown(entry->descriptor, SHUT_RDWR);
}

/* Bytes that the client has sent and the connection's thread has not taken yet. */
static bool has_input(const struct connection *entry)
{
    int count = 0;

    return ioctl(entry->descriptor, FIONREAD, &count) == 0 && count > 0;
}

/* Connections make room in this order; LAST_KEPT: it stays. */
enum precedence { FIRST_SILENT, THEN_IDLE, THEN_STALLED, THEN_TRICKLING, LAST_KEPT };

/* What is the server's turn stays, and so does what is young, so that a client has the time to send
 * its head.  Young is less than 1 s with a limit of 1,000, and less with a lower one: then 1,000 new
 * connections a second get their turn whatever the limit is. */
static enum precedence precedence_of(const struct http_server *server,
                                     const struct connection *entry, double now)
{
    double young = server->options.connection_limit / 1000.0;
    bool stalled = now - entry->touched >= STALLED_SECONDS;

    if (entry->ending || entry->descriptor < 0) return LAST_KEPT;
    switch (entry->phase) {
    case PHASE_HEAD:
        if (now - entry->since < young) return LAST_KEPT;
        return entry->served ? THEN_IDLE : FIRST_SILENT;
    case PHASE_BODY:
        if (stalled) return THEN_STALLED;
        return now - entry->since >= TRICKLING_SECONDS ? THEN_TRICKLING : LAST_KEPT;
    case PHASE_SENDING:
        return stalled ? THEN_STALLED : LAST_KEPT;
    default:
        return LAST_KEPT;
    }
}

static struct connection *first_to_end(const struct http_server *server)
{
    struct connection *found = NULL;
    enum precedence best = LAST_KEPT;
    double now = clock_seconds();

    for (struct connection *entry = server->connections; entry; entry = entry->next) {
        enum precedence own = precedence_of(server, entry, now);
        if (own > best || own == LAST_KEPT) continue;
        if (own == best && entry->touched >= found->touched) continue;
        if (entry->phase != PHASE_SENDING && has_input(entry)) continue;
        found = entry;
        best = own;
    }
    return found;
}

/* Above the limit connections that wait for their clients end, so that clients that send or read
 * nothing do not shut others out.  False: there are too many still.  Under the lock. */
static bool make_room(struct http_server *server)
{
    while (server->connection_count - server->ending_count > server->options.connection_limit) {
        struct connection *entry = first_to_end(server);
        if (!entry) return false;
        end_connection(server, entry);
    }
    return true;
}

/* Runs in the thread that accepts.  libmicrohttpd resets what it accepts when the spare connections
 * are taken: before that new connections wait in the kernel's queue, until others have become old
 * enough to make room or those that make room have ended.  The pauses grow with the crowd; up to the
 * last spare connection they are longer than STALLED_SECONDS together. */
static void wait_for_room(struct http_server *server)
{
    size_t half = server->spare / 2, paused_ms = 0;
    bool short_of_room = false;

    for (;; paused_ms++) {
        pthread_mutex_lock(&server->lock);
        bool room = make_room(server);
        size_t most = server->options.connection_limit + half;
        size_t over = server->connection_count > most ? server->connection_count - most : 0;
        pthread_mutex_unlock(&server->lock);
        if (short_of_room && room) return;
        short_of_room = !room;
        if (paused_ms >= over * PAUSES_MS * 2 / (half * (half + 1))) return;
        if (atomic_load(&server->hurry)) return;
        usleep(1000);
    }
}

static void add_connection(struct http_server *server, struct MHD_Connection *connection,
                           void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *entry = calloc(1, sizeof *entry);

    *context = entry;
    if (!entry) return;
    entry->descriptor = info ? info->connect_fd : -1;
    entry->since = entry->touched = clock_seconds();
    pthread_mutex_lock(&server->lock);
    entry->next = server->connections;
    if (entry->next) entry->next->previous = entry;
    server->connections = entry;
    server->connection_count++;
    pthread_mutex_unlock(&server->lock);
    wait_for_room(server);
}

static void remove_connection(struct http_server *server, struct connection *entry)
{
    if (!entry) return;
    pthread_mutex_lock(&server->lock);
    if (entry->previous)
        entry->previous->next = entry->next;
    else
        server->connections = entry->next;
    if (entry->next) entry->next->previous = entry->previous;
    server->connection_count--;
    server->ending_count -= entry->ending;
    pthread_mutex_unlock(&server->lock);
    free(entry);
}

static void note_connection(void *user, struct MHD_Connection *connection, void **context,
                            enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        add_connection(user, connection, context);
    else
        remove_connection(user, *context);
}

static double patience(const struct http_server *server, const struct connection *entry)
{
    switch (entry->phase) {
    case PHASE_HEAD:
        return entry->served ? server->options.idle_seconds : HEAD_SECONDS;
    case PHASE_BODY:
        return server->options.body_seconds;
    default:
        return 1e9;
    }
}

/* Closes connections that are too slow, until the server ends. */
static void *watch_connections(void *user)
{
    struct http_server *server = user;
    struct pollfd stop = { .fd = server->stop, .events = POLLIN };

    while (poll(&stop, 1, 500) <= 0) {
        double now = clock_seconds();
        pthread_mutex_lock(&server->lock);
        for (struct connection *entry = server->connections; entry; entry = entry->next)
            if (now - entry->since > patience(server, entry)) end_connection(server, entry);
        make_room(server);
        pthread_mutex_unlock(&server->lock);
    }
    return NULL;
}

/* ------------------------------------------------------------------- requests */

static enum MHD_Result begin_exchange(struct http_server *server, struct MHD_Connection *connection,
                                      const char *path, const char *method, void **context)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct exchange *exchange = exchange_new(server, connection, method, path);

    if (!exchange) return MHD_NO;
    *context = exchange;
    exchange->entry = info ? info->socket_context : NULL;
    connection_enter(server, exchange->entry, PHASE_BODY);
    exchange->admitted = server->options.admit(server->options.user, exchange);
    const char *length = exchange_header(exchange, "Content-Length");
    unsigned long long declared = length ? strtoull(length, NULL, 10) : 0;
    exchange->too_large = declared > exchange->body_limit;
    if (exchange->admitted && !exchange->too_large) return MHD_YES;
    /* A client that sends its body unasked reads the refusal after that: a connection that is closed
     * before is reset. */
    if (!exchange_header(exchange, "Expect") && declared / 2 <= exchange->body_limit)
        return MHD_YES;
    if (exchange->admitted) server->options.oversize(server->options.user, exchange);
    connection_enter(server, exchange->entry, PHASE_HANDLING);
    /* The body is not read: no further request can follow on this connection. */
    exchange_add_header(exchange, "Connection", "close");
    return exchange_queue(exchange);
}

static bool keep_body(struct exchange *exchange, const char *bytes, size_t count)
{
    if (exchange->spool < 0) return byte_list_append(&exchange->body, bytes, count, NULL) == MF_OK;
    while (count > 0) {
        ssize_t written = write(exchange->spool, bytes, count);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        bytes += written;
        count -= (size_t)written;
    }
    return true;
}

/* What is too large is dropped, so that a client that has sent it reads why; one that goes on beyond
 * twice the limit is cut off. */
static enum MHD_Result take_body(struct exchange *exchange, const char *bytes, size_t count)
{
    connection_touch(exchange->server, exchange->entry);
    exchange->body_bytes += count;
    exchange->too_large |= exchange->body_bytes > exchange->body_limit;
    if (exchange->admitted && !exchange->too_large && !keep_body(exchange, bytes, count))
        exchange->too_large = true;
    return exchange->body_bytes / 2 > exchange->body_limit ? MHD_NO : MHD_YES;
}

static enum MHD_Result take_request(void *user, struct MHD_Connection *connection, const char *path,
                                    const char *method, const char *version, const char *bytes,
                                    size_t *count, void **context)
{
    struct http_server *server = user;
    struct exchange *exchange = *context;

    (void)version;
    if (!exchange) return begin_exchange(server, connection, path, method, context);
    if (*count > 0) {
        size_t taken = *count;
        *count = 0;
        return take_body(exchange, bytes, taken);
    }
    if (exchange->queued) return MHD_YES;
    connection_enter(server, exchange->entry, PHASE_HANDLING);
    if (!exchange->admitted) return exchange_queue(exchange);
    exchange_limit_sending(exchange, false);
    if (exchange->too_large)
        server->options.oversize(server->options.user, exchange);
    else
        server->options.handle(server->options.user, exchange);
    exchange_limit_sending(exchange, true);
    return exchange_queue(exchange);
}

static void end_request(void *user, struct MHD_Connection *connection, void **context,
                        enum MHD_RequestTerminationCode how)
{
    struct exchange *exchange = *context;

    (void)connection;
    (void)how;
    if (exchange) connection_enter(user, exchange->entry, PHASE_HEAD);
    exchange_free(exchange);
    *context = NULL;
}

/* ----------------------------------------------------------------------- life */

static mf_status listen_on(int *out, const struct http_options *options, mf_error *why)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found = NULL;
    char port[8];
    int on = 1, buffer = SEND_BUFFER, descriptor;

    snprintf(port, sizeof port, "%u", options->port);
    int problem = getaddrinfo(options->host, port, &hints, &found);
    if (problem != 0)
        return fail(why, MF_ERR_ARGUMENT, "%.128s is no address of this machine: %s", options->host,
                    gai_strerror(problem));
    descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor >= 0) setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* Connections have it from here. */
    if (descriptor >= 0) setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    if (descriptor < 0 || bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(descriptor, BACKLOG) != 0) {
        int number = errno;
        freeaddrinfo(found);
        if (descriptor >= 0) close(descriptor);
        return fail_errno(why, MF_ERR_IO, number, "%.128s, port %u, cannot be listened on",
                          options->host, options->port);
    }
    freeaddrinfo(found);
    *out = descriptor;
    return MF_OK;
}

static void learn_address(struct http_server *server, int descriptor)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address = { .six = { .sin6_family = AF_UNSPEC } };
    socklen_t length = sizeof address;

    if (getsockname(descriptor, &address.any, &length) != 0) return;
    bool six = address.any.sa_family == AF_INET6;
    const void *bytes = six ? (void *)&address.six.sin6_addr : (void *)&address.four.sin_addr;
    server->port = ntohs(six ? address.six.sin6_port : address.four.sin_port);
    if (!inet_ntop(address.any.sa_family, bytes, server->address, sizeof server->address))
        server->address[0] = '\0';
}

static bool any_handled(struct http_server *server)
{
    bool found = false;

    pthread_mutex_lock(&server->lock);
    for (const struct connection *entry = server->connections; entry; entry = entry->next)
        found |= entry->phase == PHASE_HANDLING || entry->phase == PHASE_SENDING;
    pthread_mutex_unlock(&server->lock);
    return found;
}

/* A line on stderr is for what the program says; libmicrohttpd's own messages are dropped. */
static void drop_message(void *user, const char *format, va_list list)
{
    (void)user;
    (void)format;
    (void)list;
}

static mf_status start_daemon(struct http_server *server, mf_error *why)
{
    int descriptor = -1;
    mf_status status = listen_on(&descriptor, &server->options, why);

    if (status != MF_OK) return status;
    learn_address(server, descriptor);
    server->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
            MHD_USE_ITC | MHD_USE_ERROR_LOG,
        server->port, NULL, NULL, take_request, server, MHD_OPTION_EXTERNAL_LOGGER, drop_message,
        NULL, MHD_OPTION_LISTEN_SOCKET, descriptor, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(server->options.connection_limit + server->spare),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)server->options.send_seconds,
        MHD_OPTION_NOTIFY_COMPLETED, end_request, server, MHD_OPTION_NOTIFY_CONNECTION,
        note_connection, server, MHD_OPTION_END);
    if (server->daemon) return MF_OK;
    close(descriptor);
    return fail(why, MF_ERR_IO, "the HTTP server could not be started");
}

mf_status http_server_open(struct http_server **out, const struct http_options *options,
                           mf_error *why)
{
    struct http_server *server = calloc(1, sizeof *server);
    mf_status status;

    *out = NULL;
    if (!server) return fail_memory(why, sizeof *server);
    server->options = *options;
    server->spare = http_spare_connections(options->connection_limit);
    pthread_mutex_init(&server->lock, NULL);
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = server->stop < 0 ? fail_errno(why, MF_ERR_IO, errno, "no event descriptor")
                              : start_daemon(server, why);
    if (status == MF_OK) {
        server->watching = pthread_create(&server->watch, NULL, watch_connections, server) == 0;
        if (!server->watching) status = fail(why, MF_ERR_MEMORY, "no thread could be started");
    }
    if (status == MF_OK)
        *out = server;
    else
        http_server_close(server);
    return status;
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

size_t http_server_connections(const struct http_server *server)
{
    struct http_server *locked = (struct http_server *)(uintptr_t)server;

    pthread_mutex_lock(&locked->lock);
    size_t count = locked->connection_count;
    pthread_mutex_unlock(&locked->lock);
    return count;
}

void http_server_quiesce(struct http_server *server)
{
    int descriptor = MHD_quiesce_daemon(server->daemon);

    if (descriptor >= 0) close(descriptor);
}

void http_server_hurry(struct http_server *server)
{
    uint64_t one = 1;

    atomic_store(&server->hurry, true);
    if (write(server->stop, &one, sizeof one) < 0) return; /* it is readable already */
}

void http_server_close(struct http_server *server)
{
    if (!server) return;
    if (server->stop >= 0) http_server_hurry(server);
    /* Handlers say what has happened before their connections are closed. */
    for (int i = 0; i < FAREWELL_MS && any_handled(server); i += 10) usleep(10000);
    if (server->watching) pthread_join(server->watch, NULL);
    if (server->daemon) MHD_stop_daemon(server->daemon);
    if (server->stop >= 0) close(server->stop);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
