/* sets: this machine runs the kernel sets named on the command line, best first, and no others.
 * Without it, a test that compares all sets would pass with one of them. */
#include "support/test.h"

#include "kernels/kernels.h"

static char **expected; /* ends with NULL */

static void the_sets_of_this_machine_are_there(void **state)
{
    (void)state;
    struct machine machine;
    machine_probe(&machine);
    print_message("    sets:");
    for (size_t i = 0; kernels_at(&machine, i); i++)
        print_message(" %s", kernels_at(&machine, i)->name);
    print_message("\n");
    size_t count = 0;
    for (; expected[count]; count++) {
        assert_non_null(kernels_at(&machine, count));
        assert_string_equal(kernels_at(&machine, count)->name, expected[count]);
    }
    assert_true(count > 0);
    assert_null(kernels_at(&machine, count));
}

int main(int argc, char **argv)
{
    (void)argc;
    expected = argv + 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_sets_of_this_machine_are_there) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
