/* Values of enum and const, and keys, as the answer will have them. */
#include "grammar/schema_internal.h"

#include "base/array.h"

#include <stdlib.h>

/* As short as reading it back allows: 0.1 and not 0.10000000000000001.  NULL: no memory. */
static char *shortest_json(const json_t *value)
{
    static const size_t precisions[] = { 15, 17 };
    for (size_t i = 0; i < COUNT_OF(precisions); i++) {
        size_t flags = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(precisions[i]);
        char *text = json_dumps(value, flags);
        if (!text) break;
        json_t *back = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        bool same = back && json_equal(back, value);
        json_decref(back);
        if (same || i + 1 == COUNT_OF(precisions)) return text;
        free(text);
    }
    return NULL;
}

/* "</" becomes "<\\/", "<|" "\\u003c|", which are the same strings.  Frees `text`; NULL: no memory. */
static char *hide_tags(char *text, char barred)
{
    size_t length = strlen(text), at = 0;
    char *out = malloc(6 * length + 1);
    for (size_t i = 0; out && i <= length; i++) {
        bool hidden = text[i] == '<' && text[i + 1] == barred;
        const char *piece = !hidden ? NULL : barred == '/' ? "<\\" : "\\u003c";
        if (piece) {
            memcpy(out + at, piece, strlen(piece));
            at += strlen(piece);
        } else {
            out[at++] = text[i];
        }
    }
    free(text);
    return out;
}

bool schema_is_bare_key(const char *key)
{
    size_t length = strlen(key);
    return length > 0 && length < 200 &&
           strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                       "abcdefghijklmnopqrstuvwxyz0123456789_-.$@/") == length;
}

static void add_marked(struct byte_buffer *out, const struct schema_compiler *c, const char *text)
{
    byte_buffer_append_text(out, c->options.quote);
    byte_buffer_append_text(out, text);
    byte_buffer_append_text(out, c->options.quote);
}

/* The value as the notation with `quote` writes it.  False: that cannot be, because a text holds a
 * marker or a NUL. */
static bool add_value(struct byte_buffer *out, struct schema_compiler *c, const json_t *value)
{
    const char *text = json_string_value(value), *key;
    if (json_is_object(value)) {
        const char *separator = "{";
        json_t *member;
        json_object_foreach((json_t *)(uintptr_t)value, key, member)
        {
            byte_buffer_append_text(out, separator);
            if (schema_is_bare_key(key))
                byte_buffer_append_text(out, key);
            else
                add_marked(out, c, key);
            byte_buffer_append_text(out, ":");
            if (strchr(key, '<') || !add_value(out, c, member)) return false;
            separator = ",";
        }
        byte_buffer_append_text(out, *separator == '{' ? "{}" : "}");
        return true;
    }
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            byte_buffer_append_text(out, i ? "," : "[");
            if (!add_value(out, c, json_array_get(value, i))) return false;
        }
        byte_buffer_append_text(out, json_array_size(value) ? "]" : "[]");
        return true;
    }
    if (text) {
        add_marked(out, c, text);
        return strlen(text) == json_string_length(value) && !strchr(text, '<');
    }
    char *json = shortest_json(value);
    if (json) byte_buffer_append_text(out, json);
    free(json);
    return json != NULL;
}

char *schema_value_text(struct schema_compiler *c, const json_t *value)
{
    char *text = NULL;
    if (c->options.quote) {
        struct byte_buffer out = { 0 };
        bool good = add_value(&out, c, value);
        if (good && !out.failed) return out.data;
        byte_buffer_free(&out);
        if (!good) {
            schema_fail(c, MF_ERR_UNSUPPORTED, "a fixed text with \"<\" cannot be kept here");
            return NULL;
        }
    } else {
        text = shortest_json(value);
        if (text && c->options.barred) text = hide_tags(text, c->options.barred);
    }
    if (!text) builder_fail(c->builder, MF_ERR_MEMORY, "out of memory for the schema");
    return text;
}

const struct expression *schema_quoted(struct schema_compiler *c, const char *text, size_t length)
{
    if (c->options.quote && schema_is_bare_key(text)) return expression_text(c->builder, text);
    json_t *value = json_stringn(text, length);
    if (!value) return schema_fail(c, MF_ERR_GRAMMAR, "a name is not UTF-8");
    char *quoted = schema_value_text(c, value);
    json_decref(value);
    if (!quoted) return NULL;
    const struct expression *expression = expression_text(c->builder, quoted);
    free(quoted);
    return expression;
}
