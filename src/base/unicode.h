/* unicode.h: UTF-8 and the character properties that Python's str methods go by.
 *
 * Except for unicode_check all functions take valid UTF-8.  Lengths are bytes. */
#ifndef BASE_UNICODE_H
#define BASE_UNICODE_H

#include "base/common.h"

/* Where the first byte lies that is not UTF-8; `length` when there is none. */
size_t unicode_check(const char *text, size_t length);

static inline bool unicode_is_continuation(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Code points in the text. */
size_t unicode_count(const char *text, size_t length);

/* The bytes that the first `characters` code points take; `length` when there are fewer. */
size_t unicode_offset(const char *text, size_t length, size_t characters);

/* The first code point of a text that is not empty, and its bytes. */
uint32_t unicode_decode(const char *text, size_t *bytes);

/* Up to 4 bytes into `out`; the count.  What UTF-8 cannot hold becomes U+FFFD. */
size_t unicode_encode(char *out, uint32_t code_point);

/* Bytes of leading white space, and bytes left without trailing white space. */
size_t unicode_white_prefix(const char *text, size_t length);
size_t unicode_strip_end(const char *text, size_t length);

/* Bytes of the identifier that the text starts with; 0: none. */
size_t unicode_identifier_prefix(const char *text, size_t length);

bool unicode_is_white(uint32_t c);
bool unicode_is_alphabetic(uint32_t c); /* str.isalpha */
bool unicode_is_numeric(uint32_t c);    /* digits and numbers of every script */
bool unicode_is_decimal(uint32_t c);    /* decimal digits */
bool unicode_is_upper(uint32_t c);
bool unicode_is_lower(uint32_t c);
bool unicode_is_cased(uint32_t c);
bool unicode_is_printable(uint32_t c); /* as repr() sees it */

enum unicode_case { UNICODE_LOWER, UNICODE_UPPER, UNICODE_TITLE, UNICODE_FOLD };
enum { UNICODE_CASE_BYTES = 16 };

/* The character in another case, up to UNICODE_CASE_BYTES bytes into `out`; the count. */
size_t unicode_to_case(char *out, uint32_t c, enum unicode_case to);

#endif
