#include "base/thread_pool.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A counter whose change threads wait for; on its own cache line, because waiters spin on it. */
struct signal {
    _Alignas(CACHE_LINE) atomic_uint value;
    atomic_uint sleepers;
    atomic_uint spins; /* before one sleeps */
    bool crowded;      /* there are more workers than CPUs; set before any thread starts */
};

struct thread_pool {
    const mf_allocator *allocator;
    unsigned count;   /* workers, the caller included */
    unsigned started; /* threads that were created */
    pthread_t *threads;

    struct signal run;     /* bumped to start a run, and to end the pool */
    struct signal barrier; /* bumped when the last worker arrives */
    _Alignas(CACHE_LINE) atomic_uint arrived;
    _Alignas(CACHE_LINE) atomic_size_t taken; /* of a handout's rest, since the last barrier */

    pool_task task; /* written before `run` is bumped, read after */
    void *argument;
    bool ending;
};

struct new_worker {
    struct thread_pool *pool;
    unsigned index;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wait(atomic_uint *address, unsigned seen)
{
    syscall(SYS_futex, address, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *address)
{
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waking a sleeping thread costs about 20 µs, so a waiter first spins that long.  The limit rises
 * to 150 µs while sleepers are woken so soon that a longer spin would have avoided the sleep. */
enum { SPINS_FEW = 600, SPINS_MANY = 4000 };
static const double worth_spinning_seconds = 200e-6;

/* Spins until the value differs from `seen`; false: the caller must sleep.  Acquire: writes of
 * other workers before the bump are visible after it.  With more workers than CPUs the awaited
 * worker may not be running, and spinning would occupy its CPU: the thread yields twice, enough for
 * a worker that is about to arrive, and then sleeps. */
static bool signal_spin(struct signal *signal, unsigned seen)
{
    enum { YIELDS = 2 };
    unsigned spins = atomic_load_explicit(&signal->spins, memory_order_relaxed);
    unsigned most = signal->crowded ? YIELDS : (unsigned)max_size(spins, SPINS_FEW);
    for (unsigned i = 0; i < most; i++) {
        if (atomic_load_explicit(&signal->value, memory_order_acquire) != seen) return true;
        if (signal->crowded)
            sched_yield();
        else
            relax();
    }
    return false;
}

/* Waits until the value differs from `seen`. */
static void signal_wait(struct signal *signal, unsigned seen)
{
    double begin = clock_seconds();
    if (signal_spin(signal, seen)) return;
    atomic_fetch_add(&signal->sleepers, 1);
    while (atomic_load(&signal->value) == seen) futex_wait(&signal->value, seen);
    atomic_fetch_sub(&signal->sleepers, 1);
    bool soon = clock_seconds() - begin < worth_spinning_seconds;
    atomic_store_explicit(&signal->spins, soon ? SPINS_MANY : SPINS_FEW, memory_order_relaxed);
}

static void signal_bump(struct signal *signal)
{
    /* Sequentially consistent with the sleeper's add-then-check: one of the two sees the other. */
    atomic_fetch_add(&signal->value, 1);
    if (atomic_load(&signal->sleepers) > 0) futex_wake_all(&signal->value);
}

void worker_barrier(struct worker worker)
{
    struct thread_pool *pool = worker.pool;
    if (worker.count == 1) return;
    unsigned generation = atomic_load_explicit(&pool->barrier.value, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == worker.count) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&pool->taken, 0, memory_order_relaxed);
        signal_bump(&pool->barrier);
    } else {
        signal_wait(&pool->barrier, generation);
    }
}

static void *thread_main(void *opaque)
{
    struct new_worker start = *(struct new_worker *)opaque;
    struct thread_pool *pool = start.pool;
    struct worker worker = { pool, start.index, pool->count };
    start.pool->allocator->release(pool->allocator->user, opaque, sizeof start);

    for (unsigned seen = 0;; seen++) {
        signal_wait(&pool->run, seen);
        if (pool->ending) return NULL;
        pool->task(pool->argument, worker);
        worker_barrier(worker);
    }
}

static mf_status start_thread(struct thread_pool *pool, mf_error *why)
{
    const mf_allocator *allocator = pool->allocator;
    struct new_worker *start =
        allocator->allocate(allocator->user, sizeof *start, _Alignof(max_align_t));
    if (!start) return fail_memory(why, sizeof *start);
    *start = (struct new_worker){ pool, pool->started + 1 };
    int problem = thread_start(&pool->threads[pool->started], NULL, thread_main, start);
    if (problem) {
        allocator->release(allocator->user, start, sizeof *start);
        return fail_errno(why, MF_ERR_MEMORY, problem, "a thread cannot be started");
    }
    pool->started++;
    return MF_OK;
}

/* CPUs in the affinity mask; a number above every pool size if it cannot be read. */
static unsigned allowed_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return UINT_MAX;
    return (unsigned)CPU_COUNT(&set);
}

static size_t threads_bytes(unsigned count)
{
    return (count ? count : 1) * sizeof(pthread_t);
}

mf_status thread_pool_new(struct thread_pool **out, const mf_allocator *allocator,
                          unsigned thread_count, mf_error *why)
{
    *out = NULL;
    if (thread_count < 1 || thread_count > THREADS_MAX)
        return fail(why, MF_ERR_ARGUMENT, "%u threads were asked for, 1 to %d are possible",
                    thread_count, THREADS_MAX);
    struct thread_pool *pool = allocator->allocate(allocator->user, sizeof *pool, CACHE_LINE);
    if (!pool) return fail_memory(why, sizeof *pool);
    bool crowded = thread_count > allowed_cpus();
    *pool = (struct thread_pool){ .allocator = allocator,
                                  .count = thread_count,
                                  .run.crowded = crowded,
                                  .barrier.crowded = crowded };

    mf_status status = MF_OK;
    pool->threads =
        allocator->allocate(allocator->user, threads_bytes(thread_count), _Alignof(max_align_t));
    if (!pool->threads) status = fail_memory(why, threads_bytes(thread_count));
    while (status == MF_OK && pool->started + 1 < thread_count) status = start_thread(pool, why);
    if (status != MF_OK) {
        thread_pool_free(pool);
        return status;
    }
    *out = pool;
    return MF_OK;
}

void thread_pool_free(struct thread_pool *pool)
{
    if (!pool) return;
    const mf_allocator *allocator = pool->allocator;
    pool->ending = true;
    signal_bump(&pool->run);
    for (unsigned i = 0; i < pool->started; i++) pthread_join(pool->threads[i], NULL);
    if (pool->threads)
        allocator->release(allocator->user, pool->threads, threads_bytes(pool->count));
    allocator->release(allocator->user, pool, sizeof *pool);
}

unsigned thread_pool_size(const struct thread_pool *pool)
{
    return pool->count;
}

void thread_pool_run(struct thread_pool *pool, pool_task task, void *argument)
{
    struct worker self = { pool, 0, pool->count };
    if (pool->count > 1) {
        pool->task = task;
        pool->argument = argument;
        signal_bump(&pool->run);
    }
    task(argument, self);
    worker_barrier(self);
}

struct share worker_share(struct worker worker, size_t count, size_t unit)
{
    size_t units = (count + unit - 1) / unit;
    size_t begin = units * worker.index / worker.count * unit;
    size_t end = units * (worker.index + 1) / worker.count * unit;
    return (struct share){ min_size(begin, count), min_size(end, count) };
}

struct handout handout_begin(struct worker worker, size_t count, size_t unit)
{
    size_t shared_out = worker.count == 1 ? count : count / 4 * 3 / unit * unit;
    return (struct handout){ worker, count, unit, shared_out, false };
}

bool handout_next(struct handout *handout, struct share *part)
{
    if (!handout->begun) {
        handout->begun = true;
        *part = worker_share(handout->worker, handout->shared_out, handout->unit);
        if (part->begin < part->end) return true;
    }
    if (handout->shared_out == handout->count) return false;
    size_t taken = atomic_fetch_add_explicit(&handout->worker.pool->taken, handout->unit,
                                             memory_order_relaxed);
    part->begin = handout->shared_out + taken;
    part->end = min_size(handout->count, part->begin + handout->unit);
    return part->begin < handout->count;
}
