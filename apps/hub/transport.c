/* transport.c: with libcurl's multi interface.  Redirections are followed by hand, because the token
 * must stay with the hub and http must stay on this machine. */
#include "hub/transport.h"

#include <curl/curl.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

enum { REDIRECTION_LIMIT = 5, CONNECT_SECONDS = 30 };

/* Of a response that brings no file: what a redirection or an error says in its body. */
enum { REMARK_LIMIT = 1 << 20 };

struct origin {
    char scheme[16], host[256], port[8];
};

struct transport {
    CURLM *multi;
    struct origin hub;
    char authorization[600]; /* "" none */
    long idle_seconds;
};

bool transport_is_there(void)
{
    return true;
}

/* --------------------------------------------------------------- addresses */

static bool get_part(char *out, size_t capacity, CURLU *address, CURLUPart part)
{
    char *text = NULL;
    bool good = curl_url_get(address, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                strlen(text) < capacity;

    if (good) memcpy(out, text, strlen(text) + 1);
    curl_free(text);
    return good;
}

static bool is_this_machine(const char *host)
{
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0) return true;
    /* A name such as 127.example.com begins like an address of this machine. */
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host);
}

static bool same_origin(const struct origin *a, const struct origin *b)
{
    return strcasecmp(a->scheme, b->scheme) == 0 && strcasecmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

/* Reads where an address leads.  `from` (may be NULL) is the origin that sends us there. */
static mf_status check_address(struct origin *out, CURLU *address, const struct origin *from,
                               mf_error *why)
{
    char *user = NULL;

    *out = (struct origin){ "", "", "" };
    bool good = get_part(out->scheme, sizeof out->scheme, address, CURLUPART_SCHEME);
    bool https = strcasecmp(out->scheme, "https") == 0, http = strcasecmp(out->scheme, "http") == 0;
    if (good && !http && !https) {
        return fail(why, MF_ERR_ARGUMENT, "%s:// is refused: only https can be used", out->scheme);
    }
    if (!good || !get_part(out->host, sizeof out->host, address, CURLUPART_HOST) ||
        !get_part(out->port, sizeof out->port, address, CURLUPART_PORT)) {
        return fail(why, MF_ERR_ARGUMENT, "the address cannot be used");
    }
    if (curl_url_get(address, CURLUPART_USER, &user, 0) == CURLUE_OK) {
        curl_free(user);
        return fail(why, MF_ERR_ARGUMENT, "an address with a user name in it is refused");
    }
    if (https) return MF_OK;
    if (is_this_machine(out->host) && (!from || is_this_machine(from->host))) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT,
                "http://%.100s is refused: without https anything may be sent in its place",
                out->host);
}

static mf_status read_origin(struct origin *out, const char *address, mf_error *why)
{
    CURLU *parts = curl_url();

    if (!parts) return fail_memory(why, 256);
    mf_status status = curl_url_set(parts, CURLUPART_URL, address, 0) == CURLUE_OK
                           ? check_address(out, parts, NULL, why)
                           : fail(why, MF_ERR_ARGUMENT, "it is no address");
    curl_url_cleanup(parts);
    return status;
}

bool transport_is_hub(const struct transport *transport, const char *address)
{
    struct origin origin;

    return read_origin(&origin, address, NULL) == MF_OK && same_origin(&origin, &transport->hub);
}

/* ------------------------------------------------------------ one transfer */

static bool is_redirection(const struct hub_head *head)
{
    return head->status >= 300 && head->status < 400 && head->status != 304;
}

static size_t take_line(char *line, size_t size, size_t count, void *user)
{
    struct transfer *transfer = user;

    hub_head_take(&transfer->head, line, size * count);
    return size * count;
}

static bool show_head(struct transfer *transfer)
{
    if (transfer->head_shown) return true;
    transfer->head_shown = true;
    return !transfer->on_head || transfer->on_head(transfer);
}

static size_t take_body(char *bytes, size_t size, size_t count, void *user)
{
    struct transfer *transfer = user;

    if (transfer->head.status < 200 || transfer->head.status >= 300) {
        transfer->remark_bytes += size * count;
        if (transfer->remark_bytes > REMARK_LIMIT) {
            snprintf(transfer->problem, sizeof transfer->problem,
                     "the answer of status %u has more than 1 MiB", transfer->head.status);
            return CURL_WRITEFUNC_ERROR;
        }
    }
    if (is_redirection(&transfer->head)) return size * count;
    if (!show_head(transfer)) return CURL_WRITEFUNC_ERROR;
    if (!transfer->on_body(transfer, bytes, size * count)) return CURL_WRITEFUNC_ERROR;
    return size * count;
}

static void drop_handle(struct transfer *transfer)
{
    if (!transfer->easy) return;
    curl_multi_remove_handle(transfer->transport->multi, transfer->easy);
    curl_easy_cleanup(transfer->easy);
    curl_slist_free_all(transfer->fields);
    transfer->easy = transfer->fields = NULL;
}

/* http is for this machine only (check_address) and carries the token as clear text, so a proxy of
 * http_proxy or ALL_PROXY must not see it.  https goes through a proxy by CONNECT, and the proxy gets
 * neither the request's fields nor a say in the response's. */
static void set_proxy(CURL *easy, const struct origin *to)
{
    if (strcasecmp(to->scheme, "https") != 0 || is_this_machine(to->host))
        curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
}

/* Sends a request to transfer->address, whose origin is `to`. */
static mf_status send_request(struct transfer *transfer, const struct origin *to, mf_error *why)
{
    struct transport *transport = transfer->transport;
    bool to_hub = same_origin(to, &transport->hub);
    CURL *easy = curl_easy_init();

    if (!easy) return fail_memory(why, 1024);
    drop_handle(transfer);
    transfer->easy = easy;
    if (to_hub && transport->authorization[0]) {
        transfer->fields = curl_slist_append(NULL, transport->authorization);
        if (!transfer->fields) return fail_memory(why, sizeof transport->authorization);
    }
    curl_easy_setopt(easy, CURLOPT_URL, transfer->address);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->fields);
    curl_easy_setopt(easy, CURLOPT_RANGE, transfer->range[0] ? transfer->range : NULL);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_line);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "moeflux/" MOEFLUX_VERSION);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    set_proxy(easy, to);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT,
                     transport->idle_seconds < CONNECT_SECONDS ? transport->idle_seconds
                                                               : (long)CONNECT_SECONDS);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, transport->idle_seconds);
    /* Ranges of one file must not share a connection: several of them are what makes it fast. */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    if (curl_multi_add_handle(transport->multi, easy) != CURLM_OK) {
        return fail(why, MF_ERR_IO, "a transfer cannot be begun");
    }
    return MF_OK;
}

mf_status transfer_begin(struct transfer *transfer, struct transport *transport,
                         const char *address, uint64_t first, uint64_t end, mf_error *why)
{
    struct origin origin;
    mf_status status = read_origin(&origin, address, why);

    if (status != MF_OK) return status;
    transfer_cancel(transfer);
    free(transfer->address);
    transfer->transport = transport;
    transfer->address = strdup(address);
    if (!transfer->address) return fail_memory(why, strlen(address) + 1);
    transfer->head = (struct hub_head){ .status = 0 };
    transfer->problem[0] = transfer->range[0] = '\0';
    transfer->redirections = 0;
    transfer->remark_bytes = 0;
    transfer->head_shown = false;
    if (end) {
        snprintf(transfer->range, sizeof transfer->range, "%" PRIu64 "-%" PRIu64, first, end - 1);
    }
    status = send_request(transfer, &origin, why);
    if (status == MF_OK)
        transfer->state = TRANSFER_RUNS;
    else
        drop_handle(transfer);
    return status;
}

void transfer_cancel(struct transfer *transfer)
{
    drop_handle(transfer);
    free(transfer->address);
    transfer->address = NULL;
    transfer->state = TRANSFER_IDLE;
}

const char *transfer_address(const struct transfer *transfer)
{
    return transfer->address;
}

/* The address that `text` means in a response of transfer->address, to which relative ones belong;
 * *out is freed with curl_free().  `what` begins the sentence of a failure. */
static mf_status resolve(char **out, struct origin *from, struct origin *to,
                         const struct transfer *transfer, const char *text, const char *what,
                         mf_error *why)
{
    CURLU *parts = curl_url();
    mf_status status = MF_OK;

    *out = NULL;
    if (!parts) return fail_memory(why, 256);
    if (curl_url_set(parts, CURLUPART_URL, transfer->address, 0) != CURLUE_OK ||
        check_address(from, parts, NULL, NULL) != MF_OK ||
        curl_url_set(parts, CURLUPART_URL, text, 0) != CURLUE_OK ||
        curl_url_get(parts, CURLUPART_URL, out, 0) != CURLUE_OK) {
        status = fail(why, MF_ERR_IO, "%s something that is no address", what);
    } else {
        status = check_address(to, parts, from, why);
    }
    curl_url_cleanup(parts);
    return status;
}

static mf_status redirect(struct transfer *transfer, mf_error *why)
{
    struct origin from, to;
    char *next = NULL;

    if (++transfer->redirections > REDIRECTION_LIMIT)
        return fail(why, MF_ERR_IO, "it redirects more than %d times", REDIRECTION_LIMIT);
    if (!transfer->head.location[0])
        return fail(why, MF_ERR_IO, "it redirects without saying where to");
    mf_status status =
        resolve(&next, &from, &to, transfer, transfer->head.location, "it redirects to", why);
    if (status == MF_OK) {
        free(transfer->address);
        transfer->address = strdup(next);
        transfer->remark_bytes = 0;
        status = transfer->address ? send_request(transfer, &to, why)
                                   : fail_memory(why, strlen(next) + 1);
    }
    curl_free(next);
    return status;
}

mf_status transfer_next_page(char *out, size_t capacity, const struct transfer *transfer,
                             mf_error *why)
{
    struct origin from, to;
    char *next = NULL;
    mf_status status = resolve(&next, &from, &to, transfer, transfer->head.next,
                               "the list of files goes on at", why);

    if (status == MF_OK && !same_origin(&from, &to)) {
        status = fail(why, MF_ERR_IO,
                      "the list of files goes on at another server, %s://%.100s, which is refused",
                      to.scheme, to.host);
    }
    if (status == MF_OK && (size_t)snprintf(out, capacity, "%s", next) >= capacity)
        status = fail(why, MF_ERR_FORMAT, "the address of the next page is too long");
    curl_free(next);
    return status;
}

/* Whether another attempt may succeed. */
static bool is_passing(CURLcode code)
{
    switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WRITE_ERROR: /* a callback of ours */
    case CURLE_OUT_OF_MEMORY:
        return false;
    default:
        return true;
    }
}

static void end_transfer(struct transfer *transfer, CURLcode code)
{
    mf_error why = { .text = "" };

    if (code == CURLE_OK && is_redirection(&transfer->head)) {
        if (redirect(transfer, &why) == MF_OK) return;
        snprintf(transfer->problem, sizeof transfer->problem, "%.250s", why.text);
        transfer->state = TRANSFER_REFUSED;
    } else if (code == CURLE_OK) {
        transfer->state = show_head(transfer) ? TRANSFER_DONE : TRANSFER_REFUSED;
    } else {
        transfer->state = is_passing(code) ? TRANSFER_CUT : TRANSFER_REFUSED;
        if (!transfer->problem[0]) {
            snprintf(transfer->problem, sizeof transfer->problem, "%s", curl_easy_strerror(code));
        }
    }
    drop_handle(transfer);
}

/* ------------------------------------------------------------------- whole */

mf_status transport_open(struct transport **out, const struct hub_settings *settings,
                         unsigned idle_seconds, mf_error *why)
{
    struct transport *transport = calloc(1, sizeof *transport);
    mf_error reason = { .text = "" };

    *out = NULL;
    if (!transport) return fail_memory(why, sizeof *transport);
    transport->idle_seconds = (long)idle_seconds;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) transport->multi = curl_multi_init();
    if (!transport->multi) {
        free(transport);
        return fail(why, MF_ERR_IO, "libcurl cannot be initialised");
    }
    if (read_origin(&transport->hub, settings->endpoint, &reason) != MF_OK) {
        transport_close(transport);
        return fail(why, MF_ERR_ARGUMENT, "HF_ENDPOINT=%.200s: %.200s", settings->endpoint,
                    reason.text);
    }
    if (settings->token[0]) {
        snprintf(transport->authorization, sizeof transport->authorization,
                 "Authorization: Bearer %s", settings->token);
    }
    *out = transport;
    return MF_OK;
}

void transport_close(struct transport *transport)
{
    if (!transport) return;
    curl_multi_cleanup(transport->multi);
    curl_global_cleanup();
    free(transport);
}

/* True: a transfer has ended, or goes on at another address. */
static bool take_messages(struct transport *transport)
{
    CURLMsg *message;
    bool any = false;
    int left;

    while ((message = curl_multi_info_read(transport->multi, &left))) {
        struct transfer *transfer = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result; /* the message is gone with its handle */
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        end_transfer(transfer, code);
        any = true;
    }
    return any;
}

mf_status transport_step(struct transport *transport, int wait_ms, mf_error *why)
{
    int running;

    if (curl_multi_perform(transport->multi, &running) != CURLM_OK) {
        return fail(why, MF_ERR_IO, "libcurl cannot go on");
    }
    /* The caller has something to begin now. */
    if (take_messages(transport)) return MF_OK;
    if (curl_multi_poll(transport->multi, NULL, 0, wait_ms, NULL) == CURLM_OK) return MF_OK;
    return fail(why, MF_ERR_IO, "libcurl cannot wait");
}
