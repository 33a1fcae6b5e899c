/* routes.c: Pebble streams its held-out text under a limit of memory, and the simulator says
 * from the recorded routes what the store counted: slots, uses, hits and bytes. */
#include "support/test.h"

#include "api/handles.h"
#include "experts/simulation.h"
#include "support/byte_writer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 300, LAYERS_MAX = 64 };

/* The issue of the simulator allows 3. */
static const double points_apart_max = 0.5;

static mf_engine *engine;
static mf_model *model;
static mf_sequence *sequence;
static uint64_t bytes_of[2][LAYERS_MAX];
static struct byte_writer file;
static struct route_writer writer;

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

static bool take_bytes(void *user, const void *bytes, size_t count)
{
    (void)user;
    put_bytes(&file, bytes, count);
    return true;
}

static void watch(void *user, const mf_routes *routes)
{
    (void)user;
    struct route_choice choice = { routes->layer, routes->row_count, routes->tokens,
                                   routes->experts, routes->weights };
    route_writer_add(&writer, &choice);
}

static void begin_trace(void)
{
    mf_error why = { 0 };
    const struct model_config *config = &model->model.config;
    struct route_shape shape = { .layers = config->layer_count,
                                 .experts = config->experts,
                                 .per_token = config->experts_per_token,
                                 .resident_bytes = model->model.weights.resident_bytes,
                                 .working_bytes = model->room.bytes + api_pool_bytes(model) +
                                                  model->policy_bytes,
                                 .expert_bytes = bytes_of[0],
                                 .slot_bytes = bytes_of[1] };
    assert_true(shape.layers <= LAYERS_MAX);
    for (uint32_t i = 0; i < shape.layers; i++)
        expert_store_bytes_of(model->experts, i, &bytes_of[0][i], &bytes_of[1][i]);
    byte_writer_free(&file);
    must(route_writer_open(&writer, &allocator_heap, &shape, take_bytes, NULL, &why), &why);
}

static void feed_text(void)
{
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[PATH_CAPACITY], *text;
    int32_t *tokens;
    size_t length, count;
    mf_error why = { 0 };
    snprintf(path, sizeof path, "%s/tests/fixtures/pebble/heldout.txt", source ? source : ".");
    must(file_read_whole_new(&text, &length, &files_posix, path, 1 << 20, &why), &why);
    tokens = malloc(length * sizeof *tokens);
    assert_non_null(tokens);
    must(mf_text_tokenize(mf_model_text(model), tokens, length, &count, text, length,
                          MF_SPECIAL_PARSE, &why),
         &why);
    assert_true(count >= TOKENS);
    mf_sequence_watch_routes(sequence, watch, NULL);
    must(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, TOKENS, &why), &why);
    mf_sequence_watch_routes(sequence, NULL, NULL);
    must(route_writer_end(&writer, 0, &why), &why);
    route_writer_free(&writer);
    free(tokens);
    free(text);
}

static void open_all(uint64_t memory_bytes, uint32_t rows)
{
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[PATH_CAPACITY];
    mf_error why = { 0 };
    mf_engine_options engine_options = { .struct_size = sizeof engine_options, .thread_count = 2 };
    mf_model_options options = { .struct_size = sizeof options,
                                 .memory_bytes = memory_bytes,
                                 .read_ahead = "never",
                                 .context_length = TOKENS,
                                 .chunk_rows = rows };
    snprintf(path, sizeof path, "%s/models/pebble", source ? source : ".");
    must(mf_engine_open(&engine, &engine_options, &why), &why);
    must(mf_model_open(&model, engine, path, &options, &why), &why);
    must(mf_sequence_open(&sequence, model, NULL, &why), &why);
}

static void close_all(void)
{
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    byte_writer_free(&file);
}

static void check(uint64_t memory_bytes)
{
    struct route_trace trace;
    struct simulation_result found;
    mf_error why = { 0 };
    mf_model_statistics stats = MF_MODEL_STATISTICS_INIT;
    must(mf_model_stats(model, &stats, &why), &why);
    must(route_trace_open(&trace, &allocator_heap, file.bytes, file.count, &why), &why);
    struct simulation_setting setting = {
        .policy = CACHE_MOEFLUX,
        .budget_bytes =
            api_budget_within(memory_bytes, trace.shape.resident_bytes, trace.shape.working_bytes),
    };
    must(simulation_run(&found, &trace, &setting, &allocator_heap, &why), &why);
    route_trace_free(&trace);
    uint64_t uses = stats.expert_hits + stats.expert_misses;
    double measured = 100.0 * (double)stats.expert_hits / (double)uses;
    double predicted = 100.0 * (double)found.hits / (double)found.uses;
    print_message("%llu of %llu experts: %.2f %% measured, %.2f %% predicted\n",
                  (unsigned long long)stats.expert_slots, (unsigned long long)stats.experts_total,
                  measured, predicted);
    assert_string_equal(stats.expert_mode, "streamed");
    assert_int_equal(found.slots, stats.expert_slots);
    assert_int_equal(found.tokens, TOKENS);
    assert_int_equal(found.uses, uses);
    assert_true(fabs(measured - predicted) <= points_apart_max);
    double bytes_off = fabs((double)found.bytes_read / (double)stats.expert_bytes_read - 1);
    assert_true(bytes_off <= points_apart_max / 100);
}

/* Memory that leaves room for about a quarter of the experts. */
static uint64_t quarter_bytes(uint32_t rows)
{
    open_all(0, rows);
    uint64_t bytes = model->model.weights.resident_bytes + model->room.bytes +
                     api_pool_bytes(model) + expert_store_sizes(model->experts).slot_bytes / 4;
    close_all();
    return bytes + bytes / 50;
}

static void measure(uint32_t rows)
{
    uint64_t memory_bytes = quarter_bytes(rows);
    open_all(memory_bytes, rows);
    begin_trace();
    feed_text();
    check(memory_bytes);
    close_all();
}

static void simulated_hits_are_those_of_the_store_token_by_token(void **state)
{
    (void)state;
    measure(1);
}

static void simulated_hits_are_those_of_the_store_in_chunks(void **state)
{
    (void)state;
    measure(64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simulated_hits_are_those_of_the_store_token_by_token),
        cmocka_unit_test(simulated_hits_are_those_of_the_store_in_chunks)
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
