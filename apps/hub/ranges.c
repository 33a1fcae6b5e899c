#include "hub/ranges.h"

#include "common/basics.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The index of the first range that ends at `at` or later. */
static size_t find_range(const struct hub_ranges *ranges, uint64_t at)
{
    size_t low = 0, high = ranges->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->items[middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

mf_status hub_ranges_add(struct hub_ranges *ranges, uint64_t first, uint64_t end, mf_error *why)
{
    mf_status status = list_reserve((void **)&ranges->items, &ranges->capacity,
                                    sizeof *ranges->items, ranges->count + 1, why);

    if (status != MF_OK || first >= end) return status;
    /* Ranges begin … stop - 1 touch the new one and become part of it. */
    size_t begin = find_range(ranges, first), stop = begin;
    for (; stop < ranges->count && ranges->items[stop].first <= end; stop++) {
        if (ranges->items[stop].first < first) first = ranges->items[stop].first;
        if (ranges->items[stop].end > end) end = ranges->items[stop].end;
    }
    memmove(ranges->items + begin + 1, ranges->items + stop,
            (ranges->count - stop) * sizeof *ranges->items);
    ranges->items[begin] = (struct hub_range){ first, end };
    ranges->count += 1 - (stop - begin);
    return MF_OK;
}

uint64_t hub_ranges_sum(const struct hub_ranges *ranges)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < ranges->count; i++) sum += ranges->items[i].end - ranges->items[i].first;
    return sum;
}

/* The end of the range of either set that `at` lies in; `at` itself if it lies in none. */
static uint64_t skip(const struct hub_ranges *ranges, const struct hub_range *others,
                     size_t other_count, uint64_t at)
{
    size_t i = find_range(ranges, at);

    if (i < ranges->count && ranges->items[i].end == at) i++;
    if (i < ranges->count && ranges->items[i].first <= at) return ranges->items[i].end;
    for (i = 0; i < other_count; i++) {
        if (others[i].first <= at && at < others[i].end) return others[i].end;
    }
    return at;
}

bool hub_ranges_gap(struct hub_range *out, const struct hub_ranges *ranges,
                    const struct hub_range *others, size_t other_count, uint64_t size)
{
    uint64_t at = 0, next;

    for (;; at = next) {
        if (at >= size) return false;
        next = skip(ranges, others, other_count, at);
        if (next == at) break;
    }
    size_t i = find_range(ranges, at);
    if (i < ranges->count && ranges->items[i].end == at) i++;
    uint64_t end =
        i < ranges->count && ranges->items[i].first < size ? ranges->items[i].first : size;
    for (i = 0; i < other_count; i++) {
        bool empty = others[i].first >= others[i].end;
        if (!empty && others[i].first > at && others[i].first < end) end = others[i].first;
    }
    *out = (struct hub_range){ at, end };
    return true;
}

void hub_ranges_clear(struct hub_ranges *ranges)
{
    ranges->count = 0;
}

void hub_ranges_free(struct hub_ranges *ranges)
{
    free(ranges->items);
    *ranges = (struct hub_ranges){ NULL, 0, 0 };
}

/* ------------------------------------------------------------------- record */

static const char first_line[] = "moeflux ranges 1\n";
static const char last_line[] = "end\n";

mf_status hub_ranges_write(struct byte_list *out, const struct hub_ranges *ranges, const char *hash,
                           uint64_t size, mf_error *why)
{
    char line[128];
    mf_status status = byte_list_append(out, first_line, sizeof first_line - 1, why);
    int length = snprintf(line, sizeof line, "%s %" PRIu64 "\n", hash, size);

    if (status == MF_OK) status = byte_list_append(out, line, (size_t)length, why);
    for (size_t i = 0; status == MF_OK && i < ranges->count; i++) {
        length = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 "\n", ranges->items[i].first,
                          ranges->items[i].end);
        status = byte_list_append(out, line, (size_t)length, why);
    }
    return status == MF_OK ? byte_list_append(out, last_line, sizeof last_line - 1, why) : status;
}

/* Takes `word` off the text; false: it does not begin with it. */
static bool take_word(const char **text, const char *end, const char *word)
{
    size_t length = strlen(word);

    if ((size_t)(end - *text) < length || memcmp(*text, word, length) != 0) return false;
    *text += length;
    return true;
}

static bool take_number(uint64_t *out, const char **text, const char *end)
{
    uint64_t value = 0;
    const char *at = *text;

    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (!checked_multiply(&value, value, 10)) return false;
        if (!checked_add(&value, value, (uint64_t)(*at - '0'))) return false;
    }
    if (at == *text) return false;
    *text = at;
    *out = value;
    return true;
}

static bool read_ranges(struct hub_ranges *out, const char *text, const char *end, uint64_t size)
{
    uint64_t before = 0;

    while (!take_word(&text, end, last_line)) {
        struct hub_range range;
        if (!take_number(&range.first, &text, end) || !take_word(&text, end, " ")) return false;
        if (!take_number(&range.end, &text, end) || !take_word(&text, end, "\n")) return false;
        bool apart = out->count == 0 || range.first > before;
        if (!apart || range.first >= range.end || range.end > size) return false;
        if (hub_ranges_add(out, range.first, range.end, NULL) != MF_OK) return false;
        before = range.end;
    }
    return text == end;
}

bool hub_ranges_read(struct hub_ranges *out, const char *text, size_t length, const char *hash,
                     uint64_t size)
{
    const char *end = text + length;
    uint64_t said;

    *out = (struct hub_ranges){ NULL, 0, 0 };
    bool good = take_word(&text, end, first_line) && take_word(&text, end, hash) &&
                take_word(&text, end, " ") && take_number(&said, &text, end) && said == size &&
                take_word(&text, end, "\n") && read_ranges(out, text, end, size);
    if (!good) hub_ranges_free(out);
    return good;
}
