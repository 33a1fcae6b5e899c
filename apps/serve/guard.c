#include "serve/guard.h"

#include "common/basics.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <strings.h>

/* The time depends on the length of what was sent, not on where it differs. */
static bool same_secret(const char *given, const char *own)
{
    size_t length = strlen(own), count = strlen(given);
    unsigned differences = length != count;

    for (size_t i = 0; i < count; i++)
        differences |= (unsigned char)given[i] ^ (unsigned char)own[i % (length + 1)];
    return differences == 0;
}

/* The password of "Basic base64(user:password)", as browsers send it; "" if there is none. */
static void read_password(char *out, size_t capacity, const char *encoded)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t length = 0;
    unsigned bits = 0, count = 0;

    for (; *encoded && length + 1 < capacity; encoded++) {
        const char *letter = strchr(letters, *encoded);
        if (!letter) break;
        bits = bits << 6 | (unsigned)(letter - letters);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out[length++] = (char)(bits >> count & 0xFF);
    }
    out[length] = '\0';
    const char *colon = strchr(out, ':');
    memmove(out, colon ? colon + 1 : "", colon ? strlen(colon) : 1);
}

uint32_t guard_owner(const struct serve *serve, const struct exchange *exchange)
{
    const char *bearer = exchange_header(exchange, "Authorization");
    const char *given = exchange_header(exchange, "x-api-key");
    char password[512] = "";
    uint32_t owner = 0;

    if (bearer && strncasecmp(bearer, "Basic ", 6) == 0) {
        read_password(password, sizeof password, bearer + 6);
        bearer = password;
    } else if (bearer) {
        bearer = strncasecmp(bearer, "Bearer ", 7) == 0 ? bearer + 7 : NULL;
    }
    /* All of them are compared, whichever it is. */
    for (size_t i = 0; i < serve->options.key_count; i++) {
        bool known = given && same_secret(given, serve->options.keys[i]);
        known |= bearer && same_secret(bearer, serve->options.keys[i]);
        if (known && owner == 0) owner = (uint32_t)i + 1;
    }
    return owner;
}

bool guard_key(const struct serve *serve, const struct exchange *exchange, struct failure *failure)
{
    if (serve->options.key_count == 0 || guard_owner(serve, exchange) > 0) return true;
    bool tried =
        exchange_header(exchange, "Authorization") || exchange_header(exchange, "x-api-key");
    return refuse(failure, FAILURE_KEY, NULL,
                  tried ? "Incorrect API key provided"
                        : "No API key was given: send it as \"Authorization: Bearer KEY\" or "
                          "\"x-api-key: KEY\"");
}

/* The host of "name:port", "[::1]:port" or "name", without brackets. */
static void host_of(char *out, size_t capacity, const char *text)
{
    bool bracket = *text == '[';
    size_t length = bracket ? strcspn(++text, "]") : strcspn(text, ":");

    length = min_size(length, capacity - 1);
    memcpy(out, text, length);
    out[length] = '\0';
}

static bool is_address(const char *host)
{
    unsigned char bytes[16];

    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

bool guard_origin(const struct serve *serve, const struct exchange *exchange,
                  struct failure *failure)
{
    const char *host = exchange_header(exchange, "Host");
    const char *origin = exchange_header(exchange, "Origin");
    char name[256];

    host_of(name, sizeof name, host ? host : "");
    bool own = name[0] == '\0' || is_address(name) || strcasecmp(name, "localhost") == 0 ||
               strcasecmp(name, serve->options.host) == 0 || serve->options.any_host;
    if (!own && serve->options.key_count == 0)
        return refuse(failure, FAILURE_FORBIDDEN, NULL,
                      "the Host \"%.100s\" is not this server's: use its address or localhost, or "
                      "start it with --any-host or a key",
                      name);
    if (!origin) return true;
    const char *rest = strstr(origin, "://");
    if (rest && host && strcasecmp(rest + 3, host) == 0) return true;
    return refuse(
        failure, FAILURE_FORBIDDEN, NULL,
        "the Origin \"%.100s\" is not this server's own page: requests of other pages are "
        "not accepted",
        origin);
}

bool guard_type(const struct exchange *exchange, bool upload, struct failure *failure)
{
    const char *type = exchange_header(exchange, "Content-Type");
    const char *wanted = upload ? "multipart/form-data" : "application/json";
    const char *length = exchange_header(exchange, "Content-Length");
    size_t named = type ? strcspn(type, "; \t") : 0;

    if (strcmp(exchange_method(exchange), "POST") != 0) return true;
    bool has_body =
        exchange_header(exchange, "Transfer-Encoding") || (length && strcmp(length, "0") != 0);
    if (!has_body && !type) return true;
    if (named == strlen(wanted) && strncasecmp(type, wanted, named) == 0) return true;
    return refuse(failure, FAILURE_MEDIA_TYPE, NULL,
                  "the Content-Type is \"%.100s\", %s was expected", type ? type : "", wanted);
}
