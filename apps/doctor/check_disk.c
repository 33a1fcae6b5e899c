/* check_disk.c: io_uring, and the disk of the model. */
#include "doctor/doctor.h"

#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- io_uring */

void doctor_check_io_uring(struct findings *out, const struct doctor_subject *subject)
{
    uint64_t disabled = 0;
    struct finding *finding = doctor_add(out, "io_uring");
    doctor_read_number(&disabled, subject, "/proc/sys/kernel/io_uring_disabled");
    if (subject->has_io_uring && subject->io_uring_error == 0) {
        snprintf(finding->found, sizeof finding->found, "works");
        return;
    }
    finding->level = FINDING_WARNING;
    snprintf(finding->cost, sizeof finding->cost,
             "experts are read by threads, which take a system call and a core's time for each "
             "read");
    if (!subject->has_io_uring) {
        snprintf(finding->found, sizeof finding->found, "this build has none");
        snprintf(finding->fix, sizeof finding->fix,
                 "sudo apt install liburing-dev, and build again");
    } else if (disabled) {
        snprintf(finding->found, sizeof finding->found, "kernel.io_uring_disabled is %llu",
                 (unsigned long long)disabled);
        snprintf(finding->fix, sizeof finding->fix, "sudo sysctl kernel.io_uring_disabled=0");
    } else {
        snprintf(finding->found, sizeof finding->found, "the kernel refuses it: %s",
                 strerror(subject->io_uring_error));
        snprintf(finding->fix, sizeof finding->fix,
                 "in a container a profile that permits it, as in `docker run --security-opt "
                 "seccomp=unconfined`; else a kernel of 5.19 or later");
    }
}

/* -------------------------------------------------------------- block device */

/* A file of the disk's queue: that of the device, or of the whole disk for a partition. */
static bool read_queue(uint64_t *out, const struct doctor_subject *subject, const char *name)
{
    static const char *const places[] = { "queue", "../queue" };
    char path[128];
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s/%s", subject->disk.major,
                 subject->disk.minor, places[i], name);
        if (doctor_read_number(out, subject, path)) return true;
    }
    return false;
}

/* "vda1"; "" where the kernel does not say. */
static void read_name(char *out, size_t capacity, const struct doctor_subject *subject)
{
    char path[128], text[512];
    out[0] = '\0';
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/uevent", subject->disk.major,
             subject->disk.minor);
    if (!doctor_read(text, sizeof text, subject, path)) return;
    const char *name = strstr(text, "DEVNAME=");
    if (name) snprintf(out, capacity, "%.*s", (int)strcspn(name + 8, "\n"), name + 8);
}

/* The file system's type, as /proc/self/mountinfo has it: "36 35 8:1 / /mnt rw … - ext4 …". */
static bool read_type(char *out, size_t capacity, const struct doctor_subject *subject)
{
    char *text = malloc(1 << 16), wanted[32];
    bool found = false;
    if (!text) return false;
    snprintf(wanted, sizeof wanted, " %u:%u ", subject->disk.major, subject->disk.minor);
    if (doctor_read(text, 1 << 16, subject, "/proc/self/mountinfo")) {
        const char *line = strstr(text, wanted);
        const char *type = line ? strstr(line, " - ") : NULL;
        if (type && type < line + strcspn(line, "\n")) {
            snprintf(out, capacity, "%.*s", (int)strcspn(type + 3, " \n"), type + 3);
            found = true;
        }
    }
    free(text);
    return found;
}

static bool is_remote(const char *type)
{
    static const char *const types[] = {
        "nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs"
    };
    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (strcmp(type, types[i]) == 0) return true;
    return false;
}

static void check_direct(struct findings *out, const struct doctor_subject *subject,
                         const char *type)
{
    struct finding *finding = doctor_add(out, "direct I/O");
    if (subject->disk.direct) {
        snprintf(finding->found, sizeof finding->found, "works for %.200s", subject->disk.path);
        return;
    }
    finding->level = FINDING_WARNING;
    snprintf(finding->found, sizeof finding->found, "%.60s does not permit it for %.200s",
             type[0] ? type : "the file system", subject->disk.path);
    snprintf(finding->cost, sizeof finding->cost,
             "streamed experts are copied through the page cache and push other files out of it");
    snprintf(finding->fix, sizeof finding->fix,
             "move the model to a local ext4, xfs or btrfs file system");
}

static void check_speed(struct findings *out, const struct doctor_subject *subject,
                        const char *type)
{
    const double slow = 1e9;
    uint64_t rotational = 0;
    double bytes = subject->disk.bytes;
    read_queue(&rotational, subject, "rotational");
    struct finding *finding = doctor_add(out, "disk");
    snprintf(finding->found, sizeof finding->found, "%.2f GB/s of scattered reads%s%.30s%s",
             bytes * 1e-9, type[0] ? ", " : "", type, rotational ? ", rotating" : "");
    bool remote = is_remote(type);
    if (bytes >= slow && !remote) return;
    finding->level = FINDING_WARNING;
    snprintf(finding->cost, sizeof finding->cost,
             "a GiB of experts that are not in memory takes %.1f s", (double)(1 << 30) / bytes);
    snprintf(finding->fix, sizeof finding->fix, "%s",
             remote       ? "copy the model to a local disk"
             : rotational ? "move the model to an SSD"
                          : "move the model to a faster disk, or give it more --memory");
}

void doctor_check_disk(struct findings *out, const struct doctor_subject *subject)
{
    char type[64] = "";
    if (!subject->disk.path) return;
    read_type(type, sizeof type, subject);
    check_direct(out, subject, type);
    if (subject->disk.bytes > 0) check_speed(out, subject, type);
}

/* Files that are mapped, or kept in memory, are read through the page cache. */
void doctor_check_read_ahead(struct findings *out, const struct doctor_subject *subject)
{
    enum { LEAST = 128, MOST = 4096, GOOD = 1024 };
    uint64_t kibibytes;
    char name[64];
    if (!subject->disk.path || !read_queue(&kibibytes, subject, "read_ahead_kb")) return;
    read_name(name, sizeof name, subject);
    struct finding *finding = doctor_add(out, "read-ahead");
    snprintf(finding->found, sizeof finding->found, "%llu KiB on %s", (unsigned long long)kibibytes,
             name[0] ? name : "the disk of the model");
    if (kibibytes >= LEAST && kibibytes <= MOST) return;
    finding->level = FINDING_NOTE;
    snprintf(
        finding->cost, sizeof finding->cost, "%s",
        kibibytes < LEAST
            ? "weights that stay in memory are read in small pieces when a model is opened"
            : "a page of a mapped model that is not in memory brings many that are not needed");
    snprintf(finding->fix, sizeof finding->fix, "sudo blockdev --setra %d /dev/%s", 2 * GOOD,
             name[0] ? name : "DISK");
}
