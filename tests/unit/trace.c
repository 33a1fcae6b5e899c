/* trace: buffers that are handed over whole, times by stage that add up, and that looking
 * changes nothing. */
#include "support/test.h"

#include "support/heap_guard.h"
#include "support/tiny_engine.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ the tracer */

struct heard {
    mf_trace_event *events; /* [capacity] */
    size_t count, capacity, calls;
};

static void hear(void *user, const mf_trace_event *events, size_t count)
{
    struct heard *heard = user;
    if (heard->count + count > heard->capacity) fail_msg("more than %zu events", heard->capacity);
    memcpy(heard->events + heard->count, events, count * sizeof *events);
    heard->count += count;
    heard->calls++;
}

static struct heard heard_new(size_t capacity)
{
    struct heard heard = { .events = malloc(capacity * sizeof *heard.events),
                           .capacity = capacity };
    assert_non_null(heard.events);
    return heard;
}

static mf_status make_tracer(struct tracer **out, const mf_allocator *allocator, unsigned workers,
                             struct heard *heard, mf_error *why)
{
    struct machine machine;
    machine_probe(&machine);
    return tracer_new(out,
                      &(struct tracer_options){ .allocator = allocator,
                                                .machine = &machine,
                                                .worker_count = workers,
                                                .function = hear,
                                                .user = heard },
                      why);
}

/* Ticks of either clock against the system's.  Readings of the system's clock enclose the ticks on
 * both sides, so that a pause between two readings widens the bounds and cannot fail the test. */
static void ticks_count_the_time_of_the_system_clock(void **state)
{
    (void)state;
    for (int counter = 0; counter < 2; counter++) {
        struct heard heard = { 0 };
        struct tracer *tracer;
        assert_int_equal(make_tracer(&tracer, &allocator_heap, 1, &heard, NULL), MF_OK);
        if (!counter && tracer->use_counter) { /* as on a machine that has none */
            tracer->use_counter = false;
            tracer->first_tick = tracer->first_ns; /* ticks are nanoseconds then */
        }
        uint64_t outer = clock_nanoseconds(), ticks = trace_now(tracer),
                 inner = clock_nanoseconds();
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        inner = clock_nanoseconds() - inner;
        ticks = trace_now(tracer) - ticks;
        outer = clock_nanoseconds() - outer;
        double ns = (double)ticks * tracer_tick_seconds(tracer) * 1e9;
        assert_true(ns >= 0.99 * (double)inner && ns <= 1.01 * (double)outer);
        tracer_free(tracer);
    }
}

static void events_come_back_in_order(void **state)
{
    (void)state;
    struct heard heard = heard_new(100);
    struct tracer *tracer;
    mf_error why;
    tiny_must(make_tracer(&tracer, &allocator_heap, 2, &heard, &why), &why);
    uint64_t before_ns = clock_nanoseconds(), begin = trace_now(tracer);
    trace_layer(tracer, 7);
    trace_span(tracer, "first", begin, 3);
    trace_counter(tracer, "second", 42);
    trace_read(tracer,
               (struct trace_read){ .begins = true, .ahead = true, .layer = 1, .expert = 9 });
    struct trace_walk walk = trace_walk_begin(tracer, 1);
    trace_walk_done(&walk);
    trace_walk_next(&walk, "third", MF_STAGE_DELTA);
    assert_int_equal(heard.count, 0); /* not before a flush */
    tracer_flush_full(tracer);
    assert_int_equal(heard.count, 0);
    tracer_flush(tracer);
    assert_int_equal(heard.count, 4);
    assert_string_equal(heard.events[0].name, "first");
    /* on the clock of the system, the rate being measured over next to nothing */
    assert_true(heard.events[0].begin_ns + 1000000 > before_ns);
    assert_true(heard.events[0].begin_ns <= heard.events[0].end_ns);
    assert_true(heard.events[0].end_ns < clock_nanoseconds() + 1000000);
    assert_int_equal(heard.events[0].layer, 7);
    assert_int_equal(heard.events[0].detail, 3);
    assert_int_equal(heard.events[1].kind, MF_TRACE_COUNTER);
    assert_int_equal(heard.events[1].value, 42);
    assert_int_equal(heard.events[2].kind, MF_TRACE_READ_BEGIN);
    assert_int_equal(heard.events[2].detail, 9);
    assert_string_equal(heard.events[3].name, "third");
    assert_int_equal(heard.events[3].worker, 1);
    assert_int_equal(heard.events[3].stage, MF_STAGE_DELTA);
    trace_span(tracer, "last", begin, 0);
    tracer_free(tracer); /* hands over what is left */
    assert_int_equal(heard.count, 5);
    free(heard.events);
}

static void a_full_buffer_counts_what_it_loses(void **state)
{
    (void)state;
    struct heard heard = heard_new(1 << 17);
    struct tracer *tracer;
    assert_int_equal(make_tracer(&tracer, &allocator_heap, 1, &heard, NULL), MF_OK);
    size_t capacity = tracer->capacity;
    for (size_t i = 0; i < capacity + 5; i++) trace_counter(tracer, "x", i);
    tracer_flush_full(tracer);
    assert_int_equal(heard.count, capacity + 1);
    assert_string_equal(heard.events[capacity].name, "lost events");
    assert_int_equal(heard.events[capacity].value, 5);
    for (size_t i = 0; i < capacity; i++) assert_int_equal(heard.events[i].value, i);
    tracer_free(tracer);
    assert_int_equal(heard.count, capacity + 1);
    free(heard.events);
}

static void without_a_tracer_nothing_happens(void **state)
{
    (void)state;
    assert_int_equal(trace_now(NULL), 0);
    trace_layer(NULL, 1);
    trace_count_into(NULL, NULL);
    trace_span(NULL, "x", 0, 0);
    trace_counter(NULL, "x", 0);
    trace_read(NULL, (struct trace_read){ .begins = true });
    assert_true(tracer_tick_seconds(NULL) == 0);
    assert_int_equal(trace_stage(NULL, MF_STAGE_HEAD, 0, 0), 0);
    struct trace_walk walk = trace_walk_begin(NULL, 0);
    trace_walk_done(&walk);
    trace_walk_next(&walk, "x", MF_STAGE_HEAD);
    assert_true(walk.begin == 0 && walk.done == 0);
    tracer_flush(NULL);
    tracer_flush_full(NULL);
    tracer_free(NULL);
    assert_string_equal(mf_stage_name(MF_STAGE_SHARED_EXPERT), "shared expert");
    assert_string_equal(mf_stage_name(MF_STAGE_COUNT), "?");
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    struct failing_allocator heap;
    struct heard heard = { 0 };
    failing_allocator_init(&heap);
    for (uint64_t nth = 1;; nth++) {
        struct tracer *tracer;
        mf_error why = { 0 };
        failing_allocator_arm(&heap, nth);
        mf_status status = make_tracer(&tracer, &heap.allocator, 3, &heard, &why);
        bool fired = failing_allocator_disarm(&heap);
        assert_int_equal(status, fired ? MF_ERR_MEMORY : MF_OK);
        assert_true(!fired == !!tracer);
        tracer_free(tracer);
        assert_int_equal(heap.live_bytes, 0);
        if (!fired) break;
    }
}

/* ------------------------------------------------------------------- an engine */

enum { TOKENS = 40, PROMPT = 30 };

static void feed_all(mf_sequence *sequence, const int32_t *tokens)
{
    mf_error why = { 0 };
    tiny_must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, PROMPT, &why), &why);
    for (size_t i = PROMPT; i < TOKENS; i++)
        tiny_must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, tokens + i, 1, &why), &why);
}

static double sum_of(const double *seconds)
{
    double sum = 0;
    for (int i = 0; i < MF_STAGE_COUNT; i++) sum += seconds[i];
    return sum;
}

static void check_times(const double *seconds, double total)
{
    static const bool used[MF_STAGE_COUNT] = {
        [MF_STAGE_EMBEDDING] = true,  [MF_STAGE_ATTENTION] = true, [MF_STAGE_DELTA] = true,
        [MF_STAGE_ROUTER] = true,     [MF_STAGE_EXPERTS] = true,   [MF_STAGE_SHARED_EXPERT] = true,
        [MF_STAGE_EXPERT_SUM] = true, [MF_STAGE_HEAD] = true,
    };
    for (int i = 0; i < MF_STAGE_COUNT; i++)
        if (used[i] && !(seconds[i] > 0)) fail_msg("%s took no time", mf_stage_name((mf_stage)i));
    assert_true(seconds[MF_STAGE_LATENT_ATTENTION] == 0 && seconds[MF_STAGE_DENSE] == 0);
    assert_true(sum_of(seconds) <= total);
}

/* The stages of many steps together are a good part of the time of the steps: with tiny matrices
 * starting takes much of it.  One thread, which never waits for another one. */
static void stages_add_up(void **state)
{
    (void)state;
    struct tiny_engine t;
    int32_t tokens[TOKENS];
    mf_sequence_statistics stats = MF_SEQUENCE_STATISTICS_INIT;
    double stages = 0, total = 0;
    tiny_engine_open(&t, &tiny_standard,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 1,
                                           .profile = true });
    tiny_tokens(tokens, &t, TOKENS);
    for (int round = 0; round < 20; round++) {
        mf_sequence *sequence = tiny_sequence(&t, 16);
        feed_all(sequence, tokens);
        mf_sequence_stats(sequence, &stats, NULL);
        check_times(stats.prompt_stage_seconds, stats.prompt_seconds);
        check_times(stats.decode_stage_seconds, stats.decode_seconds);
        stages += sum_of(stats.prompt_stage_seconds) + sum_of(stats.decode_stage_seconds);
        total += stats.prompt_seconds + stats.decode_seconds;
        mf_sequence_reset_stats(sequence);
        mf_sequence_stats(sequence, &stats, NULL);
        assert_true(sum_of(stats.prompt_stage_seconds) + sum_of(stats.decode_stage_seconds) == 0);
        mf_sequence_close(sequence);
    }
    assert_true(stages >= total / 4);
    tiny_engine_close(&t);
}

/* Operations of one step, from the graphs themselves. */
static size_t ops_of_step(const mf_sequence *sequence)
{
    const struct forward *f = &sequence->model->room.forward;
    size_t count = f->recipes.start.graph.op_count + f->recipes.head.graph.op_count;
    for (uint32_t i = 0; i < f->config->layer_count; i++)
        count += f->recipes.before[f->config->mixers[i]][f->config->ffns[i]].graph.op_count +
                 f->recipes.after[f->config->ffns[i]].graph.op_count;
    return count;
}

struct tally {
    size_t ops[2]; /* of each worker; stages that are no operations are not among them */
    size_t gates[2], downs[2]; /* parts of expert work, of each worker */
    size_t batches;            /* of experts */
    size_t layers, tokens, prompts, reads_begun, reads_ended;
};

static void count_event(struct tally *tally, const mf_trace_event *e, uint32_t layers)
{
    assert_true(e->layer >= -1 && e->layer < (int32_t)layers);
    assert_true(e->worker < 2 && e->name);
    tally->reads_begun += e->kind == MF_TRACE_READ_BEGIN;
    tally->reads_ended += e->kind == MF_TRACE_READ_END;
    if (e->kind != MF_TRACE_SPAN) return;
    assert_true(e->begin_ns <= e->end_ns);
    if (e->stage == MF_STAGE_COUNT) {
        tally->layers += strcmp(e->name, "layer") == 0;
        tally->tokens += strcmp(e->name, "token") == 0;
        tally->prompts += strcmp(e->name, "prompt") == 0;
    } else if (e->stage == MF_STAGE_EXPERTS) {
        tally->batches += strcmp(e->name, mf_stage_name(MF_STAGE_EXPERTS)) == 0;
        tally->gates[e->worker] += strcmp(e->name, "gate and up") == 0;
        tally->downs[e->worker] += strcmp(e->name, "down") == 0;
    } else if (e->stage != MF_STAGE_EXPERT_WAIT && e->stage != MF_STAGE_PREDICTION) {
        tally->ops[e->worker]++;
    }
}

/* Every operation on every worker, every layer, every step, every read; the bits are those
 * of an engine without a tracer, and nothing more is allocated on the way. */
static void a_trace_is_complete_and_changes_nothing(void **state)
{
    (void)state;
    struct tiny_engine plain, traced;
    struct heard heard = heard_new(1 << 16);
    struct tally tally = { 0 };
    int32_t tokens[TOKENS];
    tiny_engine_open(
        &plain, &tiny_standard,
        &(mf_engine_options){ .struct_size = sizeof(mf_engine_options), .thread_count = 2 });
    tiny_engine_open(&traced, &tiny_standard,
                     &(mf_engine_options){ .struct_size = sizeof(mf_engine_options),
                                           .thread_count = 2,
                                           .trace = hear,
                                           .trace_user = &heard });
    tiny_tokens(tokens, &plain, TOKENS);
    mf_sequence *expected = tiny_sequence(&plain, 16), *sequence = tiny_sequence(&traced, 16);
    heap_guard_begin();
    feed_all(expected, tokens);
    uint64_t allocations = heap_guard_end(); /* of the sequence, as it grows */
    heap_guard_begin();
    feed_all(sequence, tokens);
    assert_int_equal(heap_guard_end(), allocations);
    assert_memory_equal(mf_sequence_logits(sequence), mf_sequence_logits(expected),
                        tiny_standard.vocab_size * sizeof(float));
    mf_engine_flush_trace(traced.engine);
    mf_engine_flush_trace(plain.engine);
    for (size_t i = 0; i < heard.count; i++)
        count_event(&tally, &heard.events[i], tiny_standard.layers);
    /* the prompt is two steps of 16 rows at most, with one look at the head */
    size_t heads = 1 + TOKENS - PROMPT, steps = 2 + TOKENS - PROMPT;
    size_t head_ops = sequence->model->room.forward.recipes.head.graph.op_count;
    size_t ops = steps * (ops_of_step(sequence) - head_ops) + heads * head_ops;
    assert_int_equal(tally.ops[0], ops);
    assert_int_equal(tally.ops[1], ops);
    assert_true(tally.batches >= steps);
    for (int i = 0; i < 2; i++) { /* once at least in every batch, in either arithmetic */
        assert_true(tally.gates[i] >= tally.batches);
        assert_int_equal(tally.gates[i], tally.downs[i]);
        assert_int_equal(tally.gates[i], tally.gates[0]);
    }
    assert_int_equal(tally.layers, steps * tiny_standard.layers);
    assert_int_equal(tally.prompts, 2);
    assert_int_equal(tally.tokens, TOKENS - PROMPT);
    assert_true(tally.reads_begun > 0);
    assert_int_equal(tally.reads_begun, tally.reads_ended);
    mf_sequence_close(sequence);
    mf_sequence_close(expected);
    tiny_engine_close(&traced);
    tiny_engine_close(&plain);
    free(heard.events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_count_the_time_of_the_system_clock),
        cmocka_unit_test(events_come_back_in_order),
        cmocka_unit_test(a_full_buffer_counts_what_it_loses),
        cmocka_unit_test(without_a_tracer_nothing_happens),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(stages_add_up),
        cmocka_unit_test(a_trace_is_complete_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
