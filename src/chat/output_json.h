/* output_json.h: is this JSON?  Answered byte by byte, as a model writes it.
 *
 * Nothing is built.  Keys and values of the outermost object are announced, so that a reader can
 * remember where they lie.  Strict JSON; at most JSON_READER_DEPTH containers in containers. */
#ifndef CHAT_OUTPUT_JSON_H
#define CHAT_OUTPUT_JSON_H

#include "base/common.h"

enum { JSON_READER_DEPTH = 256 };

enum json_progress { JSON_MORE, JSON_DONE, JSON_BAD };

/* What the last byte did in the outermost object; it belongs to the key or value. */
enum json_event {
    JSON_NOTHING,
    JSON_KEY_BEGIN,
    JSON_KEY_END,
    JSON_VALUE_BEGIN,
    JSON_VALUE_END, /* of a string, literal or container; a number has no last byte of its own */
};

struct json_reader {
    unsigned char state;
    unsigned char count; /* digits of an escape, letters of a literal */
    const char *literal;
    bool is_key;
    enum json_event event;
    size_t depth;
    uint64_t objects[JSON_READER_DEPTH / 64]; /* bit per depth: an object (else an array) */
};

/* Zeroed: at the beginning of a value. */
enum json_progress json_reader_feed(struct json_reader *reader, char c);

/* Is the text, white space around it allowed, one JSON value? */
bool json_is_value(const char *text, size_t length);

#endif
