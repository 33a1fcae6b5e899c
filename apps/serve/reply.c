#include "serve/reply.h"

#include "common/basics.h"

#include <stdlib.h>

enum { JSON_FORM = JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY };

void reply_json(struct exchange *exchange, unsigned status, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_FORM) : NULL;

    json_decref(value);
    if (text)
        exchange_reply_own(exchange, status, "application/json", text, strlen(text));
    else
        exchange_reply_static(exchange, 500, "application/json", "{}", 2);
}

bool text_add(struct byte_list *out, const char *text)
{
    return byte_list_append(out, text, strlen(text), NULL) == MF_OK;
}

static int add_bytes(const char *bytes, size_t count, void *out)
{
    return byte_list_append(out, bytes, count, NULL) == MF_OK ? 0 : -1;
}

static bool add_json(struct byte_list *out, json_t *data)
{
    bool done = data && json_dump_callback(data, add_bytes, out, JSON_FORM) == 0;

    json_decref(data);
    return done;
}

bool sse_add(struct byte_list *out, const char *event, json_t *data)
{
    if (event && !(text_add(out, "event: ") && text_add(out, event) && text_add(out, "\n"))) {
        json_decref(data);
        return false;
    }
    bool done = text_add(out, "data: ");
    return add_json(out, data) && done && text_add(out, "\n\n");
}

bool json_line_add(struct byte_list *out, json_t *data)
{
    return add_json(out, data) && text_add(out, "\n");
}

bool sse_add_ping(struct byte_list *out)
{
    return text_add(out, ": ping\n\n");
}

json_t *json_text_new(const char *text, size_t length)
{
    json_t *made = json_stringn(text, length);
    struct byte_list fixed = { 0 };

    if (made) return made;
    for (size_t i = 0; i < length;) { /* character by character */
        size_t size = 1;
        while (size < 4 && i + size < length && ((unsigned char)text[i + size] & 0xC0) == 0x80)
            size++;
        json_t *one = json_stringn(text + i, size);
        mf_status status = one ? byte_list_append(&fixed, text + i, size, NULL)
                               : byte_list_append(&fixed, "\xEF\xBF\xBD", 3, NULL);
        json_decref(one);
        if (status != MF_OK) break;
        i += size;
    }
    made = json_stringn(fixed.bytes ? fixed.bytes : "", fixed.count);
    byte_list_free(&fixed);
    return made;
}

json_t *json_count_new(uint64_t count)
{
    return json_integer((json_int_t)count);
}
