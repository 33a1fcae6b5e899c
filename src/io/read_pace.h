/* read_pace.h: how many reads to have under way.
 *
 * A disk gives more with several reads at a time, up to a point; beyond it they only
 * wait for each other, and the first one arrives later.  The pace looks for the
 * smallest depth that gives the full rate: it measures the rate at the present depth,
 * and now and then at half and at twice that.
 *
 *     rate = reads under way x bytes of a read / time it was under way
 *
 * counted over reads that had more others beside them than the next smaller depth, or in
 * a probe the present one, would allow.
 * Threads: one owner. */
#ifndef IO_READ_PACE_H
#define IO_READ_PACE_H

#include "base/common.h"

enum { PACE_LEVELS = 9 }; /* depths 1, 2, 4 … 256 */

struct read_pace {
    uint32_t level, level_min, level_max; /* depth = 1 << level */
    uint32_t home;                        /* the best level so far; level differs in a probe */
    uint32_t windows;                     /* since the last probe */
    bool probe_up;                        /* the next probe's direction */
    double rates[PACE_LEVELS];            /* bytes per second; 0: not measured */
    double seconds;                       /* of this window */
    double bytes;                         /* of its reads, each times those under way */
    uint32_t reads;
    uint32_t alone; /* reads of this window that had too few beside them to count */
};

/* Starts at `depth` and stays from `least` to `most`: powers of two, at most 256. */
void read_pace_init(struct read_pace *out, uint32_t least, uint32_t depth, uint32_t most);

static inline uint32_t read_pace_depth(const struct read_pace *pace)
{
    return 1u << pace->level;
}

/* A read of so many bytes took so long, beside `beside` others when it was started. */
void read_pace_note(struct read_pace *pace, uint64_t bytes, double seconds, uint32_t beside);

#endif
