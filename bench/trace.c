/* trace: what it costs to look: decode with times by stage, and with a trace, against decode
 * that nobody looks at.  One session, whose engine is looked at in turns of a few tokens.
 *
 *     bench_trace [MODEL [THREADS [ROUNDS]]]
 *
 * CSV: how much longer the fastest twentieth and the fastest quarter of the turns take, in
 * percent; and events per token. */
#include "api/handles.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { TURN = 12, ROUNDS_MAX = 10000, PLAIN = 0, PROFILED, TRACED, KINDS };

static size_t events;

static void drop(void *user, const mf_trace_event *list, size_t count)
{
    (void)user;
    (void)list;
    events += count;
}

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "%s\n", why->text);
    exit(1);
}

/* Every turn is the same tokens at the same positions. */
static double take_turn(mf_session *session, struct tracer *tracer)
{
    mf_error why;
    session->model->engine->backend->tracer = tracer;
    double begin = clock_seconds();
    mf_session_clear(session);
    for (int32_t i = 0; i < TURN; i++) {
        int32_t token = 100 + i;
        must(mf_session_feed(session, &token, 1, &why), &why);
    }
    return clock_seconds() - begin;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Other work of the machine only ever makes a turn longer: the fastest ones are compared. */
static double fast_turn(double *seconds, size_t count, size_t part)
{
    qsort(seconds, count, sizeof *seconds, compare_doubles);
    return seconds[count / part];
}

static void measure(mf_session *session, struct tracer *tracers[KINDS], size_t rounds)
{
    static const char *const names[KINDS] = { "nobody looks again", "times by stage", "trace" };
    static double plain[ROUNDS_MAX], seconds[KINDS][ROUNDS_MAX];
    take_turn(session, NULL); /* experts are read */
    for (size_t round = 0; round < rounds; round++) {
        plain[round] = take_turn(session, NULL);
        for (int i = 0; i < KINDS; i++) { /* none is always the first after the plain one */
            int kind = (int)((round + (size_t)i) % KINDS);
            seconds[kind][round] = take_turn(session, tracers[kind]);
        }
    }
    for (int kind = 0; kind < KINDS; kind++)
        printf("trace,%s,%.2f,%.2f,%%\n", names[kind],
               100 * (fast_turn(seconds[kind], rounds, 20) / fast_turn(plain, rounds, 20) - 1),
               100 * (fast_turn(seconds[kind], rounds, 4) / fast_turn(plain, rounds, 4) - 1));
    tracer_flush(tracers[TRACED]);
    double per_token = (double)events / ((double)rounds * TURN);
    printf("trace,events per token,%.0f,%.0f,events\n", per_token, per_token);
}

int main(int count, char **arguments)
{
    const char *path = count > 1 ? arguments[1] : "models/pebble";
    mf_engine_options options = { 0 };
    if (count > 2) options.thread_count = (uint32_t)strtoul(arguments[2], NULL, 10);
    size_t rounds = count > 3 ? strtoul(arguments[3], NULL, 10) : 200;
    rounds = min_size(max_size(rounds, 1), ROUNDS_MAX);
    mf_engine *engine;
    mf_model *model;
    mf_session *session;
    struct tracer *tracers[KINDS] = { NULL };
    mf_error why;
    must(mf_engine_open(&engine, &options, &why), &why);
    must(mf_model_open(&model, engine, path, NULL, &why), &why);
    must(mf_session_open(&session, model, NULL, &why), &why);
    struct tracer_options tracer = { .allocator = &engine->allocator,
                                     .machine = &engine->machine,
                                     .worker_count = thread_pool_size(engine->pool) };
    must(tracer_new(&tracers[PROFILED], &tracer, &why), &why);
    tracer.function = drop;
    must(tracer_new(&tracers[TRACED], &tracer, &why), &why);
    measure(session, tracers, rounds);
    mf_session_close(session);
    mf_model_close(model);
    tracer_free(tracers[PROFILED]);
    tracer_free(tracers[TRACED]);
    mf_engine_close(engine);
    return 0;
}
