/* machine_limits.h: what the process's control group and those above it allow. */
#ifndef BASE_MACHINE_LIMITS_H
#define BASE_MACHINE_LIMITS_H

#include "base/common.h"

/* The least of the limits on the path counts. */
struct machine_limits {
    double cpus;           /* CPU time per time; INFINITY: no quota */
    uint64_t memory_bytes; /* UINT64_MAX: no limit */
};

/* Reads them below `root` ("" on a machine, a directory in tests): the group's path from
 * /proc/self/cgroup, limits of version 2 in /sys/fs/cgroup, of version 1 in its cpu and memory
 * directories.  What cannot be read limits nothing. */
void machine_read_limits(struct machine_limits *out, const char *root);

#endif
