/* plan: what mf_model_plan computes from sizes is what an opened model says in its statistics, item
 * by item, and a plan that does not fit is refused by the opening in the same words.
 *     api_plan DIRECTORY…   each a model, or a directory of models */
#include <moeflux_tools.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int failures;
static unsigned compared, resident, streamed, mapped, refused;

static void expect(const char *path, const mf_plan_options *options, const char *what,
                   uint64_t planned, uint64_t found)
{
    if (planned == found) return;
    fprintf(stderr, "%s, %llu bytes, context %u: %s: %llu planned, %llu found\n", path,
            (unsigned long long)options->memory_bytes, options->context_length, what,
            (unsigned long long)planned, (unsigned long long)found);
    failures++;
}

static void expect_text(const char *path, const mf_plan_options *options, const char *planned,
                        const char *found)
{
    if (strcmp(planned, found) == 0) return;
    expect(path, options, planned, 0, 1);
    fprintf(stderr, "    found: %s\n", found);
}

struct opened {
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    mf_error why;
};

static bool open_run(struct opened *o, const char *path, const mf_plan_options *options)
{
    mf_engine_options engine = MF_ENGINE_OPTIONS_INIT;
    mf_model_options model = MF_MODEL_OPTIONS_INIT;
    mf_sequence_options sequence = MF_SEQUENCE_OPTIONS_INIT;
    *o = (struct opened){ 0 };
    engine.thread_count = options->thread_count;
    model.memory_bytes = options->memory_bytes;
    model.context_length = sequence.context_length = options->context_length;
    model.chunk_rows = options->chunk_rows;
    model.kv_type = options->kv_type;
    return mf_engine_open(&o->engine, &engine, &o->why) == MF_OK &&
           mf_model_open(&o->model, o->engine, path, &model, &o->why) == MF_OK &&
           mf_sequence_open(&o->sequence, o->model, &sequence, &o->why) == MF_OK;
}

static void close_run(struct opened *o)
{
    mf_sequence_close(o->sequence);
    mf_model_close(o->model);
    mf_engine_close(o->engine);
}

static void compare_items(const char *path, const mf_plan_options *options, const mf_plan *plan,
                          const struct opened *o)
{
    mf_model_statistics found = MF_MODEL_STATISTICS_INIT;
    mf_model_stats(o->model, &found, NULL);
    expect(path, options, "weights", plan->weight_bytes, found.weight_bytes);
    expect(path, options, "engine room", plan->engine_bytes, found.room_bytes);
    expect(path, options, "tables", plan->table_bytes, found.policy_bytes);
    expect(path, options, "bytes of experts", plan->expert_bytes, found.expert_slot_bytes);
    expect(path, options, "experts in memory", plan->experts_in_memory, found.expert_slots);
    expect(path, options, "experts", plan->expert_count, found.experts_total);
    expect(path, options, "context", plan->context_length, mf_sequence_context_length(o->sequence));
    expect_text(path, options, plan->expert_mode, found.expert_mode);
    resident += strcmp(found.expert_mode, "resident") == 0;
    streamed += strcmp(found.expert_mode, "streamed") == 0;
    mapped += strcmp(found.expert_mode, "mapped") == 0;
}

/* Pages of windows are planned for a step; some go back to the pool at its end. */
static void expect_windowed(const char *path, const mf_plan_options *options, uint64_t planned,
                            uint64_t found)
{
    if (found > planned || found < planned / 4)
        expect(path, options, "a sequence with windows", planned, found);
}

/* A sequence that is as long as possible holds, with two checkpoints, what was planned for it. */
static void check_full_sequence(const char *path, const mf_plan_options *options,
                                const mf_plan *plan, const struct opened *o)
{
    mf_model_statistics found = MF_MODEL_STATISTICS_INIT;
    int32_t *tokens = calloc(plan->context_length, sizeof *tokens);
    mf_error why = { .text = "" };
    mf_status status = MF_OK;
    uint32_t third = plan->context_length / 3;
    for (int i = 0; i < 3 && status == MF_OK; i++) {
        uint32_t count = i < 2 ? third : plan->context_length - 2 * third;
        status = mf_sequence_feed(o->sequence, MF_PHASE_PROMPT, tokens, count, &why);
        if (status == MF_OK && i < 2) status = mf_sequence_checkpoint(o->sequence, &why);
    }
    expect_text(path, options, "", why.text);
    mf_model_stats(o->model, &found, NULL);
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;
    mf_model_get_shape(&shape, o->model, NULL);
    if (status == MF_OK && shape.window_layers > 0)
        expect_windowed(path, options, plan->sequence_bytes, found.sequence_bytes);
    else if (status == MF_OK)
        expect(path, options, "a sequence", plan->sequence_bytes, found.sequence_bytes);
    free(tokens);
}

static mf_plan make_plan(const char *path, const mf_plan_options *options)
{
    mf_plan plan = MF_PLAN_INIT;
    mf_error why;
    if (mf_model_plan(&plan, path, options, &why) != MF_OK) {
        fprintf(stderr, "%s: %s\n", path, why.text);
        exit(1);
    }
    return plan;
}

static void compare(const char *path, const mf_plan_options *options)
{
    struct opened o;
    mf_plan plan = make_plan(path, options);
    bool opens = open_run(&o, path, options);
    compared++;
    expect(path, options, plan.fits ? "fits" : plan.problem, plan.fits, opens);
    if (plan.fits && opens) compare_items(path, options, &plan, &o);
    if (plan.fits && opens && options->context_length > 0 && options->chunk_rows == 0)
        check_full_sequence(path, options, &plan, &o);
    if (!plan.fits && !opens) {
        refused++;
        expect_text(path, options, plan.problem, o.why.text);
    }
    close_run(&o);
}

/* Memory from far too little to more than everything takes, and a context that the model does not
 * have. */
static void check_model(const char *path)
{
    static const uint32_t contexts[] = { 0, 65, 500 };
    static const char *const types[] = { "f32", "f16", "q8" };
    static const unsigned percents[] = { 5, 40, 60, 75, 85, 93, 98, 100, 103, 150 };
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    options.thread_count = 2;
    options.context_length = UINT32_MAX;
    compare(path, &options);
    options.context_length = 130;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        options.kv_type = types[t];
        compare(path, &options);
    }
    options.kv_type = NULL;
    for (size_t c = 0; c < sizeof contexts / sizeof *contexts; c++) {
        options.context_length = contexts[c];
        options.memory_bytes = 0; /* what is free */
        compare(path, &options);
        options.memory_bytes = UINT64_C(1) << 30;
        compare(path, &options);
        options.chunk_rows = 16; /* so that little besides the experts is left to shrink */
        mf_plan whole = make_plan(path, &options);
        uint64_t bytes =
            whole.weight_bytes + whole.engine_bytes + whole.sequence_bytes + whole.expert_bytes;
        for (size_t p = 0; p < sizeof percents / sizeof *percents; p++) {
            options.memory_bytes = bytes / 100 * percents[p] + 1;
            compare(path, &options);
        }
        options.chunk_rows = 0;
        options.memory_bytes = bytes / 3 * 2;
        compare(path, &options);
    }
}

static bool is_model(const char *path)
{
    char config[4200];
    struct stat found;
    snprintf(config, sizeof config, "%s/config.json", path);
    return stat(config, &found) == 0;
}

static void check_directory(const char *path)
{
    if (is_model(path)) {
        check_model(path);
        return;
    }
    DIR *directory = opendir(path);
    if (!directory) {
        fprintf(stderr, "skipped: there is no %s\n", path);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(directory));) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && is_model(inner)) check_model(inner);
    }
    closedir(directory);
}

int main(int count, char **words)
{
    const char *fixtures = getenv("MOEFLUX_FIXTURES");
    char more[4096];
    for (int i = 1; i < count; i++) check_directory(words[i]);
    snprintf(more, sizeof more, "%s/golden", fixtures ? fixtures : "MOEFLUX_FIXTURES: unset");
    check_directory(more);
    printf("%u plans: %u resident, %u mapped, %u streamed, %u refused\n", compared, resident,
           mapped, streamed, refused);
    if (resident == 0 || streamed == 0 || refused == 0) {
        fprintf(stderr, "resident, streamed and refused plans were expected\n");
        return 1;
    }
    return failures > 0;
}
