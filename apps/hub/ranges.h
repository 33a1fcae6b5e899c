/* ranges.h: which bytes of a file are there, and the record of it on disk.
 *
 * The record lies beside the incomplete blob and is replaced as a whole:
 *
 *     moeflux ranges 1
 *     HASH SIZE
 *     FIRST END            a line per range, ascending, apart from each other; END is excluded
 *     end
 *
 * A range is recorded after its bytes were written.  A record that is damaged, or of another blob,
 * counts as none: the download then begins anew. */
#ifndef HUB_RANGES_H
#define HUB_RANGES_H

#include "common/error.h"
#include "common/lists.h"

struct hub_range {
    uint64_t first, end;
};

/* Sorted, without overlap or contact.  All zeros: empty. */
struct hub_ranges {
    struct hub_range *items;
    size_t count, capacity;
};

mf_status hub_ranges_add(struct hub_ranges *ranges, uint64_t first, uint64_t end, mf_error *why);

/* How many bytes there are. */
uint64_t hub_ranges_sum(const struct hub_ranges *ranges);

/* The first bytes below `size` that are in neither of both sets; false: there are none. */
bool hub_ranges_gap(struct hub_range *out, const struct hub_ranges *ranges,
                    const struct hub_range *others, size_t other_count, uint64_t size);

void hub_ranges_clear(struct hub_ranges *ranges);
void hub_ranges_free(struct hub_ranges *ranges);

/* The text of a record. */
mf_status hub_ranges_write(struct byte_list *out, const struct hub_ranges *ranges, const char *hash,
                           uint64_t size, mf_error *why);

/* False: no record of this blob; then `out` is empty. */
bool hub_ranges_read(struct hub_ranges *out, const char *text, size_t length, const char *hash,
                     uint64_t size);

#endif
