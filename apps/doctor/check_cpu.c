/* check_cpu.c: kernel sets, threads, clock. */
#include "doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>

/* ----------------------------------------------------------------- kernels */

/* The line "flags : …" (x86) or "Features : …" (ARM) of /proc/cpuinfo; false: there is none. */
static bool read_flags(char *out, size_t capacity, const struct doctor_subject *subject)
{
    static const char *const labels[] = { "flags", "Features" };
    char *text = malloc(1 << 16);
    bool found = false;
    if (text && doctor_read(text, 1 << 16, subject, "/proc/cpuinfo")) {
        for (size_t i = 0; i < COUNT_OF(labels) && !found; i++) {
            const char *line = strstr(text, labels[i]);
            if (!line) continue;
            snprintf(out, capacity, "%.*s", (int)strcspn(line, "\n"), line);
            found = true;
        }
    }
    free(text);
    return found;
}

static bool has_set(const struct doctor_subject *subject, const char *name)
{
    for (size_t i = 0; i < subject->set_count; i++)
        if (strcmp(subject->kernel_sets[i], name) == 0) return true;
    return false;
}

static void describe_sets(struct finding *finding, const struct doctor_subject *subject)
{
    size_t used = 0;
    for (size_t i = 0; i < subject->set_count && used < FINDING_TEXT; i++)
        used += (size_t)snprintf(finding->found + used, FINDING_TEXT - used, "%s%s", i ? ", " : "",
                                 subject->kernel_sets[i]);
    if (used < FINDING_TEXT && subject->set_count > 0)
        snprintf(finding->found + used, FINDING_TEXT - used, " run here; %s is used",
                 subject->kernel_sets[0]);
}

static void warn(struct finding *finding, const char *cost, const char *fix)
{
    finding->level = FINDING_WARNING;
    snprintf(finding->cost, sizeof finding->cost, "%s", cost);
    snprintf(finding->fix, sizeof finding->fix, "%s", fix);
}

void doctor_check_kernels(struct findings *out, const struct doctor_subject *subject)
{
    char flags[8192];
    struct finding *finding = doctor_add(out, "kernel sets");
    describe_sets(finding, subject);
    if (!read_flags(flags, sizeof flags, subject)) return;
    bool hidden = doctor_has_word(flags, "hypervisor");
    bool arm = strncmp(flags, "Features", 8) == 0;
    if (!arm && !doctor_has_word(flags, "avx2")) {
        warn(finding, "without AVX2 products take several times as long",
             hidden ? "give the virtual machine the CPU of its host, as in `qemu -cpu host`"
                    : "none: this CPU has no AVX2");
    } else if (arm && !doctor_has_word(flags, "asimddp")) {
        warn(finding, "without dot products of bytes products take several times as long",
             "none: this CPU has no dot products");
    } else if (!arm && !has_set(subject, "avx2")) {
        warn(finding, "the CPU has AVX2, which this build does not use",
             "meson configure build -Dkernel_sets=all && ninja -C build");
    } else if (doctor_has_word(flags, "avx512bw") && !has_set(subject, "avx512")) {
        warn(finding, "the CPU has AVX-512, which this build does not use",
             "meson configure build -Dkernel_sets=all && ninja -C build");
    } else if (doctor_has_word(flags, "amx_bf16") && !has_set(subject, "amx")) {
        warn(finding, "the CPU has a matrix unit (AMX) that is not used: prompts take longer",
             "a build with -Dkernel_sets=all on a kernel of 5.16 or later");
    }
}

/* ----------------------------------------------------------------- threads */

/* CPUs in a list such as "0-3,8". */
static unsigned count_listed(const char *list)
{
    unsigned count = 0;
    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        if (last >= first) count += (unsigned)(last - first + 1);
        list = end + (*end == ',');
    }
    return count;
}

void doctor_check_threads(struct findings *out, const struct doctor_subject *subject)
{
    char list[256];
    unsigned online = subject->cores;
    if (doctor_read_line(list, sizeof list, subject, "/sys/devices/system/cpu/online"))
        online = count_listed(list);
    struct finding *finding = doctor_add(out, "threads");
    if (subject->cpu_quota > 0 && subject->cpu_quota < subject->cores) {
        finding->level = FINDING_WARNING;
        snprintf(finding->found, sizeof finding->found,
                 "the control group allows the time of %.1f of %u CPUs", subject->cpu_quota,
                 subject->cores);
        snprintf(
            finding->cost, sizeof finding->cost,
            "arithmetic has %.0f %% of the machine; more threads than that are stopped for the "
            "rest of each period",
            100 * subject->cpu_quota / subject->cores);
        snprintf(finding->fix, sizeof finding->fix,
                 "systemctl set-property UNIT CPUQuota=%u%%, or `docker run --cpus %u`",
                 100 * subject->cores, subject->cores);
    } else if (subject->cores < online) {
        finding->level = FINDING_NOTE;
        snprintf(finding->found, sizeof finding->found, "the affinity allows %u of %u CPUs",
                 subject->cores, online);
        snprintf(finding->cost, sizeof finding->cost, "the others are not used");
        snprintf(finding->fix, sizeof finding->fix, "taskset --cpu-list %.200s moeflux …", list);
    } else {
        snprintf(finding->found, sizeof finding->found, "%u, one for every CPU; no quota",
                 subject->cores);
    }
}

/* ------------------------------------------------------------------- clock */

#define CPUFREQ "/sys/devices/system/cpu/cpu0/cpufreq/"

/* Drivers whose "powersave" governor goes by load, as "schedutil" does. */
static bool goes_by_load(const char *driver)
{
    return strcmp(driver, "intel_pstate") == 0 || strncmp(driver, "amd-pstate-epp", 14) == 0;
}

void doctor_check_clock(struct findings *out, const struct doctor_subject *subject)
{
    char governor[64], driver[64] = "", preference[64] = "";
    uint64_t low = 0, high = 0;
    if (!doctor_read_line(governor, sizeof governor, subject, CPUFREQ "scaling_governor")) return;
    doctor_read_line(driver, sizeof driver, subject, CPUFREQ "scaling_driver");
    doctor_read_line(preference, sizeof preference, subject,
                     CPUFREQ "energy_performance_preference");
    doctor_read_number(&low, subject, CPUFREQ "scaling_min_freq");
    doctor_read_number(&high, subject, CPUFREQ "scaling_max_freq");
    struct finding *finding = doctor_add(out, "CPU clock");
    bool slow = strcmp(governor, "powersave") == 0 && !goes_by_load(driver);
    bool saving = goes_by_load(driver) && strcmp(preference, "power") == 0;
    snprintf(finding->found, sizeof finding->found, "governor %s%s%s", governor,
             preference[0] ? ", preference " : "", preference);
    if (!slow && !saving) return;
    finding->level = FINDING_WARNING;
    if (slow)
        snprintf(finding->cost, sizeof finding->cost, "the clock stays at %.1f of %.1f GHz",
                 (double)low * 1e-6, (double)high * 1e-6);
    else
        snprintf(finding->cost, sizeof finding->cost, "the clock stays low under load");
    snprintf(finding->fix, sizeof finding->fix, "sudo cpupower frequency-set -g performance");
}
