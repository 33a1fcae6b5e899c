/* prefetch: the level goes where the time is, whatever the noise; trials get rare; a
 * rank that is mostly wrong is not trusted. */
#include "support/test.h"

#include "experts/prefetch.h"

#include <stdlib.h>

enum { LAYERS = 8 };

/* What a visit costs at each level, in some device. */
struct device {
    const char *name;
    double cost[PREFETCH_LEVELS];
    uint32_t best;
};

static const struct device devices[] = {
    { "nothing to win", { 1.0, 1.2, 1.5, 2.0 }, 0 },
    { "a little is lost", { 1.0, 1.01, 1.02, 1.03 }, 0 },
    { "sure ones pay", { 1.0, 0.7, 0.8, 1.1 }, 1 },
    { "more is better", { 1.0, 0.8, 0.6, 0.4 }, 3 },
    { "the middle", { 1.0, 0.9, 0.5, 0.6 }, 2 },
};

static double noise(double share)
{
    return 1 + share * (2.0 * rand() / RAND_MAX - 1);
}

/* Tokens spent at the best level among the last 1000 of 3000. */
static unsigned tokens_at_best(const struct device *device, double share)
{
    struct prefetch p;
    unsigned good = 0;
    prefetch_init(&p, LAYERS);
    for (unsigned token = 0; token < 3000; token++) {
        if (token >= 2000) good += p.level == device->best;
        for (unsigned layer = 0; layer < LAYERS; layer++)
            prefetch_visit(&p, device->cost[p.level] * noise(share));
    }
    return good;
}

static void the_level_goes_where_the_time_is(void **state)
{
    (void)state;
    srand(1);
    for (size_t i = 0; i < COUNT_OF(devices); i++) {
        unsigned quiet = tokens_at_best(&devices[i], 0), loud = tokens_at_best(&devices[i], 0.5);
        print_message("    %-18s %u of 1000 tokens at the best level, %u with noise\n",
                      devices[i].name, quiet, loud);
        assert_true(quiet >= 950);
        assert_true(loud >= 700);
    }
}

/* What costs nothing to leave alone is left alone: less than 1% of tokens are trials. */
static void where_it_does_not_pay_it_is_hardly_tried(void **state)
{
    (void)state;
    struct prefetch p;
    unsigned on = 0;
    prefetch_init(&p, LAYERS);
    for (unsigned token = 0; token < 20000; token++) {
        on += p.level > 0;
        for (unsigned layer = 0; layer < LAYERS; layer++)
            prefetch_visit(&p, devices[0].cost[p.level]);
    }
    print_message("    on for %u of 20000 tokens\n", on);
    assert_true(on > 0 && on < 250);
}

/* A device that changes is noticed. */
static void the_answer_may_change(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS);
    for (unsigned token = 0; token < 500; token++)
        for (unsigned layer = 0; layer < LAYERS; layer++)
            prefetch_visit(&p, devices[3].cost[p.level]);
    assert_int_equal(p.home, 3);
    for (unsigned token = 0; token < 5000; token++)
        for (unsigned layer = 0; layer < LAYERS; layer++)
            prefetch_visit(&p, devices[0].cost[p.level]);
    assert_int_equal(p.home, 0);
}

static void ranks_are_trusted_by_experience(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS);
    for (int i = 0; i < 1000; i++) {
        prefetch_learn(&p, 0, i % 10 != 0);
        prefetch_learn(&p, 1, i % 3 == 0);
        prefetch_learn(&p, 2, i % 6 == 0);
        prefetch_learn(&p, 3, false);
        prefetch_learn(&p, PREFETCH_RANKS, true); /* beyond what is kept: ignored */
    }
    for (uint32_t rank = 0; rank < 4; rank++) assert_false(prefetch_trusts(&p, rank, 0));
    assert_true(prefetch_trusts(&p, 0, 1));
    assert_false(prefetch_trusts(&p, 1, 1));
    assert_true(prefetch_trusts(&p, 1, 2));
    assert_false(prefetch_trusts(&p, 2, 2));
    assert_true(prefetch_trusts(&p, 2, 3));
    assert_false(prefetch_trusts(&p, 3, 3));
    assert_false(prefetch_trusts(&p, PREFETCH_RANKS, 3));
    assert_true(prefetch_distance(&p, 0) < prefetch_distance(&p, 1));
    assert_true(prefetch_distance(&p, 3) < 1e6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_level_goes_where_the_time_is),
        cmocka_unit_test(where_it_does_not_pay_it_is_hardly_tried),
        cmocka_unit_test(the_answer_may_change),
        cmocka_unit_test(ranks_are_trusted_by_experience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
