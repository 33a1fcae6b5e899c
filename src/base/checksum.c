#include "base/checksum.h"

/* Inlined from the header: struct checksum embeds the state, and the shared library guarantees no
 * size for it. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stdio.h>

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct checksum), "the state fits");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct checksum), "and lies well");

static XXH3_state_t *state_of(struct checksum *checksum)
{
    return (XXH3_state_t *)(void *)checksum->state;
}

static const XXH3_state_t *state_in(const struct checksum *checksum)
{
    return (const XXH3_state_t *)(const void *)checksum->state;
}

/* One reset serves both widths: the 64-bit and the 128-bit digest share the state. */
void checksum_begin(struct checksum *checksum)
{
    *checksum = (struct checksum){ 0 }; /* XXH3 reads a field that a reset leaves alone */
    XXH3_64bits_reset(state_of(checksum));
}

void checksum_add(struct checksum *checksum, const void *bytes, size_t count)
{
    if (count > 0) XXH3_64bits_update(state_of(checksum), bytes, count);
}

uint64_t checksum_end(const struct checksum *checksum)
{
    return XXH3_64bits_digest(state_in(checksum));
}

uint64_t checksum_of(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}

void checksum_end_wide(const struct checksum *checksum, char out[CHECKSUM_WIDE_TEXT])
{
    XXH128_hash_t wide = XXH3_128bits_digest(state_in(checksum));
    snprintf(out, CHECKSUM_WIDE_TEXT, "%016llx%016llx", (unsigned long long)wide.high64,
             (unsigned long long)wide.low64);
}

_Static_assert(CHECKSUM_SECRET >= XXH3_SECRET_SIZE_MIN, "the secret is long enough");
_Static_assert(sizeof(XXH128_canonical_t) == CHECKSUM_KEYED, "the same bytes on all machines");

void checksum_keyed(uint8_t out[CHECKSUM_KEYED], const uint8_t *secret, const void *bytes,
                    size_t count)
{
    XXH128_canonical_t value;
    XXH128_canonicalFromHash(&value,
                             XXH3_128bits_withSecret(bytes, count, secret, CHECKSUM_SECRET));
    memcpy(out, value.digest, CHECKSUM_KEYED);
}

void checksum_print(uint64_t value, char out[CHECKSUM_TEXT])
{
    snprintf(out, CHECKSUM_TEXT, "%016llx", (unsigned long long)value);
}

bool checksum_parse(uint64_t *out, const char *text)
{
    uint64_t value = 0;
    size_t i = 0;
    for (; i < CHECKSUM_TEXT - 1 && text[i]; i++) {
        unsigned digit;
        if (text[i] >= '0' && text[i] <= '9')
            digit = (unsigned)(text[i] - '0');
        else if (text[i] >= 'a' && text[i] <= 'f')
            digit = (unsigned)(text[i] - 'a' + 10);
        else
            return false;
        value = value << 4 | digit;
    }
    *out = value;
    return i == CHECKSUM_TEXT - 1 && text[i] == '\0';
}
