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
 * a probe the present one, would allow.  A disk that others use changes its speed from
 * one moment to the next, so a probe is compared with what came just before and after it,
 * and counts if the next one in that direction says the same:
 *
 *     home ─▶ probe ─▶ home: a win ─▶ probe ─▶ home: another one ─▶ the new home
 *
 * Threads: one owner. */
#ifndef FILES_READ_PACE_H
#define FILES_READ_PACE_H

#include "base/common.h"

enum { PACE_LEVELS = 9 }; /* depths 1, 2, 4 … 256 */

struct read_pace {
    uint32_t level, level_min, level_max; /* depth = 1 << level */
    uint32_t home;                        /* the best level so far; level differs in a probe */
    uint32_t windows;                     /* since the last probe */
    bool probe_up;                        /* the next probe's direction, or the last one's */
    bool won;                             /* the last probe, and it will be repeated */
    double rate_before;                   /* bytes per second at home, before a probe */
    double rate_probe;                    /* 0: none is to be judged */
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
