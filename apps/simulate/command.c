/* `moeflux simulate`: replays recorded routes with expert caches of given sizes, under every
 * policy, and reports hit rates, bytes read and the speed that follows from them. */
#include "simulate/report.h"

#include "cli/command.h"
#include "cli/json_lines.h"
#include "cli/terminal.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>

struct simulate_settings {
    const char *memory, *plot;
    struct maybe_real disk, step_ms;
    struct maybe_count rows;
    bool json;
};

static const struct option options[] = {
    { 0, "memory", OPTION_TEXT, offsetof(struct simulate_settings, memory), "LIST",
      .help = "sizes to try: memory for weights and caches, as in 4G,8G,16G, or the share of "
              "experts in memory, as in 25%; default 10%,25%,50%,75%,100%" },
    { 0, "disk", OPTION_RATE, offsetof(struct simulate_settings, disk), "RATE",
      .help = "throughput of the disk, as in 3GB/s or 500MB/s; default 3GB/s" },
    { 0, "step", OPTION_REAL, offsetof(struct simulate_settings, step_ms), "MS",
      .help = "milliseconds per token without waiting for reads; default: as recorded", .low = 0,
      .high = 1e9 },
    { 0, "rows", OPTION_COUNT, offsetof(struct simulate_settings, rows), "N",
      .help = "tokens per step; default 1, as in generation; 0: as recorded", .low = 0,
      .high = 1 << 24 },
    { 0, "json", OPTION_FLAG, offsetof(struct simulate_settings, json), NULL,
      .help = "one line of JSON instead of a table" },
    { 0, "plot", OPTION_TEXT, offsetof(struct simulate_settings, plot), "FILE.svg",
      .help = "also plot hit rate and tokens/s over memory" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

/* ------------------------------------------------------------------- sizes */

/* "8G": memory for everything; "25%": slots for that share of the bytes of all experts. */
static bool parse_memory(struct simulated_size *out, const char *text,
                         const mf_route_trace_info *trace)
{
    size_t length = strlen(text);
    char number[32];
    double percent;

    *out = (struct simulated_size){ 0 };
    if (length > 1 && length < sizeof number && text[length - 1] == '%') {
        snprintf(number, sizeof number, "%.*s", (int)length - 1, text);
        if (!parse_real(&percent, number) || percent <= 0 || percent > 100) return false;
        out->slot_bytes = (uint64_t)(percent / 100 * (double)trace->all_slots_bytes);
        return true;
    }
    return parse_size(&out->memory_bytes, text) && out->memory_bytes > 0;
}

/* Ascending by the slots that were used, which are known after the replay and the same for every
 * policy. */
static int compare_sizes(const void *a, const void *b)
{
    const struct simulated_size *x = a, *y = b;

    return (x->slot_bytes > y->slot_bytes) - (x->slot_bytes < y->slot_bytes);
}

/* Parses a comma-separated list into report->sizes. */
static mf_status parse_sizes(struct simulate_report *report, const char *list, mf_error *why)
{
    while (*list) {
        size_t length = strcspn(list, ",");
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)min_size(length, sizeof word - 1), list);
        if (report->size_count == SIMULATED_SIZES_MAX) {
            return fail(why, MF_ERR_ARGUMENT, "--memory: at most %d sizes are possible",
                        SIMULATED_SIZES_MAX);
        }
        if (!parse_memory(&report->sizes[report->size_count++], word, &report->trace)) {
            return fail(why, MF_ERR_ARGUMENT,
                        "--memory: \"%s\" is neither a size such as 8G nor a share such as 25%%",
                        word);
        }
        list += length + (list[length] == ',');
    }
    if (report->size_count == 0) return fail(why, MF_ERR_ARGUMENT, "--memory: there is no size");
    return MF_OK;
}

/* ------------------------------------------------------------------ replay */

/* Replays the trace for every size and policy and sorts the sizes.  A size that is too small is
 * left out with a note on stderr; it is an error if all are. */
static mf_status replay(struct simulate_report *report, const mf_route_trace *trace, mf_error *why)
{
    struct terminal terminal;
    struct progress progress;
    size_t kept = 0, count = report->size_count;
    mf_status status = MF_OK;

    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "simulating", "runs", count * MF_CACHE_POLICY_COUNT);
    for (size_t i = 0; i < count; i++) {
        struct simulated_size *size = &report->sizes[kept];
        *size = report->sizes[i];
        status = MF_OK;
        for (int p = 0; p < MF_CACHE_POLICY_COUNT && status == MF_OK; p++) {
            mf_simulation_options cache = MF_SIMULATION_OPTIONS_INIT;
            cache.policy = (mf_cache_policy)p;
            cache.memory_bytes = size->memory_bytes;
            cache.slot_bytes = size->slot_bytes;
            cache.rows = report->rows;
            size->results[p] = (mf_simulation_result)MF_SIMULATION_RESULT_INIT;
            status = mf_simulate(&size->results[p], trace, &cache, why);
            progress_update(&progress, i * MF_CACHE_POLICY_COUNT + (size_t)p + 1);
        }
        if (status == MF_OK) {
            size->slot_bytes = size->results[0].slot_bytes;
            kept++;
        }
        bool only_error = kept == 0 && i + 1 == count; /* reported by the caller */
        if (status != MF_OK && !only_error) note("%s", why->text);
    }
    progress_end(&progress);
    report->size_count = kept;
    qsort(report->sizes, kept, sizeof *report->sizes, compare_sizes);
    return kept > 0 ? MF_OK : status;
}

static mf_status show(const struct simulate_report *report,
                      const struct simulate_settings *settings, mf_error *why)
{
    struct output_file plot;
    mf_status status = MF_OK;

    if (settings->json) {
        json_t *line = simulate_json_new(report);
        json_print_line(line);
        json_decref(line);
    } else {
        simulate_print_table(report, stdout);
    }
    if (settings->plot) status = output_file_open(&plot, settings->plot, why);
    if (!settings->plot || status != MF_OK) return status;
    simulate_write_plot(report, plot.stream);
    return output_file_commit(&plot, why);
}

static mf_status simulate(const struct simulate_settings *settings, const mf_route_trace *trace,
                          mf_error *why)
{
    struct simulate_report report = {
        .trace = MF_ROUTE_TRACE_INFO_INIT,
        .rows = settings->rows.given ? (uint32_t)settings->rows.value : 1,
        .disk_rate = settings->disk.given ? settings->disk.value : 3e9,
        .sizes = calloc(SIMULATED_SIZES_MAX, sizeof *report.sizes),
    };
    mf_status status;

    mf_route_trace_get(&report.trace, trace, NULL);
    report.step_seconds =
        settings->step_ms.given ? 1e-3 * settings->step_ms.value : report.trace.step_seconds;
    if (!report.sizes) return fail_memory(why, SIMULATED_SIZES_MAX * sizeof *report.sizes);
    status =
        parse_sizes(&report, settings->memory ? settings->memory : "10%,25%,50%,75%,100%", why);
    if (status == MF_OK) status = replay(&report, trace, why);
    if (status == MF_OK) status = show(&report, settings, why);
    free(report.sizes);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct simulate_settings *settings = settings_;
    mf_route_trace *trace = NULL;
    mf_error why = { .text = "" };
    char *bytes = NULL;
    size_t length = 0;
    mf_status status;

    if (arguments->count == 0) {
        return usage_error(&command_simulate, "which trace? `moeflux generate --routes FILE …` "
                                              "records one");
    }
    status = input_read_new(&bytes, &length, arguments->values[0], &why);
    if (status == MF_OK) {
        mf_error problem = { .text = "" };
        status = mf_route_trace_open(&trace, bytes, length, &problem);
        if (status != MF_OK) {
            fail(&why, status, "%.128s: %.300s", input_name(arguments->values[0]), problem.text);
        } else {
            status = simulate(settings, trace, &why);
            mf_route_trace_close(trace);
        }
    }
    free(bytes);
    if (status == MF_ERR_ARGUMENT) return usage_error(&command_simulate, "%s", why.text);
    return status == MF_OK ? EXIT_DONE : report(&why);
}

const struct command command_simulate = {
    .name = "simulate",
    .summary = "replay recorded routes with other cache sizes and policies",
    .arguments = "FILE",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes =
        "Replays a trace (run, generate, perplexity and bench record one with --routes FILE)\n"
        "with simulated expert caches. For every memory size and policy it shows the hit rate,\n"
        "that rate relative to Belady's optimal policy, which knows the future, bytes read per\n"
        "token, and the resulting tokens per second with reads and computation overlapped and\n"
        "one after the other. \"moeflux\" is the policy of this program. Read-ahead is not\n"
        "simulated.",
    .examples = "  moeflux generate -p 'The old king' -n 500 --routes king.routes\n"
                "  moeflux simulate king.routes --memory 25%,50%\n"
                "  moeflux simulate king.routes --memory 4G,8G,16G --disk 3GB/s --plot king.svg\n",
    .settings_bytes = sizeof(struct simulate_settings),
    .run = run,
};
