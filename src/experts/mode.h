/* mode.h: where experts are kept, decided by sizes.
 *
 *     resident   a slot for every expert, filled at its first use, never evicted
 *     mapped     the mapped file, in the page cache; no slots
 *     streamed   fewer slots than experts, reads bypass the page cache; eviction.h picks victims
 *
 *     budget:   0 ─────────────┬────────────────┬──────────────────▶
 *                  streamed    │     mapped     │     resident
 *                        slots for all    slots and file
 *
 * Between the two marks slots for all experts would fit, but only by evicting the file from the
 * page cache: every start would read it from disk again.  The page cache survives the program, so
 * its copy is the one to keep.  Where both fit, slots are better: huge pages, no page faults, and
 * no SIGBUS if the file is truncated.
 *
 * With a hard limit the page cache counts towards the budget, so nothing is mapped.  A file larger
 * than the budget is not mapped either: the page cache could not hold it. */
#ifndef EXPERTS_MODE_H
#define EXPERTS_MODE_H

#include "base/common.h"

enum expert_mode { EXPERTS_RESIDENT, EXPERTS_MAPPED, EXPERTS_STREAMED };

struct expert_mode_sizes {
    uint64_t slot_bytes; /* of slots for all experts */
    uint64_t file_bytes; /* of all files */
    uint64_t budget_bytes;
    bool hard_limit; /* the budget includes the page cache */
    bool mappable;   /* the files can be mapped */
};

static inline enum expert_mode expert_mode_choose(const struct expert_mode_sizes *sizes)
{
    uint64_t budget = sizes->budget_bytes;
    if (sizes->slot_bytes > budget) return EXPERTS_STREAMED;
    bool one_copy = sizes->file_bytes <= budget && sizes->file_bytes > budget - sizes->slot_bytes;
    return one_copy && sizes->mappable && !sizes->hard_limit ? EXPERTS_MAPPED : EXPERTS_RESIDENT;
}

static inline const char *expert_mode_name(enum expert_mode mode)
{
    static const char *const names[] = { "resident", "mapped", "streamed" };
    return names[mode];
}

#endif
