#include "planning.h"

#include "streams.h"
#include "terminal.h"

#include "plan/measure.h"

#include <stdlib.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------ machine */

mf_status planning_machine_open(struct planning_machine *out, uint32_t threads, const char *kernels,
                                bool load, mf_error *why)
{
    mf_engine_options wanted = MF_ENGINE_OPTIONS_INIT;
    char directory[PATH_CAPACITY - 16], *cpuinfo = NULL;
    size_t length;
    wanted.thread_count = threads;
    wanted.kernels = kernels;
    mf_status status = mf_engine_open(&out->engine, &wanted, why);
    if (status != MF_OK) return status;
    bool read = input_read_new(&cpuinfo, &length, "/proc/cpuinfo", NULL) == MF_OK;
    rates_fingerprint(out->fingerprint, read ? cpuinfo : "", mf_engine_thread_count(out->engine),
                      mf_engine_kernels(out->engine));
    free(cpuinfo);
    if (rates_directory(directory, sizeof directory))
        snprintf(out->path, sizeof out->path, "%s/rates.json", directory);
    if (out->path[0] && load) rates_load(&out->known, out->path, out->fingerprint);
    return MF_OK;
}

void planning_machine_close(struct planning_machine *machine)
{
    mf_engine_close(machine->engine);
    machine->engine = NULL;
}

/* ------------------------------------------------------------------ subject */

mf_status planning_subject_open(struct planning_subject *out, const char *path, const char *kv_type,
                                mf_error *why)
{
    out->path = path;
    out->info = (mf_description_info)MF_DESCRIPTION_INFO_INIT;
    mf_status status = mf_description_open(&out->description, path, why);
    if (status == MF_OK) status = mf_description_get(&out->info, out->description, why);
    if (status == MF_OK) status = model_costs_read(&out->costs, out->description, kv_type, why);
    return status;
}

void planning_subject_close(struct planning_subject *subject)
{
    mf_description_close(subject->description);
    subject->description = NULL;
}

void planning_find_existing(char path[PATH_CAPACITY])
{
    struct stat info;
    while (path[1] && stat(path, &info) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash) return;
        slash[slash == path] = '\0';
    }
}

/* -------------------------------------------------------------------- speed */

static bool has_rates(const struct known_rates *known, const struct model_costs *costs)
{
    bool wanted[FORECAST_FORMATS];
    const struct machine_rates *rates = &known->rates;
    bool all = rates->memory_bytes > 0 && rates->matrix_flops > 0 && rates->layer_seconds > 0;
    if (!costs) return all;
    model_costs_formats(wanted, costs);
    for (uint32_t f = 0; f < mf_format_count() && f < FORECAST_FORMATS; f++)
        all = all && (!wanted[f] || rates->formats[f].decode_bytes > 0);
    return all;
}

/* Of the headers that were fetched. */
static bool tell_of_copy(char *out, size_t capacity, const struct remote *remote,
                         struct known_rates *known, const struct planning_query *query)
{
    char disk[PATH_CAPACITY], name[DISK_NAME_BYTES], size[32];
    struct planning_subject subject = { .remote = remote };
    struct plan_wishes wishes = { .options = MF_PLAN_OPTIONS_INIT, .prompt_rows = 512 };
    struct planned planned = { .replayed = false };
    wishes.options.thread_count = query->threads;
    snprintf(disk, sizeof disk, "%s", remote->settings.cache);
    planning_find_existing(disk);
    bool good = planning_subject_open(&subject, remote->path, NULL, NULL) == MF_OK &&
                has_rates(known, &subject.costs);
    if (good) {
        known->rates.disk_bytes = disk_name(name, disk) ? rates_disk(known, name) : 0;
        good = planned_make(&planned, subject.path, &subject.costs, &known->rates, &wishes,
                            query->memory_bytes, NULL) == MF_OK &&
               planned.plan.fits && !(planned.placement.streamed && known->rates.disk_bytes == 0);
    }
    if (good) {
        double least = planned.least.tokens_per_second, most = planned.most.tokens_per_second;
        int used = snprintf(out, capacity, "about %.*f", least < 10 ? 1 : 0, least);
        if (most > 1.02 * least)
            used +=
                snprintf(out + used, capacity - (size_t)used, " … %.*f", most < 10 ? 1 : 0, most);
        snprintf(out + used, capacity - (size_t)used, " tokens/s with %s of memory",
                 size_text(planned.plan.memory_bytes, size, sizeof size));
    }
    planning_subject_close(&subject);
    return good;
}

bool planning_tell_speed(char *out, size_t capacity, const struct planning_query *query)
{
    struct planning_machine *machine = calloc(1, sizeof *machine);
    struct remote *remote = calloc(1, sizeof *remote);
    bool good = machine && remote &&
                planning_machine_open(machine, query->threads, query->kernels, true, NULL) == MF_OK;
    /* Nothing is measured for this, so that the hub need not be asked for a new machine. */
    if (good && has_rates(&machine->known, NULL) &&
        remote_open(remote, query->name, query->observer, query->memory_bytes, NULL) == MF_OK) {
        good = remote_fetch(remote, NULL) == MF_OK &&
               tell_of_copy(out, capacity, remote, &machine->known, query);
        remote_close(remote);
    } else {
        good = false;
    }
    if (machine) planning_machine_close(machine);
    free(machine);
    free(remote);
    return good;
}
