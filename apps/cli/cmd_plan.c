/* `moeflux plan`: what a model needs here and how fast it will run, without loading it. */
#include "command.h"
#include "json_lines.h"
#include "model_path.h"
#include "planning.h"
#include "terminal.h"

#include "common/basics.h"
#include "common/error.h"
#include "hub/local.h"
#include "plan/measure.h"
#include "plan/remote.h"
#include "plan/report.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

struct plan_settings {
    const char *memory, *kv, *kernels, *routes;
    struct maybe_count threads, context, prompt_chunk, prompt, depth;
    bool json, measure;
};

static const char *const kv_types[] = { "f32", "f16", "q8", NULL };

static const struct option options[] = {
    { 0, "memory", OPTION_TEXT, offsetof(struct plan_settings, memory), "LIST",
      .help = "memory sizes to plan for, as in 8G,16G; default: what is free now" },
    { 'p', "prompt", OPTION_COUNT, offsetof(struct plan_settings, prompt), "N",
      .help = "tokens of the prompt; default 512", .low = 1, .high = 1 << 24 },
    { 'd', "depth", OPTION_COUNT, offsetof(struct plan_settings, depth), "N",
      .help = "tokens before the one that is generated; default 0", .low = 0, .high = 1 << 24 },
    { 'c', "context", OPTION_COUNT, offsetof(struct plan_settings, context), "N",
      .help = "positions of the context; default: the model's, at most 4096", .low = 1,
      .high = 1 << 24 },
    { 't', "threads", OPTION_COUNT, offsetof(struct plan_settings, threads), "N",
      .help = "threads; default: one for every core", .low = 1, .high = 1024 },
    { 0, "prompt-chunk", OPTION_COUNT, offsetof(struct plan_settings, prompt_chunk), "N",
      .help = "prompt tokens per step", .low = 1, .high = 1 << 24 },
    { 0, "kv", OPTION_CHOICE, offsetof(struct plan_settings, kv), "TYPE",
      .help = "keys and values in f32, f16 or q8; default f16", .choices = kv_types },
    { 0, "kernels", OPTION_TEXT, offsetof(struct plan_settings, kernels), "NAME",
      .help = "kernel set, as in avx2; default: the best one for this CPU" },
    { 0, "routes", OPTION_TEXT, offsetof(struct plan_settings, routes), "FILE",
      .help = "hit rates on routes that this model recorded (run --routes FILE), not a range" },
    { 0, "measure", OPTION_FLAG, offsetof(struct plan_settings, measure), NULL,
      .help = "measure the machine again, also what is known from earlier runs" },
    { 0, "json", OPTION_FLAG, offsetof(struct plan_settings, json), NULL,
      .help = "one line of JSON instead of a table" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* ------------------------------------------------------------------ options */

static mf_status parse_sizes(struct plan_wishes *out, const char *list, mf_error *why)
{
    out->size_count = 0;
    if (!list) {
        out->sizes[out->size_count++] = 0;
        return MF_OK;
    }
    while (*list) {
        size_t length = strcspn(list, ",");
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)min_size(length, sizeof word - 1), list);
        if (out->size_count == PLANNED_SIZES)
            return fail(why, MF_ERR_ARGUMENT, "--memory: at most %d sizes are possible",
                        PLANNED_SIZES);
        uint64_t *size = &out->sizes[out->size_count++];
        if (!parse_size(size, word) || *size == 0)
            return fail(why, MF_ERR_ARGUMENT, "--memory: \"%s\" is not a size such as 8G", word);
        list += length + (list[length] == ',');
    }
    if (out->size_count == 0) return fail(why, MF_ERR_ARGUMENT, "--memory: there is no size");
    return MF_OK;
}

static void read_wishes(struct plan_wishes *out, const struct plan_settings *settings)
{
    out->options = (mf_plan_options)MF_PLAN_OPTIONS_INIT;
    out->options.context_length = (uint32_t)settings->context.value;
    out->options.chunk_rows = (uint32_t)settings->prompt_chunk.value;
    out->options.thread_count = (uint32_t)settings->threads.value;
    out->options.kv_type = settings->kv;
    out->prompt_rows = settings->prompt.given ? (double)settings->prompt.value : 512;
    out->position = (double)settings->depth.value;
}

/* ---------------------------------------------------------------- interruption */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static bool stop(void)
{
    return interrupted != 0;
}

static bool is_interrupted(void *user)
{
    (void)user;
    return stop();
}

/* -------------------------------------------------------------------- rates */

static void show_measuring(void *progress, const char *what)
{
    progress_say(progress, what, 0);
}

/* Failing to keep the figures costs a second next time, and is no failure. */
static mf_status complete_machine(struct planning_machine *machine,
                                  const struct measure_wishes *wishes, mf_error *why)
{
    struct terminal terminal;
    struct progress progress;
    mf_error problem = { .text = "" };
    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "", "", 0);
    mf_status status =
        measure_missing(&machine->known, machine->engine, wishes, show_measuring, &progress, why);
    progress_end(&progress);
    if (status == MF_OK && machine->known.changed && machine->path[0] &&
        rates_save(&machine->known, machine->path, machine->fingerprint, &problem) != MF_OK)
        note("what was measured is not kept: %s", problem.text);
    return status;
}

/* -------------------------------------------------------------------- plans */

static mf_status make_plans(struct planned *plans, const struct planning_subject *subject,
                            const struct machine_rates *rates, const struct plan_wishes *wishes,
                            mf_error *why)
{
    mf_status status = MF_OK;
    for (size_t i = 0; i < wishes->size_count && status == MF_OK; i++)
        status = planned_make(&plans[i], subject->path, &subject->costs, rates, wishes,
                              wishes->sizes[i], why);
    return status;
}

static void make_row(struct plan_row *out, const struct hub_candidate *candidate,
                     const struct plan_report *report, const struct planning_subject *subject)
{
    const struct hub_candidate *known = subject->remote->chosen;
    const mf_plan *plan = &report->plans[0].plan;
    *out = (struct plan_row){ .label = candidate->label,
                              .bytes = candidate->bytes,
                              .runs = candidate->runs,
                              .chosen = candidate == known };
    /* The planned one is what its plan says.  Without the sizes of a step no other one is known to fit. */
    if (!plan->fits && (candidate == known || plan->engine_bytes == 0)) return;
    if (known->bytes > 0)
        estimate_make(&out->estimate, report->plans, &subject->costs, report->rates, report->wishes,
                      (double)candidate->bytes / (double)known->bytes);
}

static mf_status show_report(struct plan_report *report, const struct planning_subject *subject,
                             bool json, mf_error *why)
{
    const struct remote *remote = subject->remote;
    struct plan_row *rows = NULL;
    if (remote) {
        rows = calloc(remote->candidates.count, sizeof *rows);
        if (!rows) return fail_memory(why, remote->candidates.count * sizeof *rows);
        for (size_t i = 0; i < remote->candidates.count; i++)
            make_row(&rows[i], &remote->candidates.items[i], report, subject);
        report->rows = rows;
        report->row_count = remote->candidates.count;
        report->transferred = remote->transferred;
    }
    if (json) {
        json_t *line = plan_json_new(report);
        json_print_line(line);
        json_decref(line);
    } else {
        plan_print(report);
    }
    free(rows);
    return MF_OK;
}

static mf_status plan_subject(struct planning_subject *subject, struct planning_machine *machine,
                              const struct plan_wishes *wishes, bool json, mf_error *why)
{
    char disk[DISK_NAME_BYTES];
    bool formats[FORECAST_FORMATS];
    struct planned plans[PLANNED_SIZES];
    struct measure_wishes missing = { .formats = formats,
                                      .description = subject->remote ? NULL : subject->description,
                                      .directory = subject->remote ? subject->disk : NULL,
                                      .threads = wishes->options.thread_count,
                                      .stop = stop };
    if (subject->disk && disk_name(disk, subject->disk)) missing.disk = disk;
    model_costs_formats(formats, &subject->costs);
    mf_status status = complete_machine(machine, &missing, why);
    if (status != MF_OK) return status;
    struct machine_rates *rates = &machine->known.rates;
    rates->disk_bytes = missing.disk ? rates_disk(&machine->known, disk) : 0;
    status = make_plans(plans, subject, rates, wishes, why);
    if (status != MF_OK) return status;
    struct plan_report report = { .info = &subject->info,
                                  .rates = rates,
                                  .machine = machine->fingerprint,
                                  .measured = machine->known.measured,
                                  .load = machine->known.load,
                                  .threads = mf_engine_thread_count(machine->engine),
                                  .wishes = wishes,
                                  .plans = plans,
                                  .disk_known = rates->disk_bytes > 0 };
    return show_report(&report, subject, json, why);
}

/* The trace borrows `bytes`. */
static mf_status open_routes(mf_route_trace **out, char **bytes, const char *path, mf_error *why)
{
    mf_error problem = { .text = "" };
    size_t length;
    mf_status status = input_read_new(bytes, &length, path, why);
    if (status != MF_OK) return status;
    status = mf_route_trace_open(out, *bytes, length, &problem);
    if (status == MF_OK) return MF_OK;
    return fail(why, status, "%.128s: %.300s", input_name(path), problem.text);
}

static mf_status plan_opened(struct planning_subject *subject, const struct plan_settings *settings,
                             struct plan_wishes *wishes, mf_error *why)
{
    char *bytes = NULL;
    struct planning_machine *machine = calloc(1, sizeof *machine);
    mf_route_trace *trace = NULL;
    mf_status status = machine ? MF_OK : fail_memory(why, sizeof *machine);
    if (status == MF_OK && settings->routes)
        status = open_routes(&trace, &bytes, settings->routes, why);
    wishes->trace = trace;
    if (status == MF_OK) {
        status = planning_machine_open(machine, (uint32_t)settings->threads.value,
                                       settings->kernels, !settings->measure, why);
    }
    if (status == MF_OK) status = plan_subject(subject, machine, wishes, settings->json, why);
    mf_route_trace_close(trace);
    if (machine) planning_machine_close(machine);
    free(machine);
    free(bytes);
    return status;
}

static mf_status plan_local(const struct plan_settings *settings, const char *model,
                            struct plan_wishes *wishes, mf_error *why)
{
    char path[PATH_CAPACITY];
    struct planning_subject subject = { .path = NULL };
    mf_status status = model_path_resolve(path, model, why);
    if (status == MF_OK) status = planning_subject_open(&subject, path, settings->kv, why);
    subject.disk = path;
    if (status == MF_OK) status = plan_opened(&subject, settings, wishes, why);
    planning_subject_close(&subject);
    return status;
}

/* ---------------------------------------------------------------- on a hub */

static void say(void *user, const char *text)
{
    (void)user;
    note("%s", text);
}

static mf_status plan_copy(const struct remote *remote, const struct hub_name *name,
                           const struct plan_settings *settings, struct plan_wishes *wishes,
                           mf_error *why)
{
    char disk[PATH_CAPACITY], title[HUB_REPOSITORY_CAPACITY + HUB_QUANTISATION_CAPACITY + 2];
    struct planning_subject subject = { .remote = remote, .disk = disk };
    snprintf(disk, sizeof disk, "%s", remote->settings.cache);
    snprintf(title, sizeof title, "%s:%s", name->repository, remote->chosen->label);
    planning_find_existing(disk);
    mf_status status = planning_subject_open(&subject, remote->path, settings->kv, why);
    subject.info.name = subject.info.path = title;
    if (status == MF_OK) status = plan_opened(&subject, settings, wishes, why);
    planning_subject_close(&subject);
    return status;
}

static mf_status plan_remote(const struct plan_settings *settings, const struct hub_name *name,
                             struct plan_wishes *wishes, mf_error *why)
{
    struct remote *remote = calloc(1, sizeof *remote);
    struct hub_observer observer = { NULL, is_interrupted, say, NULL };
    struct sigaction action = { .sa_handler = interrupt }, before[2];
    if (!remote) return fail_memory(why, sizeof *remote);
    sigaction(SIGINT, &action, &before[0]);
    sigaction(SIGTERM, &action, &before[1]);
    mf_status status = remote_open(remote, name, &observer, wishes->sizes[0], why);
    bool opened = status == MF_OK;
    if (status == MF_OK) status = remote_fetch(remote, why);
    if (status == MF_OK) status = plan_copy(remote, name, settings, wishes, why);
    if (opened) remote_close(remote);
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    free(remote);
    return status;
}

/* Whether the cache has nothing that the name can mean. */
static bool is_away(const struct hub_name *name)
{
    char cache[PATH_CAPACITY], path[PATH_CAPACITY];
    bool found = false;
    if (hub_cache_directory(cache, NULL) != MF_OK) return false; /* opening says what is wrong */
    if (!cache[0]) return true;
    return hub_local_find(&found, path, cache, name, NULL) == MF_OK && !found;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct plan_settings *settings = settings_;
    struct plan_wishes wishes = { .size_count = 0 };
    struct hub_name name;
    mf_error why = { .text = "" };
    if (parse_sizes(&wishes, settings->memory, &why) != MF_OK)
        return usage_error(&command_plan, "%s", why.text);
    read_wishes(&wishes, settings);
    const char *model = arguments->count ? arguments->values[0] : NULL;
    bool away = model_path_is_name(&name, model) && is_away(&name);
    mf_status status = away ? plan_remote(settings, &name, &wishes, &why)
                            : plan_local(settings, model, &wishes, &why);
    if (status == MF_ERR_CANCELLED) return EXIT_INTERRUPTED;
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_plan = {
    .name = "plan",
    .summary = "what a model needs here and how fast it will run",
    .arguments = "[MODEL|NAME[:QUANT]]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes =
        "Reads the headers of the checkpoint, not the weights, and measures the machine once:\n"
        "memory, disk and products in the model's formats; the figures are kept in\n"
        "$XDG_CACHE_HOME/moeflux or ~/.cache/moeflux. Where experts are streamed the speed is a\n"
        "range: from experts that are all as likely to a trained router's.",
    .examples = "  moeflux plan\n"
                "  moeflux plan model.gguf --memory 8G,16G\n"
                "  moeflux plan Qwen/Qwen3-30B-A3B-GGUF --memory 16G\n"
                "  moeflux plan model.gguf --memory 8G -p 4096 -d 4096 --json\n",
    .settings_bytes = sizeof(struct plan_settings),
    .run = run,
};
