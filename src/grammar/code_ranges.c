#include "grammar/code_ranges.h"

#include <stdlib.h>

static int by_first(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static size_t join_neighbours(struct code_range *ranges, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && ranges[i].first <= ranges[kept - 1].last + 1) {
            if (ranges[i].last > ranges[kept - 1].last) ranges[kept - 1].last = ranges[i].last;
        } else {
            ranges[kept++] = ranges[i];
        }
    }
    return kept;
}

size_t code_ranges_normalise(struct code_range *ranges, size_t count)
{
    if (count == 0) return 0;
    qsort(ranges, count, sizeof *ranges, by_first);
    count = join_neighbours(ranges, count);

    /* At most one range reaches over both ends of the surrogates and becomes two. */
    static const struct code_range characters[] = {
        { 0, CODE_SURROGATE_FIRST - 1 },
        { CODE_SURROGATE_LAST + 1, CODE_LAST },
    };
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct code_range range = ranges[i], split = { 1, 0 };
        if (range.first < CODE_SURROGATE_FIRST && range.last > CODE_SURROGATE_LAST) {
            memmove(&ranges[i + 1], &ranges[i], (count - i) * sizeof *ranges);
            count++;
            split = (struct code_range){ range.first, CODE_SURROGATE_FIRST - 1 };
            ranges[i + 1].first = CODE_SURROGATE_LAST + 1;
        } else {
            for (size_t half = 0; half < COUNT_OF(characters); half++) {
                struct code_range part = {
                    range.first > characters[half].first ? range.first : characters[half].first,
                    range.last < characters[half].last ? range.last : characters[half].last,
                };
                if (part.first <= part.last) split = part;
            }
        }
        if (split.first <= split.last) ranges[kept++] = split;
    }
    return kept;
}

size_t code_ranges_invert(struct code_range *out, const struct code_range *ranges, size_t count)
{
    size_t made = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].first > next) out[made++] = (struct code_range){ next, ranges[i].first - 1 };
        next = ranges[i].last + 1;
    }
    if (next <= CODE_LAST) out[made++] = (struct code_range){ next, CODE_LAST };
    return code_ranges_normalise(out, made);
}

size_t code_ranges_intersect(struct code_range *out, const struct code_range *a, size_t a_count,
                             const struct code_range *b, size_t b_count)
{
    size_t made = 0, i = 0, j = 0;
    while (i < a_count && j < b_count) {
        uint32_t first = a[i].first > b[j].first ? a[i].first : b[j].first;
        uint32_t last = a[i].last < b[j].last ? a[i].last : b[j].last;
        if (first <= last) out[made++] = (struct code_range){ first, last };
        if (a[i].last < b[j].last)
            i++;
        else
            j++;
    }
    return made;
}

size_t code_encode(uint8_t out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (uint8_t)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (uint8_t)(lead[length] | code);
    return length;
}

size_t code_decode(uint32_t *code, const char *text, size_t length)
{
    if (length == 0) return 0;
    uint8_t lead = (uint8_t)text[0];
    if (lead < 0x80) {
        *code = lead;
        return 1;
    }
    size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || length < need) return 0;
    uint32_t value = lead & (0x7fu >> need);
    for (size_t i = 1; i < need; i++) {
        uint8_t byte = (uint8_t)text[i];
        if ((byte & 0xc0) != 0x80) return 0;
        value = value << 6 | (byte & 0x3f);
    }
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    bool surrogate = value >= CODE_SURROGATE_FIRST && value <= CODE_SURROGATE_LAST;
    if (value < smallest[need] || value > CODE_LAST || surrogate) return 0;
    *code = value;
    return need;
}

/* The first range is cut at lengths (0x80, 0x800, 0x10000) and then so that, from some byte
 * on, all continuation bytes take all their values: only then do byte ranges multiply. */
void code_range_utf8_runs(struct code_range range,
                          void (*each)(void *user, const struct utf8_run *run), void *user)
{
    uint32_t first = range.first;
    while (first <= range.last) {
        uint32_t last = range.last;
        static const uint32_t ends[] = { 0x7f, 0x7ff, 0xffff };
        for (size_t i = 0; i < COUNT_OF(ends); i++)
            if (first <= ends[i] && last > ends[i]) last = ends[i];
        size_t length = first < 0x80 ? 1 : first < 0x800 ? 2 : first < 0x10000 ? 3 : 4;
        /* From the largest block down: cut where a block of 64^i is not complete. */
        for (size_t i = length - 1; i > 0; i--) {
            uint32_t block = (1u << (6 * i)) - 1;
            if ((first & ~block) == (last & ~block)) continue;
            if (first & block)
                last = first | block;
            else if ((last & block) != block)
                last = (last & ~block) - 1;
        }
        struct utf8_run run;
        code_encode(run.first, first);
        run.length = (uint8_t)code_encode(run.last, last);
        each(user, &run);
        first = last + 1;
    }
}
