/* read_choice: the faster of two ways does the reading, after a few reads by each. */
#include "support/test.h"

#include "files/read_choice.h"

/* Reads until the choice is made, with ways that give so much a second; the reads it took. */
static unsigned choose(struct read_choice *choice, double first, double second)
{
    uint64_t bytes = 0;
    double seconds = 0;
    unsigned reads = 0;
    read_choice_init(choice, 2);
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
    read_choice_init(&choice, 2);
    while (!read_choice_is_over(&choice)) {
        bytes += 1000;
        seconds += choice.active == 1 ? 1e-6 : choice.phase == 0 ? 0.9e-6 : 4e-6;
        read_choice_note(&choice, bytes, seconds);
    }
    assert_int_equal(choice.active, 1);
}

static void one_way_needs_no_trial(void **state)
{
    (void)state;
    struct read_choice choice;
    read_choice_init(&choice, 1);
    assert_true(read_choice_is_over(&choice));
    assert_int_equal(choice.active, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faster_one_is_chosen),
        cmocka_unit_test(one_phase_is_not_enough),
        cmocka_unit_test(one_way_needs_no_trial),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
