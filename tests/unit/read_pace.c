/* read_pace: the depth becomes the smallest that gives the full rate of a device. */
#include "support/test.h"

#include "io/read_pace.h"

#include <stdlib.h>

/* A device that serves `ways` reads at a time, each in one unit of time; more wait. */
static double time_under_way(uint32_t under_way, uint32_t ways)
{
    return under_way <= ways ? 1.0 : (double)under_way / ways;
}

static double noise(double share)
{
    return 1 + share * (2.0 * rand() / RAND_MAX - 1);
}

/* The home depth after many reads, when `wanted` reads are always waiting. */
static uint32_t depth_for(uint32_t ways, uint32_t wanted, double share)
{
    struct read_pace pace;
    read_pace_init(&pace, 1, 8, 64);
    for (int i = 0; i < 40000; i++) {
        uint32_t under_way = read_pace_depth(&pace) < wanted ? read_pace_depth(&pace) : wanted;
        read_pace_note(&pace, 450000, time_under_way(under_way, ways) * noise(share) * 1e-3,
                       under_way - 1);
    }
    return 1u << pace.home;
}

static void the_depth_fits_the_device(void **state)
{
    (void)state;
    srand(1);
    for (uint32_t ways = 1; ways <= 128; ways *= 2) {
        uint32_t quiet = depth_for(ways, 1000, 0), loud = depth_for(ways, 1000, 0.3);
        print_message("    %u at a time: depth %u, with noise %u\n", ways, quiet, loud);
        assert_int_equal(quiet, ways < 64 ? ways : 64);
        assert_int_equal(loud, ways < 64 ? ways : 64);
    }
}

/* A depth that is never reached is not kept. */
static void few_reads_need_no_depth(void **state)
{
    (void)state;
    assert_int_equal(depth_for(64, 8, 0), 8);
    assert_int_equal(depth_for(64, 1, 0), 8); /* nothing was learnt */
}

/* One at a time would do for this device, but is never tried. */
static void the_least_depth_holds(void **state)
{
    (void)state;
    struct read_pace pace;
    read_pace_init(&pace, 4, 8, 64);
    for (int i = 0; i < 40000; i++) {
        uint32_t depth = read_pace_depth(&pace);
        assert_true(depth >= 4);
        read_pace_note(&pace, 450000, time_under_way(depth, 1) * 1e-3, depth - 1);
    }
    assert_int_equal(1u << pace.home, 4);
}

static void the_first_depths_are_powers_of_two(void **state)
{
    (void)state;
    struct read_pace pace;
    read_pace_init(&pace, 1, 8, 64);
    assert_int_equal(read_pace_depth(&pace), 8);
    read_pace_init(&pace, 1, 1, 1);
    for (int i = 0; i < 1000; i++) read_pace_note(&pace, 1, 1, 0);
    assert_int_equal(read_pace_depth(&pace), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_depth_fits_the_device),
        cmocka_unit_test(few_reads_need_no_depth),
        cmocka_unit_test(the_least_depth_holds),
        cmocka_unit_test(the_first_depths_are_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
