/* check_memory.c: memory, huge pages, locked memory. */
#include "doctor/doctor.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ memory */

/* "MemTotal:  123 kB" in bytes; 0: there is no such line. */
static uint64_t line_bytes(const char *text, const char *label)
{
    const char *line = strstr(text, label);
    return line ? strtoull(line + strlen(label), NULL, 10) * 1024 : 0;
}

static void check_free(struct findings *out, const struct doctor_subject *subject, uint64_t total,
                       uint64_t available)
{
    char has[32], all[32], limit[32];
    struct finding *finding = doctor_add(out, "memory");
    snprintf(finding->found, sizeof finding->found, "%s of %s are free",
             doctor_size(has, available), doctor_size(all, total));
    if (subject->memory_limit > 0 && subject->memory_limit < total) {
        finding->level = FINDING_WARNING;
        snprintf(finding->found, sizeof finding->found, "the control group allows %s of %s",
                 doctor_size(limit, subject->memory_limit), all);
        snprintf(finding->cost, sizeof finding->cost,
                 "weights beyond that are read from disk for every token, and exceeding it kills "
                 "the process");
        snprintf(finding->fix, sizeof finding->fix,
                 "systemctl set-property UNIT MemoryMax=infinity, or `docker run --memory`");
    } else if (available < total / 2) {
        finding->level = FINDING_WARNING;
        snprintf(finding->cost, sizeof finding->cost,
                 "other programs hold %s, which experts could have",
                 doctor_size(has, total - available));
        snprintf(finding->fix, sizeof finding->fix, "`ps aux --sort=-rss | head` shows them");
    }
}

static void check_swap(struct findings *out, const char *meminfo, uint64_t total)
{
    char used[32];
    uint64_t swap = line_bytes(meminfo, "SwapTotal:"), left = line_bytes(meminfo, "SwapFree:");
    if (swap <= left || swap - left < total / 20) return;
    struct finding *finding = doctor_add(out, "swap");
    finding->level = FINDING_WARNING;
    snprintf(finding->found, sizeof finding->found, "%s of memory have been swapped out",
             doctor_size(used, swap - left));
    snprintf(finding->cost, sizeof finding->cost,
             "weights can be swapped out, too; a token then waits for the swap device");
    snprintf(finding->fix, sizeof finding->fix,
             "sudo sysctl vm.swappiness=1, or a smaller --memory");
}

static void check_overcommit(struct findings *out, const struct doctor_subject *subject)
{
    uint64_t mode;
    if (!doctor_read_number(&mode, subject, "/proc/sys/vm/overcommit_memory") || mode != 2) return;
    struct finding *finding = doctor_add(out, "overcommit");
    finding->level = FINDING_WARNING;
    snprintf(finding->found, sizeof finding->found, "vm.overcommit_memory is 2");
    snprintf(finding->cost, sizeof finding->cost,
             "memory can be refused although it is free: a model then does not open");
    snprintf(finding->fix, sizeof finding->fix, "sudo sysctl vm.overcommit_memory=0");
}

/* The soft limit in a line of /proc/self/limits; false: unlimited, or not there. */
static bool read_limit(uint64_t *out, const struct doctor_subject *subject, const char *label)
{
    char text[4096];
    if (!doctor_read(text, sizeof text, subject, "/proc/self/limits")) return false;
    const char *line = strstr(text, label);
    if (!line) return false;
    line += strlen(label);
    line += strspn(line, " ");
    if (!isdigit((unsigned char)*line)) return false;
    *out = strtoull(line, NULL, 10);
    return true;
}

static void check_address_space(struct findings *out, const struct doctor_subject *subject)
{
    char size[32];
    uint64_t limit;
    if (!read_limit(&limit, subject, "Max address space")) return;
    struct finding *finding = doctor_add(out, "address space");
    finding->level = FINDING_WARNING;
    snprintf(finding->found, sizeof finding->found, "the process may have %s of addresses",
             doctor_size(size, limit));
    snprintf(finding->cost, sizeof finding->cost,
             "models beyond that do not open, mapped files included");
    snprintf(finding->fix, sizeof finding->fix, "ulimit -v unlimited");
}

void doctor_check_memory(struct findings *out, const struct doctor_subject *subject)
{
    char meminfo[8192];
    if (doctor_read(meminfo, sizeof meminfo, subject, "/proc/meminfo")) {
        uint64_t total = line_bytes(meminfo, "MemTotal:");
        check_free(out, subject, total, line_bytes(meminfo, "MemAvailable:"));
        check_swap(out, meminfo, total);
    }
    check_overcommit(out, subject);
    check_address_space(out, subject);
}

/* -------------------------------------------------------------- huge pages */

void doctor_check_huge_pages(struct findings *out, const struct doctor_subject *subject)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    char line[128];
    struct finding *finding = doctor_add(out, "huge pages");
    bool there = doctor_read_line(line, sizeof line, subject, path);
    if (there && !strstr(line, "[never]")) {
        bool always = strstr(line, "[always]");
        snprintf(finding->found, sizeof finding->found, "transparent, %s",
                 always ? "for all memory" : "where moeflux asks for them");
        return;
    }
    finding->level = FINDING_WARNING;
    snprintf(finding->found, sizeof finding->found, "%s",
             there ? "transparent huge pages are switched off"
                   : "this kernel has no transparent huge pages");
    snprintf(finding->cost, sizeof finding->cost,
             "weights lie in pages of 4 KiB: the CPU walks its page tables for each of them, 512 "
             "times as often");
    snprintf(finding->fix, sizeof finding->fix, "%s",
             there ? "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
                   : "a kernel with CONFIG_TRANSPARENT_HUGEPAGE");
}

/* ----------------------------------------------------------- locked memory */

/* Whether the process may lock all it wants: CAP_IPC_LOCK, bit 14. */
static bool may_lock(const struct doctor_subject *subject)
{
    char text[4096];
    if (!doctor_read(text, sizeof text, subject, "/proc/self/status")) return false;
    const char *line = strstr(text, "CapEff:");
    return line && (strtoull(line + 7, NULL, 16) >> 14 & 1);
}

void doctor_check_locked_memory(struct findings *out, const struct doctor_subject *subject)
{
    enum { ENOUGH = 1 << 30 };
    char size[32];
    uint64_t limit;
    struct finding *finding = doctor_add(out, "locked memory");
    if (!read_limit(&limit, subject, "Max locked memory")) {
        snprintf(finding->found, sizeof finding->found, "no limit");
    } else if (may_lock(subject)) {
        snprintf(finding->found, sizeof finding->found,
                 "a limit of %s, which does not hold for this process", doctor_size(size, limit));
    } else {
        snprintf(finding->found, sizeof finding->found, "a limit of %s", doctor_size(size, limit));
        if (limit >= ENOUGH) return;
        finding->level = FINDING_NOTE;
        snprintf(finding->cost, sizeof finding->cost,
                 "slots for experts are not registered with io_uring: each streamed read pins its "
                 "pages anew");
        snprintf(
            finding->fix, sizeof finding->fix,
            "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/moeflux.conf, then "
            "log in again");
    }
}
