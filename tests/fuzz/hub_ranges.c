/* Any bytes as the record of a download: what is read is a sorted set inside the file, and says the
 * same when it is written and read again.  The same bytes as ranges to add: the set is compared with
 * one bit for each byte. */
#include "common/basics.h"
#include "hub/ranges.h"

#include <stdlib.h>

/* Of support/fuzzed_model.h, whose other headers are those of the library. */
void must(bool condition);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char hash[] = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
enum { FILE_BYTES = 1000, MODEL_BYTES = 256 };

static void check_set(const struct hub_ranges *ranges, uint64_t size)
{
    for (size_t i = 0; i < ranges->count; i++) {
        must(ranges->items[i].first < ranges->items[i].end && ranges->items[i].end <= size);
        must(i == 0 || ranges->items[i - 1].end < ranges->items[i].first);
    }
    must(hub_ranges_sum(ranges) <= size);
}

static void read_record(const uint8_t *data, size_t size)
{
    struct hub_ranges ranges, again;
    struct byte_list text = { NULL, 0, 0 };

    if (!hub_ranges_read(&ranges, (const char *)data, size, hash, FILE_BYTES)) {
        must(ranges.count == 0 && !ranges.items);
        return;
    }
    check_set(&ranges, FILE_BYTES);
    must(hub_ranges_write(&text, &ranges, hash, FILE_BYTES, NULL) == MF_OK);
    must(hub_ranges_read(&again, text.bytes, text.count, hash, FILE_BYTES));
    must(again.count == ranges.count);
    for (size_t i = 0; i < again.count; i++)
        must(memcmp(&again.items[i], &ranges.items[i], sizeof again.items[i]) == 0);
    hub_ranges_free(&again);
    must(!hub_ranges_read(&again, text.bytes, text.count, hash, FILE_BYTES + 1));
    must(!hub_ranges_read(&again, text.bytes, text.count - 1, hash, FILE_BYTES));
    byte_list_free(&text);
    hub_ranges_free(&ranges);
}

/* The first gap is where the bits say, and ends where something is there or under way. */
static void check_gap(const struct hub_ranges *ranges, const bool *there,
                      const struct hub_range *busy, size_t busy_count)
{
    struct hub_range gap;
    bool taken[MODEL_BYTES];
    uint64_t first = 0, end;

    memcpy(taken, there, sizeof taken);
    for (size_t i = 0; i < busy_count; i++)
        for (uint64_t at = busy[i].first; at < busy[i].end; at++) taken[at] = true;
    while (first < MODEL_BYTES && taken[first]) first++;
    for (end = first; end < MODEL_BYTES && !taken[end];) end++;
    bool found = hub_ranges_gap(&gap, ranges, busy, busy_count, MODEL_BYTES);
    must(found == (first < MODEL_BYTES));
    if (found) must(gap.first == first && gap.end == end);
}

static void add_ranges(const uint8_t *data, size_t size)
{
    struct hub_ranges ranges = { NULL, 0, 0 };
    struct hub_range busy[3];
    bool there[MODEL_BYTES] = { false };
    uint64_t count = 0;

    for (size_t i = 0; i < COUNT_OF(busy); i++) {
        uint64_t first = 2 * i + 1 < size ? data[2 * i] : 0;
        uint64_t length = 2 * i + 1 < size ? data[2 * i + 1] % 32 : 0;
        busy[i] = (struct hub_range){ first, min_size(first + length, MODEL_BYTES) };
    }
    for (size_t i = 0; i + 1 < min_size(size, 256); i += 2) {
        uint64_t first = data[i], end = min_size(first + data[i + 1] % 64, MODEL_BYTES);
        must(hub_ranges_add(&ranges, first, end, NULL) == MF_OK);
        for (uint64_t at = first; at < end; at++) {
            count += !there[at];
            there[at] = true;
        }
        check_set(&ranges, MODEL_BYTES);
        must(hub_ranges_sum(&ranges) == count);
        check_gap(&ranges, there, busy, i / 2 % 4);
    }
    hub_ranges_free(&ranges);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_record(data, size);
    add_ranges(data, size);
    return 0;
}
