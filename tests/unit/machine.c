/* base/machine: the probe agrees with what the system says elsewhere. */
#include "support/test.h"

#include "base/machine.h"
#include "base/machine_limits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

/* ----------------------------------------------------------- control groups */

static char root[] = "/tmp/moeflux-machine-XXXXXX";

/* A file below the root, with the directories above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *stream = fopen(full, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[256];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

static void expect_limits(double cpus, uint64_t memory_bytes)
{
    struct machine_limits limits;
    machine_read_limits(&limits, root);
    assert_true(limits.cpus == cpus);
    assert_int_equal(limits.memory_bytes, memory_bytes);
}

static void without_groups_nothing_is_limited(void **state)
{
    (void)state;
    expect_limits((double)INFINITY, UINT64_MAX);
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    expect_limits((double)INFINITY, UINT64_MAX);
}

static void the_least_limit_on_the_path_counts(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/user.slice/work.scope\n");
    put("/sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n");
    put("/sys/fs/cgroup/user.slice/memory.max", "1000000\n");
    put("/sys/fs/cgroup/user.slice/work.scope/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/user.slice/work.scope/memory.max", "2000000\n");
    put("/sys/fs/cgroup/other/cpu.max", "100000 100000\n");
    expect_limits(3, 1000000);
    put("/sys/fs/cgroup/user.slice/work.scope/cpu.max", "50000 100000\n");
    expect_limits(0.5, 1000000);
}

/* docker run --cpus 2.5: the group's path is the host's, the mount is the group itself. */
static void a_container_without_a_namespace_is_limited_at_the_root(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/docker/0123\n");
    put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
    put("/sys/fs/cgroup/memory.max", "4096\n");
    expect_limits(2.5, 4096);
}

static void version_1_has_a_directory_for_each_controller(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a/b\n3:cpuset:/\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "8192\n");
    expect_limits(1.5, 8192);
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_sizes_are_plausible),
        cmocka_unit_test(instruction_sets_agree_with_the_kernel),
        WITH_ROOT(without_groups_nothing_is_limited),
        WITH_ROOT(the_least_limit_on_the_path_counts),
        WITH_ROOT(a_container_without_a_namespace_is_limited_at_the_root),
        WITH_ROOT(version_1_has_a_directory_for_each_controller),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
