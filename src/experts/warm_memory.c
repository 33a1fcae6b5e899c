#include "experts/warm_memory.h"

#include "base/thread.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

static const uint64_t piece_bytes = 2 << 20;   /* between two looks at `stop` */
static const uint64_t worth_bytes = 256 << 20; /* less takes too little time to matter */

#ifdef MADV_POPULATE_WRITE

/* Touches one piece of each class, because layers, and with them classes, are used in turn.  False:
 * all is touched, or the kernel does not support it. */
static bool warm_round(struct memory_warmer *warmer, uint64_t at)
{
    bool more = false;
    for (size_t c = 0; c < warmer->plan->class_count; c++) {
        const struct slot_class *class = &warmer->plan->classes[c];
        uint64_t bytes = class->count * class->bytes;
        if (at >= bytes) continue;
        uint64_t count = bytes - at < piece_bytes ? bytes - at : piece_bytes;
        uint8_t *from = warmer->memory + class->memory_at + at;
        if (madvise(from, count, MADV_POPULATE_WRITE) != 0) return false;
        more = true;
    }
    return more;
}

/* Lowers the thread's priority, so that idle cores clear the memory and not those that compute.  Not
 * SCHED_IDLE: a thread that maps memory waits until the current piece is done. */
static void step_back(void)
{
    enum { NICEST = 19 };
    struct sched_param none = { 0 };
    if (pthread_setschedparam(pthread_self(), SCHED_BATCH, &none) == 0)
        (void)setpriority(PRIO_PROCESS, 0, NICEST); /* of this thread alone */
}

static void *warm(void *argument)
{
    struct memory_warmer *warmer = argument;
    step_back();
    for (uint64_t at = 0; warm_round(warmer, at); at += piece_bytes)
        if (atomic_load_explicit(&warmer->stop, memory_order_relaxed)) break;
    return NULL;
}

void memory_warmer_start(struct memory_warmer *out, const struct slot_plan *plan, uint8_t *memory)
{
    if (out->started || plan->memory_bytes < worth_bytes) return;
    out->plan = plan;
    out->memory = memory;
    atomic_store(&out->stop, false);
    out->started = thread_start(&out->thread, NULL, warm, out) == 0;
}

#else

void memory_warmer_start(struct memory_warmer *out, const struct slot_plan *plan, uint8_t *memory)
{
    (void)out;
    (void)plan;
    (void)memory;
}

#endif

void memory_warmer_stop(struct memory_warmer *warmer)
{
    if (!warmer->started) return;
    atomic_store_explicit(&warmer->stop, true, memory_order_relaxed);
    pthread_join(warmer->thread, NULL);
    warmer->started = false;
}
