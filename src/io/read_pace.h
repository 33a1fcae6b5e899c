/* read_pace.h: how many reads to keep in flight.
 *
 * A disk's throughput grows with the number of concurrent reads up to a point; beyond it, only
 * latency grows.  The pace looks for the smallest depth with full throughput: it measures the
 * rate at the current depth and, at intervals, at half and at twice that depth.
 *
 *     rate = reads in flight x bytes of a read / time the read was in flight
 *
 * Only reads count that had enough others beside them: more than the next smaller depth allows,
 * or, while probing a larger depth, more than the current one allows.
 * Threads: one owner. */
#ifndef IO_READ_PACE_H
#define IO_READ_PACE_H

#include "base/common.h"

enum { PACE_LEVELS = 9 }; /* depths 1, 2, 4 … 256 */

struct read_pace {
    uint32_t level, level_min, level_max; /* depth = 1 << level */
    uint32_t home;                        /* the best level so far; level differs in a probe */
    uint32_t windows;                     /* since the last probe */
    bool probe_up;                        /* direction of the next probe */
    double rates[PACE_LEVELS];            /* bytes per second; 0: not measured */
    double seconds;                       /* of this window */
    double bytes;                         /* of its reads, each times the reads in flight */
    uint32_t reads;
    uint32_t alone; /* reads of this window with too few beside them to count */
};

/* Starts at `depth` and stays from `least` to `most`: powers of two, at most 256. */
void read_pace_init(struct read_pace *out, uint32_t least, uint32_t depth, uint32_t most);

static inline uint32_t read_pace_depth(const struct read_pace *pace)
{
    return 1u << pace->level;
}

/* A read of `bytes` took `seconds`; `beside` others were in flight when it started. */
void read_pace_note(struct read_pace *pace, uint64_t bytes, double seconds, uint32_t beside);

#endif
