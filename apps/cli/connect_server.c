/* connect_server.c: one question to a running server. */
#include "connect.h"

#include "common/basics.h"
#include "common/json.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REPLY_LIMIT = 4 << 20, SECONDS = 10 };

/* "http://[::1]:8080" → "::1" and "8080". */
static bool split_url(const char *url, char *host, size_t capacity, char port[8])
{
    const char *at = url + strlen("http://"), *end, *colon;

    if (strncmp(url, "http://", strlen("http://")) != 0) return false;
    bool six = *at == '[';
    end = six ? strchr(at, ']') : at + strcspn(at, ":/");
    if (!end || (size_t)(end - at) >= capacity) return false;
    snprintf(host, capacity, "%.*s", (int)(end - at - six), at + six);
    colon = six ? end + 1 : end;
    snprintf(port, 8, "%.6s", *colon == ':' ? colon + 1 : "80");
    return *host && *port && port[strspn(port, "0123456789")] == '\0';
}

static int connect_to(const char *host, const char *port)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list;
    struct timeval patience = { .tv_sec = SECONDS };
    int made = -1;

    if (getaddrinfo(host, port, &hints, &list) != 0) return -1;
    for (struct addrinfo *one = list; one && made < 0; one = one->ai_next) {
        made = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
        if (made < 0) continue;
        setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        if (connect(made, one->ai_addr, one->ai_addrlen) == 0) break;
        close(made);
        made = -1;
    }
    freeaddrinfo(list);
    return made;
}

/* The whole reply; the server closes the connection behind it. */
static mf_status exchange(struct byte_list *out, const struct connect_target *target, mf_error *why)
{
    char host[256], port[8], question[1200], piece[4096];
    ssize_t got;

    if (!split_url(target->url, host, sizeof host, port))
        return fail(why, MF_ERR_ARGUMENT,
                    "\"%.200s\" is not the address of a server, as http://127.0.0.1:8080",
                    target->url);
    int length =
        snprintf(question, sizeof question,
                 "GET /v1/moeflux/info HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
                 "%s%s%s\r\n",
                 target->url + strlen("http://"), target->key[0] ? "Authorization: Bearer " : "",
                 target->key, target->key[0] ? "\r\n" : "");
    int made = connect_to(host, port);
    if (made < 0)
        return fail(why, MF_ERR_IO, "no server answers at %.200s: `moeflux serve` starts one",
                    target->url);
    bool sent = send(made, question, (size_t)length, MSG_NOSIGNAL) == length;
    while (sent && out->count < REPLY_LIMIT && (got = recv(made, piece, sizeof piece, 0)) > 0)
        byte_list_append(out, piece, (size_t)got, NULL);
    close(made);
    if (out->count > 0) return MF_OK;
    return fail(why, MF_ERR_IO, "%.200s closed the connection without a reply", target->url);
}

static mf_status read_info(struct connect_target *target, const json_t *info, mf_error *why)
{
    const json_t *model = json_object_get(info, "model");
    const char *name = json_string_value(json_object_get(model, "name"));
    json_int_t context = json_integer_value(json_object_get(model, "context"));

    if (!name || strpbrk(name, "\"\\\n") || context <= 0 || context > INT32_MAX)
        return fail(why, MF_ERR_FORMAT, "%.200s does not answer as moeflux does", target->url);
    snprintf(target->model, sizeof target->model, "%s", name);
    target->context = (uint32_t)context;
    return MF_OK;
}

mf_status connect_ask(struct connect_target *target, mf_error *why)
{
    struct byte_list reply = { 0 };
    json_t *info = NULL;
    mf_status status = exchange(&reply, target, why);

    if (status == MF_OK) {
        const char *body = strstr(reply.bytes, "\r\n\r\n");
        long code =
            strncmp(reply.bytes, "HTTP/1.1 ", 9) == 0 ? strtol(reply.bytes + 9, NULL, 10) : 0;
        if (body) info = json_loads(body + 4, 0, NULL);
        const char *said =
            json_string_value(json_object_get(json_object_get(info, "error"), "message"));
        if (code == 200)
            status = read_info(target, info, why);
        else
            status = fail(why, MF_ERR_IO, "%.200s answers with status %ld: %.300s", target->url,
                          code, said ? said : "it is not moeflux");
    }
    json_decref(info);
    byte_list_free(&reply);
    return status;
}
