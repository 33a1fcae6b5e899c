/* prefetch: read-ahead is on where it saves time, whatever the noise; trials get rare; a rank
 * that is mostly wrong is not trusted. */
#include "support/test.h"

#include "experts/prefetch.h"

#include <stdlib.h>

enum { LAYERS = 8, PER_TOKEN = 4 };

/* What a visit takes without and with read-ahead on some device. */
struct device {
    const char *name;
    double off, on;
};

static const struct device devices[] = {
    { "read-ahead harms", 1.0, 1.5 },
    { "read-ahead costs little", 1.0, 1.01 },
    { "some gain", 1.0, 0.7 },
    { "large gain", 1.0, 0.4 },
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
        double seconds = (p->on ? device->on : device->off) * noise(share);
        prefetch_visit(p, seconds, waiting * seconds, 0);
    }
}

/* Tokens spent in the cheaper state among the last 1000 of 3000. */
static unsigned tokens_at_best(const struct device *device, double share)
{
    struct prefetch p;
    unsigned good = 0;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 3000; token++) {
        if (token >= 2000) good += p.on == (device->on < device->off);
        spend_token(&p, device, share, 0.5);
    }
    return good;
}

static void read_ahead_is_on_if_it_saves_time(void **state)
{
    (void)state;
    srand(1);
    for (size_t i = 0; i < COUNT_OF(devices); i++) {
        unsigned quiet = tokens_at_best(&devices[i], 0), loud = tokens_at_best(&devices[i], 0.5);
        print_message("    %-18s %u of 1000 tokens in the cheaper state, %u with noise\n",
                      devices[i].name, quiet, loud);
        assert_true(quiet >= 950);
        assert_true(loud >= 700);
    }
}

static void trials_become_rare_if_read_ahead_does_not_pay(void **state)
{
    (void)state;
    struct prefetch p;
    unsigned on = 0;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 20000; token++) {
        on += p.on;
        spend_token(&p, &devices[0], 0, 0.5);
    }
    print_message("    on for %u of 20000 tokens\n", on);
    assert_true(on > 0 && on < 250);
}

/* Without waiting there is nothing to gain, and only the first trial is made. */
static void without_waiting_no_trial_is_made(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 60; token++) spend_token(&p, &devices[1], 0, 0.01);
    for (unsigned token = 0; token < 10000; token++) {
        assert_false(p.on);
        spend_token(&p, &devices[1], 0, 0.01);
    }
    while (!p.on) spend_token(&p, &devices[3], 0, 0.9); /* a trial when tokens do wait */
}

static void one_layer_is_never_read_ahead(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, 1, PER_TOKEN);
    for (unsigned token = 0; token < 100; token++) {
        assert_false(p.on);
        prefetch_token(&p);
    }
}

static void an_incomplete_token_does_not_count(void **state)
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

static void a_change_of_the_device_is_noticed(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (unsigned token = 0; token < 100; token++) spend_token(&p, &devices[3], 0, 0.5);
    assert_true(p.home);
    for (unsigned token = 0; token < 5000; token++) spend_token(&p, &devices[0], 0, 0.5);
    assert_false(p.home);
}

static void ranks_are_trusted_by_experience(void **state)
{
    (void)state;
    struct prefetch p;
    prefetch_init(&p, LAYERS, PER_TOKEN);
    for (int i = 0; i < 1000; i++) {
        prefetch_learn(&p, 1, 0, i % 10 != 0);
        prefetch_learn(&p, 1, 1, i % 3 == 0);
        prefetch_learn(&p, 1, 2, i % 8 == 0);
        prefetch_learn(&p, 1, 3, false);
        prefetch_learn(&p, 1, PREFETCH_RANKS, true); /* beyond what is kept: ignored */
    }
    prefetch_depth(&p, 4); /* a mistake delays other reads */
    assert_true(prefetch_trusts(&p, 1, 0));
    assert_false(prefetch_trusts(&p, 1, 1));
    prefetch_depth(&p, 64);
    assert_true(prefetch_trusts(&p, 1, 0));
    assert_true(prefetch_trusts(&p, 1, 1));
    assert_false(prefetch_trusts(&p, 1, 2));
    assert_false(prefetch_trusts(&p, 1, 3));
    assert_false(prefetch_trusts(&p, 1, PREFETCH_RANKS));
    assert_false(prefetch_trusts(&p, PREFETCH_REACH + 1, 0));
    assert_int_equal(prefetch_ranks(&p, PREFETCH_REACH + 1), 0);
    assert_true(prefetch_ranks(&p, 1) >= 2 && prefetch_ranks(&p, 1) < PREFETCH_RANKS);
    assert_true(prefetch_distance(&p, 1, 0) < prefetch_distance(&p, 1, 1));
    assert_true(prefetch_distance(&p, 1, 3) < 1e6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_ahead_is_on_if_it_saves_time),
        cmocka_unit_test(trials_become_rare_if_read_ahead_does_not_pay),
        cmocka_unit_test(without_waiting_no_trial_is_made),
        cmocka_unit_test(one_layer_is_never_read_ahead),
        cmocka_unit_test(an_incomplete_token_does_not_count),
        cmocka_unit_test(a_change_of_the_device_is_noticed),
        cmocka_unit_test(ranks_are_trusted_by_experience),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
