/* prefetch: the level goes where the time is, whatever the noise; trials get rare; a
 * rank that is mostly wrong is not trusted. */
#include "support/test.h"

#include "experts/prefetch.h"

#include <stdlib.h>

enum { LAYERS = 8, PER_TOKEN = 4 };

/* What a visit takes at each level, in some device. */
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
    { "beyond a hill", { 1.0, 1.1, 1.0, 0.7 }, 3 },
};

static double noise(double share)
{
    return 1 + share * (2.0 * rand() / RAND_MAX - 1);
}

/* A token whose visits wait for a share of their time. */
static void spend_token(struct prefetch *p, const struct device *device, double share,
                        double waiting)
{
    prefetch_token(p);
    for (unsigned layer = 1; layer < LAYERS; layer++) {
        double seconds = device->cost[p->level] * noise(share);
        prefetch_visit(p, seconds, waiting * seconds, 0);
    }
}

/* Tokens spent at the best level among the last 1000 of 3000. */
static unsigned tokens_at_best(const struct device *device, double share)
{
    struct prefetch p;
    unsigned good = 0;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 3000; token++) {
        if (token >= 2000) good += p.level == device->best;
        spend_token(&p, device, share, 0.5);
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
static void reading_ahead_is_rarely_tried_where_it_does_not_pay(void **state)
{
    (void)state;
    struct prefetch p;
    unsigned on = 0;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 20000; token++) {
        on += p.level > 0;
        spend_token(&p, &devices[0], 0, 0.5);
    }
    print_message("    on for %u of 20000 tokens\n", on);
    assert_true(on > 0 && on < 250);
}

/* Without waiting there is nothing to gain, and no trial follows the first one. */
static void reading_ahead_is_not_tried_without_waiting(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 60; token++) spend_token(&p, &devices[1], 0, 0.01);
    for (unsigned token = 0; token < 10000; token++) {
        assert_int_equal(p.level, 0);
        spend_token(&p, &devices[1], 0, 0.01);
    }
    while (p.level == 0) spend_token(&p, &devices[3], 0, 0.9); /* until one does wait */
}

/* One visit per token: there is no time in which to read ahead. */
static void a_single_layer_is_never_read_ahead(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, 1, PER_TOKEN);
    for (unsigned token = 0; token < 100; token++) {
        assert_int_equal(prefetch_ranks(&p, 1, p.level), 0);
        prefetch_token(&p);
    }
}

/* A token that was broken off says nothing. */
static void half_a_token_does_not_count(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned i = 0; i < 100; i++) {
        prefetch_token(&p);
        for (unsigned layer = 2; layer < LAYERS; layer++) prefetch_visit(&p, 1, 0.5, 0);
        assert_int_equal(p.tokens, 0);
    }
}

/* A device that changes is noticed. */
static void a_device_that_changes_is_measured_again(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 100; token++) spend_token(&p, &devices[3], 0, 0.5);
    assert_int_equal(p.home, 3);
    for (unsigned token = 0; token < 5000; token++) spend_token(&p, &devices[0], 0, 0.5);
    assert_int_equal(p.home, 0);
}

static void ranks_are_trusted_by_experience(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (int i = 0; i < 1000; i++) {
        prefetch_learn(&p, 1, 0, i % 10 != 0);
        prefetch_learn(&p, 1, 1, i % 3 == 0);
        prefetch_learn(&p, 1, 2, i % 6 == 0);
        prefetch_learn(&p, 1, 3, false);
        prefetch_learn(&p, 1, PREFETCH_RANKS, true); /* beyond what is kept: ignored */
    }
    for (uint32_t rank = 0; rank < 4; rank++) assert_false(prefetch_trusts(&p, 1, rank, 0));
    assert_true(prefetch_trusts(&p, 1, 0, 1));
    assert_false(prefetch_trusts(&p, 1, 1, 1));
    assert_true(prefetch_trusts(&p, 1, 1, 2));
    assert_false(prefetch_trusts(&p, 1, 2, 2));
    assert_true(prefetch_trusts(&p, 1, 2, 3));
    assert_false(prefetch_trusts(&p, 1, 3, 3));
    assert_false(prefetch_trusts(&p, 1, PREFETCH_RANKS, 3));
    assert_int_equal(prefetch_ranks(&p, 1, 0), 0);
    assert_true(prefetch_ranks(&p, 1, 1) < prefetch_ranks(&p, 1, 2));
    assert_true(prefetch_distance(&p, 1, 0) < prefetch_distance(&p, 1, 1));
    assert_true(prefetch_distance(&p, 1, 3) < 1e6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_level_goes_where_the_time_is),
        cmocka_unit_test(reading_ahead_is_rarely_tried_where_it_does_not_pay),
        cmocka_unit_test(reading_ahead_is_not_tried_without_waiting),
        cmocka_unit_test(a_single_layer_is_never_read_ahead),
        cmocka_unit_test(half_a_token_does_not_count),
        cmocka_unit_test(a_device_that_changes_is_measured_again),
        cmocka_unit_test(ranks_are_trusted_by_experience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
