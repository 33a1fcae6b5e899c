/* sets: the kernel sets that this machine is expected to run are there.  Without it, a test
 * that compares all sets would pass with one of them. */
#include "support/test.h"

#include "kernels/kernels.h"

static void the_sets_of_this_machine_are_there(void **state)
{
    (void)state;
    struct machine machine;
    char text[256];
    machine_probe(&machine);
    machine_describe(&machine, text, sizeof text);
    print_message("    %s; sets:", text);
    for (size_t i = 0; kernels_at(&machine, i); i++)
        print_message(" %s", kernels_at(&machine, i)->name);
    print_message("\n");
#if defined(__aarch64__)
    assert_true(machine.neon && machine.neon_dotprod && machine.neon_f16 && machine.steady_ticks);
    assert_string_equal(kernels_at(&machine, 0)->name, "neon");
    assert_string_equal(kernels_at(&machine, 1)->name, "generic");
    assert_null(kernels_at(&machine, 2));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_sets_of_this_machine_are_there) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
