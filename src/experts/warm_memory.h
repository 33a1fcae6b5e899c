/* warm_memory.h: faults a store's memory in before reads need it.
 *
 * The kernel clears fresh memory at its first touch, and in a virtual machine the host has to
 * provide the page: some gigabytes take seconds, as long as reading them from a fast disk.  If the
 * reads did it, the disk would wait.  A thread touches the slots once, in the order of their use;
 * reads need not wait for it.
 *
 * Threads: one owner, and the thread that is started. */
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

/* Touches the slots of the plan, unless it is already doing so.  Plan and memory are borrowed until
 * stop, and the plan must not change.  A small amount of memory is left alone. */
void memory_warmer_start(struct memory_warmer *out, const struct slot_plan *plan, uint8_t *memory);

/* No memory is touched after it returns.  A warmer that is not running is legal. */
void memory_warmer_stop(struct memory_warmer *warmer);

#endif
