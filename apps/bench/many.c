#include "bench/many.h"

#include "bench/workload.h"
#include "common/basics.h"
#include "common/clock.h"
#include "common/error.h"

#include <stdlib.h>

mf_status many_plan_make(struct many_plan *out, const uint64_t *sequences, size_t count,
                         size_t rounds, mf_error *why)
{
    *out = (struct many_plan){ .rounds = rounds };
    for (size_t i = 0; i < count && i < MANY_TESTS; i++) {
        struct many_test *test = &out->tests[out->test_count];
        *test = (struct many_test){ .sequences = (uint32_t)sequences[i] };
        test->rates = calloc(2 * rounds, sizeof *test->rates);
        if (!test->rates) {
            many_plan_free(out);
            return fail_memory(why, 2 * rounds * sizeof *test->rates);
        }
        test->disk = test->rates + rounds;
        out->test_count++;
    }
    return MF_OK;
}

void many_plan_free(struct many_plan *plan)
{
    for (size_t i = 0; i < plan->test_count; i++) free(plan->tests[i].rates);
    *plan = (struct many_plan){ 0 };
}

/* ----------------------------------------------------------------- experts */

/* Which experts the rows of a step chose, layer by layer. */
struct unions {
    uint8_t *chosen; /* [layers][experts] */
    uint32_t layers, experts;
};

static void see_routes(void *user, const mf_routes *routes)
{
    struct unions *unions = user;
    if (routes->layer >= unions->layers) return;
    uint8_t *chosen = unions->chosen + (size_t)routes->layer * unions->experts;
    for (size_t i = 0; i < (size_t)routes->row_count * routes->per_row; i++)
        chosen[routes->experts[i]] = 1;
}

static double count_unions(const struct unions *unions, uint32_t expert_layers)
{
    size_t found = 0;
    for (size_t i = 0; i < (size_t)unions->layers * unions->experts; i++)
        found += unions->chosen[i];
    return expert_layers ? (double)found / expert_layers : 0;
}

/* ----------------------------------------------------------------- running */

struct group {
    const struct many_plan *plan;
    mf_model *model;
    mf_sequence *sequences[MANY_MAX];
    int32_t tokens[MANY_MAX];
    mf_part parts[MANY_MAX];
    uint32_t count;
    size_t next; /* of the plan's ids */
};

static int32_t take_id(struct group *g)
{
    return g->plan->ids[g->next++ % g->plan->id_count];
}

static mf_status step(struct group *g, mf_error *why)
{
    for (uint32_t i = 0; i < g->count; i++) {
        g->tokens[i] = take_id(g);
        g->parts[i] = (mf_part){ .sequence = g->sequences[i],
                                 .phase = MF_PHASE_GENERATED,
                                 .tokens = &g->tokens[i],
                                 .count = 1,
                                 .why = why };
    }
    return mf_model_step(g->model, g->parts, g->count, why);
}

static void close_group(struct group *g)
{
    while (g->count > 0) mf_sequence_close(g->sequences[--g->count]);
}

/* One sequence is filled, the others are its forks. */
static mf_status open_group(struct group *g, uint32_t count, mf_error *why)
{
    mf_status status = mf_sequence_open(&g->sequences[0], g->model, NULL, why);
    if (status != MF_OK) return status;
    g->count = 1;
    for (uint32_t at = 0, more; at < g->plan->depth && status == MF_OK; at += more) {
        int32_t ids[512];
        more = (uint32_t)min_size(COUNT_OF(ids), g->plan->depth - at);
        for (uint32_t i = 0; i < more; i++) ids[i] = take_id(g);
        status = mf_sequence_feed(g->sequences[0], MF_PHASE_PROMPT, ids, more, why);
    }
    while (status == MF_OK && g->count < count) {
        status = mf_sequence_fork(&g->sequences[g->count], g->sequences[0], why);
        if (status == MF_OK) g->count++;
    }
    return status;
}

/* A few steps that are not timed: memory is warm, and it is seen what experts they share. */
static mf_status warm_up(struct group *g, struct many_test *test, mf_error *why)
{
    enum { STEPS = 4 };
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;
    mf_model_get_shape(&shape, g->model, NULL);
    size_t bytes = (size_t)shape.layer_count * shape.experts;
    struct unions unions = { calloc(bytes + 1, 1), shape.layer_count, shape.experts };
    double sum = 0;
    if (!unions.chosen) return fail_memory(why, bytes);
    mf_status status = MF_OK;
    for (int i = 0; i < STEPS && status == MF_OK; i++) {
        memset(unions.chosen, 0, bytes);
        for (uint32_t s = 0; s < g->count; s++)
            mf_sequence_watch_routes(g->sequences[s], see_routes, &unions);
        status = step(g, why);
        sum += count_unions(&unions, shape.expert_layers);
    }
    for (uint32_t s = 0; s < g->count; s++) mf_sequence_watch_routes(g->sequences[s], NULL, NULL);
    test->union_experts = sum / STEPS;
    free(unions.chosen);
    return status;
}

static mf_status run_round(struct group *g, struct many_test *test, mf_error *why)
{
    mf_model_statistics before = MF_MODEL_STATISTICS_INIT, after = before;
    mf_status status = open_group(g, test->sequences, why);
    if (status == MF_OK && g->plan->disk_probe)
        test->disk[test->rounds_done] = g->plan->disk_probe(g->plan->probe_user);
    if (status == MF_OK) status = warm_up(g, test, why);
    mf_model_stats(g->model, &before, NULL);
    double begin = clock_seconds();
    for (uint32_t i = 0; i < g->plan->tokens && status == MF_OK; i++) status = step(g, why);
    double seconds = clock_seconds() - begin;
    mf_model_stats(g->model, &after, NULL);
    close_group(g);
    if (status != MF_OK) return status;
    test->rates[test->rounds_done++] =
        seconds > 0 ? (double)test->sequences * g->plan->tokens / seconds : 0;
    test->seconds += seconds;
    test->steps += g->plan->tokens;
    test->bytes_read += after.expert_bytes_read - before.expert_bytes_read;
    test->bytes_wasted += after.expert_wasted_bytes - before.expert_wasted_bytes;
    test->wait_seconds += after.expert_wait_seconds - before.expert_wait_seconds;
    return MF_OK;
}

mf_status many_plan_run(struct many_plan *plan, mf_model *model,
                        void (*watcher)(void *user, const struct many_test *test, size_t done),
                        void *user, mf_error *why)
{
    struct group *g = calloc(1, sizeof *g);
    mf_status status = g ? MF_OK : fail_memory(why, sizeof *g);
    size_t done = 0;
    if (g) *g = (struct group){ .plan = plan, .model = model };
    for (size_t i = 0; i < plan->test_count && plan->warm_up && status == MF_OK; i++) {
        struct many_test *test = &plan->tests[i];
        status = run_round(g, test, why);
        *test = (struct many_test){ .sequences = test->sequences,
                                    .rates = test->rates,
                                    .disk = test->disk };
    }
    for (size_t round = 0; round < plan->rounds && status == MF_OK; round++) {
        for (size_t i = 0; i < plan->test_count && status == MF_OK; i++) {
            if (watcher) watcher(user, &plan->tests[i], done++);
            status = run_round(g, &plan->tests[i], why);
        }
    }
    free(g);
    return status;
}

/* ------------------------------------------------------------------- bounds */

struct many_bound many_bound(const struct many_plan *plan, const struct many_test *test,
                             const mf_model *model, const mf_ceilings *ceilings)
{
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;
    mf_workload work = MF_WORKLOAD_INIT;
    mf_model_statistics stats = MF_MODEL_STATISTICS_INIT;
    mf_model_get_shape(&shape, model, NULL);
    mf_model_workload(&work, model, NULL);
    mf_model_stats(model, &stats, NULL);
    double rows = test->sequences, position = plan->depth + plan->tokens / 2.0;
    double slots = (double)stats.expert_slots;
    double expert = slots > 0 ? (double)stats.expert_slot_bytes / slots : 0;
    double fixed =
        (double)work.weight_bytes - expert * (double)shape.experts_per_token * shape.expert_layers;
    struct many_bound out = { .of = "memory" };
    out.step_bytes =
        fixed + expert * test->union_experts * shape.expert_layers +
        rows * ((double)work.state_fixed_bytes + position * (double)work.state_position_bytes);
    if (!(ceilings->memory_bytes > 0)) return out;
    double seconds = out.step_bytes / ceilings->memory_bytes;
    double disk = spread_of(test->disk, test->rounds_done).median;
    double missed = ((double)test->bytes_read - (double)test->bytes_wasted) / (double)test->steps;
    double flops = rows * (work.token_flops + work.head_flops + position * work.pair_flops);
    double arithmetic = flops / ceilings_matrix_flops(ceilings);
    if (disk > 0 && missed / disk > seconds) {
        seconds = missed / disk;
        out.of = "disk";
    }
    if (arithmetic > seconds) {
        seconds = arithmetic;
        out.of = ceilings_matrix_name(ceilings);
    }
    out.rate = rows / seconds;
    return out;
}
