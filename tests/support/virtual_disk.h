/* virtual_disk.h: a simulated disk with simulated time.
 *
 * An engine for async_read.h that moves no bytes and has no threads: reads start when the owner
 * submits, and finish at the moments at which such a disk would finish them.  Waiting for a read
 * advances the time; virtual_disk_spend advances it for computing.
 *
 *     struct virtual_disk disk = { .latency = 0.002 };
 *     options.clock = virtual_disk_clock(&disk);
 *     options.factory = virtual_disk_engine_new;       with the disk in virtual_disk_present
 *
 * Decisions that depend on time are then the same in every run, on every machine.
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

/* The disk of the next virtual_disk_engine_new. */
extern struct virtual_disk *virtual_disk_present;

const struct clock *virtual_disk_clock(struct virtual_disk *disk);
mf_status virtual_disk_engine_new(struct read_engine **out, struct async_reader *reader,
                                  mf_error *why);

/* Advances the time by computing that takes `seconds`. */
void virtual_disk_spend(struct virtual_disk *disk, double seconds);

#endif
