/* checksum.h: XXH3 checksums of file contents.
 *
 * They detect accidental damage (disks, transfers, incomplete writes) at memory speed.  They are
 * not cryptographic: a second file with the same checksum can be made on purpose. */
#ifndef BASE_CHECKSUM_H
#define BASE_CHECKSUM_H

#include "base/common.h"

/* Incremental form: the result is that of checksum_of over all bytes added. */
struct checksum {
    _Alignas(64) uint8_t state[576];
};

void checksum_begin(struct checksum *checksum);
void checksum_add(struct checksum *checksum, const void *bytes, size_t count);
uint64_t checksum_end(const struct checksum *checksum); /* of all added so far; may continue */

uint64_t checksum_of(const void *bytes, size_t count);

/* 128 bits, to identify one among many, as 32 hexadecimal digits and a NUL. */
enum { CHECKSUM_WIDE_TEXT = 33, CHECKSUM_TEXT = 17 };
void checksum_end_wide(const struct checksum *checksum, char out[CHECKSUM_WIDE_TEXT]);

/* 128 bits that depend on `secret` ([CHECKSUM_SECRET] random bytes), too, so that
 * inputs with the same value cannot be prepared without knowing it. */
enum { CHECKSUM_SECRET = 192, CHECKSUM_KEYED = 16 };
void checksum_keyed(uint8_t out[CHECKSUM_KEYED], const uint8_t *secret, const void *bytes,
                    size_t count);

/* As 16 lowercase hexadecimal digits and a NUL; checksum_parse accepts exactly that. */
void checksum_print(uint64_t value, char out[CHECKSUM_TEXT]);
bool checksum_parse(uint64_t *out, const char *text);

#endif
