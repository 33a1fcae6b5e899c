/* checksum.h: XXH3, by which bytes that were written are known again.
 *
 * It finds what disks, cables and half-finished writes do to a file, at the speed of
 * memory.  It is no signature: two files that agree can be made on purpose. */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include "base/common.h"

/* Bytes that come piece by piece: the same number as for all of them at once. */
struct checksum {
    _Alignas(64) uint8_t state[576];
};

void checksum_begin(struct checksum *checksum);
void checksum_add(struct checksum *checksum, const void *bytes, size_t count);
uint64_t checksum_end(const struct checksum *checksum); /* of what was added so far */

uint64_t checksum_of(const void *bytes, size_t count);

/* 128 bits, for telling things apart of which there are many: 32 digits and a NUL. */
enum { CHECKSUM_WIDE_TEXT = 33, CHECKSUM_TEXT = 17 };
void checksum_end_wide(const struct checksum *checksum, char out[CHECKSUM_WIDE_TEXT]);

/* 16 hexadecimal digits, small letters, and a NUL; and back, from exactly such a text. */
void checksum_print(uint64_t value, char out[CHECKSUM_TEXT]);
bool checksum_parse(uint64_t *out, const char *text);

#endif
