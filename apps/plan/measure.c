#include "plan/measure.h"

#include "common/basics.h"
#include "hub/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

bool disk_name(char out[DISK_NAME_BYTES], const char *path)
{
    struct statfs system;
    struct stat info;
    uint32_t identity[2];
    if (stat(path, &info) != 0 || statfs(path, &system) != 0) return false;
    memcpy(identity, &system.f_fsid, sizeof identity);
    if (identity[0] || identity[1])
        snprintf(out, DISK_NAME_BYTES, "%lx-%x:%x-%llu", (unsigned long)system.f_type, identity[0],
                 identity[1], (unsigned long long)system.f_blocks);
    else
        snprintf(out, DISK_NAME_BYTES, "%u:%u", major(info.st_dev), minor(info.st_dev));
    return true;
}

/* Before anything is measured. */
static void note_moment(struct known_rates *known)
{
    double load;
    if (known->measured == 0) known->measured = (int64_t)time(NULL);
    if (getloadavg(&load, 1) == 1 && load > known->load) known->load = load;
    known->changed = true;
}

static mf_status go_on(const struct measure_wishes *wishes, mf_error *why)
{
    if (!wishes->stop || !wishes->stop()) return MF_OK;
    return fail(why, MF_ERR_CANCELLED, "interrupted");
}

static double best_of(double a, double b)
{
    return a > b ? a : b;
}

static mf_status measure_machine(struct known_rates *known, mf_engine *engine, uint32_t threads,
                                 mf_error *why)
{
    mf_ceilings ceilings = MF_CEILINGS_INIT;
    struct machine_rates *rates = &known->rates;
    mf_status status = mf_ceilings_measure(&ceilings, threads, why);
    if (status == MF_OK) status = mf_layer_seconds_measure(&rates->layer_seconds, engine, why);
    if (status != MF_OK) return status;
    rates->memory_bytes = ceilings.memory_bytes;
    rates->matrix_flops =
        best_of(ceilings.amx_bf16_flops, best_of(ceilings.bf16_flops, ceilings.f32_flops));
    known->changed = true;
    return MF_OK;
}

enum { SCRATCH_BLOCK = 1 << 20, SCRATCH_BLOCKS = 256 };

/* A quarter of a GiB that lies on the disk, for as long as it is measured. */
static bool write_scratch(int descriptor, const struct measure_wishes *wishes)
{
    unsigned char *block = malloc(SCRATCH_BLOCK);
    bool written = block != NULL;
    for (size_t i = 0; written && i < SCRATCH_BLOCK; i++)
        block[i] = (unsigned char)(i * 2654435761u >> 11);
    for (int i = 0; written && i < SCRATCH_BLOCKS; i++)
        written = go_on(wishes, NULL) == MF_OK &&
                  write(descriptor, block, SCRATCH_BLOCK) == SCRATCH_BLOCK;
    free(block);
    return written && fdatasync(descriptor) == 0;
}

/* A directory that cannot be written, or a disk that is nearly full, leaves the speed unknown. */
static mf_status measure_directory(mf_ceilings *ceilings, const struct measure_wishes *wishes,
                                   mf_error *why)
{
    char path[PATH_CAPACITY];
    if (snprintf(path, sizeof path, "%s/.moeflux-speed-XXXXXX", wishes->directory) >= PATH_CAPACITY)
        return MF_OK;
    if (hub_disk_free(wishes->directory) < 4 * (uint64_t)SCRATCH_BLOCK * SCRATCH_BLOCKS)
        return MF_OK;
    int descriptor = mkostemp(path, O_CLOEXEC);
    if (descriptor < 0) return MF_OK;
    bool written = write_scratch(descriptor, wishes);
    mf_status status = go_on(wishes, why);
    if (written && status == MF_OK) status = mf_ceilings_measure_file(ceilings, path, why);
    close(descriptor);
    unlink(path);
    return status;
}

static mf_status measure_disk(struct known_rates *known, const struct measure_wishes *wishes,
                              mf_error *why)
{
    mf_ceilings ceilings = MF_CEILINGS_INIT;
    mf_status status = wishes->description
                           ? mf_ceilings_measure_files(&ceilings, wishes->description, why)
                           : measure_directory(&ceilings, wishes, why);
    if (status == MF_OK && ceilings.disk_bytes > 0)
        rates_set_disk(known, wishes->disk, ceilings.disk_bytes);
    return status;
}

static mf_status measure_formats(struct known_rates *known, mf_engine *engine,
                                 const struct measure_wishes *wishes, measure_progress progress,
                                 void *user, mf_error *why)
{
    mf_status status = MF_OK;
    char text[64];
    for (uint32_t f = 0; f < mf_format_count() && f < FORECAST_FORMATS && status == MF_OK; f++) {
        mf_format_rates *format = &known->rates.formats[f];
        if (!wishes->formats[f] || format->decode_bytes > 0) continue;
        snprintf(text, sizeof text, "measuring products with %s", mf_format_name(f));
        if (progress) progress(user, text);
        note_moment(known);
        *format = (mf_format_rates)MF_FORMAT_RATES_INIT;
        status = mf_format_rates_measure(format, engine, f, why);
        if (status == MF_OK) status = go_on(wishes, why);
    }
    return status;
}

mf_status measure_missing(struct known_rates *known, mf_engine *engine,
                          const struct measure_wishes *wishes, measure_progress progress,
                          void *user, mf_error *why)
{
    struct machine_rates *rates = &known->rates;
    mf_status status = go_on(wishes, why);
    if (status != MF_OK) return status;
    if (rates->memory_bytes == 0 || rates->matrix_flops == 0 || rates->layer_seconds == 0) {
        if (progress) progress(user, "measuring memory and arithmetic");
        note_moment(known);
        status = measure_machine(known, engine, wishes->threads, why);
    }
    if (status == MF_OK) status = go_on(wishes, why);
    if (status == MF_OK) status = measure_formats(known, engine, wishes, progress, user, why);
    if (status == MF_OK && wishes->disk && (wishes->description || wishes->directory) &&
        rates_disk(known, wishes->disk) == 0) {
        if (progress) progress(user, "measuring the disk");
        status = measure_disk(known, wishes, why);
    }
    return status;
}
