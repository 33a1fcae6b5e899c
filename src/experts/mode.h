/* mode.h: where experts live, by sizes.
 *
 *     resident   a slot for every expert, filled when it is first needed, never emptied
 *     mapped     the file itself, as the page cache holds it; no slots
 *     streamed   fewer slots than experts, read past the page cache; eviction.h says who goes
 *
 *     budget:   0 ─────────────┬────────────────┬──────────────────▶
 *                  streamed    │     mapped     │     resident
 *                        slots for all    slots and file
 *
 * Between the two marks slots for all experts would fit, but only by driving the file out
 * of the page cache: every start would read it from disk again.  One copy is enough then,
 * and the page cache's is the one that outlives the program.  Where both fit, slots are
 * better: huge pages, no faults, and no other process can truncate the file under a computation.
 *
 * A memory limit includes the page cache that moeflux causes: with one nothing is mapped. */
#ifndef EXPERTS_MODE_H
#define EXPERTS_MODE_H

#include "base/common.h"

enum expert_mode { EXPERTS_RESIDENT, EXPERTS_MAPPED, EXPERTS_STREAMED };

struct expert_mode_sizes {
    uint64_t slot_bytes; /* of slots for all experts */
    uint64_t file_bytes; /* of all files */
    uint64_t budget_bytes;
    bool promise;  /* the budget is a limit that the caller set */
    bool mappable; /* the files can be mapped */
};

static inline enum expert_mode expert_mode_choose(const struct expert_mode_sizes *sizes)
{
    uint64_t budget = sizes->budget_bytes;
    if (sizes->slot_bytes > budget) return EXPERTS_STREAMED;
    bool one_copy = sizes->file_bytes <= budget && sizes->file_bytes > budget - sizes->slot_bytes;
    return one_copy && sizes->mappable && !sizes->promise ? EXPERTS_MAPPED : EXPERTS_RESIDENT;
}

static inline const char *expert_mode_name(enum expert_mode mode)
{
    static const char *const names[] = { "resident", "mapped", "streamed" };
    return names[mode];
}

#endif
