/* read_ahead.c: what reading ahead knows, and what it makes of it.
 *
 * Pebble reads its held-out text token by token.  When a layer has chosen, the routers of
 * the next two are applied to the current state, as the engine does when it predicts.  What was
 * chosen and what was predicted is written down; then the store walks through it again, on
 * disks in a time of their own (virtual_disk.h), with and without reading ahead. */
#include "support/test.h"

#include "api/handles.h"
#include "experts/prefetch.h"
#include "support/one_row.h"
#include "support/virtual_disk.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 800, SETTLED = 150, LAYERS_MAX = 8, PER_TOKEN = 8, PREDICTED = 24 };

/* What one token wanted of one layer, and what the layers before expected. */
struct choice {
    uint32_t wanted[PER_TOKEN];
    struct {
        uint32_t experts[PREDICTED];
        float weights[PREDICTED];
    } said[PREFETCH_REACH]; /* [reach - 1] visits before the layer's own */
};

static struct choice choices[TOKENS][LAYERS_MAX];
static size_t token_index;
static mf_engine *engine;
static mf_model *model;
static struct forward *forward;
static float *scratch; /* the recipe's own, for the step's is in use */

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

/* ---------------------------------------------------------------- recording */

static void predict(uint32_t layer, uint32_t reach)
{
    const struct recipe *recipe = &forward->recipes.predict;
    struct choice *choice = &choices[token_index][layer];
    float *buffers[GRAPH_BUFFERS_MAX];
    mf_error why = { 0 };
    struct routes routes = { choice->said[reach - 1].experts, choice->said[reach - 1].weights,
                             PREDICTED };
    buffers_place(buffers, &recipe->plan, &recipe->graph, forward->shared, scratch,
                  forward->row_capacity);
    struct frame frame = { .row_count = 1,
                           .rows = forward->rows,
                           .spans = forward->spans,
                           .span_count = 1,
                           .weights = forward->weights->layers[layer].weights,
                           .buffers = buffers,
                           .routes = &routes };
    struct backend *backend = forward->backend;
    must(backend->functions->execute(backend, &recipe->graph, &frame, &why), &why);
}

static void see_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    (void)user;
    assert_int_equal(rows, 1);
    memcpy(choices[token_index][layer].wanted, routes->experts, sizeof choices[0][0].wanted);
    for (uint32_t reach = 1; reach <= PREFETCH_REACH; reach++)
        if (layer + reach < forward->config->layer_count) predict(layer + reach, reach);
}

static void record(mf_sequence *sequence, const char *path)
{
    const struct observer observing = { .routes = see_routes };
    char *text;
    size_t length, count;
    mf_error why = { 0 };
    must(file_read_whole_new(&text, &length, &files_posix, path, 1 << 20, &why), &why);
    int32_t *ids = calloc(length + 1, sizeof *ids);
    must(mf_text_tokenize(mf_model_text(model), ids, length, &count, text, length, MF_SPECIAL_PARSE,
                          &why),
         &why);
    assert_true(count > TOKENS);
    forward = &sequence->model->room.forward;
    assert_int_equal(forward->config->experts_per_token, PER_TOKEN);
    assert_true(forward->config->layer_count <= LAYERS_MAX);
    scratch = calloc(forward->row_capacity * forward->recipes.scratch_width + 1, sizeof *scratch);
    sequence->sequence.observer = &observing;
    for (token_index = 0; token_index < TOKENS; token_index++)
        must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, &ids[token_index], 1, &why), &why);
    free(scratch);
    free(ids);
    free(text);
}

static int set_up(void **state)
{
    (void)state;
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[PATH_CAPACITY];
    mf_sequence *sequence;
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = TOKENS,
                                    .chunk_rows = 1 };
    mf_error why = { 0 };
    snprintf(path, sizeof path, "%s/models/pebble", source);
    must(mf_engine_open(&engine, NULL, &why), &why);
    must(mf_model_open(&model, engine, path, NULL, &why), &why);
    must(mf_sequence_open(&sequence, model, &options, &why), &why);
    snprintf(path, sizeof path, "%s/tests/fixtures/pebble/heldout.txt", source);
    record(sequence, path);
    mf_sequence_close(sequence);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mf_model_close(model);
    mf_engine_close(engine);
    return 0;
}

/* ------------------------------------------------------------------- replay */

/* Seconds of arithmetic: as on two cores of a laptop. */
static const double mixer_seconds = 200e-6, expert_seconds = 30e-6, predict_seconds = 50e-6;

struct outcome {
    double seconds, waiting; /* of the tokens after SETTLED */
    bool on;                 /* at the end */
    struct expert_counters counters;
};

static void expect_next(struct expert_store *store, struct virtual_disk *disk,
                        const struct choice *next, uint32_t layer, uint32_t reach)
{
    uint32_t ranks = expert_store_predictable_ranks(store, reach);
    const float *all = next->said[reach - 1].weights;
    uint32_t ids[PREDICTED];
    float weights[PREDICTED];
    if (ranks == 0) return;
    virtual_disk_spend(disk, predict_seconds);
    size_t count = 0;
    for (uint32_t i = 0; i < PREDICTED; i++) { /* the surest `ranks`, in ascending order of id */
        uint32_t surer = 0;
        for (uint32_t j = 0; j < PREDICTED; j++) surer += all[j] > all[i];
        if (surer >= ranks) continue;
        ids[count] = next->said[reach - 1].experts[i];
        weights[count++] = all[i];
    }
    expert_store_predict(store, layer, reach, ids, weights, count);
}

static void replay_layer(struct expert_store *store, struct virtual_disk *disk, size_t token,
                         uint32_t layer)
{
    const struct choice *choice = &choices[token][layer];
    struct expert_visit visit;
    struct expert_lease leases[PER_TOKEN];
    mf_status status = MF_OK;
    size_t given, total = 0;
    virtual_disk_spend(disk, mixer_seconds);
    visit_one_row(&visit, store, layer, choice->wanted, PER_TOKEN);
    for (uint32_t reach = 1; reach <= PREFETCH_REACH; reach++)
        if (layer + reach < model->model.config.layer_count)
            expect_next(store, disk, choice + reach, layer + reach, reach);
    while ((given = expert_visit_next(&visit, leases, PER_TOKEN, &status, NULL)) > 0) {
        virtual_disk_spend(disk, (double)given * expert_seconds);
        for (size_t i = 0; i < given; i++) expert_lease_end(&leases[i]);
        total += given;
    }
    assert_int_equal(status, MF_OK);
    assert_int_equal(total, PER_TOKEN);
}

static struct outcome replay(struct virtual_disk disk, enum expert_ahead ahead)
{
    struct expert_store *store;
    struct outcome out = { 0 };
    mf_error why = { 0 };
    virtual_disk_present = &disk;
    struct expert_store_options options = { .allocator = &allocator_heap,
                                            .directory = &model->model.directory,
                                            .layers = model->model.weights.layers,
                                            .config = &model->model.config,
                                            .budget_bytes =
                                                expert_store_sizes(model->experts).slot_bytes / 4,
                                            .ahead = ahead,
                                            .clock = virtual_disk_clock(&disk),
                                            .factory = virtual_disk_engine_new };
    must(expert_store_open(&store, &options, &why), &why);
    double begin = 0;
    for (size_t token = 0; token < TOKENS; token++) {
        if (token == SETTLED) {
            begin = disk.now;
            expert_store_reset_counters(store);
        }
        for (uint32_t layer = 0; layer < model->model.config.layer_count; layer++)
            replay_layer(store, &disk, token, layer);
        assert_true(expert_store_check_invariants(store));
    }
    out.seconds = disk.now - begin;
    out.counters = expert_store_counters(store);
    out.waiting = out.counters.wait_seconds;
    out.on = expert_store_sizes(store).ahead;
    expert_store_free(store);
    return out;
}

/* Percent of the uses that found their expert there. */
static double in_memory(const struct outcome *o)
{
    const struct expert_counters *c = &o->counters;
    return 100.0 * (double)c->hits / (double)(c->hits + c->ahead_late + c->misses);
}

static void compare(struct outcome *never, struct outcome *measured, const char *name,
                    struct virtual_disk disk)
{
    *never = replay(disk, AHEAD_NEVER);
    *measured = replay(disk, AHEAD_MEASURED);
    double tokens = TOKENS - SETTLED, ms = 1e3 / tokens;
    print_message(
        "    %s: %.2f ms per token, %.2f of it waiting, %.1f%% in memory when wanted; with "
        "read-ahead %.2f, %.2f, %.1f%% (%s at the end; %.1f reads ahead, %.1f wasted)\n",
        name, ms * never->seconds, ms * never->waiting, in_memory(never), ms * measured->seconds,
        ms * measured->waiting, in_memory(measured), measured->on ? "on" : "off",
        (double)measured->counters.ahead_reads / tokens,
        (double)measured->counters.ahead_wasted / tokens);
}

/* -------------------------------------------------------------------- tests */

/* The share of a layer's experts that the router, applied `reach` visits before, ranked first;
 * compared as sets. */
static double recall_of(uint32_t reach, uint32_t layer)
{
    uint64_t foreseen = 0;
    for (size_t token = 0; token < TOKENS; token++) {
        const struct choice *c = &choices[token][layer];
        const float *weights = c->said[reach - 1].weights;
        for (uint32_t i = 0; i < PREDICTED; i++) {
            uint32_t surer = 0;
            for (uint32_t j = 0; j < PREDICTED; j++) surer += weights[j] > weights[i];
            for (uint32_t j = 0; surer < PER_TOKEN && j < PER_TOKEN; j++)
                foreseen += c->wanted[j] == c->said[reach - 1].experts[i];
        }
    }
    return (double)foreseen / (TOKENS * PER_TOKEN);
}

static void next_router_predicts_most_experts(void **state)
{
    (void)state;
    uint32_t layers = model->model.config.layer_count;
    for (uint32_t reach = 1; reach <= PREFETCH_REACH; reach++) {
        double sum = 0;
        for (uint32_t layer = reach; layer < layers; layer++) sum += recall_of(reach, layer);
        sum /= layers - reach;
        print_message("    %u before: %.1f%%\n", reach, 100 * sum);
        assert_true(sum >= (reach == 1 ? 0.70 : 0.60));
    }
}

/* 2 ms more for every read: it stays on, and two fifths of the waiting are gone. */
static void slow_reads_are_waited_for_less(void **state)
{
    (void)state;
    struct outcome never, measured;
    compare(&never, &measured, "2 ms",
            (struct virtual_disk){ .latency = 2.003e-3, .bytes_per_second = 5e9 });
    assert_true(measured.on);
    assert_true(measured.waiting <= 0.6 * never.waiting);
    assert_true(in_memory(&measured) >= 70.0); /* Belady's policy, on demand: 62 */
    assert_true(measured.seconds < never.seconds);
}

/* Reads from the page cache: it goes to nothing and costs nothing. */
static void fast_reads_turn_read_ahead_off(void **state)
{
    (void)state;
    struct outcome never, measured;
    compare(&never, &measured, "page cache",
            (struct virtual_disk){ .latency = 3e-6, .bytes_per_second = 5e9 });
    assert_false(measured.on);
    assert_int_equal(measured.counters.ahead_reads, 0);
    assert_true(measured.seconds <= 1.01 * never.seconds);
}

/* A disk that is busy all the time has no room for mistakes; where it is idle while the
 * mixer computes, the surest ones pay. */
static void a_disk_at_its_limit_is_not_made_slower(void **state)
{
    (void)state;
    static const double rates[] = { 50e6, 200e6, 1e9 };
    for (size_t i = 0; i < COUNT_OF(rates); i++) {
        struct outcome never, measured;
        char name[32];
        snprintf(name, sizeof name, "%.0f MB/s", 1e-6 * rates[i]);
        compare(&never, &measured, name,
                (struct virtual_disk){ .latency = 100e-6, .bytes_per_second = rates[i] });
        assert_true(measured.seconds <= 1.02 * never.seconds);
    }
}

int main(void)
{
    if (!getenv("MOEFLUX_SOURCE")) {
        fprintf(stderr, "SKIPPED: needs MOEFLUX_SOURCE\n");
        return EXIT_SKIPPED;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_router_predicts_most_experts),
        cmocka_unit_test(slow_reads_are_waited_for_less),
        cmocka_unit_test(fast_reads_turn_read_ahead_off),
        cmocka_unit_test(a_disk_at_its_limit_is_not_made_slower),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
