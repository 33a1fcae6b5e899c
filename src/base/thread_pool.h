/* thread_pool.h: a few threads that run the same function at the same time.
 *
 *     caller (worker 0)   run ─┬─ task ── barrier ── task ── barrier ─┬─ returns
 *     worker 1            ·····└─ task ── barrier ── task ── barrier ─┘·····
 *
 * One run covers a whole graph: every worker executes its part of each op, with a barrier where an
 * op needs all results of the op before it.  A waiting worker spins for 20 to 150 µs, the usual
 * time to the next op, and then sleeps; with more workers than CPUs it sleeps at once.
 *
 * Threads: one run at a time; the engine serialises its sequences. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H

#include "base/common.h"
#include "moeflux.h"

struct thread_pool;

enum { THREADS_MAX = 1024 };

struct worker {
    struct thread_pool *pool;
    unsigned index; /* 0 is the thread that called thread_pool_run */
    unsigned count;
};

typedef void (*pool_task)(void *argument, struct worker worker);

mf_status thread_pool_new(struct thread_pool **out, const mf_allocator *allocator,
                          unsigned thread_count, mf_error *why);
void thread_pool_free(struct thread_pool *pool);
unsigned thread_pool_size(const struct thread_pool *pool);

/* Runs `task` once on every worker; returns when all are done. */
void thread_pool_run(struct thread_pool *pool, pool_task task, void *argument);

/* Inside a task: returns when every worker has called it. */
void worker_barrier(struct worker worker);

/* For work that one worker does alone: barriers return at once, its share is everything. */
static inline struct worker worker_alone(struct worker worker)
{
    return (struct worker){ worker.pool, 0, 1 };
}

/* This worker's part [begin, end) of `count` items, cut at multiples of `unit`.
 * It depends on index and count only, so a split never changes a result. */
struct share {
    size_t begin, end;
};
struct share worker_share(struct worker worker, size_t count, size_t unit);

/* Distributes `count` items so that workers of different speed finish together: three quarters are
 * divided evenly, the rest is taken in pieces of `unit` by workers that are done.  Only for results
 * that do not depend on which worker computes an item, and once between two barriers:
 *
 *     struct handout rows = handout_begin(worker, count, unit);
 *     for (struct share part; handout_next(&rows, &part);) … */
struct handout {
    struct worker worker;
    size_t count, unit;
    size_t shared_out; /* items [0, shared_out) are divided evenly */
    bool begun;
};
struct handout handout_begin(struct worker worker, size_t count, size_t unit);
bool handout_next(struct handout *handout, struct share *part);

#endif
