/* `moeflux doctor`: what about this machine makes models slower than they could be. */
#include "command.h"
#include "json_lines.h"
#include "model_path.h"
#include "shown.h"
#include "terminal.h"

#include "common/basics.h"
#include "common/error.h"
#include "doctor/doctor.h"
#include "moeflux_tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct doctor_settings {
    bool json, no_speed;
};

static const struct option options[] = {
    { 0, "no-speed", OPTION_FLAG, offsetof(struct doctor_settings, no_speed), NULL,
      .help = "do not measure the speed of the model's disk, which takes a second" },
    { 0, "json", OPTION_FLAG, offsetof(struct doctor_settings, json), NULL,
      .help = "one line of JSON instead of a table" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* ------------------------------------------------------------------- probes */

/* 0, or why the kernel gives this process no ring. */
static int probe_io_uring(void)
{
#ifdef SYS_io_uring_setup
    unsigned char parameters[256] = { 0 }; /* struct io_uring_params has 120 bytes */
    long ring = syscall(SYS_io_uring_setup, 1, parameters);
    if (ring < 0) return errno;
    close((int)ring);
    return 0;
#else
    return ENOSYS;
#endif
}

static void probe_device(struct doctor_subject *out)
{
    mf_device_description device = MF_DEVICE_DESCRIPTION_INIT;
    mf_error why = { .text = "" };
    out->has_device = mf_device_describe(&device, &why) == MF_OK;
    if (out->has_device)
        snprintf(out->device, sizeof out->device,
                 "%.96s, compute capability %d.%d, %.0f of %.0f GiB free, driver for CUDA %d.%d",
                 device.name, device.major, device.minor, (double)device.free_bytes / (1 << 30),
                 (double)device.total_bytes / (1 << 30), device.driver / 1000,
                 device.driver % 1000 / 10);
    else
        snprintf(out->device, sizeof out->device, "%.255s", why.text);
}

static void probe_machine(struct doctor_subject *out)
{
    mf_machine_limits limits = MF_MACHINE_LIMITS_INIT;
    mf_machine_get_limits(&limits, NULL);
    out->root = "";
    out->cores = limits.cores;
    out->cpu_quota = limits.cpu_quota;
    out->memory_limit = limits.memory_bytes;
    while (out->set_count < DOCTOR_SETS && mf_kernel_set_at((uint32_t)out->set_count)) {
        out->kernel_sets[out->set_count] = mf_kernel_set_at((uint32_t)out->set_count);
        out->set_count++;
    }
    out->has_io_uring = mf_built_with_io_uring();
    out->io_uring_error = probe_io_uring();
    probe_device(out);
}

/* The disk under `path`; its speed where that is wanted. */
static mf_status probe_disk(struct doctor_disk *out, const char *path, bool speed, mf_error *why)
{
    mf_ceilings ceilings = MF_CEILINGS_INIT;
    mf_description *description;
    struct stat info;
    if (stat(path, &info) != 0) return fail_errno(why, MF_ERR_IO, errno, "%.256s", path);
    *out = (struct doctor_disk){ .major = major(info.st_dev), .minor = minor(info.st_dev) };
    mf_status status = mf_description_open(&description, path, why);
    if (status != MF_OK) return status;
    out->path = path;
    out->direct = mf_description_is_direct(description);
    if (speed) status = mf_ceilings_measure_files(&ceilings, description, why);
    out->bytes = ceilings.disk_bytes;
    mf_description_close(description);
    return status;
}

/* -------------------------------------------------------------------- report */

static const char *const level_names[] = {
    [FINDING_FINE] = "ok", [FINDING_NOTE] = "note", [FINDING_WARNING] = "warning"
};

static void print_findings(const struct findings *findings)
{
    static const enum style styles[] = {
        [FINDING_FINE] = STYLE_GOOD, [FINDING_NOTE] = STYLE_DIM, [FINDING_WARNING] = STYLE_WARM
    };
    struct terminal terminal;
    terminal_probe(&terminal);
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *f = &findings->items[i];
        printf("%s%-8s%s %-14s ", terminal_style(terminal.colour_out, styles[f->level]),
               level_names[f->level], terminal_style(terminal.colour_out, STYLE_PLAIN), f->check);
        visible_printf(stdout, "%s\n", f->found);
        if (f->cost[0]) visible_printf(stdout, "%24scost: %s\n", "", f->cost);
        if (f->fix[0]) visible_printf(stdout, "%24sfix: %s\n", "", f->fix);
    }
}

static void print_json(const struct findings *findings)
{
    json_t *list = json_array();
    for (size_t i = 0; i < findings->count; i++) {
        const struct finding *f = &findings->items[i];
        json_t *entry = json_pack("{s:s,s:s,s:s}", "check", f->check, "level",
                                  level_names[f->level], "found", f->found);
        if (f->cost[0]) json_object_set_new(entry, "cost", json_string(f->cost));
        if (f->fix[0]) json_object_set_new(entry, "fix", json_string(f->fix));
        json_array_append_new(list, entry);
    }
    json_t *out = json_pack("{s:s,s:o}", "version", mf_version(), "findings", list);
    json_print_line(out);
    json_decref(out);
}

/* The rest of the machine needs no model: only one that was named must be there.  `path` is the
 * subject's from then on. */
static mf_status look_at_disk(struct doctor_subject *subject, char path[PATH_CAPACITY],
                              const struct doctor_settings *settings, const char *model,
                              mf_error *why)
{
    mf_status status = model_path_resolve(path, model, why);

    if (status == MF_OK) return probe_disk(&subject->disk, path, !settings->no_speed, why);
    if (model) return status;
    note("no disk is looked at: %s", why->text);
    return MF_OK;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct doctor_settings *settings = settings_;
    struct doctor_subject subject = { .root = "" };
    struct findings *findings = calloc(1, sizeof *findings);
    char path[PATH_CAPACITY];
    mf_error why = { .text = "" };
    const char *model = arguments->count ? arguments->values[0] : NULL;
    mf_status status = findings ? MF_OK : fail_memory(&why, sizeof *findings);
    if (status == MF_OK) status = look_at_disk(&subject, path, settings, model, &why);
    if (status == MF_OK) {
        probe_machine(&subject);
        doctor_examine(findings, &subject);
        if (settings->json)
            print_json(findings);
        else
            print_findings(findings);
    }
    free(findings);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "what makes moeflux slower here than it could be, and what fixes it",
    .arguments = "[MODEL]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes =
        "Looks at kernel sets, threads, memory, huge pages, locked memory, io_uring, the disk of\n"
        "the model (without one that of the embedded model) and GPUs. Says what each finding\n"
        "costs and the command that fixes it; changes nothing. The status is 0 whatever is\n"
        "found.",
    .examples = "  moeflux doctor\n"
                "  moeflux doctor model.gguf\n"
                "  moeflux doctor --no-speed --json\n",
    .settings_bytes = sizeof(struct doctor_settings),
    .run = run,
};
