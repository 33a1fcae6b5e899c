/* What does the expert store make of the disk?
 * `build/bench/bench_expert_stream [MODEL MEMORY_MIB [TOKENS [MIXER_US [EXPERT_US [RECALL]]]]]`;
 * without a model, Pebble with room for a quarter of its experts.
 *
 * A decode without arithmetic: every layer wants as many experts as a token does, at
 * random, and where something would be computed the time is waited out.  RECALL percent
 * of what the next layer will want is predicted, with as many wrong ones behind.
 *
 * CSV on stdout: bench, case, value, value, unit. */
#include "api/handles.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

enum { PER_TOKEN_MAX = 64 };

static mf_model *model;
static struct expert_store *store;
static uint64_t mixer_us, expert_us, recall;

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "bench_expert_stream: %s\n", why->text);
    exit(1);
}

static void compute(uint64_t microseconds)
{
    double end = clock_seconds() + 1e-6 * (double)microseconds;
    while (clock_seconds() < end) continue;
}

static uint32_t random_below(uint32_t limit)
{
    return (uint32_t)rand() % limit;
}

/* Different ones, ascending. */
static void choose(uint32_t *out, uint32_t count, uint32_t experts)
{
    uint32_t taken = 0;
    for (uint32_t e = 0; e < experts; e++)
        if (random_below(experts - e) < count - taken) out[taken++] = e;
}

static void predict(uint32_t layer, const uint32_t *wanted, uint32_t count, uint32_t experts)
{
    uint32_t ids[2 * PER_TOKEN_MAX];
    float weights[2 * PER_TOKEN_MAX];
    uint32_t known = 0;
    if (recall == 0 || !expert_store_predictable_ranks(store, 1)) return;
    for (uint32_t i = 0; i < count; i++)
        if (random_below(100) < recall) ids[known++] = wanted[i];
    for (uint32_t i = known; i < 2 * count; i++) ids[i] = random_below(experts);
    for (uint32_t i = 0; i < 2 * count; i++) weights[i] = 1.0f / (float)(i + 1);
    expert_store_predict(store, layer, 1, ids, weights, 2 * count);
}

static void visit(uint32_t layer, const uint32_t *wanted, uint32_t count, const uint32_t *next)
{
    const struct model_config *config = &model->model.config;
    struct expert_visit v;
    struct expert_lease leases[PER_TOKEN_MAX];
    mf_status status = MF_OK;
    mf_error why;
    size_t given;
    uint32_t uses[1024] = { 0 };
    for (uint32_t i = 0; i < count; i++) uses[wanted[i] % COUNT_OF(uses)] = 1;
    struct expert_request request = {
        .layer = layer, .experts = wanted, .count = count, .rows = 1, .uses = uses
    };
    expert_visit_begin(&v, store, &request);
    if (layer + 1 < config->layer_count) predict(layer + 1, next, count, config->experts);
    while ((given = expert_visit_next(&v, leases, PER_TOKEN_MAX, &status, &why)) > 0) {
        compute(given * expert_us);
        for (size_t i = 0; i < given; i++) expert_lease_end(&leases[i]);
    }
    must(status, &why);
}

static void run(size_t tokens)
{
    const struct model_config *config = &model->model.config;
    uint32_t wanted[2][PER_TOKEN_MAX], count = config->experts_per_token;
    choose(wanted[0], count, config->experts);
    for (size_t t = 0; t < tokens; t++)
        for (uint32_t layer = 0; layer < config->layer_count; layer++) {
            choose(wanted[(layer + 1) % 2], count, config->experts);
            compute(mixer_us);
            visit(layer, wanted[layer % 2], count, wanted[(layer + 1) % 2]);
        }
}

int main(int count, char **arguments)
{
    mf_error why;
    mf_engine *engine;
    size_t tokens = count > 3 ? (size_t)atoi(arguments[3]) : 20;
    mixer_us = count > 4 ? (uint64_t)atoi(arguments[4]) : 0;
    expert_us = count > 5 ? (uint64_t)atoi(arguments[5]) : 0;
    recall = count > 6 ? (uint64_t)atoi(arguments[6]) : 0;
    const char *path = count > 1 ? arguments[1] : "models/pebble";
    mf_model_options options = { .struct_size = sizeof options,
                                 .memory_bytes =
                                     count > 2 ? (uint64_t)atoll(arguments[2]) << 20 : 0 };
    must(mf_engine_open(&engine, NULL, &why), &why);
    must(mf_model_open(&model, engine, path, &options, &why), &why);
    store = model->experts;
    uint64_t quarter = expert_store_sizes(store).slot_bytes / 4;
    if (count < 2) must(expert_store_set_budget(store, quarter, &why), &why);
    run(tokens); /* fills the slots */
    expert_store_reset_counters(store);
    struct read_activity before, after;
    expert_store_disk(store, &before);
    double begin = clock_seconds();
    run(tokens);
    double seconds = clock_seconds() - begin;
    expert_store_disk(store, &after);
    struct expert_counters c = expert_store_counters(store);
    double bytes = (double)(after.bytes - before.bytes), busy = after.seconds - before.seconds;
    double n = (double)tokens;
    fprintf(stderr, "%s, depth %u; %.1f%% hits, %llu ahead, %llu in time, %llu late, %llu wasted\n",
            after.engine, after.depth,
            100.0 * (double)c.hits / (double)(c.hits + c.misses + c.ahead_late),
            (unsigned long long)c.ahead_reads, (unsigned long long)c.ahead_hits,
            (unsigned long long)c.ahead_late, (unsigned long long)c.ahead_wasted);
    printf("expert_stream,step,%.2f,%.2f,ms/token (all; waiting)\n", 1e3 * seconds / n,
           1e3 * c.wait_seconds / n);
    printf("expert_stream,read,%.2f,%.2f,MB/token (all; wasted reads ahead)\n", 1e-6 * bytes / n,
           1e-6 * (double)c.bytes_wasted / n);
    printf("expert_stream,disk,%.0f,%.0f,MB/s (while it reads; over all)\n", 1e-6 * bytes / busy,
           1e-6 * bytes / seconds);
    mf_model_close(model);
    mf_engine_close(engine);
    return 0;
}
