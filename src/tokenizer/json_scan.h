/* json_scan.h: walking through JSON text without building anything from it.
 *
 * A vocabulary is hundreds of thousands of small strings: jansson takes 200 ms to build
 * the tree of a Qwen tokenizer.json that is walked here in 20.  So the two large fields are
 * read with this, and the rest of the file, which is small, with jansson.
 *
 * A walk checks as much as it needs to find its way; strings are checked when they are read. */
#ifndef TOKENIZER_JSON_SCAN_H
#define TOKENIZER_JSON_SCAN_H

#include "tokenizer/internal.h"

struct json_cursor {
    const char *at, *end;
};

/* Skips white space, then `c` if it is there. */
bool json_take(struct json_cursor *cursor, char c);

/* Skips a value; *out is its text.  False: it does not end, or is none. */
bool json_skip_value(struct text_span *out, struct json_cursor *cursor);

/* Walks through the fields of an object, json_take(cursor, '{') done: puts the cursor before
 * the value of the next one and tells its name, escapes as they stand.  False: there is none.
 * The caller takes or skips the value. */
bool json_next_field(struct text_span *name, struct json_cursor *cursor);

/* Whether a name is `key`. */
bool json_is_name(struct text_span name, const char *key);

/* Reads a string.  *out points into the text where no escape stands in it, else into `scratch`,
 * which is overwritten.  False: no string, not UTF-8, or a bad escape. */
bool json_take_string(struct text_span *out, struct byte_buffer *scratch,
                      struct json_cursor *cursor);

/* Reads a whole number that is not negative. */
bool json_take_count(uint64_t *out, struct json_cursor *cursor);

#endif
