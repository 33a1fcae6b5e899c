/* machine_limits.h: CPU and memory limits of the process's control group and its ancestors. */
#ifndef BASE_MACHINE_LIMITS_H
#define BASE_MACHINE_LIMITS_H

#include "base/common.h"

/* The smallest limit on the path from the group to the root. */
struct machine_limits {
    double cpus;           /* quota in CPUs; INFINITY: none */
    uint64_t memory_bytes; /* UINT64_MAX: no limit */
};

/* Reads the group's path from /proc/self/cgroup and its limits from /sys/fs/cgroup (version 2) or
 * the cpu and memory directories there (version 1).  `root` is put before these paths: "" normally,
 * a directory in tests.  A file that cannot be read sets no limit. */
void machine_read_limits(struct machine_limits *out, const char *root);

#endif
