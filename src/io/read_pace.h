/* read_pace.h: how many reads to keep in flight.
 *
 * A disk's throughput grows with the number of concurrent reads up to a point; beyond it, only
 * latency grows.  The pace looks for the smallest depth with full throughput: it measures the
 * rate at the current depth and, at intervals, at half and at twice that depth.
 *
 *     rate = reads in flight x bytes of a read / time the read was in flight
 *
 * A read counts only if enough others were in flight when it started: at least half the depth that
 * is measured, or, while a larger depth is probed, 5/4 of the current one.  A probe that too few
 * reads reach is given up.
 * Threads: one owner. */
#ifndef IO_READ_PACE_H
#define IO_READ_PACE_H

#include "base/common.h"

enum { PACE_LEVELS = 9 }; /* depths 1, 2, 4 … 256 */

struct read_pace {
    uint32_t level, level_min, level_max; /* depth = 1 << level */
    uint32_t home;                        /* the best level so far; level differs during a probe */
    uint32_t windows;                     /* measured since the last probe */
    bool probe_up;                        /* direction of the next probe */
    double rates[PACE_LEVELS];            /* bytes per second; 0: not measured */

    /* The window: the measurement that is under way. */
    double seconds; /* sum over its reads */
    double bytes;   /* sum over its reads, each times the reads in flight */
    uint32_t reads; /* that count */
    uint32_t alone; /* that had too few others in flight to count */
};

/* Starts at `depth` and stays between `least` and `most`; all are powers of two up to 256. */
void read_pace_init(struct read_pace *out, uint32_t least, uint32_t depth, uint32_t most);

static inline uint32_t read_pace_depth(const struct read_pace *pace)
{
    return 1u << pace->level;
}

/* A read of `bytes` took `seconds`; `beside` others were in flight when it started. */
void read_pace_note(struct read_pace *pace, uint64_t bytes, double seconds, uint32_t beside);

#endif
