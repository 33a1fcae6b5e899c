/* utf8.h: one character at a time, from bytes that may be anything. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/common.h"

/* What a byte that starts no valid sequence decodes to; its length is 1. */
#define UTF8_INVALID UINT32_MAX

/* U+FFFD, for bytes that are not UTF-8. */
#define UTF8_REPLACEMENT "\xEF\xBF\xBD"

enum { UTF8_MAX = 4 };

/* The bytes of the sequence that `lead` begins; 0: it cannot begin one. */
static inline size_t utf8_length(uint8_t lead)
{
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return 2;
    if (lead < 0xF0) return 3;
    return lead < 0xF5 ? 4 : 0;
}

/* The second byte of a sequence has a narrower range after some leads: that excludes
 * overlong forms (E0, F0), surrogates (ED) and what lies above U+10FFFF (F4). */
static inline bool utf8_second_fits(uint8_t lead, uint8_t second)
{
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high;
}

/* The character at `text`, which has `available` > 0 bytes; returns its length. */
static inline size_t utf8_decode(uint32_t *out, const char *text, size_t available)
{
    const uint8_t *s = (const uint8_t *)text;
    if (s[0] < 0x80) {
        *out = s[0];
        return 1;
    }
    size_t length = utf8_length(s[0]);
    *out = UTF8_INVALID;
    if (length == 0 || length > available || !utf8_second_fits(s[0], s[1])) return 1;
    uint32_t value = s[0] & (0x7Fu >> length);
    value = value << 6 | (s[1] & 0x3Fu);
    for (size_t i = 2; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80) return 1;
        value = value << 6 | (s[i] & 0x3Fu);
    }
    *out = value;
    return length;
}

/* Writes a valid character; returns its length. */
static inline size_t utf8_encode(char out[UTF8_MAX], uint32_t value)
{
    if (value < 0x80) {
        out[0] = (char)value;
        return 1;
    }
    size_t length = value < 0x800 ? 2 : value < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, value >>= 6) out[i] = (char)(0x80 | (value & 0x3F));
    out[0] = (char)(0xF00u >> length | value); /* the low byte: C0, E0 or F0 */
    return length;
}

#endif
