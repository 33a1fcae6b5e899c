/* trace: what it costs to look: decode with times by stage, with a trace, and with a watcher of
 * experts and of routes, against decode without any.  One sequence, whose engine is looked at in turns
 * of a few tokens.
 *
 *     bench_trace [MODEL [THREADS [ROUNDS]]]
 *
 * Each turn is compared with the two unobserved ones around it.  CSV on stdout, bench, case,
 * value, value, unit: the median of these ratios less 1 and their quartiles, in percent, by the clock on the wall and by the time that
 * the process was given, which neighbours on the machine disturb less (with one thread: with
 * more of them, waiting is counted); events per token; and the hooks themselves, in a loop:
 * nanoseconds of an operation's, and as a share of the fastest unobserved token, as if every
 * event were an operation. */
#include "api/handles.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TURN = 8, ROUNDS_MAX = 10000, PLAIN = 0, PROFILED, TRACED, WATCHED, KINDS };

static size_t events;

static void drop(void *user, const mf_trace_event *list, size_t count)
{
    (void)user;
    (void)list;
    events += count;
}

static void drop_batch(void *user, const mf_expert_batch *batch)
{
    (void)user;
    (void)batch;
}

static void drop_routes(void *user, const mf_routes *routes)
{
    (void)user;
    (void)routes;
}

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "%s\n", why->text);
    exit(1);
}

enum { WALL, PROCESS, CLOCKS };
struct moment {
    double seconds[CLOCKS];
};

static struct moment moment_now(void)
{
    struct timespec process;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &process);
    return (struct moment){ { clock_seconds(),
                              (double)process.tv_sec + 1e-9 * (double)process.tv_nsec } };
}

/* Every turn is the same tokens at the same positions. */
static struct moment take_turn(mf_sequence *sequence, struct tracer *tracer, bool watched)
{
    mf_error why;
    must(mf_model_watch_experts(sequence->model, watched ? drop_batch : NULL, NULL, &why), &why);
    mf_sequence_watch_routes(sequence, watched ? drop_routes : NULL, NULL);
    sequence->model->engine->backend->tracer = tracer;
    struct moment begin = moment_now();
    mf_sequence_clear(sequence);
    for (int32_t i = 0; i < TURN; i++) {
        int32_t token = 100 + i;
        must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why), &why);
    }
    struct moment end = moment_now();
    for (int c = 0; c < CLOCKS; c++) end.seconds[c] -= begin.seconds[c];
    return end;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double ratios[KINDS][CLOCKS][ROUNDS_MAX];

static void print_kind(const char *name, double (*of)[ROUNDS_MAX], size_t rounds)
{
    static const char *const clocks[CLOCKS] = { "", " (process time)" };
    for (int c = 0; c < CLOCKS; c++) {
        qsort(of[c], rounds, sizeof of[c][0], compare_doubles);
        double median = 100 * (of[c][rounds / 2] - 1);
        printf("trace,%s%s: median,%.2f,%.2f,%%\n", name, clocks[c], median, median);
        printf("trace,%s%s: quartiles,%.2f,%.2f,%%\n", name, clocks[c],
               100 * (of[c][rounds / 4] - 1), 100 * (of[c][rounds * 3 / 4] - 1));
    }
}

/* Nanoseconds of one operation's hooks, handing over included, the best of some attempts. */
static double hooks_ns(struct tracer *tracer)
{
    enum { HOOKS = 100, STEPS = 2000 };
    double best = 1e9;
    for (int attempt = 0; attempt < 20; attempt++) {
        struct moment begin = moment_now();
        for (int step = 0; step < STEPS; step++) {
            struct trace_walk walk = trace_walk_begin(tracer, 0);
            for (int i = 0; i < HOOKS; i++) {
                __asm__ volatile("" : : "r"(&walk) : "memory"); /* it might have one now */
                trace_walk_done(&walk);
                trace_walk_next(&walk, "nothing", MF_STAGE_HEAD);
            }
            tracer_flush_full(tracer);
        }
        double seconds = moment_now().seconds[PROCESS] - begin.seconds[PROCESS];
        if (seconds * 1e9 / HOOKS / STEPS < best) best = seconds * 1e9 / HOOKS / STEPS;
    }
    return best;
}

/* What they add up to in a token, which is the surer figure on a busy machine. */
static void print_hooks(const char *name, struct tracer *tracer, double per_token, double seconds)
{
    double ns = hooks_ns(tracer), share = 100e-9 * ns * per_token / seconds;
    printf("trace,hooks of an operation: %s,%.2f,%.2f,ns\n", name, ns, ns);
    printf("trace,hooks of a token: %s,%.4f,%.4f,%%\n", name, share, share);
}

static void measure(mf_sequence *sequence, struct tracer *tracers[KINDS], size_t rounds)
{
    static const char *const names[KINDS] = { "no observer again", "times by stage", "trace",
                                              "experts and routes watched" };
    take_turn(sequence, NULL, false); /* experts are read */
    struct moment before = take_turn(sequence, NULL, false);
    double fastest = before.seconds[PROCESS];
    for (size_t round = 0; round < rounds; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct moment looked = take_turn(sequence, tracers[kind], kind == WATCHED);
            struct moment after = take_turn(sequence, NULL, false);
            for (int c = 0; c < CLOCKS; c++)
                ratios[kind][c][round] =
                    2 * looked.seconds[c] / (before.seconds[c] + after.seconds[c]);
            before = after;
            if (after.seconds[PROCESS] < fastest) fastest = after.seconds[PROCESS];
        }
    for (int kind = 0; kind < KINDS; kind++) print_kind(names[kind], ratios[kind], rounds);
    tracer_flush(tracers[TRACED]);
    double per_token = (double)events / ((double)rounds * TURN);
    printf("trace,events per token,%.0f,%.0f,events\n", per_token, per_token);
    print_hooks("no observer", NULL, per_token, fastest / TURN);
    print_hooks(names[PROFILED], tracers[PROFILED], per_token, fastest / TURN);
    print_hooks(names[TRACED], tracers[TRACED], per_token, fastest / TURN);
}

int main(int count, char **arguments)
{
    const char *path = count > 1 ? arguments[1] : "models/pebble";
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    if (count > 2) options.thread_count = (uint32_t)strtoul(arguments[2], NULL, 10);
    size_t rounds = count > 3 ? strtoul(arguments[3], NULL, 10) : 200;
    rounds = min_size(max_size(rounds, 1), ROUNDS_MAX);
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    struct tracer *tracers[KINDS] = { NULL };
    mf_error why;
    must(mf_engine_open(&engine, &options, &why), &why);
    must(mf_model_open(&model, engine, path, NULL, &why), &why);
    must(mf_sequence_open(&sequence, model, NULL, &why), &why);
    struct tracer_options tracer = { .allocator = &engine->allocator,
                                     .machine = &engine->machine,
                                     .worker_count = thread_pool_size(engine->pool) };
    must(tracer_new(&tracers[PROFILED], &tracer, &why), &why);
    tracer.function = drop;
    must(tracer_new(&tracers[TRACED], &tracer, &why), &why);
    measure(sequence, tracers, rounds);
    mf_sequence_close(sequence);
    mf_model_close(model);
    tracer_free(tracers[PROFILED]);
    tracer_free(tracers[TRACED]);
    mf_engine_close(engine);
    return 0;
}
