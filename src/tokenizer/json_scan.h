/* json_scan.h: scans JSON text without building a tree.
 *
 * A vocabulary has hundreds of thousands of small strings: jansson takes 200 ms for a Qwen
 * tokenizer.json, this scanner 20 ms.  It reads the two large fields; jansson reads the rest.
 *
 * Scanning checks only the structure it needs; strings are checked when they are read. */
#ifndef TOKENIZER_JSON_SCAN_H
#define TOKENIZER_JSON_SCAN_H

#include "tokenizer/internal.h"

struct json_cursor {
    const char *at, *end;
};

/* Skips white space, then `c`; false if the next character is another. */
bool json_take(struct json_cursor *cursor, char c);

/* Skips a value; *out is its text.  False: there is no value, or it is not terminated. */
bool json_skip_value(struct text_span *out, struct json_cursor *cursor);

/* Advances to the next field of an object, after json_take(cursor, '{'): sets *name, escapes not
 * decoded, and leaves the cursor before the value, which the caller reads or skips.  False: no
 * further field. */
bool json_next_field(struct text_span *name, struct json_cursor *cursor);

/* Whether a name is `key`. */
bool json_is_name(struct text_span name, const char *key);

/* Reads a string.  *out points into the text, or, if the string has escapes, into `scratch`, which
 * is overwritten.  False: no string, not UTF-8, or an invalid escape. */
bool json_take_string(struct text_span *out, struct byte_buffer *scratch,
                      struct json_cursor *cursor);

/* Reads a non-negative whole number. */
bool json_take_count(uint64_t *out, struct json_cursor *cursor);

#endif
