/* base/machine: the probe agrees with what the system says elsewhere. */
#include "support/test.h"

#include "base/machine.h"

#include <stdio.h>
#include <unistd.h>

static void counts_and_sizes_are_plausible(void **state)
{
    (void)state;
    struct machine machine;
    machine_probe(&machine);
    assert_in_range(machine.core_count, 1, (unsigned long)sysconf(_SC_NPROCESSORS_CONF));
    assert_int_equal(machine.page_bytes, sysconf(_SC_PAGESIZE));
    assert_true(machine.memory_bytes >= 16u << 20);
    assert_true(machine.available_bytes <= machine.memory_bytes);
}

/* True if the word stands in that line of the kernel's own description. */
static bool kernel_says(const char *name, const char *word)
{
    FILE *stream = fopen("/proc/cpuinfo", "r");
    static char line[1 << 16];
    char wanted[64];
    bool found = false;
    snprintf(wanted, sizeof wanted, " %s ", word);
    while (stream && !found && fgets(line, sizeof line, stream)) {
        char *end = strchr(line, '\n');
        if (end) *end = ' ';
        found = strncmp(line, name, strlen(name)) == 0 && strstr(line, wanted);
    }
    if (stream) fclose(stream);
    return found;
}

static bool kernel_lists(const char *flag)
{
    return kernel_says("flags", flag);
}

static void instruction_sets_agree_with_the_kernel(void **state)
{
    (void)state;
#if defined(__x86_64__)
    struct machine machine;
    machine_probe(&machine);
    assert_int_equal(machine.avx2,
                     kernel_lists("avx2") && kernel_lists("fma") && kernel_lists("f16c"));
    assert_int_equal(machine.avx512, kernel_lists("avx512f") && kernel_lists("avx512bw") &&
                                         kernel_lists("avx512dq") && kernel_lists("avx512vl") &&
                                         kernel_lists("avx512cd"));
    assert_int_equal(machine.avx_vnni, machine.avx2 && kernel_lists("avx_vnni"));
    assert_int_equal(machine.avx512_vnni, machine.avx512 && kernel_lists("avx512_vnni"));
    assert_int_equal(machine.avx512_vbmi, machine.avx512 && kernel_lists("avx512vbmi"));
    assert_int_equal(machine.avx512_bf16, machine.avx512 && kernel_lists("avx512_bf16"));
    assert_int_equal(machine.quick_bf16,
                     machine.avx512_bf16 && kernel_says("vendor_id", "AuthenticAMD"));
    /* The kernel may list tiles and yet not let this process use them. */
    assert_true(!machine.amx_int8 || kernel_lists("amx_int8"));
    assert_true(!machine.amx_bf16 || kernel_lists("amx_bf16"));
    assert_false(machine.neon);
#else
    (void)kernel_lists;
    skip();
#endif
}

static void the_description_names_what_is_there_and_fits(void **state)
{
    (void)state;
    struct machine machine = { .avx2 = true, .avx512_vnni = true, .amx_int8 = true };
    char text[64];
    machine_describe(&machine, text, sizeof text);
    assert_string_equal(text, "avx2 vnni amx-int8");
    for (size_t capacity = 1; capacity < sizeof text; capacity++) {
        memset(text, '#', sizeof text);
        machine_describe(&machine, text, capacity);
        assert_true(memchr(text, '\0', capacity));
        for (size_t i = capacity; i < sizeof text; i++) assert_int_equal(text[i], '#');
    }
    machine_describe(&(struct machine){ 0 }, text, sizeof text);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_sizes_are_plausible),
        cmocka_unit_test(instruction_sets_agree_with_the_kernel),
        cmocka_unit_test(the_description_names_what_is_there_and_fits),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
