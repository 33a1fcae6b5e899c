/* code_ranges.h: sets of Unicode characters, as grammars and patterns name them.
 *
 * A set is an array of ranges, sorted and disjoint, without surrogates, which have no UTF-8
 * encoding. */
#ifndef GRAMMAR_CODE_RANGES_H
#define GRAMMAR_CODE_RANGES_H

#include "base/common.h"

struct code_range {
    uint32_t first, last; /* inclusive */
};

enum { CODE_LAST = 0x10ffff, CODE_SURROGATE_FIRST = 0xd800, CODE_SURROGATE_LAST = 0xdfff };

/* Turns ranges into a set, in place: sorts, joins and removes surrogates.  Returns the new count, at
 * most count + 1; the array must have room for that. */
size_t code_ranges_normalise(struct code_range *ranges, size_t count);

/* The complement of a set, into out[count + 2]; returns the number of ranges. */
size_t code_ranges_invert(struct code_range *out, const struct code_range *ranges, size_t count);

/* The intersection of two sets, into out[a_count + b_count]; returns the number of ranges. */
size_t code_ranges_intersect(struct code_range *out, const struct code_range *a, size_t a_count,
                             const struct code_range *b, size_t b_count);

/* The UTF-8 form of a character: 1 to 4 bytes. */
size_t code_encode(uint8_t out[4], uint32_t code);

/* One character of text[0..length): how many bytes it has, 0 when they are not UTF-8. */
size_t code_decode(uint32_t *code, const char *text, size_t length);

/* A sequence of byte ranges that encodes part of a set: every combination of bytes is a character
 * of the set, and every character of the set is in exactly one run. */
struct utf8_run {
    uint8_t length;
    uint8_t first[4], last[4];
};

/* Calls `each` with the runs of one range without surrogates, in ascending order. */
void code_range_utf8_runs(struct code_range range,
                          void (*each)(void *user, const struct utf8_run *run), void *user);

#endif
