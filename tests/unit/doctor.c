/* doctor: every finding is provoked by a directory that stands for /proc and /sys, and is silent
 * without its cause. */
#include "support/test.h"

#include "doctor/doctor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static struct doctor_subject subject;
static struct findings found;

/* root/path with that text; its directories are made. */
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
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int begin(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/moeflux-doctor-XXXXXX");
    if (!mkdtemp(root)) return -1;
    subject = (struct doctor_subject){ .root = root,
                                       .kernel_sets = { "avx2", "generic" },
                                       .set_count = 2,
                                       .cores = 4,
                                       .has_io_uring = true,
                                       .disk = { "/models/a.gguf", 8, 1, true, 3e9 } };
    found.count = 0;
    return 0;
}

static int end(void **state)
{
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -r %s", root);
    return system(line); /* NOLINT(cert-env33-c): a directory of this test */
}

/* Examines anew; the finding of that check, which there must be. */
static const struct finding *finding_of(const char *check)
{
    found.count = 0;
    doctor_examine(&found, &subject);
    for (size_t i = 0; i < found.count; i++)
        if (strcmp(found.items[i].check, check) == 0) return &found.items[i];
    fail_msg("there is no finding \"%s\"", check);
    return NULL;
}

static bool is_found(const char *check)
{
    found.count = 0;
    doctor_examine(&found, &subject);
    for (size_t i = 0; i < found.count; i++)
        if (strcmp(found.items[i].check, check) == 0) return true;
    return false;
}

static void assert_part(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static void assert_fine(const char *check, const char *part)
{
    const struct finding *f = finding_of(check);
    if (f->level != FINDING_FINE) fail_msg("%s: %s; %s", check, f->found, f->cost);
    assert_part(f->found, part);
    assert_string_equal(f->cost, "");
    assert_string_equal(f->fix, "");
}

static void assert_costs(const char *check, enum finding_level level, const char *found_part,
                         const char *cost, const char *fix)
{
    const struct finding *f = finding_of(check);
    if (f->level != level) fail_msg("%s: level %d, %s", check, (int)f->level, f->found);
    assert_part(f->found, found_part);
    assert_part(f->cost, cost);
    assert_part(f->fix, fix);
}

/* Where no file is, nothing crashes and nothing is made up. */
static void nothing_is_known_of_an_empty_machine(void **state)
{
    (void)state;
    subject.disk.path = NULL;
    doctor_examine(&found, &subject);
    for (size_t i = 0; i < found.count; i++) {
        const struct finding *f = &found.items[i];
        assert_true(f->found[0] != '\0');
        if (f->level != FINDING_FINE) assert_string_equal(f->check, "huge pages");
    }
    assert_false(is_found("CPU clock") || is_found("memory") || is_found("disk"));
    assert_false(is_found("direct I/O") || is_found("read-ahead"));
}

static void kernel_sets_and_what_the_cpu_has(void **state)
{
    (void)state;
    put("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu avx avx2 fma\nbugs : x\n");
    assert_fine("kernel sets", "avx2, generic run here; avx2 is used");
    put("/proc/cpuinfo", "flags : fpu avx avx2_not\n");
    assert_costs("kernel sets", FINDING_WARNING, "avx2", "without AVX2", "this CPU has no AVX2");
    put("/proc/cpuinfo", "flags : fpu hypervisor\n");
    assert_costs("kernel sets", FINDING_WARNING, "", "without AVX2", "qemu -cpu host");
    put("/proc/cpuinfo", "flags : fpu avx2 avx512f avx512bw\n");
    assert_costs("kernel sets", FINDING_WARNING, "", "AVX-512", "-Dkernel_sets=all");
    subject.kernel_sets[1] = "avx512";
    assert_fine("kernel sets", "avx512");
    put("/proc/cpuinfo", "flags : avx2 avx512bw amx_tile amx_bf16\n");
    assert_costs("kernel sets", FINDING_WARNING, "", "AMX", "5.16");
    subject.kernel_sets[0] = "generic";
    subject.set_count = 1;
    put("/proc/cpuinfo", "flags : avx2\n");
    assert_costs("kernel sets", FINDING_WARNING, "generic is used", "does not use", "meson");
    put("/proc/cpuinfo", "Features : fp asimd\n");
    assert_costs("kernel sets", FINDING_WARNING, "", "dot products", "none");
    put("/proc/cpuinfo", "Features : fp asimd asimddp\n");
    assert_fine("kernel sets", "generic");
}

static void threads_quota_and_affinity(void **state)
{
    (void)state;
    put("/sys/devices/system/cpu/online", "0-3\n");
    assert_fine("threads", "4, one for every CPU");
    put("/sys/devices/system/cpu/online", "0-3,8,10-12\n");
    assert_costs("threads", FINDING_NOTE, "allows 4 of 8 CPUs", "not used",
                 "taskset --cpu-list 0-3,8,10-12");
    subject.cpu_quota = 1.5;
    assert_costs("threads", FINDING_WARNING, "1.5 of 4 CPUs", "38 % of the machine",
                 "CPUQuota=400%");
    subject.cpu_quota = 4;
    assert_true(finding_of("threads")->level == FINDING_NOTE); /* it takes nothing away */
}

static void clocks_that_stay_low(void **state)
{
    static const char governor[] = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    static const char driver[] = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver";
    (void)state;
    put(governor, "performance\n");
    assert_fine("CPU clock", "governor performance");
    put(governor, "powersave\n");
    put(driver, "acpi-cpufreq\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq", "1200000\n");
    put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "3600000\n");
    assert_costs("CPU clock", FINDING_WARNING, "powersave", "1.2 of 3.6 GHz", "cpupower");
    put(driver, "intel_pstate\n");
    assert_fine("CPU clock", "powersave"); /* goes by load there */
    put("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "power\n");
    assert_costs("CPU clock", FINDING_WARNING, "preference power", "low under load", "cpupower");
}

static void memory_that_others_hold_or_groups_limit(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 12582912 kB\nSwapTotal: 0 kB\n");
    assert_fine("memory", "12.0 GiB of 16.0 GiB are free");
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 4194304 kB\n");
    assert_costs("memory", FINDING_WARNING, "4.0 GiB of 16.0 GiB", "hold 12.0 GiB", "ps aux");
    subject.memory_limit = (uint64_t)2 << 30;
    assert_costs("memory", FINDING_WARNING, "allows 2.0 GiB of 16.0 GiB", "for every token",
                 "MemoryMax");
    assert_false(is_found("swap"));
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 16000000 kB\n"
                         "SwapTotal: 8388608 kB\nSwapFree: 8000000 kB\n");
    assert_false(is_found("swap")); /* a little is usual */
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 16000000 kB\n"
                         "SwapTotal: 8388608 kB\nSwapFree: 4194304 kB\n");
    assert_costs("swap", FINDING_WARNING, "4.0 GiB", "swap", "vm.swappiness");
}

static void memory_that_can_be_refused(void **state)
{
    (void)state;
    put("/proc/sys/vm/overcommit_memory", "0\n");
    put("/proc/self/limits", "Limit  Soft  Hard  Units\n"
                             "Max address space   unlimited   unlimited   bytes\n");
    assert_false(is_found("overcommit") || is_found("address space"));
    put("/proc/sys/vm/overcommit_memory", "2\n");
    assert_costs("overcommit", FINDING_WARNING, "is 2", "refused", "overcommit_memory=0");
    put("/proc/self/limits", "Max address space   4294967296   unlimited   bytes\n");
    assert_costs("address space", FINDING_WARNING, "4.0 GiB", "do not open", "ulimit -v");
}

static void huge_pages_switched_off(void **state)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    (void)state;
    assert_costs("huge pages", FINDING_WARNING, "this kernel has no", "4 KiB", "CONFIG_");
    put(path, "always madvise [never]\n");
    assert_costs("huge pages", FINDING_WARNING, "switched off", "4 KiB", "echo madvise");
    put(path, "always [madvise] never\n");
    assert_fine("huge pages", "where moeflux asks");
    put(path, "[always] madvise never\n");
    assert_fine("huge pages", "for all memory");
}

static void locked_memory_limits(void **state)
{
    (void)state;
    assert_fine("locked memory", "no limit");
    put("/proc/self/limits", "Max locked memory         8388608   8388608   bytes \n");
    assert_costs("locked memory", FINDING_NOTE, "8.0 MiB", "io_uring", "memlock unlimited");
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
    assert_true(finding_of("locked memory")->level == FINDING_NOTE);
    put("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
    assert_fine("locked memory", "does not hold");
    put("/proc/self/status", "CapEff:\t0000000000000000\n");
    put("/proc/self/limits", "Max locked memory     8589934592   8589934592   bytes \n");
    assert_fine("locked memory", "8.0 GiB");
    put("/proc/self/limits", "Max locked memory     unlimited   unlimited   bytes \n");
    assert_fine("locked memory", "no limit");
}

static void io_uring_refused(void **state)
{
    (void)state;
    assert_fine("io_uring", "works");
    subject.io_uring_error = EPERM;
    assert_costs("io_uring", FINDING_WARNING, "refuses", "threads", "seccomp");
    put("/proc/sys/kernel/io_uring_disabled", "2\n");
    assert_costs("io_uring", FINDING_WARNING, "io_uring_disabled is 2", "threads",
                 "io_uring_disabled=0");
    subject.has_io_uring = false;
    assert_costs("io_uring", FINDING_WARNING, "this build", "threads", "liburing-dev");
}

static void disks_that_are_slow_or_far(void **state)
{
    (void)state;
    put("/proc/self/mountinfo", "22 1 0:5 / /proc rw - proc proc rw\n"
                                "23 1 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw\n");
    assert_fine("direct I/O", "/models/a.gguf");
    assert_fine("disk", "3.00 GB/s of scattered reads, ext4");
    subject.disk.bytes = 0.5e9;
    assert_costs("disk", FINDING_WARNING, "0.50 GB/s", "takes 2.1 s", "faster disk");
    put("/sys/dev/block/8:1/queue/rotational", "1\n");
    assert_costs("disk", FINDING_WARNING, "rotating", "takes 2.1 s", "SSD");
    subject.disk.bytes = 2e9;
    assert_fine("disk", "rotating"); /* as virtual disks say of themselves */
    put("/proc/self/mountinfo", "23 1 8:1 / / rw - nfs4 server:/x rw\n");
    assert_costs("disk", FINDING_WARNING, "nfs4", "takes 0.5 s", "local disk");
    subject.disk.direct = false;
    assert_costs("direct I/O", FINDING_WARNING, "nfs4 does not permit it", "page cache", "ext4");
    subject.disk.bytes = 0;
    assert_false(is_found("disk")); /* not measured */
}

static void read_ahead_too_short_or_too_long(void **state)
{
    (void)state;
    assert_false(is_found("read-ahead"));
    put("/sys/dev/block/8:1/queue/read_ahead_kb", "128\n");
    assert_fine("read-ahead", "128 KiB on the disk of the model");
    put("/sys/dev/block/8:1/uevent", "MAJOR=8\nMINOR=1\nDEVNAME=sda1\n");
    put("/sys/dev/block/8:1/queue/read_ahead_kb", "8192\n");
    assert_costs("read-ahead", FINDING_NOTE, "8192 KiB on sda1", "not needed",
                 "blockdev --setra 2048 /dev/sda1");
    put("/sys/dev/block/8:1/queue/read_ahead_kb", "16\n");
    assert_costs("read-ahead", FINDING_NOTE, "16 KiB", "small pieces", "--setra 2048");
}

/* A partition has no queue: that of the disk above it counts. */
static void partitions_have_the_queue_of_their_disk(void **state)
{
    char from[128], to[128];
    (void)state;
    put("/sys/block/sda/queue/read_ahead_kb", "16\n");
    put("/sys/block/sda/sda1/uevent", "DEVNAME=sda1\n");
    put("/sys/dev/block/none", "");
    snprintf(from, sizeof from, "%s/sys/block/sda/sda1", root);
    snprintf(to, sizeof to, "%s/sys/dev/block/8:1", root);
    assert_int_equal(symlink(from, to), 0);
    assert_costs("read-ahead", FINDING_NOTE, "16 KiB on sda1", "small pieces", "/dev/sda1");
}

static void gpus_and_their_drivers(void **state)
{
    (void)state;
    snprintf(subject.device, sizeof subject.device, "there is no plugin");
    assert_fine("GPU", "none that moeflux can use");
    put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    put("/sys/bus/pci/devices/0000:01:00.0/class", "0x020000\n");
    assert_fine("GPU", "none"); /* a network controller */
    put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
    assert_costs("GPU", FINDING_NOTE, "1 of NVIDIA, without its driver", "there is no plugin",
                 "install NVIDIA's driver");
    put("/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22\nGCC version: 12\n");
    assert_costs("GPU", FINDING_NOTE, "NVIDIA driver 550.54.14, 1 GPU", "there is no plugin",
                 "build with nvcc");
    put("/proc/driver/nvidia/version", "strange\n");
    assert_costs("GPU", FINDING_NOTE, "driver of unknown version", "", "");
    subject.has_device = true;
    snprintf(subject.device, sizeof subject.device, "NVIDIA H200");
    assert_fine("GPU", "NVIDIA H200; use it with --backend cuda");
}

static void gpus_of_others(void **state)
{
    (void)state;
    put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x1002\n");
    put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n");
    assert_costs("GPU", FINDING_NOTE, "1 of AMD", "only GPUs of NVIDIA", "none");
}

#define IN_A_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(nothing_is_known_of_an_empty_machine),
        IN_A_DIRECTORY(kernel_sets_and_what_the_cpu_has),
        IN_A_DIRECTORY(threads_quota_and_affinity),
        IN_A_DIRECTORY(clocks_that_stay_low),
        IN_A_DIRECTORY(memory_that_others_hold_or_groups_limit),
        IN_A_DIRECTORY(memory_that_can_be_refused),
        IN_A_DIRECTORY(huge_pages_switched_off),
        IN_A_DIRECTORY(locked_memory_limits),
        IN_A_DIRECTORY(io_uring_refused),
        IN_A_DIRECTORY(disks_that_are_slow_or_far),
        IN_A_DIRECTORY(read_ahead_too_short_or_too_long),
        IN_A_DIRECTORY(partitions_have_the_queue_of_their_disk),
        IN_A_DIRECTORY(gpus_and_their_drivers),
        IN_A_DIRECTORY(gpus_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
