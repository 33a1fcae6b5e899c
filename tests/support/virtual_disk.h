/* virtual_disk.h: a disk in a time of its own.
 *
 * A crew for async_read.h that moves no bytes and has no threads: reads are begun when the
 * owner submits and finished when it looks, at the moments at which such a disk would have
 * finished them.  Waiting advances the time; virtual_disk_spend does so for computing.
 *
 *     struct virtual_disk disk = { .latency = 0.002 };
 *     options.clock = virtual_disk_clock(&disk);
 *     options.hire = virtual_disk_hire;       with the disk in virtual_disk_present
 *
 * Everything that is decided by time is then the same in every run, on every machine.
 * Threads: none. */
#ifndef SUPPORT_VIRTUAL_DISK_H
#define SUPPORT_VIRTUAL_DISK_H

#include "base/clock.h"
#include "io/async_engine.h"

struct virtual_disk {
    double latency;          /* seconds that every read takes, however many there are, … */
    double bytes_per_second; /* … beside the time for its bytes, one after the other; 0: none */

    double now;
    double free_at; /* when the bytes of all that are under way will have come */
    struct clock clock;
    struct async_read *under_way[DEPTH_MAX];
    double done_at[DEPTH_MAX];
    uint32_t count;
};

/* Whose crew virtual_disk_hire hires. */
extern struct virtual_disk *virtual_disk_present;

const struct clock *virtual_disk_clock(struct virtual_disk *disk);
mf_status virtual_disk_hire(struct read_crew **out, struct async_reader *reader, mf_error *why);

/* Advances the time by computing that takes `seconds`. */
void virtual_disk_spend(struct virtual_disk *disk, double seconds);

#endif
