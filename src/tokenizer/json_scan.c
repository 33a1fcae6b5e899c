#include "tokenizer/json_scan.h"

#include "base/utf8.h"

static void skip_blanks(struct json_cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\n' ||
                                        *cursor->at == '\r' || *cursor->at == '\t'))
        cursor->at++;
}

bool json_take(struct json_cursor *cursor, char c)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != c) return false;
    cursor->at++;
    return true;
}

/* Past a string whose quotation mark is at the cursor. */
static bool skip_string(struct json_cursor *cursor)
{
    for (cursor->at++; cursor->at < cursor->end; cursor->at++) {
        if (*cursor->at == '"') {
            cursor->at++;
            return true;
        }
        if (*cursor->at == '\\' && ++cursor->at == cursor->end) return false;
    }
    return false;
}

/* Past an object or array: brackets are counted, strings skipped. */
static bool skip_nested(struct json_cursor *cursor)
{
    size_t depth = 0;
    while (cursor->at < cursor->end) {
        char c = *cursor->at;
        if (c == '"') {
            if (!skip_string(cursor)) return false;
            continue;
        }
        cursor->at++;
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && --depth == 0) return true;
    }
    return false;
}

static bool is_scalar(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
           c == 'E';
}

bool json_skip_value(struct text_span *out, struct json_cursor *cursor)
{
    skip_blanks(cursor);
    const char *begin = cursor->at;
    if (begin == cursor->end) return false;
    bool found;
    if (*begin == '"') {
        found = skip_string(cursor);
    } else if (*begin == '{' || *begin == '[') {
        found = skip_nested(cursor);
    } else {
        while (cursor->at < cursor->end && is_scalar(*cursor->at)) cursor->at++;
        found = cursor->at > begin;
    }
    *out = (struct text_span){ begin, (size_t)(cursor->at - begin) };
    return found;
}

bool json_next_field(struct text_span *name, struct json_cursor *cursor)
{
    json_take(cursor, ','); /* one that is wrong is found when the rest is parsed */
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != '"') return false;
    return json_skip_value(name, cursor) && json_take(cursor, ':');
}

bool json_is_name(struct text_span name, const char *key)
{
    size_t length = strlen(key);
    return name.length == length + 2 && memcmp(name.text + 1, key, length) == 0;
}

/* ---------------------------------------------------------------------- strings */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four digits at `at`, of a string that ends at `end`. */
static bool read_unit(uint32_t *out, const char *at, const char *end)
{
    *out = 0;
    if (end - at < 4) return false;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* \uXXXX, or two of them for a character above U+FFFF; *at is on the first backslash. */
static bool read_unicode_escape(uint32_t *out, const char **at, const char *end)
{
    uint32_t low;
    if (!read_unit(out, *at + 2, end)) return false;
    *at += 6;
    if (*out < 0xD800 || *out > 0xDFFF) return true;
    if (*out > 0xDBFF || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') return false;
    if (!read_unit(&low, *at + 2, end) || low < 0xDC00 || low > 0xDFFF) return false;
    *at += 6;
    *out = 0x10000 + ((*out - 0xD800) << 10) + (low - 0xDC00);
    return true;
}

/* Appends the character of the escape at *at and moves past it. */
static bool append_escape(struct byte_buffer *out, const char **at, const char *end)
{
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    char bytes[UTF8_MAX];
    size_t count = 1;
    const char *letter = strchr(letters, (*at)[1]);
    if (letter && *letter) {
        bytes[0] = values[letter - letters];
        *at += 2;
    } else {
        uint32_t character;
        if ((*at)[1] != 'u' || !read_unicode_escape(&character, at, end)) return false;
        count = utf8_encode(bytes, character);
    }
    return byte_buffer_append(out, bytes, count);
}

static bool unescape(struct text_span *out, struct byte_buffer *scratch, struct text_span raw)
{
    const char *at = raw.text, *end = raw.text + raw.length;
    scratch->count = 0;
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        const char *until = escape ? escape : end;
        if (!byte_buffer_append(scratch, at, (size_t)(until - at))) return false;
        at = until;
        if (at < end && !append_escape(scratch, &at, end)) return false;
    }
    *out = (struct text_span){ scratch->data, scratch->count };
    return true;
}

bool json_take_string(struct text_span *out, struct byte_buffer *scratch,
                      struct json_cursor *cursor)
{
    skip_blanks(cursor);
    if (cursor->at == cursor->end || *cursor->at != '"') return false;
    const char *begin = cursor->at + 1;
    if (!skip_string(cursor)) return false;
    *out = (struct text_span){ begin, (size_t)(cursor->at - 1 - begin) };

    bool escapes = false;
    for (size_t at = 0; at < out->length;) {
        uint32_t character;
        at += utf8_decode(&character, out->text + at, out->length - at);
        if (character == UTF8_INVALID || character < 0x20) return false;
        escapes |= character == '\\';
    }
    return !escapes || unescape(out, scratch, *out);
}

bool json_take_count(uint64_t *out, struct json_cursor *cursor)
{
    skip_blanks(cursor);
    const char *begin = cursor->at;
    *out = 0;
    for (; cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9'; cursor->at++) {
        uint64_t digit = (uint64_t)(*cursor->at - '0');
        if (!checked_multiply(out, *out, 10) || !checked_add(out, *out, digit)) return false;
    }
    bool leading_zero = cursor->at - begin > 1 && *begin == '0';
    return cursor->at > begin && !leading_zero;
}
