/* admission: what fits begins, what could never run is refused with numbers, and the request of
 * the lowest class that came last is parked. */
#include "support/test.h"

#include "engine/admission.h"

static const struct admission_times early = { .now = 101, .patience_seconds = 5 };
static const struct admission_times late = { .now = 110, .patience_seconds = 5 };

static void what_fits_begins_in_order(void **state)
{
    (void)state;
    struct admission_request requests[] = {
        { .arrival = 100.5, .need_bytes = 400 },
        { .arrival = 100.1, .need_bytes = 500 },
        { .arrival = 100.2, .need_bytes = 300 },
        { .arrival = 100.0, .need_bytes = 100, .background = true },
    };
    admission_plan(requests, 4, 900, early);
    assert_false(requests[0].begins);
    assert_true(requests[1].begins);
    assert_true(requests[2].begins);
    assert_true(requests[3].begins);
}

static void a_small_one_passes_until_the_other_has_waited_for_long(void **state)
{
    (void)state;
    struct admission_request requests[] = {
        { .running = true, .arrival = 90 },
        { .arrival = 100, .need_bytes = 900 },
        { .arrival = 100.5, .need_bytes = 50 },
    };
    admission_plan(requests, 3, 100, early);
    assert_false(requests[1].begins);
    assert_true(requests[2].begins);
    admission_plan(requests, 3, 100, late);
    assert_false(requests[2].begins);
    admission_plan(requests, 3, 950, late);
    assert_true(requests[1].begins);
    assert_true(requests[2].begins);
}

static void background_that_waited_for_long_goes_by_arrival(void **state)
{
    (void)state;
    struct admission_request requests[] = {
        { .running = true, .arrival = 90 },
        { .arrival = 100, .need_bytes = 100, .background = true },
        { .arrival = 100.5, .need_bytes = 100 },
    };
    admission_plan(requests, 3, 100, early);
    assert_false(requests[1].begins);
    assert_true(requests[2].begins);
    admission_plan(requests, 3, 100, (struct admission_times){ .now = 121, .patience_seconds = 5 });
    assert_true(requests[1].begins);
    assert_false(requests[2].begins);
}

static void the_first_begins_where_nothing_runs(void **state)
{
    (void)state;
    struct admission_request requests[] = { { .arrival = 100, .need_bytes = 900 },
                                            { .arrival = 101, .need_bytes = 10 } };
    admission_plan(requests, 2, 100, early);
    assert_true(requests[0].begins);
    assert_false(requests[1].begins);
}

/* A prompt that runs has not taken its memory yet: another one that would need the same waits. */
static void what_running_ones_will_need_is_kept_for_them(void **state)
{
    (void)state;
    struct admission_request requests[] = {
        { .running = true, .arrival = 90, .need_bytes = 600 },
        { .running = true, .arrival = 91, .need_bytes = 300 },
        { .arrival = 100, .need_bytes = 150 },
    };
    admission_plan(requests, 3, 1000, early);
    assert_false(requests[2].begins);
    requests[0].need_bytes = 500;
    admission_plan(requests, 3, 1000, early);
    assert_true(requests[2].begins);
    requests[0].need_bytes = 5000; /* more than there is */
    admission_plan(requests, 3, 1000, early);
    assert_false(requests[2].begins);
}

/* A client with many requests is passed by one that has none. */
static void clients_take_turns(void **state)
{
    (void)state;
    struct admission_request requests[] = {
        { .arrival = 100, .need_bytes = 400, .round = 3 },
        { .arrival = 100.1, .need_bytes = 400, .round = 1 },
        { .arrival = 100.2, .need_bytes = 400, .round = 0 },
        { .arrival = 90, .need_bytes = 400, .round = 0, .background = true },
    };
    admission_plan(requests, 4, 900, early);
    assert_false(requests[0].begins);
    assert_true(requests[1].begins);
    assert_true(requests[2].begins);
    assert_false(requests[3].begins);
}

static void what_cannot_run_alone_is_refused_with_numbers(void **state)
{
    (void)state;
    mf_error why;
    assert_int_equal(admission_check(100 << 20, 4000, 100 << 20, &why), MF_OK);
    assert_int_equal(admission_check((uint64_t)150 << 20, 4000, 100 << 20, &why), MF_ERR_POOL_FULL);
    assert_non_null(strstr(why.text, "4000 tokens"));
    assert_non_null(strstr(why.text, "150.0 MiB"));
    assert_non_null(strstr(why.text, "100.0 MiB"));
    assert_int_equal(admission_check((uint64_t)150 << 20, 4000, 100 << 20, NULL), MF_ERR_POOL_FULL);
}

static void the_lowest_class_that_came_last_is_parked(void **state)
{
    (void)state;
    struct admission_request requests[] = {
        { .running = true, .arrival = 1 },
        { .running = true, .arrival = 2, .background = true },
        { .running = true, .arrival = 3, .background = true },
        { .running = true, .arrival = 4 },
        { .arrival = 5, .background = true },
    };
    assert_int_equal(admission_park(requests, 5), 2);
    requests[2].running = false;
    assert_int_equal(admission_park(requests, 5), 1);
    requests[1].running = false;
    assert_int_equal(admission_park(requests, 5), 3);
    requests[3].running = false;
    assert_int_equal(admission_park(requests, 5), 5);
    assert_int_equal(admission_park(requests, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_begins_in_order),
        cmocka_unit_test(a_small_one_passes_until_the_other_has_waited_for_long),
        cmocka_unit_test(background_that_waited_for_long_goes_by_arrival),
        cmocka_unit_test(the_first_begins_where_nothing_runs),
        cmocka_unit_test(what_running_ones_will_need_is_kept_for_them),
        cmocka_unit_test(clients_take_turns),
        cmocka_unit_test(what_cannot_run_alone_is_refused_with_numbers),
        cmocka_unit_test(the_lowest_class_that_came_last_is_parked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
