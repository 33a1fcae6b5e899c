/* tools_simulate.c: traces of routes, recorded and replayed. */
#include "api/tools.h"

#include "api/handles.h"
#include "base/status.h"
#include "experts/simulation.h"

_Static_assert((int)MF_CACHE_POLICY_COUNT == (int)CACHE_POLICIES &&
                   (int)MF_CACHE_BELADY == (int)CACHE_BELADY &&
                   (int)MF_CACHE_MOEFLUX == (int)CACHE_MOEFLUX &&
                   (int)MF_CACHE_LFU == (int)CACHE_LFU && (int)MF_CACHE_LRU == (int)CACHE_LRU &&
                   (int)MF_CACHE_S3_FIFO == (int)CACHE_S3_FIFO,
               "the same policies in the same order");

/* ---------------------------------------------------------------- recording */

struct mf_route_recorder {
    mf_sequence *sequence; /* NULL: the caller adds routes */
    struct route_writer writer;
    mf_write_function write;
    void *user;
    uint64_t *bytes; /* [2 x layers] of experts and slots */
    uint32_t layers;
    bool single_steps; /* every step had one token */
};

static bool pass_bytes(void *user, const void *bytes, size_t count)
{
    const mf_route_recorder *recorder = user;
    return recorder->write(recorder->user, bytes, count);
}

static void record(void *user, const mf_routes *routes)
{
    mf_route_recorder *recorder = user;
    struct route_choice choice = { .layer = routes->layer,
                                   .rows = routes->row_count,
                                   .tokens = routes->tokens,
                                   .experts = routes->experts,
                                   .weights = routes->weights };
    if (routes->row_count > 1) recorder->single_steps = false;
    route_writer_add(&recorder->writer, &choice);
}

void mf_route_recorder_add(mf_route_recorder *recorder, const mf_routes *routes)
{
    if (recorder && routes) record(recorder, routes);
}

static mf_status open_writer(mf_route_recorder *recorder, const mf_model *model, mf_error *why)
{
    const struct model_config *config = &model->model.config;
    uint32_t layers = recorder->layers;
    struct route_shape shape = { .layers = layers,
                                 .experts = config->experts,
                                 .per_token = config->experts_per_token,
                                 .resident_bytes = model->model.weights.resident_bytes,
                                 .working_bytes = model->room.bytes + api_pool_bytes(model) +
                                                  model->policy_bytes,
                                 .expert_bytes = recorder->bytes,
                                 .slot_bytes = recorder->bytes + layers };
    for (uint32_t i = 0; i < layers; i++)
        expert_store_bytes_of(model->experts, i, &recorder->bytes[i], &recorder->bytes[layers + i]);
    snprintf(shape.name, sizeof shape.name, "%s", mf_model_name(model));
    return route_writer_open(&recorder->writer, &allocator_heap, &shape, pass_bytes, recorder, why);
}

mf_status mf_route_recorder_open_for(mf_route_recorder **out, const mf_model *model,
                                     mf_write_function write, void *user, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    if (!write) return api_missing(why, "write");
    mf_route_recorder *recorder = api_new_handle(&allocator_heap, sizeof *recorder);
    if (!recorder) return fail_memory(why, sizeof *recorder);
    recorder->write = write;
    recorder->user = user;
    recorder->single_steps = true;
    recorder->layers = model->model.config.layer_count;
    size_t bytes = (size_t)recorder->layers * 2 * sizeof *recorder->bytes;
    recorder->bytes = api_new_handle(&allocator_heap, bytes);
    mf_status status =
        recorder->bytes ? open_writer(recorder, model, why) : fail_memory(why, bytes);
    if (status == MF_OK)
        *out = recorder;
    else
        mf_route_recorder_close(recorder);
    return status;
}

mf_status mf_route_recorder_open(mf_route_recorder **out, mf_sequence *sequence,
                                 mf_write_function write, void *user, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!sequence) return api_missing(why, "sequence");
    mf_status status = mf_route_recorder_open_for(out, sequence->model, write, user, why);
    if (!*out) return status;
    (*out)->sequence = sequence;
    mf_sequence_watch_routes(sequence, record, *out);
    return MF_OK;
}

/* Seconds of a token that is computed alone and waits for no read; 0: there was none. */
static double step_seconds(const mf_route_recorder *recorder)
{
    mf_sequence_statistics stats = MF_SEQUENCE_STATISTICS_INIT;
    if (!recorder->sequence) return 0;
    mf_sequence_stats(recorder->sequence, &stats, NULL);
    double all = stats.prompt_seconds + stats.decode_seconds;
    double worked = all > 0 ? 1 - stats.expert_wait_seconds / all : 0;
    uint64_t tokens = stats.decode_tokens + stats.prompt_tokens;
    if (worked < 0) worked = 0;
    if (recorder->single_steps) return tokens ? worked * all / (double)tokens : 0;
    if (stats.decode_tokens == 0) return 0;
    return worked * stats.decode_seconds / (double)stats.decode_tokens;
}

mf_status mf_route_recorder_finish(mf_route_recorder *recorder, mf_error *why)
{
    if (!recorder) return api_missing(why, "recorder");
    mf_sequence_watch_routes(recorder->sequence, NULL, NULL);
    return route_writer_end(&recorder->writer, step_seconds(recorder), why);
}

void mf_route_recorder_close(mf_route_recorder *recorder)
{
    if (!recorder) return;
    mf_sequence_watch_routes(recorder->sequence, NULL, NULL);
    if (recorder->writer.allocator) route_writer_free(&recorder->writer);
    if (recorder->bytes)
        allocator_heap.release(NULL, recorder->bytes,
                               (size_t)recorder->layers * 2 * sizeof *recorder->bytes);
    allocator_heap.release(NULL, recorder, sizeof *recorder);
}

/* ---------------------------------------------------------------- replaying */

struct mf_route_trace {
    struct route_trace trace;
};

const char *mf_cache_policy_name(mf_cache_policy policy)
{
    if ((unsigned)policy >= MF_CACHE_POLICY_COUNT) return NULL;
    return cache_policy_name((enum cache_policy)policy);
}

mf_status mf_route_trace_open(mf_route_trace **out, const void *bytes, size_t count, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!bytes) return api_missing(why, "bytes");
    mf_route_trace *trace = api_new_handle(&allocator_heap, sizeof *trace);
    if (!trace) return fail_memory(why, sizeof *trace);
    mf_status status = route_trace_open(&trace->trace, &allocator_heap, bytes, count, why);
    if (status == MF_OK)
        *out = trace;
    else
        allocator_heap.release(NULL, trace, sizeof *trace);
    return status;
}

void mf_route_trace_close(mf_route_trace *trace)
{
    if (!trace) return;
    route_trace_free(&trace->trace);
    allocator_heap.release(NULL, trace, sizeof *trace);
}

mf_status mf_route_trace_get(mf_route_trace_info *out, const mf_route_trace *trace, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    if (!trace) return api_missing(why, "trace");
    const struct route_shape *shape = &trace->trace.shape;
    mf_route_trace_info info = { .model = shape->name,
                                 .token_count = trace->trace.row_count,
                                 .layer_count = shape->layers,
                                 .experts = shape->experts,
                                 .experts_per_token = shape->per_token,
                                 .all_slots_bytes = simulation_full_bytes(&trace->trace),
                                 .step_seconds = trace->trace.step_seconds };
    for (uint32_t i = 0; i < shape->layers; i++) {
        info.expert_layers += shape->expert_bytes[i] > 0;
        if (shape->expert_bytes[i] > info.largest_expert_bytes)
            info.largest_expert_bytes = shape->expert_bytes[i];
    }
    return api_statistics_out(out, &info, sizeof info, "MF_ROUTE_TRACE_INFO_INIT", why);
}

mf_status mf_simulate(mf_simulation_result *out, const mf_route_trace *trace,
                      const mf_simulation_options *given, mf_error *why)
{
    mf_simulation_options options = { 0 };
    struct simulation_result result;
    if (!out) return api_missing(why, "out");
    if (!trace) return api_missing(why, "trace");
    if (!given) return api_missing(why, "options");
    mf_status status =
        api_options_in(&options, sizeof options, given, "MF_SIMULATION_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    if ((unsigned)options.policy >= MF_CACHE_POLICY_COUNT)
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_cache_policy", (int)options.policy);
    const struct route_shape *shape = &trace->trace.shape;
    if (options.memory_bytes)
        options.slot_bytes =
            api_budget_within(options.memory_bytes, shape->resident_bytes, shape->working_bytes);
    struct simulation_setting setting = { .policy = (enum cache_policy)options.policy,
                                          .budget_bytes = options.slot_bytes,
                                          .rows = options.rows };
    status = simulation_run(&result, &trace->trace, &setting, &allocator_heap, why);
    if (status != MF_OK) return status;
    mf_simulation_result whole = { .slot_bytes = options.slot_bytes,
                                   .slots = result.slots,
                                   .experts = result.experts,
                                   .tokens = result.tokens,
                                   .uses = result.uses,
                                   .hits = result.hits,
                                   .bytes_read = result.bytes_read };
    return api_statistics_out(out, &whole, sizeof whole, "MF_SIMULATION_RESULT_INIT", why);
}
