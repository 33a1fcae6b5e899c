/* `moeflux bench`: prefill and decode speed of this model on this machine, beside what the
 * machine can do. */
#include "command.h"
#include "opened.h"
#include "recording.h"
#include "statistics.h"
#include "terminal.h"

#include "bench/kernel_bench.h"
#include "bench/many.h"
#include "bench/report.h"
#include "bench/stall.h"

#include "common/basics.h"
#include "common/error.h"
#include "json_lines.h"

#include <stdlib.h>

struct bench_settings {
    struct common_settings common;
    struct count_list prompts, counts, depths, sequences;
    struct maybe_count rounds;
    const char *text, *plot;
    bool json, no_ceilings, no_warm_up, stall;
    struct maybe_count max_gap;
    struct recording_settings recording;
    bool ops, all_sets;
    const char *only;
};

static const struct option options[] = {
    { 'p', "prompt", OPTION_COUNTS, offsetof(struct bench_settings, prompts), "N,…",
      .help = "tokens of the prompt, one test for each number; default 512, 0: none", .low = 0,
      .high = 1 << 24 },
    { 'n', "count", OPTION_COUNTS, offsetof(struct bench_settings, counts), "N,…",
      .help = "tokens to generate, one test for each number; default 64, 0: none", .low = 0,
      .high = 1 << 24 },
    { 'd', "depth", OPTION_COUNTS, offsetof(struct bench_settings, depths), "N,…",
      .help = "tokens in the context before a test; every test runs at every depth; default 0",
      .low = 0, .high = 1 << 24 },
    { 0, "sequences", OPTION_COUNTS, offsetof(struct bench_settings, sequences), "N,…",
      .help = "instead, let this many sequences generate together, one test for each number",
      .low = 1, .high = MANY_MAX },
    { 0, "stall", OPTION_FLAG, offsetof(struct bench_settings, stall), NULL,
      .help = "instead, read a long prompt (-p, default 3072) beside a sequence that generates" },
    { 0, "max-gap", OPTION_COUNT, offsetof(struct bench_settings, max_gap), "MS",
      .help = "with --stall: deadline between two tokens; default 150, or two steps if longer",
      .low = 1, .high = 3600000 },
    { 'r', "rounds", OPTION_COUNT, offsetof(struct bench_settings, rounds), "N",
      .help = "how often each test is measured; default 5", .low = 1, .high = ROUNDS_MAX },
    { 0, "text", OPTION_TEXT, offsetof(struct bench_settings, text), "FILE",
      .help = "feed the tokens of this text, for routes as in real use; default: random ones" },
    { 0, "no-warm-up", OPTION_FLAG, offsetof(struct bench_settings, no_warm_up), NULL,
      .help = "count the first run of a test, too" },
    { 0, "no-ceilings", OPTION_FLAG, offsetof(struct bench_settings, no_ceilings), NULL,
      .help = "do not measure the machine: saves two seconds, shows no shares" },
    { 0, "ops", OPTION_FLAG, offsetof(struct bench_settings, ops), NULL,
      .help = "time every operation in every format instead of a model" },
    { 0, "only", OPTION_TEXT, offsetof(struct bench_settings, only), "NAME",
      .help = "with --ops: operations or formats whose name contains this" },
    { 0, "all-sets", OPTION_FLAG, offsetof(struct bench_settings, all_sets), NULL,
      .help = "with --ops: every set that runs here, not only the best one" },
    { 0, "json", OPTION_FLAG, offsetof(struct bench_settings, json), NULL,
      .help = "one line of JSON instead of a table" },
    { 0, "plot", OPTION_TEXT, offsetof(struct bench_settings, plot), "FILE.svg",
      .help = "also draw tokens/s over depth" },
};

static const struct option_group groups[] = {
    { "options", options, COUNT_OF(options), 0 },
    { "recording", recording_options, RECORDING_OPTION_COUNT,
      offsetof(struct bench_settings, recording) },
};

static void default_to(struct count_list *list, uint64_t value)
{
    if (list->count == 0) *list = (struct count_list){ 1, { value } };
}

/* ------------------------------------------------------------------ tokens */

/* Ids that are spread over the vocabulary and the same every time: all experts have work,
 * and no text is needed. */
static mf_status random_tokens(struct id_list *out, uint32_t vocab_size, mf_error *why)
{
    enum { COUNT = 1 << 16 };
    uint64_t state = 1;

    *out = (struct id_list){ .ids = malloc(COUNT * sizeof *out->ids), .count = COUNT };
    if (!out->ids) return fail_memory(why, COUNT * sizeof *out->ids);
    for (size_t i = 0; i < COUNT; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out->ids[i] = (int32_t)((state >> 33) % vocab_size);
    }
    return MF_OK;
}

static mf_status read_tokens(struct id_list *out, const struct opened *opened, const char *path,
                             mf_error *why)
{
    char *text;
    size_t length;
    mf_status status = input_read_new(&text, &length, path, why);

    if (status != MF_OK) return status;
    status = opened_tokenize(out, opened, text, length, why);
    free(text);
    if (status == MF_OK && out->count == 0) {
        id_list_free(out);
        status = fail(why, MF_ERR_ARGUMENT, "%.256s has no tokens", path);
    }
    return status;
}

/* --------------------------------------------------------------- measuring */

static bool needs_checkpoints(const mf_model *model)
{
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;

    mf_model_get_shape(&shape, model, NULL);
    return shape.delta_layers > 0 || shape.window_layers > 0;
}

struct watch {
    struct progress progress;
    size_t rounds;
};

static void show_moment(void *watch_, const struct bench_moment *moment)
{
    struct watch *watch = watch_;
    char test[48], text[96];

    bench_test_name(moment->test, test, sizeof test);
    if (moment->what == BENCH_FILLING) {
        snprintf(text, sizeof text, "filling the context: %u of %u", moment->position,
                 moment->test->depth);
    } else if (moment->what == BENCH_WARMING_UP) {
        snprintf(text, sizeof text, "%s, warm-up", test);
    } else {
        snprintf(text, sizeof text, "%s, round %zu of %zu", test, moment->test->rounds_done + 1,
                 watch->rounds);
    }
    progress_say(&watch->progress, text, moment->done);
}

static mf_status run_plan(struct bench_plan *plan, const struct opened *opened, mf_error *why)
{
    struct terminal terminal;
    struct watch watch = { .rounds = plan->rounds };
    mf_status status;

    terminal_probe(&terminal);
    progress_begin(&watch.progress, &terminal, "", "", plan->test_count * plan->rounds);
    status = bench_plan_run(plan, opened->sequence, show_moment, &watch, why);
    progress_end(&watch.progress);
    return status;
}

/* Before and after the tests: the better one counts. */
static mf_status measure_machine(mf_ceilings *out, const struct bench_settings *settings,
                                 const struct opened *opened, mf_error *why)
{
    struct terminal terminal;
    struct progress progress;
    mf_status status;

    if (settings->no_ceilings) return MF_OK;
    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "", "", 0);
    progress_say(&progress, "measuring the machine", 0);
    status = mf_ceilings_measure(out, (uint32_t)settings->common.threads.value, why);
    if (status == MF_OK && opened) status = mf_ceilings_measure_disk(out, opened->model, why);
    progress_end(&progress);
    return status;
}

static mf_status open_sequence(struct opened *opened, const struct bench_settings *settings,
                               const struct bench_plan *plan, mf_error *why)
{
    uint64_t context =
        settings->common.context.given ? settings->common.context.value : plan->longest;
    mf_sequence_options wanted = { .struct_size = sizeof wanted,
                                   .context_length = (uint32_t)min_size(context, UINT32_MAX),
                                   .chunk_rows = (uint32_t)settings->common.prompt_chunk.value };

    return mf_sequence_open(&opened->sequence, opened->model, &wanted, why);
}

/* --------------------------------------------------------------- reporting */

/* One run of the command. */
struct bench_run {
    const struct bench_settings *settings;
    struct opened opened;
    struct bench_plan plan;
    mf_ceilings ceilings;
    struct output_file plot; /* opened first: a wrong path is known before minutes have passed */
    struct id_list tokens;
    struct recording recording;
    mf_memory_probe *probe; /* NULL: no ceilings are wanted, or too little memory is free */
};

static void make_report(struct bench_report *out, const struct bench_run *run,
                        const mf_workload *workload)
{
    const struct opened *opened = &run->opened;
    mf_model_statistics stats = MF_MODEL_STATISTICS_INIT;

    mf_model_stats(opened->model, &stats, NULL);
    *out = (struct bench_report){ .plan = &run->plan,
                                  .workload = workload,
                                  .ceilings = run->ceilings,
                                  .model = mf_model_name(opened->model),
                                  .family = mf_model_family(opened->model),
                                  .kernels = mf_engine_kernels(opened->engine),
                                  .expert_mode = stats.expert_mode,
                                  .threads = mf_engine_thread_count(run->opened.engine) };
}

static mf_status show_report(struct bench_run *run, mf_error *why)
{
    mf_workload workload = MF_WORKLOAD_INIT;
    struct bench_report report;

    mf_model_workload(&workload, run->opened.model, NULL);
    make_report(&report, run, &workload);
    if (run->settings->json) {
        json_t *line = bench_json_new(&report);
        json_print_line(line);
        json_decref(line);
    } else {
        bench_print_table(&report, stdout);
    }
    if (!run->plot.stream) return MF_OK;
    bench_write_plot(&report, run->plot.stream);
    if (!run->settings->json) printf("\ndrawn in %s\n", run->settings->plot);
    return output_file_commit(&run->plot, why);
}

static struct bench_wishes wishes_of(const struct bench_settings *settings, bool recurrent)
{
    return (struct bench_wishes){ .prompts = settings->prompts.values,
                                  .prompt_count = settings->prompts.count,
                                  .counts = settings->counts.values,
                                  .count_count = settings->counts.count,
                                  .depths = settings->depths.values,
                                  .depth_count = settings->depths.count,
                                  .rounds = settings->rounds.value,
                                  .warm_up = !settings->no_warm_up,
                                  .recurrent = recurrent };
}

/* The model is opened for the longest sequence that any of the tests may need. */
static mf_status open_model(struct opened *out, const struct bench_settings *settings,
                            mf_error *why)
{
    struct common_settings common = settings->common;
    struct bench_wishes wishes = wishes_of(settings, true);
    struct bench_plan plan;
    mf_status status = bench_plan_make(&plan, &wishes, why);

    if (status != MF_OK) return status;
    if (!common.context.given) common.context.value = plan.longest;
    bench_plan_free(&plan);
    return opened_open_model(out, &common, why);
}

/* What the tests feed. */
static mf_status choose_tokens(struct bench_run *run, mf_error *why)
{
    const char *text = run->settings->text;

    return text ? read_tokens(&run->tokens, &run->opened, text, why)
                : random_tokens(&run->tokens, mf_model_vocab_size(run->opened.model), why);
}

static mf_status make_plan(struct bench_run *run, mf_error *why)
{
    const struct bench_settings *settings = run->settings;
    struct bench_wishes wishes = wishes_of(settings, needs_checkpoints(run->opened.model));
    mf_status status = bench_plan_make(&run->plan, &wishes, why);

    if (status != MF_OK) return status;
    status = choose_tokens(run, why);
    run->plan.tokens = run->tokens.ids;
    run->plan.token_count = run->tokens.count;
    return status;
}

static double ask_probe(void *probe)
{
    return mf_memory_probe_rate(probe);
}

/* Once everything else has its memory. */
static mf_status open_probe(struct bench_run *run, mf_error *why)
{
    mf_status status;

    if (run->settings->no_ceilings) return MF_OK;
    status = mf_memory_probe_open(&run->probe, (uint32_t)run->settings->common.threads.value, why);
    if (run->probe) {
        run->plan.probe = ask_probe;
        run->plan.probe_user = run->probe;
    }
    return status;
}

static mf_status bench(struct bench_run *run, mf_error *why)
{
    const struct bench_settings *settings = run->settings;
    struct opened *opened = &run->opened;
    mf_status status = MF_OK;

    if (settings->plot) status = output_file_open(&run->plot, settings->plot, why);
    if (status == MF_OK) status = measure_machine(&run->ceilings, settings, NULL, why);
    if (status == MF_OK) status = open_model(opened, settings, why);
    if (status == MF_OK) status = make_plan(run, why);
    if (status == MF_OK) status = open_sequence(opened, settings, &run->plan, why);
    if (status == MF_OK)
        status = recording_begin(&run->recording, &settings->recording, opened, why);
    if (status == MF_OK) status = open_probe(run, why);
    if (status == MF_OK) status = run_plan(&run->plan, opened, why);
    if (status == MF_OK) status = measure_machine(&run->ceilings, settings, opened, why);
    if (status == MF_OK) status = show_report(run, why);
    if (status == MF_OK) statistics_report(opened, &settings->common);
    return status;
}

static int bench_model(const struct bench_settings *settings)
{
    struct bench_run run = { .settings = settings, .ceilings = MF_CEILINGS_INIT };
    mf_error why = { .text = "" };
    int code = bench(&run, &why) == MF_OK ? EXIT_DONE : report(&why);

    code = recording_end(&run.recording, code);
    mf_memory_probe_close(run.probe);
    id_list_free(&run.tokens);
    bench_plan_free(&run.plan);
    opened_close(&run.opened);
    output_file_abandon(&run.plot);
    return code;
}

/* --------------------------------------------------------------- sequences */

static void show_many(void *progress, const struct many_test *test, size_t done)
{
    char text[64];

    snprintf(text, sizeof text, "%u %s, round %zu", test->sequences,
             test->sequences == 1 ? "sequence" : "sequences", test->rounds_done + 1);
    progress_say(progress, text, done);
}

/* Direct reads of the model's files now, bytes per second; 0: its experts are not streamed. */
static double ask_disk(void *model)
{
    mf_ceilings now = MF_CEILINGS_INIT;

    mf_ceilings_measure_disk(&now, model, NULL);
    return now.disk_bytes;
}

static mf_status run_many(struct bench_run *run, struct many_plan *plan, mf_error *why)
{
    struct terminal terminal;
    struct progress progress;
    mf_status status;

    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "", "", plan->test_count * plan->rounds);
    status = many_plan_run(plan, run->opened.model, show_many, &progress, why);
    progress_end(&progress);
    return status;
}

static mf_status show_many_report(struct bench_run *run, const struct many_plan *plan,
                                  mf_error *why)
{
    struct many_report report = { .plan = plan,
                                  .model = run->opened.model,
                                  .ceilings = run->ceilings,
                                  .kernels = mf_engine_kernels(run->opened.engine),
                                  .threads = mf_engine_thread_count(run->opened.engine) };

    if (run->settings->json) {
        json_t *line = many_json_new(&report);
        json_print_line(line);
        json_decref(line);
    } else {
        many_print_table(&report, stdout);
    }
    if (!run->plot.stream) return MF_OK;
    many_write_plot(&report, run->plot.stream);
    return output_file_commit(&run->plot, why);
}

/* Room for the largest group, and for the steps that warm up. */
static mf_status open_for_many(struct bench_run *run, const struct many_plan *plan, mf_error *why)
{
    enum { WARM_UP = 16 };
    struct common_settings common = run->settings->common;

    for (size_t i = 0; i < plan->test_count; i++) {
        common.sequences = (uint32_t)max_size(common.sequences, plan->tests[i].sequences);
    }
    if (!common.context.given) common.context.value = plan->depth + plan->tokens + WARM_UP;
    return opened_open_model(&run->opened, &common, why);
}

static mf_status bench_sequences(struct bench_run *run, struct many_plan *plan, mf_error *why)
{
    const struct bench_settings *settings = run->settings;
    mf_status status = many_plan_make(plan, settings->sequences.values, settings->sequences.count,
                                      settings->rounds.value, why);

    if (status != MF_OK) return status;
    plan->tokens = (uint32_t)settings->counts.values[0];
    plan->depth = (uint32_t)settings->depths.values[0];
    plan->warm_up = !settings->no_warm_up;
    if (settings->plot) status = output_file_open(&run->plot, settings->plot, why);
    if (status == MF_OK) status = measure_machine(&run->ceilings, settings, NULL, why);
    if (status == MF_OK) status = open_for_many(run, plan, why);
    if (status == MF_OK) status = choose_tokens(run, why);
    plan->ids = run->tokens.ids;
    plan->id_count = run->tokens.count;
    if (!settings->no_ceilings) plan->disk_probe = ask_disk;
    plan->probe_user = run->opened.model;
    if (status == MF_OK) status = run_many(run, plan, why);
    if (status == MF_OK) status = measure_machine(&run->ceilings, settings, &run->opened, why);
    return status == MF_OK ? show_many_report(run, plan, why) : status;
}

static int bench_many(const struct bench_settings *settings)
{
    struct bench_run run = { .settings = settings, .ceilings = MF_CEILINGS_INIT };
    struct many_plan plan = { .test_count = 0 };
    mf_error why = { .text = "" };
    int code = bench_sequences(&run, &plan, &why) == MF_OK ? EXIT_DONE : report(&why);

    many_plan_free(&plan);
    id_list_free(&run.tokens);
    opened_close(&run.opened);
    output_file_abandon(&run.plot);
    return code;
}

/* ------------------------------------------------------------------- stall */

static void show_stall(void *progress, size_t round)
{
    char text[64];

    snprintf(text, sizeof text, "a prompt beside a sequence that generates, round %zu", round + 1);
    progress_say(progress, text, round);
}

/* The model is opened for the prompt and the sequence that generates. */
static mf_status open_for_stall(struct bench_run *run, const struct stall_plan *plan, mf_error *why)
{
    struct common_settings common = run->settings->common;

    common.sequences = (uint32_t)max_size(common.sequences, 2);
    if (!common.context.given) {
        common.context.value = max_size(plan->prompt, plan->answer) + STALL_LEAD;
    }
    return opened_open_model(&run->opened, &common, why);
}

static void show_stall_report(const struct bench_run *run, const struct stall_plan *plan,
                              const struct stall_figures *figures)
{
    struct stall_report report = { .plan = plan,
                                   .figures = figures,
                                   .model = run->opened.model,
                                   .kernels = mf_engine_kernels(run->opened.engine),
                                   .threads = mf_engine_thread_count(run->opened.engine) };

    if (run->settings->json) {
        json_t *line = stall_json_new(&report);
        json_print_line(line);
        json_decref(line);
    } else {
        stall_print(&report, stdout);
    }
}

static mf_status measure_stall(struct bench_run *run, struct stall_plan *plan, mf_error *why)
{
    struct terminal terminal;
    struct progress progress;
    struct stall_figures figures;
    mf_status status = open_for_stall(run, plan, why);

    if (status == MF_OK) status = choose_tokens(run, why);
    if (status != MF_OK) return status;
    plan->ids = run->tokens.ids;
    plan->id_count = run->tokens.count;
    terminal_probe(&terminal);
    progress_begin(&progress, &terminal, "", "", plan->rounds);
    status = stall_run(&figures, plan, run->opened.model, show_stall, &progress, why);
    progress_end(&progress);
    if (status != MF_OK) return status;
    show_stall_report(run, plan, &figures);
    stall_figures_free(&figures);
    return MF_OK;
}

static int bench_stall(const struct bench_settings *settings)
{
    enum { ANSWER = 2048 };
    struct bench_run run = { .settings = settings };
    struct stall_plan plan = { .prompt = (uint32_t)settings->prompts.values[0],
                               .answer = ANSWER,
                               .rounds = settings->rounds.value,
                               .warm_up = !settings->no_warm_up,
                               .max_gap_seconds = (double)settings->max_gap.value / 1e3 };
    mf_error why = { .text = "" };
    int code = measure_stall(&run, &plan, &why) == MF_OK ? EXIT_DONE : report(&why);

    id_list_free(&run.tokens);
    opened_close(&run.opened);
    return code;
}

/* ----------------------------------------------------------------- kernels */

struct kernel_list {
    mf_ceilings ceilings;
    json_t *figures; /* NULL: they are printed as they come */
    size_t count;
    struct progress progress; /* else there is nothing to be seen for half a minute */
};

/* With the first figure: a wrong wish prints nothing. */
static void print_kernel_head(const struct kernel_list *list)
{
    char text[256];

    if (list->ceilings.thread_count > 0) {
        ceilings_describe(&list->ceilings, text, sizeof text);
        printf("machine            %s\n\n", text);
    }
    kernel_figure_print(NULL, &list->ceilings, stdout);
}

static void take_figure(void *user, const struct kernel_figure *figure)
{
    struct kernel_list *list = user;

    if (list->count++ == 0 && !list->figures) print_kernel_head(list);
    if (list->figures) {
        json_array_append_new(list->figures, kernel_figure_json_new(figure, &list->ceilings));
        progress_say(&list->progress, figure->operation, 0);
    } else {
        kernel_figure_print(figure, &list->ceilings, stdout);
        fflush(stdout);
    }
}

static mf_status bench_ops(const struct bench_settings *settings, mf_error *why)
{
    struct kernel_list list = { .ceilings = MF_CEILINGS_INIT,
                                .figures = settings->json ? json_array() : NULL };
    struct kernel_bench_wishes wishes = { .threads = (unsigned)settings->common.threads.value,
                                          .all_sets = settings->all_sets,
                                          .set = settings->common.kernels,
                                          .only = settings->only };
    struct terminal terminal;
    mf_status status = measure_machine(&list.ceilings, settings, NULL, why);

    terminal_probe(&terminal);
    progress_begin(&list.progress, &terminal, "", "", 0);
    if (status == MF_OK) status = kernel_bench_run(&wishes, take_figure, &list, why);
    progress_end(&list.progress);
    if (status == MF_OK && list.count == 0) {
        status = fail(why, MF_ERR_ARGUMENT, "no operation and no format is called \"%.64s\"",
                      settings->only);
    }
    if (status == MF_OK && settings->json) {
        json_t *line = json_pack("{s:s,s:I,s:O}", "version", mf_version(), "threads",
                                 (json_int_t)wishes.threads, "kernels", list.figures);
        if (!settings->no_ceilings) {
            json_object_set_new(line, "ceilings", ceilings_json_new(&list.ceilings));
        }
        json_print_line(line);
        json_decref(line);
    }
    json_decref(list.figures);
    return status;
}

/* A prompt of one token would be decoded; nothing at all is no test. */
static const char *find_problem(const struct bench_settings *settings)
{
    bool any = false;

    for (size_t i = 0; i < settings->prompts.count; i++) {
        if (settings->prompts.values[i] == 1) {
            return "-p 1: a prompt has two tokens at least; one alone is generated (-n)";
        }
        any = any || settings->prompts.values[i] > 0;
    }
    for (size_t i = 0; i < settings->counts.count; i++) {
        any = any || settings->counts.values[i] > 0;
    }
    if (!settings->ops && (settings->only || settings->all_sets)) {
        return "--only and --all-sets belong to --ops";
    }
    if (settings->sequences.count > 0 && settings->counts.values[0] == 0) {
        return "--sequences generates: -n 0 leaves nothing to measure";
    }
    if (settings->max_gap.given && !settings->stall) return "--max-gap belongs to --stall";
    if (settings->stall && settings->prompts.values[0] == 0) {
        return "--stall reads a prompt: -p 0 leaves nothing to measure";
    }
    if (settings->stall && (settings->plot || settings->sequences.count > 0 || settings->ops)) {
        return "--stall is a measurement of its own: without --plot, --sequences and --ops";
    }
    return any ? NULL : "-p 0 and -n 0 leave nothing to measure";
}

static int run(const void *settings_, const struct arguments *arguments)
{
    struct bench_settings settings = *(const struct bench_settings *)settings_;
    mf_error why = { .text = "" };
    const char *problem;

    (void)arguments;
    default_to(&settings.prompts, settings.stall ? 3072 : 512);
    default_to(&settings.counts, 64);
    default_to(&settings.depths, 0);
    if (!settings.rounds.given) settings.rounds.value = 5;
    if (!settings.common.threads.given) {
        settings.common.threads = (struct maybe_count){ true, mf_default_thread_count() };
    }
    /* The ceilings are the CPU's. */
    if (settings.common.backend && strcmp(settings.common.backend, "cuda") == 0)
        settings.no_ceilings = true;
    problem = find_problem(&settings);
    if (problem) return usage_error(&command_bench, "%s", problem);
    if (settings.ops) {
        mf_status status = bench_ops(&settings, &why);
        if (status == MF_ERR_ARGUMENT) return usage_error(&command_bench, "%s", why.text);
        return status == MF_OK ? EXIT_DONE : report(&why);
    }
    if (settings.stall) return bench_stall(&settings);
    return settings.sequences.count > 0 ? bench_many(&settings) : bench_model(&settings);
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure prefill and decode speed against hardware limits",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Shows the median over the rounds, the slowest and the fastest round, and what share of\n"
        "the machine's ceiling that is: for generated tokens, of the memory bandwidth; for a\n"
        "prompt, of the peak of its matrix unit (or of bf16 or f32 in vectors); with streamed\n"
        "experts, of the disk. The ceilings are measured in the same run, but not with\n"
        "--backend cuda. docs/measuring.md explains it.",
    .examples = "  moeflux bench -p 512 -n 64 -t 2\n"
                "  moeflux bench -m model.gguf -p 512,4096 -n 64 -d 0,8192 --plot speed.svg\n"
                "  moeflux bench --sequences 1,2,4,8,16,32 -n 32 --plot shared.svg\n"
                "  moeflux bench --stall --max-gap 500 -m model.gguf\n"
                "  moeflux bench --ops --only Q4_K\n"
                "  moeflux bench -m Qwen/Qwen3-30B-A3B --memory 8G --text story.txt --json\n",
    .settings_bytes = sizeof(struct bench_settings),
    .run = run,
};
