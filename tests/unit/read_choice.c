/* read_choice: the faster of two ways does the reading, after a few reads by each. */
#include "support/test.h"

#include "io/read_choice.h"

static const struct read_choice_rule once = { .worth = 1.4, .phase_reads = 48 };
static const struct read_choice_rule often = { .worth = 1.1, .phase_reads = 100, .again = 8000 };

/* Reads until the choice is made, with ways that give so much a second; the reads it took. */
static unsigned choose(struct read_choice *choice, double first, double second)
{
    uint64_t bytes = 0;
    double seconds = 0;
    unsigned reads = 0;
    read_choice_init(choice, &once);
    for (; !read_choice_is_over(choice); reads++) {
        assert_true(reads < 1000);
        bytes += 1000;
        seconds += 1000 / (choice->active == 0 ? first : second);
        read_choice_note(choice, bytes, seconds);
    }
    return reads;
}

static void the_faster_one_is_chosen(void **state)
{
    (void)state;
    struct read_choice choice;
    assert_true(choose(&choice, 2e9, 1e9) < 300);
    assert_int_equal(choice.active, 0);
    choose(&choice, 1e9, 2e9);
    assert_int_equal(choice.active, 1);
    choose(&choice, 1.0e9, 1.3e9); /* not so much better that it could not be chance */
    assert_int_equal(choice.active, 0);
    read_choice_note(&choice, 1, 1); /* later reads change nothing */
    assert_int_equal(choice.active, 0);
}

/* The first way brings what the page cache had: its first phase alone would win. */
static void one_phase_is_not_enough(void **state)
{
    (void)state;
    struct read_choice choice;
    uint64_t bytes = 0;
    double seconds = 0;
    read_choice_init(&choice, &once);
    while (!read_choice_is_over(&choice)) {
        bytes += 1000;
        seconds += choice.active == 1 ? 1e-6 : choice.phase == 0 ? 0.9e-6 : 4e-6;
        read_choice_note(&choice, bytes, seconds);
    }
    assert_int_equal(choice.active, 1);
}

/* The second way is better at first, and then the first one. */
static void it_is_measured_again(void **state)
{
    (void)state;
    struct read_choice choice;
    uint64_t bytes = 0, second = 0;
    double seconds = 0;
    read_choice_init(&choice, &often);
    for (unsigned read = 0; read < 100000; read++) {
        bool late = read >= 50000;
        if (read == 50000) {
            assert_true(second > 40000); /* of the first half */
            second = 0;
        }
        second += choice.active;
        bytes += 1000;
        seconds += (choice.active == 1) == late ? 2e-6 : 1e-6;
        read_choice_note(&choice, bytes, seconds);
    }
    assert_true(second > 0 && second < 25000); /* what was measured before fades */
}

/* Reads into memory that was never used are slow whoever reads. */
static void a_slow_start_counts_for_nobody(void **state)
{
    (void)state;
    struct read_choice choice;
    uint64_t bytes = 0;
    double seconds = 0;
    unsigned reads = 0;
    read_choice_init(&choice,
                     &(struct read_choice_rule){ .worth = 1.4, .phase_reads = 48, .lead = 200 });
    for (; !read_choice_is_over(&choice); reads++) {
        bytes += 1000;
        seconds += reads < 200 ? 20e-6 : 1e-6;
        read_choice_note(&choice, bytes, seconds);
    }
    assert_int_equal(choice.active, 0);
    assert_true(reads < 600);
}

static void one_way_needs_no_trial(void **state)
{
    (void)state;
    struct read_choice choice;
    read_choice_init(&choice, NULL);
    assert_true(read_choice_is_over(&choice));
    assert_int_equal(choice.active, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_one_is_chosen),
        cmocka_unit_test(one_phase_is_not_enough),
        cmocka_unit_test(it_is_measured_again),
        cmocka_unit_test(a_slow_start_counts_for_nobody),
        cmocka_unit_test(one_way_needs_no_trial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
