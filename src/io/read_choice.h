/* read_choice.h: which of two ways to read is the faster one here.
 *
 * Nobody knows beforehand: it depends on kernel, file system and disk.  So the first
 * real reads are divided between them, and the better one does all the others.
 *
 *     first ─▶ second ─▶ first ─▶ second ─▶ OVER: the faster one, or the first
 *                          ▲                │     if the difference may be chance
 *                          └── now and then ┘     what was measured before counts half
 *
 * A phase begins with reads that do not count, for some of the phase before are still
 * under way.  Rates are bytes per second in which at least one read was under way.
 * Threads: one owner. */
#ifndef IO_READ_CHOICE_H
#define IO_READ_CHOICE_H

#include "base/common.h"

enum { CHOICE_WAYS = 2, CHOICE_PHASES = 4 };

struct read_choice_rule {
    double worth;         /* the second way must be so many times as fast */
    uint32_t phase_reads; /* that count */
    uint32_t lead;        /* reads before the first phase: memory is new then, disks may sleep */
    uint32_t again;       /* in the end, so many reads pass until it is measured again; at first
                             a quarter.  0: it is never */
};

struct read_choice {
    struct read_choice_rule rule;
    uint32_t active; /* the way to be used now */
    uint32_t phase;  /* CHOICE_PHASES: over */
    uint32_t reads;  /* of this phase, or since it was over … */
    uint32_t again;  /* … until it is measured again */
    uint64_t bytes_before;
    double seconds_before;
    uint64_t bytes[CHOICE_WAYS];
    double seconds[CHOICE_WAYS];
};

/* NULL: there is only one way, and nothing to choose. */
void read_choice_init(struct read_choice *out, const struct read_choice_rule *rule);

static inline bool read_choice_is_over(const struct read_choice *choice)
{
    return choice->phase == CHOICE_PHASES;
}

/* Another read has finished; until now there were so many bytes in so many seconds. */
void read_choice_note(struct read_choice *choice, uint64_t bytes, double seconds);

#endif
