/* warm_memory.h: memory that is there before it is read into.
 *
 * Fresh memory is cleared by the kernel when it is touched for the first time, and in a
 * virtual machine found by the host: some gigabytes take seconds, as long as reading them
 * from a good disk.  Left to the reads, the disk waits for it.  A thread of its own goes
 * through the slots of a store once, in the order in which they are used; a read that comes to a
 * slot before it proceeds as usual.
 *
 * Threads: one owner, beside the one that is started. */
#ifndef EXPERTS_WARM_MEMORY_H
#define EXPERTS_WARM_MEMORY_H

#include "experts/slot_plan.h"

#include <pthread.h>
#include <stdatomic.h>

struct memory_warmer {
    const struct slot_plan *plan;
    uint8_t *memory;
    pthread_t thread;
    bool started; /* and not stopped */
    atomic_bool stop;
};

/* Goes through the slots that the plan gives at present, unless it does already.  Both are borrowed until it is
 * stopped, and the plan stays as it is.  Little memory is left to those who use it. */
void memory_warmer_start(struct memory_warmer *out, const struct slot_plan *plan, uint8_t *memory);

/* When it returns no memory is touched any more.  One that was never started, or stopped
 * before, is legal. */
void memory_warmer_stop(struct memory_warmer *warmer);

#endif
