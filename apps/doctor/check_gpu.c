/* check_gpu.c: GPUs, their drivers, and what the backend cuda says. */
#include "doctor/doctor.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t read_hex(const struct doctor_subject *subject, const char *device, const char *name)
{
    char path[512], line[32];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/%s", device, name);
    return doctor_read_line(line, sizeof line, subject, path) ? strtoull(line, NULL, 16) : 0;
}

/* How many display controllers (class 0x03) the maker has in this machine. */
static unsigned count_gpus(const struct doctor_subject *subject, unsigned maker)
{
    char path[PATH_CAPACITY];
    unsigned count = 0;
    snprintf(path, sizeof path, "%s/sys/bus/pci/devices", subject->root);
    DIR *directory = opendir(path);
    if (!directory) return 0;
    for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory)) {
        if (entry->d_name[0] == '.') continue;
        if (read_hex(subject, entry->d_name, "class") >> 16 != 0x03) continue;
        count += read_hex(subject, entry->d_name, "vendor") == maker;
    }
    closedir(directory);
    return count;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  …": the word with the dots. */
static bool read_driver(char *out, size_t capacity, const struct doctor_subject *subject)
{
    char line[512];
    if (!doctor_read_line(line, sizeof line, subject, "/proc/driver/nvidia/version")) return false;
    snprintf(out, capacity, "of unknown version");
    for (char *rest = line, *word; (word = strtok_r(rest, " \t", &rest));) {
        if (word[0] < '0' || word[0] > '9' || !strchr(word, '.')) continue;
        snprintf(out, capacity, "%.32s", word);
        break;
    }
    return true;
}

void doctor_check_gpu(struct findings *out, const struct doctor_subject *subject)
{
    enum { NVIDIA = 0x10de, AMD = 0x1002 };
    char version[64];
    unsigned nvidia = count_gpus(subject, NVIDIA), amd = count_gpus(subject, AMD);
    struct finding *finding = doctor_add(out, "GPU");
    bool driver = read_driver(version, sizeof version, subject);
    if (subject->has_device) {
        snprintf(finding->found, sizeof finding->found, "%s; use it with --backend cuda",
                 subject->device);
        return;
    }
    if (driver)
        snprintf(finding->found, sizeof finding->found, "NVIDIA driver %s, %u %s", version, nvidia,
                 nvidia == 1 ? "GPU" : "GPUs");
    else if (nvidia > 0)
        snprintf(finding->found, sizeof finding->found, "%u of NVIDIA, without its driver", nvidia);
    else if (amd > 0)
        snprintf(finding->found, sizeof finding->found, "%u of AMD", amd);
    else
        snprintf(finding->found, sizeof finding->found, "none that moeflux can use");
    if (!driver && nvidia == 0 && amd == 0) return;
    finding->level = FINDING_NOTE;
    snprintf(finding->cost, sizeof finding->cost, "all is computed on the CPU: %s",
             amd > 0 && nvidia == 0 ? "only GPUs of NVIDIA are used" : subject->device);
    snprintf(finding->fix, sizeof finding->fix, "%s",
             nvidia == 0 ? "none in this version"
             : driver    ? "build with nvcc in PATH (meson setup build -Dcuda=enabled), or update "
                           "the driver"
                         : "install NVIDIA's driver");
}
