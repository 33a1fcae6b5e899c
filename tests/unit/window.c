/* window: the pages of layers that see a window of positions: how many a sequence holds, and what
 * it can be cut back to.  Contents are tags (support/prefix_bench.h). */
#include "support/test.h"

#include "base/status.h"
#include "support/prefix_bench.h"

#include <stdlib.h>

enum { WINDOW = 100, LONG = 20 * WINDOW, CAPACITY = 2 * LONG };

static void bench_open_with(struct prefix_bench *bench, struct sequence *sequence, uint32_t window)
{
    struct prefix_bench_options options = { .window = window, .no_tree = true };
    prefix_bench_open(bench, &options);
    sequence_init(sequence, &bench->pool, CAPACITY);
}

static void bench_open(struct prefix_bench *bench, struct sequence *sequence)
{
    bench_open_with(bench, sequence, WINDOW);
}

static const int32_t tokens[CAPACITY];

static void feed(struct sequence *s, uint32_t count, bool generated)
{
    assert_int_equal(prefix_bench_feed(s, tokens, count, generated), MF_OK);
    assert_true(prefix_bench_verify(s));
}

static uint32_t held(struct prefix_bench *bench)
{
    return state_pool_sizes(&bench->pool).held[BLOCK_WINDOW];
}

/* Whether the text comes in one feed of many steps or token by token. */
static void pages_of_windows_stop_growing(void **state)
{
    (void)state;
    struct prefix_bench bench;
    struct sequence s;
    bench_open(&bench, &s);
    const struct state_shape *shape = &bench.pool.shape;
    uint32_t step_pages = state_step_pages(shape);
    assert_in_range(step_pages, 1, LONG / KV_PAGE_TOKENS / 2);
    feed(&s, LONG, false);
    assert_in_range(held(&bench), 1, shape->window_pages);
    assert_in_range(state_pool_sizes(&bench.pool).taken_bytes,
                    s.page_count * state_block_bytes(shape, BLOCK_PAGE),
                    s.page_count * state_block_bytes(shape, BLOCK_PAGE) +
                        sequence_window_pages(shape, LONG) *
                            state_block_bytes(shape, BLOCK_WINDOW));
    for (uint32_t i = 0; i < 2 * WINDOW; i++) {
        feed(&s, 1, true);
        assert_in_range(held(&bench), 1, shape->window_pages);
    }
    assert_int_equal(s.page_count, state_pages_for(LONG + 2 * WINDOW)); /* the others do not */
    sequence_free(&s);
    prefix_bench_close(&bench);
}

/* It is as one of the context's length. */
static void a_window_longer_than_the_context_takes_no_more(void **state)
{
    (void)state;
    static const uint32_t longer[] = { 513, 1 << 20, UINT32_MAX - PREFIX_BENCH_STEP + 1,
                                       UINT32_MAX };
    for (size_t i = 0; i < COUNT_OF(longer); i++) {
        struct prefix_bench bench;
        struct sequence s;
        bench_open_with(&bench, &s, longer[i]);
        const struct state_shape *shape = &bench.pool.shape;
        uint32_t context = shape->config->context_length;
        assert_int_equal(shape->window_pages, state_pages_for(context) + 1);
        assert_int_equal(state_step_pages(shape), state_pages_for(context + PREFIX_BENCH_STEP) + 2);
        feed(&s, context / 2, false);
        feed(&s, context / 4, false);
        while (s.position < context) feed(&s, 1, true);
        assert_int_equal(held(&bench), state_pages_for(context));
        sequence_free(&s);
        prefix_bench_close(&bench);
    }
}

/* More rows than positions can be numbered. */
static void pages_of_a_step_do_not_wrap(void **state)
{
    (void)state;
    struct prefix_bench bench;
    struct sequence s;
    bench_open(&bench, &s);
    bench.pool.shape.step_rows = UINT32_MAX;
    assert_in_range(state_step_pages(&bench.pool.shape), UINT32_MAX / KV_PAGE_TOKENS, UINT32_MAX);
    sequence_free(&s);
    prefix_bench_close(&bench);
}

static void an_abandoned_feed_leaves_the_window(void **state)
{
    (void)state;
    struct prefix_bench bench;
    struct sequence s;
    bench_open(&bench, &s);
    feed(&s, LONG / 2 + 7, false);
    uint32_t before = held(&bench);
    for (uint32_t steps = 0; steps < 6; steps++) {
        assert_int_equal(sequence_reserve(&s, LONG / 2, NULL), MF_OK);
        for (uint32_t i = 0; i < steps; i++)
            sequence_step_done(&s, tokens, PREFIX_BENCH_STEP, false);
        sequence_abandon(&s);
        assert_true(prefix_bench_verify(&s));
        assert_int_equal(held(&bench), before);
    }
    feed(&s, LONG / 2, false);
    sequence_free(&s);
    prefix_bench_close(&bench);
}

/* Within what is held, and to a checkpoint, whose pages are kept while it is there. */
static void a_sequence_can_be_cut_where_its_window_is_held(void **state)
{
    (void)state;
    struct prefix_bench bench;
    struct sequence s;
    mf_error why;
    bench_open(&bench, &s);
    feed(&s, 300, false);
    assert_int_equal(sequence_keep_checkpoint(&s, &why), MF_OK);
    feed(&s, 500, false); /* at 800, whose window begins at 701, in the page of 640 */
    assert_int_equal(sequence_cut_before(&s, 740), 740);
    assert_int_equal(sequence_cut_before(&s, 739), 739);
    assert_int_equal(sequence_cut_before(&s, 738), 300);
    assert_int_equal(sequence_truncate(&s, 738, &why), MF_ERR_CANNOT_TRUNCATE);
    assert_non_null(strstr(why.text, "layers with a window hold no history"));
    assert_true(prefix_bench_verify(&s));
    assert_int_equal(sequence_truncate(&s, 745, &why), MF_OK);
    assert_true(prefix_bench_verify(&s));
    feed(&s, 30, true);
    assert_int_equal(sequence_truncate(&s, 300, &why), MF_OK);
    assert_true(prefix_bench_verify(&s));
    feed(&s, 90, true);
    assert_int_equal(sequence_truncate(&s, 0, &why), MF_OK);
    assert_int_equal(held(&bench), 0);
    feed(&s, 10, false);
    sequence_free(&s);
    prefix_bench_close(&bench);
}

static void forks_do_not_write_into_each_other(void **state)
{
    (void)state;
    struct prefix_bench bench;
    struct sequence s, forks[3];
    mf_error why;
    bench_open(&bench, &s);
    feed(&s, 333, false);
    for (uint32_t i = 0; i < COUNT_OF(forks); i++) {
        assert_int_equal(sequence_fork(&forks[i], &s, &why), MF_OK);
        feed(&forks[i], 20 + i, i % 2);
    }
    feed(&s, 5, true);
    for (uint32_t i = 0; i < COUNT_OF(forks); i++) {
        feed(&forks[i], LONG / 4, false);
        sequence_free(&forks[i]);
    }
    assert_true(prefix_bench_verify(&s));
    sequence_free(&s);
    prefix_bench_close(&bench);
}

/* Every allocation fails once: the sequence is as it was, and no page is lost. */
static void failing_allocations_change_nothing(void **state)
{
    (void)state;
    struct prefix_bench bench;
    struct sequence s, fork = { 0 };
    mf_error why;
    bool fired = true;
    bench_open(&bench, &s);
    feed(&s, 200, false);
    for (unsigned nth = 1; fired; nth++) {
        failing_allocator_arm(&bench.heap, nth);
        mf_status status = sequence_keep_checkpoint(&s, &why);
        if (status == MF_OK) status = sequence_fork(&fork, &s, &why);
        if (status == MF_OK) status = sequence_reserve(&fork, 400, &why);
        fired = failing_allocator_disarm(&bench.heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        if (fork.pool) sequence_abandon(&fork);
        sequence_free(&fork);
        sequence_forget_checkpoint(&s, 200);
        assert_true(prefix_bench_verify(&s));
        state_pool_trim(&bench.pool);
    }
    sequence_free(&s);
    prefix_bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_windows_stop_growing),
        cmocka_unit_test(a_window_longer_than_the_context_takes_no_more),
        cmocka_unit_test(pages_of_a_step_do_not_wrap),
        cmocka_unit_test(an_abandoned_feed_leaves_the_window),
        cmocka_unit_test(a_sequence_can_be_cut_where_its_window_is_held),
        cmocka_unit_test(forks_do_not_write_into_each_other),
        cmocka_unit_test(failing_allocations_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
