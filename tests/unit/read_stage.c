/* read_stage: reads are staged where that is faster, after a few reads by each way. */
#include "support/test.h"

#include "base/arena.h"
#include "io/read_stage.h"

static struct read_stage stage;
static uint64_t total_bytes;
static double total_seconds;

static int open_stage(void **state)
{
    (void)state;
    total_bytes = 0;
    total_seconds = 0;
    read_stage_init(&stage, &allocator_heap, 4096, 2);
    return 0;
}

static int close_stage(void **state)
{
    (void)state;
    read_stage_free(&stage, &allocator_heap);
    return 0;
}

static void note_read(double microseconds)
{
    total_bytes += 1000;
    total_seconds += microseconds * 1e-6;
    read_stage_note(&stage, total_bytes, total_seconds);
}

/* Notes reads until the stage settles; returns how many. */
static unsigned settle(double direct, double staged)
{
    unsigned reads = 0;
    for (; !read_stage_is_settled(&stage); reads++) {
        assert_true(reads < 2000);
        note_read(stage.active ? staged : direct);
    }
    return reads;
}

static void faster_direct_reads_switch_staging_off(void **state)
{
    (void)state;
    assert_true(settle(1, 2) < 1100);
    assert_false(stage.active);
    assert_null(read_stage_take(&stage, 4096));
}

static void faster_staged_reads_switch_staging_on(void **state)
{
    (void)state;
    settle(2, 1);
    assert_true(stage.active);
    uint8_t *buffer = read_stage_take(&stage, 4096);
    assert_non_null(buffer);
    assert_null(read_stage_take(&stage, 4097));
    read_stage_give_back(&stage, buffer);
}

static void a_gain_within_noise_keeps_reads_direct(void **state)
{
    (void)state;
    settle(1.05, 1);
    assert_false(stage.active);
}

/* Direct reads of the first phase come from the page cache: that phase alone would win. */
static void both_ways_are_measured_twice(void **state)
{
    (void)state;
    while (!read_stage_is_settled(&stage)) note_read(stage.active ? 1 : stage.phase == 0 ? 0.9 : 4);
    assert_true(stage.active);
}

static void switches_when_the_other_way_becomes_faster(void **state)
{
    (void)state;
    unsigned staged = 0;
    for (unsigned read = 0; read < 50000; read++) {
        staged += stage.active;
        note_read(stage.active ? 1 : 2);
    }
    assert_true(staged > 40000);
    staged = 0;
    for (unsigned read = 0; read < 50000; read++) {
        staged += stage.active;
        note_read(stage.active ? 2 : 1);
    }
    assert_true(staged > 0 && staged < 25000);
}

static void without_buffers_nothing_is_measured(void **state)
{
    (void)state;
    struct read_stage none;
    read_stage_init(&none, &allocator_heap, 4096, 0);
    assert_true(read_stage_is_settled(&none));
    for (unsigned read = 0; read < 10000; read++) read_stage_note(&none, read, read);
    assert_true(read_stage_is_settled(&none));
    assert_null(read_stage_take(&none, 1));
    read_stage_free(&none, &allocator_heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(faster_direct_reads_switch_staging_off, open_stage,
                                        close_stage),
        cmocka_unit_test_setup_teardown(faster_staged_reads_switch_staging_on, open_stage,
                                        close_stage),
        cmocka_unit_test_setup_teardown(a_gain_within_noise_keeps_reads_direct, open_stage,
                                        close_stage),
        cmocka_unit_test_setup_teardown(both_ways_are_measured_twice, open_stage, close_stage),
        cmocka_unit_test_setup_teardown(switches_when_the_other_way_becomes_faster, open_stage,
                                        close_stage),
        cmocka_unit_test(without_buffers_nothing_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
