/* What a barrier of the thread pool costs, in nanoseconds: the price of every op boundary. */
#include "base/arena.h"
#include "base/machine.h"
#include "base/thread_pool.h"

#include <stdio.h>
#include <time.h>

enum { BARRIERS = 20000, REPEATS = 7 };

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void meet(void *argument, struct worker worker)
{
    (void)argument;
    for (unsigned i = 0; i < BARRIERS; i++) worker_barrier(worker);
}

int main(void)
{
    struct machine machine;
    machine_probe(&machine);
    for (unsigned threads = 1; threads <= machine.core_count; threads *= 2) {
        struct thread_pool *pool;
        mf_error why;
        if (thread_pool_new(&pool, &allocator_heap, threads, &why) != MF_OK) {
            fprintf(stderr, "%s\n", why.text);
            return 1;
        }
        double best = 1e18, worst = 0;
        for (unsigned i = 0; i < REPEATS; i++) {
            double start = now_ns();
            thread_pool_run(pool, meet, NULL);
            double each = (now_ns() - start) / BARRIERS;
            best = each < best ? each : best;
            worst = each > worst ? each : worst;
        }
        thread_pool_free(pool);
        printf("barrier,%u threads,%.0f,%.0f,ns\n", threads, best, worst);
    }
    return 0;
}
