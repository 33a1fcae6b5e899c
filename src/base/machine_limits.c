/* machine_limits.c: quotas of control groups, versions 1 and 2. */
#include "base/machine_limits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIMIT_PATH_BYTES = 4096 };

/* The first line of directory/name; false where there is none. */
static bool read_line(char *out, size_t capacity, const char *directory, const char *name)
{
    char path[LIMIT_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *stream = fopen(path, "re");
    if (!stream) return false;
    bool read = fgets(out, (int)capacity, stream) != NULL;
    fclose(stream);
    return read;
}

static double read_number(const char *directory, const char *name)
{
    char line[64];
    return read_line(line, sizeof line, directory, name) ? strtod(line, NULL) : 0;
}

/* `quota` µs of CPU time per `period` µs; not positive: no quota. */
static void apply_quota(struct machine_limits *out, double quota, double period)
{
    if (quota > 0 && period > 0 && quota / period < out->cpus) out->cpus = quota / period;
}

static void apply_memory(struct machine_limits *out, const char *directory, const char *name)
{
    char line[64];
    if (!read_line(line, sizeof line, directory, name) || line[0] < '0' || line[0] > '9') return;
    uint64_t bytes = strtoull(line, NULL, 10);
    if (bytes < out->memory_bytes) out->memory_bytes = bytes;
}

/* One group.  cpu.max is "QUOTA PERIOD" or "max PERIOD"; version 1 writes -1 for no quota. */
static void apply_group(struct machine_limits *out, const char *directory)
{
    char line[64], *period;
    if (read_line(line, sizeof line, directory, "cpu.max") && line[0] >= '0' && line[0] <= '9') {
        double quota = strtod(line, &period);
        apply_quota(out, quota, strtod(period, NULL));
    }
    apply_quota(out, read_number(directory, "cpu.cfs_quota_us"),
                read_number(directory, "cpu.cfs_period_us"));
    apply_memory(out, directory, "memory.max");
    apply_memory(out, directory, "memory.limit_in_bytes");
}

/* The group and its ancestors.  In a container the path may be that of the host while the mount
 * shows the container's own group: missing directories set no limit. */
static void apply_path(struct machine_limits *out, const char *mount, const char *group)
{
    char directory[LIMIT_PATH_BYTES];
    int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof directory) return;
    for (size_t end = (size_t)length, root = strlen(mount);;) {
        directory[end] = '\0';
        apply_group(out, directory);
        if (end <= root) return;
        while (end > root && directory[end - 1] != '/') end--;
        if (end > root) end--; /* the slash itself */
    }
}

/* "0::/path" (version 2) or "N:cpu,cpuacct:/path" (version 1). */
static void apply_line(struct machine_limits *out, const char *root, char *line)
{
    static const char *const controllers[] = { "cpu", "memory" };
    char mount[LIMIT_PATH_BYTES];
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    if (!path || strstr(path, "/../")) return;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    names++;
    if (*names == '\0') {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        apply_path(out, mount, path);
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/unified", root);
        apply_path(out, mount, path);
        return;
    }
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        for (size_t i = 0; i < COUNT_OF(controllers); i++) {
            if (strcmp(name, controllers[i]) != 0) continue;
            snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, name);
            apply_path(out, mount, path);
        }
}

void machine_read_limits(struct machine_limits *out, const char *root)
{
    char path[LIMIT_PATH_BYTES], line[LIMIT_PATH_BYTES];
    *out = (struct machine_limits){ .cpus = (double)INFINITY, .memory_bytes = UINT64_MAX };
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *stream = fopen(path, "re");
    if (!stream) return;
    while (fgets(line, sizeof line, stream)) apply_line(out, root, line);
    fclose(stream);
}
