/* stop_strings.h: ends an answer at a given text, wherever the tokens cut it.
 *
 * Text goes in as it is generated and comes out at once, except for a tail that may be
 * the beginning of a stop string:
 *
 *     stop "\nUser:"     in  "Hi"   "\n"   "Us"   "age"        "\nUser:"
 *                        out "Hi"   ""     ""     "\nUsage"    "", found
 *
 * What is held back is always the beginning of a stop string, so no text is buffered.
 * A stop string that is valid UTF-8 never splits a character: fed whole characters, the
 * output is whole characters.
 *
 * Threads: one owner.  Nothing is allocated after stop_strings_new. */
#ifndef CHAT_STOP_STRINGS_H
#define CHAT_STOP_STRINGS_H

#include "base/common.h"
#include "moeflux.h"

struct stop_strings;

enum { STOP_STRING_COUNT_LIMIT = 64, STOP_STRING_BYTES_LIMIT = 4096 };

/* `count` terminated strings, copied; none of them empty.  Zero strings: text passes through. */
mf_status stop_strings_new(struct stop_strings **out, const mf_allocator *allocator,
                           const char *const *strings, size_t count, mf_error *why);
void stop_strings_free(struct stop_strings *stops);

typedef void (*stop_strings_emit)(void *user, const char *text, size_t length);

/* Takes `length` bytes and hands on, in up to two calls, those that are certain not to belong
 * to a stop string.  True when one is complete: the text before it has been handed on, the
 * string and what follows is dropped, and so is all further input until a reset.  Of several
 * that end at the same byte the longest counts. */
bool stop_strings_feed(struct stop_strings *stops, const char *text, size_t length,
                       stop_strings_emit emit, void *user);

/* The text has ended otherwise: hands on what was held back. */
void stop_strings_finish(struct stop_strings *stops, stop_strings_emit emit, void *user);

/* The string that was found, or NULL. */
const char *stop_strings_found(const struct stop_strings *stops);

/* As just made. */
void stop_strings_reset(struct stop_strings *stops);

#endif
