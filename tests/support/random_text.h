/* random_text.h: strings that look for trouble, the same ones every time. */
#ifndef SUPPORT_RANDOM_TEXT_H
#define SUPPORT_RANDOM_TEXT_H

#include "base/utf8.h"

struct random_text {
    uint64_t state;
};

static inline uint32_t random_below(struct random_text *random, uint32_t limit)
{
    random->state = random->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random->state >> 33) % limit;
}

/* A character: mostly of the kinds that patterns tell apart, sometimes any at all.  Only
 * characters that Unicode 13 has, so that the tables of two libraries agree on them. */
static inline uint32_t random_character(struct random_text *random)
{
    static const uint32_t kinds[] = {
        ' ',     ' ',     '\n',     '\r',   '\t',   0x0B,   0x85,   0xA0,   0x180E,  0x2003,
        0x3000,  'a',     'Z',      's',    'S',    't',    'l',    'v',    'e',     'r',
        'm',     'd',     '\'',     '\'',   0x17F,  0x2019, '/',    '!',    '<',     '|',
        '_',     '0',     '7',      0x660,  0xBD,   0x2167, 0x4E00, 0x9FA5, 0x9FA6,  0x3042,
        0x30FC,  0x3001,  0x3007,   0x2E80, 0xE9,   0xC9,   0x1C5,  0x2B0,  0x5D0,   0x301,
        0x323,   0x903,   0x20DD,   0xAC00, 0x1100, 0x1161, 0x11A8, 0x200B, 0x200D,  0xFEFF,
        0,       7,       0x7F,     0xAD,   0x378,  0xE000, 0xFE0F, 0x2028, 0x1F600, 0x1F468,
        0x1D400, 0x20000, 0x10FFFE, 0x2000, 0x212B, 0x0344,
    };
    uint32_t which = random_below(random, COUNT_OF(kinds) + 4);
    if (which < COUNT_OF(kinds)) return kinds[which];
    if (which == COUNT_OF(kinds)) return random_below(random, 0x80);
    if (which == COUNT_OF(kinds) + 1) return random_below(random, 0x600);
    if (which == COUNT_OF(kinds) + 2) return 0x3000 + random_below(random, 0x6000);
    return 0x1E00 + random_below(random, 0x1200);
}

/* Up to `limit` characters into `out`, which has 4 bytes for each; the length in bytes.
 * `broken`: with bytes among them that are not UTF-8. */
static inline size_t random_string(char *out, struct random_text *random, uint32_t limit,
                                   bool broken)
{
    size_t length = 0;
    uint32_t count = random_below(random, limit + 1), repeat = 0, character = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (broken && random_below(random, 8) == 0) {
            out[length++] = (char)(0x80 + random_below(random, 0x80));
            continue;
        }
        if (repeat > 0)
            repeat--;
        else
            character = random_character(random);
        if (random_below(random, 6) == 0) repeat = random_below(random, 6);
        length += utf8_encode(out + length, character);
    }
    return length;
}

#endif
