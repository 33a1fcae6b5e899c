/* watch.c: mf_model_experts*, mf_model_watch_experts: where experts are, and what becomes of them. */
#include "api/handles.h"

#include "base/status.h"

static uint64_t mean_expert_bytes(const struct expert_store *store, const uint32_t *layers,
                                  uint32_t count)
{
    uint64_t sum = 0, expert_bytes, slot_bytes;
    for (uint32_t i = 0; i < count; i++) {
        expert_store_bytes_of(store, layers[i], &expert_bytes, &slot_bytes);
        sum += expert_bytes;
    }
    return count > 0 ? sum / count : 0;
}

mf_status mf_model_experts(const mf_model *model, mf_experts *out, mf_error *why)
{
    if (!model) return api_missing(why, "model");
    if (!out) return api_missing(why, "out");
    const struct model_config *config = &model->model.config;
    mf_experts own = { .layer_count = config->layer_count,
                       .expert_count = config->experts,
                       .experts_per_token = config->experts_per_token };
    own.rows = expert_store_layers(model->experts, &own.row_count);
    own.expert_bytes = mean_expert_bytes(model->experts, own.rows, own.row_count);
    own.map_bytes = expert_store_map_bytes(model->experts);
    return api_statistics_out(out, &own, sizeof own, "MF_EXPERTS_INIT", why);
}

mf_status mf_model_experts_present(const mf_model *model, uint8_t *out, size_t capacity,
                                   mf_error *why)
{
    if (!model) return api_missing(why, "model");
    if (!out) return api_missing(why, "out");
    size_t bytes = expert_store_map_bytes(model->experts);
    if (capacity < bytes)
        return fail(why, MF_ERR_BUFFER_SIZE,
                    "the map of experts has %zu bytes, there is room for %zu", bytes, capacity);
    expert_store_map(model->experts, out);
    return MF_OK;
}

/* Stages are counted by the engine's tracer, or by one that is there for watchers. */
static mf_status need_tracer(mf_model *model, mf_error *why)
{
    mf_engine *engine = model->engine;
    struct tracer *tracer, *none = NULL;
    if (engine->tracer || atomic_load(&model->room.watch_tracer)) return MF_OK;
    struct tracer_options options = { .allocator = &engine->allocator,
                                      .machine = &engine->machine,
                                      .worker_count = mf_engine_thread_count(engine) };
    mf_status status = tracer_new(&tracer, &options, why);
    if (status != MF_OK) return status;
    if (!atomic_compare_exchange_strong(&model->room.watch_tracer, &none, tracer))
        tracer_free(tracer); /* another thread was first */
    return MF_OK;
}

mf_status mf_model_watch_experts(mf_model *model, mf_experts_function each, void *user,
                                 mf_error *why)
{
    if (!model) return api_missing(why, "model");
    mf_status status = each ? need_tracer(model, why) : MF_OK;
    return status == MF_OK ? expert_store_watch(model->experts, each, user, why) : status;
}
