/* rates_file.h: what this machine has been measured to do, kept between runs.
 *
 *     $XDG_CACHE_HOME/moeflux/rates.json, or ~/.cache/moeflux/rates.json:
 *     { "version": 1, "machines": {
 *         "AMD EPYC, 2 threads, avx512bf16, moeflux 0.2.0": {
 *             "measured": …, "load": …,
 *             "memory_bytes": …, "matrix_flops": …, "layer_seconds": …,
 *             "formats": { "Q4_K": { "decode_bytes": …, "narrow_decode_bytes": …,
 *                                    "prompt": [[1, …, …], [4, …, …], …] } },
 *             "disks": { "ef53-5fe3a1c2:0d9b1c44-26214400": … } } } }
 *
 * The key is the machine's fingerprint: a home directory may be shared by machines.  A file that is
 * absent, damaged or of another version counts as an empty one.  It is replaced by renaming, so that
 * readers see all of the old one or of the new one. */
#ifndef PLAN_RATES_FILE_H
#define PLAN_RATES_FILE_H

#include "plan/forecast.h"

#include "common/error.h"

enum { RATES_DISKS = 16, DISK_NAME_BYTES = 64, FINGERPRINT_BYTES = 192 };

struct disk_rate {
    char name[DISK_NAME_BYTES]; /* see disk_name */
    double bytes;               /* per second */
};

struct known_rates {
    struct machine_rates rates; /* disk_bytes is not used: see disks */
    struct disk_rate disks[RATES_DISKS];
    size_t disk_count;
    int64_t measured; /* seconds since 1970 at which the oldest figure was; 0: not known */
    double load;      /* the highest load of the machine when figures were measured */
    bool changed;     /* since it was loaded */
};

/* "AMD EPYC, 2 threads, avx512bf16, moeflux 0.2.0"; `cpuinfo` is the text of /proc/cpuinfo. */
void rates_fingerprint(char out[FINGERPRINT_BYTES], const char *cpuinfo, unsigned threads,
                       const char *kernels);

/* The directory of the environment; false: neither variable is set. */
bool rates_directory(char *out, size_t capacity);

void rates_load(struct known_rates *out, const char *path, const char *fingerprint);

/* Other machines' figures stay.  Directories of the path are made. */
mf_status rates_save(const struct known_rates *known, const char *path, const char *fingerprint,
                     mf_error *why);

/* 0: not known. */
double rates_disk(const struct known_rates *known, const char *name);
void rates_set_disk(struct known_rates *known, const char *name, double bytes);

#endif
