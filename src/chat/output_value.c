/* Parameters in tags are text; the tool's schema says which of them are strings. */
#include "base/unicode.h"
#include "base/utf8.h"
#include "chat/output_internal.h"

#include <stdio.h>

void output_add_quoted(struct byte_buffer *out, const char *data, size_t length)
{
    static const char hexadecimal[] = "0123456789abcdef";
    byte_buffer_append_text(out, "\"");
    while (length) {
        size_t valid = unicode_check(data, length), plain = 0;
        while (plain < valid && (unsigned char)data[plain] >= 0x20 && data[plain] != '"' &&
               data[plain] != '\\')
            plain++;
        byte_buffer_append(out, data, plain);
        if (plain < valid) {
            unsigned char c = (unsigned char)data[plain];
            char escape[] = { '\\', 'u', '0', '0', hexadecimal[c >> 4], hexadecimal[c & 15] };
            static const char letters[] = "\n\r\t\"\\", escapes[] = "nrt\"\\";
            const char *known = c ? strchr(letters, c) : NULL;
            if (known) escape[1] = escapes[known - letters];
            byte_buffer_append(out, escape, known ? 2 : 6);
            plain++;
        } else if (plain < length) { /* a byte that is not UTF-8 */
            byte_buffer_append_text(out, UTF8_REPLACEMENT);
            plain++;
        }
        data += plain;
        length -= plain;
    }
    byte_buffer_append_text(out, "\"");
}

/* ------------------------------------------------------------------ schemas */

static bool is_same(const char *data, size_t length, const char *terminated)
{
    return terminated && strlen(terminated) == length && memcmp(terminated, data, length) == 0;
}

const json_t *output_tool_function(const json_t *tool)
{
    const json_t *inner = json_object_get(tool, "function");
    return inner ? inner : tool;
}

const json_t *output_tool_parameters(const json_t *tools, const char *name, size_t length)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = output_tool_function(json_array_get(tools, i));
        const char *given = json_string_value(json_object_get(function, "name"));
        if (is_same(name, length, given)) return json_object_get(function, "parameters");
    }
    return NULL;
}

/* "#/$defs/color", without escapes in the steps; NULL: it leads nowhere. */
static const json_t *follow_reference(const json_t *root, const json_t *reference)
{
    const char *at = json_string_value(reference);
    if (!at || *at++ != '#') return NULL;
    while (root && *at == '/') {
        size_t length = strcspn(++at, "/");
        root = json_object_getn(root, at, length);
        at += length;
    }
    return root;
}

/* May the value be of this type?  `type` is a name, or a list of names. */
static bool allows_type(const json_t *type, const char *name)
{
    if (json_is_string(type)) return strcmp(json_string_value(type), name) == 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

/* Nothing but strings to choose from. */
static bool only_strings(const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum");
    if (json_object_get(schema, "type")) return false;
    if (json_is_string(json_object_get(schema, "const"))) return true;
    for (size_t i = 0; i < json_array_size(values); i++)
        if (!json_is_string(json_array_get(values, i))) return false;
    return json_array_size(values) > 0;
}

static bool declares(const json_t *root, const json_t *schema, const char *type, unsigned depth)
{
    enum { DEPTH_LIMIT = 8 };
    static const char *const lists[] = { "anyOf", "oneOf", "allOf" };
    const json_t *reference = json_object_get(schema, "$ref");
    if (depth > DEPTH_LIMIT) return false;
    if (allows_type(json_object_get(schema, "type"), type)) return true;
    if (strcmp(type, "string") == 0 && only_strings(schema)) return true;
    if (strcmp(type, "null") == 0 && json_is_true(json_object_get(schema, "nullable"))) return true;
    if (reference && declares(root, follow_reference(root, reference), type, depth + 1))
        return true;
    for (size_t i = 0; i < COUNT_OF(lists); i++) {
        const json_t *list = json_object_get(schema, lists[i]);
        for (size_t j = 0; j < json_array_size(list); j++)
            if (declares(root, json_array_get(list, j), type, depth + 1)) return true;
    }
    return false;
}

bool output_schema_declares(const json_t *parameters, const json_t *schema, const char *type)
{
    return declares(parameters, schema, type, 0);
}

/* ------------------------------------------------------------------ values */

static void trim(const char **text, size_t *length)
{
    while (*length && (*text)[*length - 1] && strchr(" \n\t\r", (*text)[*length - 1])) --*length;
    while (*length && **text && strchr(" \n\t\r", **text)) {
        ++*text;
        --*length;
    }
}

static bool is_word(const char *text, size_t length, const char *word)
{
    trim(&text, &length);
    return is_same(text, length, word);
}

void output_value_add(struct byte_buffer *out, const json_t *parameters, const json_t *schema,
                      const char *text, size_t length)
{
    bool string = output_schema_declares(parameters, schema, "string");
    bool flag = !string && output_schema_declares(parameters, schema, "boolean");
    if (string && is_word(text, length, "null") &&
        output_schema_declares(parameters, schema, "null")) {
        byte_buffer_append_text(out, "null");
    } else if (flag && is_word(text, length, "True")) { /* as Python writes them */
        byte_buffer_append_text(out, "true");
    } else if (flag && is_word(text, length, "False")) {
        byte_buffer_append_text(out, "false");
    } else if (string || unicode_check(text, length) < length || !json_is_value(text, length)) {
        output_add_quoted(out, text, length);
    } else {
        trim(&text, &length);
        byte_buffer_append(out, text, length);
    }
}
