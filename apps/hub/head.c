#include "hub/head.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

/* The digits at `text`; returns what follows them, NULL: none, or too many. */
static const char *take_number(uint64_t *out, const char *text)
{
    uint64_t value = 0;

    if (!isdigit((unsigned char)*text)) return NULL;
    for (; isdigit((unsigned char)*text); text++) {
        if (!checked_multiply(&value, value, 10)) return NULL;
        if (!checked_add(&value, value, (uint64_t)(*text - '0'))) return NULL;
    }
    *out = value;
    return text;
}

/* The whole text is a number. */
static bool read_number(uint64_t *out, const char *text)
{
    const char *rest = take_number(out, text);

    return rest && *rest == '\0';
}

static void keep(char *out, size_t capacity, const char *text)
{
    if (strlen(text) < capacity) memcpy(out, text, strlen(text) + 1);
}

/* "abc", W/"abc" and abc are the same entity. */
static void keep_hash(char out[HUB_HASH_CAPACITY], const char *text)
{
    char hash[HUB_HASH_CAPACITY];

    if (strncmp(text, "W/", 2) == 0) text += 2;
    if (*text == '"') text++;
    size_t length = strcspn(text, "\"");
    if (length >= sizeof hash) return;
    memcpy(hash, text, length);
    hash[length] = '\0';
    if (hub_is_hash(hash)) memcpy(out, hash, length + 1);
}

/* "bytes 0-99/1000" */
static void read_range(struct hub_head *head, const char *text)
{
    uint64_t first, last, total;

    if (strncasecmp(text, "bytes ", 6) != 0) return;
    const char *at = take_number(&first, text + 6);
    if (!at || *at != '-') return;
    at = take_number(&last, at + 1);
    if (!at || *at != '/') return;
    at = take_number(&total, at + 1);
    if (!at || *at != '\0' || first > last || last >= total) return;
    head->first = first;
    head->last = last;
    head->total = total;
    head->has_range = true;
}

/* Seconds, or a date. */
static void read_retry(struct hub_head *head, const char *text)
{
    const double longest = 86400;
    uint64_t seconds;
    struct tm date = { 0 };

    if (read_number(&seconds, text)) {
        head->retry_seconds = seconds < (uint64_t)longest ? (double)seconds : longest;
        head->has_retry = true;
    } else if (strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &date)) {
        double left = difftime(timegm(&date), time(NULL));
        head->retry_seconds = left < 0 ? 0 : left > longest ? longest : left;
        head->has_retry = true;
    }
}

/* `<address>; rel="next", <…>; rel="last"`: the address of the next page. */
static void read_link(struct hub_head *head, const char *text)
{
    for (const char *at = strchr(text, '<'); at; at = strchr(at, '<')) {
        const char *address = at + 1, *end = strchr(address, '>');
        if (!end) return;
        const char *stop = strchr(end, '<');
        const char *relation = strcasestr(end, "rel=\"next\"");
        if (!relation) relation = strcasestr(end, "rel=next");
        size_t length = (size_t)(end - address);
        if (relation && (!stop || relation < stop) && length < sizeof head->next) {
            memcpy(head->next, address, length);
            head->next[length] = '\0';
            return;
        }
        at = end;
    }
}

static void begin_response(struct hub_head *head, const char *line)
{
    const char *space = strchr(line, ' ');
    uint64_t status = 0;

    head->status = 0;
    head->has_length = head->has_range = head->has_retry = false;
    head->location[0] = head->next[0] = head->error_code[0] = '\0';
    if (space && take_number(&status, space + 1) && status < 1000) head->status = (unsigned)status;
}

static void take_field(struct hub_head *head, const char *name, const char *value)
{
    uint64_t number;

    if (strcasecmp(name, "content-length") == 0) {
        head->has_length = read_number(&head->length, value);
    } else if (strcasecmp(name, "content-range") == 0) {
        read_range(head, value);
    } else if (strcasecmp(name, "retry-after") == 0) {
        read_retry(head, value);
    } else if (strcasecmp(name, "location") == 0) {
        keep(head->location, sizeof head->location, value);
    } else if (strcasecmp(name, "link") == 0) {
        read_link(head, value);
    } else if (strcasecmp(name, "x-error-code") == 0) {
        keep(head->error_code, sizeof head->error_code, value);
    } else if (strcasecmp(name, "x-repo-commit") == 0) {
        keep_hash(head->commit, value);
    } else if (strcasecmp(name, "x-linked-etag") == 0) {
        keep_hash(head->linked_hash, value);
    } else if (strcasecmp(name, "x-linked-size") == 0 && read_number(&number, value)) {
        head->linked_size = number;
        head->has_linked_size = true;
    }
}

/* Addresses become requests: no line may end inside of one. */
static bool has_control(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char letter = (unsigned char)line[i];
        if ((letter < 0x20 && letter != '\t') || letter == 0x7f) return true;
    }
    return false;
}

void hub_head_take(struct hub_head *head, const char *line, size_t length)
{
    char text[HUB_ADDRESS_CAPACITY + 64];

    while (length > 0 && strchr(" \t\r\n", line[length - 1])) length--;
    if (length >= sizeof text || has_control(line, length)) return; /* nothing of ours */
    memcpy(text, line, length);
    text[length] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        begin_response(head, text);
        return;
    }
    char *colon = strchr(text, ':');
    if (!colon) return;
    *colon = '\0';
    take_field(head, text, colon + 1 + strspn(colon + 1, " \t"));
}

bool hub_read_ref(char out[HUB_HASH_CAPACITY], const char *text, size_t length)
{
    while (length > 0 && strchr(" \t\r\n", text[length - 1])) length--;
    if (length >= HUB_HASH_CAPACITY || memchr(text, '\0', length)) return false;
    char hash[HUB_HASH_CAPACITY];
    memcpy(hash, text, length);
    hash[length] = '\0';
    if (!hub_is_hash(hash)) return false;
    memcpy(out, hash, length + 1);
    return true;
}
