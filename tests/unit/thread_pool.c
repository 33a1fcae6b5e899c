/* base/thread_pool: everyone runs, barriers hold, shares cover, failures clean up. */
#include "support/test.h"

#include "base/arena.h"
#include "base/thread_pool.h"
#include "support/failing_allocator.h"
#include "support/thread_signals.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static const unsigned sizes[] = { 1, 2, 3, 4, 7 };

static struct thread_pool *pool_of(unsigned count)
{
    struct thread_pool *pool;
    mf_error why;
    if (thread_pool_new(&pool, &allocator_heap, count, &why) != MF_OK) fail_msg("%s", why.text);
    assert_int_equal(thread_pool_size(pool), count);
    return pool;
}

struct roll_call {
    unsigned count;
    atomic_uint seen[8];
};

static void call_roll(void *argument, struct worker worker)
{
    struct roll_call *roll = argument;
    if (worker.count == roll->count) atomic_fetch_add(&roll->seen[worker.index], 1);
}

static void every_worker_runs_once_per_run(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        enum { RUNS = 300 };
        struct roll_call roll = { .count = sizes[s] };
        struct thread_pool *pool = pool_of(sizes[s]);
        for (unsigned run = 0; run < RUNS; run++) thread_pool_run(pool, call_roll, &roll);
        for (unsigned i = 0; i < sizes[s]; i++) assert_int_equal(roll.seen[i], RUNS);
        thread_pool_free(pool);
    }
}

/* Plain variables: the barrier alone must order them (TSan watches). */
struct relay {
    unsigned rounds;
    uint64_t cells[2][8];
};

/* Each round every worker writes the sum of what all wrote in the round before, plus its index.
 * A worker that passes a barrier early reads a stale cell, and the sums differ for good. */
static void run_relay(void *argument, struct worker worker)
{
    struct relay *relay = argument;
    for (unsigned round = 1; round <= relay->rounds; round++) {
        const uint64_t *before = relay->cells[(round - 1) % 2];
        uint64_t sum = 0;
        for (unsigned i = 0; i < worker.count; i++) sum += before[i];
        relay->cells[round % 2][worker.index] = sum + worker.index;
        worker_barrier(worker);
    }
}

static void barriers_order_plain_memory(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        unsigned count = sizes[s];
        struct relay relay = { .rounds = 2000 };
        struct thread_pool *pool = pool_of(count);
        thread_pool_run(pool, run_relay, &relay);
        uint64_t sum = 0, previous = 0;
        for (unsigned round = 1; round <= relay.rounds; round++) {
            previous = sum;
            sum = previous * count + (uint64_t)count * (count - 1) / 2;
        }
        for (unsigned i = 0; i < count; i++)
            assert_int_equal(relay.cells[relay.rounds % 2][i], previous + i);
        thread_pool_free(pool);
    }
}

/* One worker is late each round, by more than the others spin: they sleep and must be woken. */
static void run_with_latecomers(void *argument, struct worker worker)
{
    atomic_uint *arrivals = argument;
    for (unsigned round = 0; round < 40; round++) {
        if (round % worker.count == worker.index)
            nanosleep(&(struct timespec){ .tv_nsec = 300 * 1000 }, NULL);
        atomic_fetch_add(arrivals, 1);
        worker_barrier(worker);
        if (atomic_load(arrivals) < (round + 1) * worker.count) abort();
        worker_barrier(worker);
    }
}

static void sleepers_are_woken(void **state)
{
    (void)state;
    atomic_uint arrivals = 0;
    struct thread_pool *pool = pool_of(4);
    thread_pool_run(pool, run_with_latecomers, &arrivals);
    assert_int_equal(arrivals, 160);
    nanosleep(&(struct timespec){ .tv_nsec = 2 * 1000 * 1000 }, NULL); /* all asleep now */
    atomic_store(&arrivals, 0);
    thread_pool_run(pool, run_with_latecomers, &arrivals);
    assert_int_equal(arrivals, 160);
    thread_pool_free(pool);
}

static void task_sees_writes_of_the_caller_and_back(void **state)
{
    (void)state;
    struct thread_pool *pool = pool_of(3);
    struct relay relay = { .rounds = 1 };
    for (uint64_t run = 0; run < 1000; run++) {
        for (unsigned i = 0; i < 3; i++) relay.cells[0][i] = run;
        thread_pool_run(pool, run_relay, &relay);
        for (unsigned i = 0; i < 3; i++) assert_int_equal(relay.cells[1][i], 3 * run + i);
    }
    thread_pool_free(pool);
}

static void signals_are_left_to_the_caller(void **state)
{
    (void)state;
    struct thread_pool *pool = pool_of(4);
    assert_other_threads_take_no_signals();
    thread_pool_free(pool);
}

static void shares_cover_everything_once(void **state)
{
    (void)state;
    const size_t counts[] = { 0, 1, 15, 16, 17, 1000, 4096 };
    const size_t units[] = { 1, 16, 64 };
    for (size_t c = 0; c < COUNT_OF(counts); c++) {
        for (size_t u = 0; u < COUNT_OF(units); u++) {
            for (unsigned workers = 1; workers <= 9; workers++) {
                size_t next = 0;
                for (unsigned i = 0; i < workers; i++) {
                    struct worker worker = { NULL, i, workers };
                    struct share share = worker_share(worker, counts[c], units[u]);
                    assert_int_equal(share.begin, next);
                    assert_true(share.end >= share.begin);
                    assert_true(share.end % units[u] == 0 || share.end == counts[c]);
                    next = share.end;
                }
                assert_int_equal(next, counts[c]);
            }
        }
    }
}

/* How often each item was handed out; three handouts with barriers between. */
struct handed {
    size_t count, unit;
    atomic_uint times[200];
};

static void hand_out(void *argument, struct worker worker)
{
    struct handed *handed = argument;
    for (int round = 0; round < 3; round++) {
        struct handout items = handout_begin(worker, handed->count, handed->unit);
        for (struct share part; handout_next(&items, &part);)
            for (size_t i = part.begin; i < part.end; i++) atomic_fetch_add(&handed->times[i], 1);
        worker_barrier(worker);
    }
}

static void everything_is_handed_out_once(void **state)
{
    (void)state;
    static const size_t counts[] = { 0, 1, 3, 7, 64, 199 };
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        struct thread_pool *pool = pool_of(sizes[s]);
        for (size_t c = 0; c < COUNT_OF(counts); c++)
            for (size_t unit = 1; unit < 40; unit += 6) {
                struct handed handed = { .count = counts[c], .unit = unit };
                thread_pool_run(pool, hand_out, &handed);
                for (size_t i = 0; i < COUNT_OF(handed.times); i++)
                    assert_int_equal(handed.times[i], i < counts[c] ? 3 : 0);
            }
        thread_pool_free(pool);
    }
}

static void wrong_counts_are_refused(void **state)
{
    (void)state;
    struct thread_pool *pool = (struct thread_pool *)&pool;
    assert_int_equal(thread_pool_new(&pool, &allocator_heap, 0, NULL), MF_ERR_ARGUMENT);
    assert_null(pool);
    assert_int_equal(thread_pool_new(&pool, &allocator_heap, 100000, NULL), MF_ERR_ARGUMENT);
    thread_pool_free(NULL);
}

static void every_failing_allocation_cleans_up(void **state)
{
    (void)state;
    struct failing_allocator heap;
    failing_allocator_init(&heap);
    for (uint64_t nth = 1;; nth++) {
        struct thread_pool *pool;
        failing_allocator_arm(&heap, nth);
        mf_status status = thread_pool_new(&pool, &heap.allocator, 4, NULL);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        assert_int_equal(pool == NULL, fired);
        thread_pool_free(pool);
        assert_int_equal(heap.live_bytes, 0);
        if (!fired) break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worker_runs_once_per_run),
        cmocka_unit_test(barriers_order_plain_memory),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(task_sees_writes_of_the_caller_and_back),
        cmocka_unit_test(signals_are_left_to_the_caller),
        cmocka_unit_test(shares_cover_everything_once),
        cmocka_unit_test(everything_is_handed_out_once),
        cmocka_unit_test(wrong_counts_are_refused),
        cmocka_unit_test(every_failing_allocation_cleans_up),
    };
    return cmocka_run_group_tests_name("thread_pool", tests, NULL, NULL);
}
