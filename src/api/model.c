/* model.c: mf_model_*: a checkpoint, opened and asked. */
#include "api/handles.h"

#include "base/log.h"
#include "base/status.h"
#include "grammar/vocabulary.h"
#include "model/config_checks.h"

/* A choice by name: names[i] makes *out i + 1, NULL makes it 0. */
static mf_status choose(int *out, const char *what, const char *name, const char *const names[2],
                        mf_error *why)
{
    *out = 0;
    if (!name) return MF_OK;
    for (int i = 0; i < 2; i++)
        if (strcmp(name, names[i]) == 0) *out = i + 1;
    if (*out) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "the %s \"%.32s\" is not known; there are %s and %s", what,
                name, names[0], names[1]);
}

static mf_status choose_by_name(struct expert_store_options *store, const mf_model_options *options,
                                mf_error *why)
{
    static const char *const readers[] = { "io_uring", "threads" };
    static const char *const modes[] = { "resident", "mapped" };
    static const char *const aheads[] = { "never", "always" };
    static const enum read_engine_kind engines[] = { READ_ENGINE_BEST, READ_ENGINE_URING,
                                                     READ_ENGINE_THREADS };
    static const enum expert_mode_choice choices[] = { MODE_BY_SIZE, MODE_RESIDENT, MODE_MAPPED };
    static const enum expert_ahead ahead[] = { AHEAD_MEASURED, AHEAD_NEVER, AHEAD_ALWAYS };
    int reader = 0, mode = 0, when = 0;
    mf_status status = choose(&reader, "reader", options->reader, readers, why);
    if (status == MF_OK) status = choose(&mode, "expert mode", options->expert_mode, modes, why);
    if (status == MF_OK) status = choose(&when, "read-ahead", options->read_ahead, aheads, why);
    store->engine = engines[reader];
    store->mode = choices[mode];
    store->ahead = ahead[when];
    return status;
}

static mf_status open_experts(mf_model *model, const mf_model_options *options, mf_error *why)
{
    struct expert_store_options store = { .allocator = &model->engine->allocator,
                                          .directory = &model->model.directory,
                                          .layers = model->model.weights.layers,
                                          .config = &model->model.config,
                                          .budget_bytes = api_expert_budget(model),
                                          .hard_limit = options->memory_bytes != 0,
                                          .unchecked = options->skip_checksums,
                                          .tracer = model->engine->tracer };
    mf_status status = choose_by_name(&store, options, why);
    if (status == MF_OK) status = api_admit_weights(model, why);
    if (status == MF_OK) {
        status = expert_store_open(&model->experts, &store, why);
        if (status == MF_ERR_MEMORY) status = api_explain_memory(model, why);
    }
    if (status != MF_OK) return status;
    engine_room_set_experts(&model->room, model->experts);
    status = api_count_tables(model, why);
    if (status == MF_OK) api_widen_pool(model);
    return status;
}

/* An expert is read, and made ready for the matrix unit, once per chunk: long ones pay, where
 * their activations (about 100 KB per row) do not take the room of the experts.  Unless the
 * caller says otherwise, sequences have at most half, and the engine room at most a quarter of
 * what the weights leave, down to CONTEXT_LEAST positions and CHUNK_LEAST rows. */
enum {
    CONTEXT_STANDARD = 4096,
    CONTEXT_LEAST = 512,
    SEQUENCE_SHARE = 2,
    CHUNK_STANDARD = 2048,
    CHUNK_SMALL = 512,
    CHUNK_LEAST = 8,
    ROOM_SHARE = 4
};

static struct engine_room_sizes room_sizes(const struct forward_parts *parts, uint64_t limit,
                                           uint64_t left, const mf_model_options *options)
{
    const struct model_config *config = parts->config;
    enum kv_format format = forward_kv_format(parts);
    uint32_t context = options->context_length ? options->context_length : CONTEXT_STANDARD;
    uint32_t chunk = options->chunk_rows, sequences = options->sequences ? options->sequences : 1;
    context = (uint32_t)min_size(context, config->context_length);
    if (chunk == 0) chunk = limit >= UINT64_C(4) << 30 ? CHUNK_STANDARD : CHUNK_SMALL;
    while (options->context_length == 0 && context > CONTEXT_LEAST &&
           sequences * engine_sequence_bytes(config, format, context, chunk) >
               left / SEQUENCE_SHARE)
        context /= 2;
    return (struct engine_room_sizes){ context,
                                       (uint32_t)min_size(chunk, (size_t)sequences * context),
                                       sequences };
}

mf_status api_choose_kv_format(enum kv_format *out, const mf_engine *engine, const char *name,
                               mf_error *why)
{
    *out = engine->backend->kv_format;
    if (!name) return MF_OK;
    for (int i = KV_F32; i <= KV_Q8; i++)
        if (strcmp(name, kv_format_name((enum kv_format)i)) == 0) *out = (enum kv_format)i;
    if (strcmp(name, kv_format_name(*out)) == 0) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT,
                "the key/value type \"%.32s\" is not known; there are f32, f16 and q8", name);
}

mf_status api_check_context(const struct model_config *config, uint32_t context, mf_error *why)
{
    if (context <= config->context_length) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT,
                "a context of %u was asked for, the model goes to %u positions", context,
                config->context_length);
}

mf_status api_choose_room(struct engine_room_sizes *out, const struct forward_parts *parts,
                          uint64_t limit, const mf_model_options *options, mf_error *why)
{
    uint64_t left = api_budget_within(limit, parts->weights->resident_bytes, 0), bytes;
    *out = room_sizes(parts, limit, left, options);
    for (;;) {
        mf_status status = engine_room_bytes(&bytes, parts, *out, why);
        if (status != MF_OK) return status;
        bool given = options->chunk_rows != 0;
        if (given || bytes <= left / ROOM_SHARE || out->chunk_rows <= CHUNK_LEAST) return MF_OK;
        out->chunk_rows = (uint32_t)max_size(out->chunk_rows / 2, CHUNK_LEAST);
    }
}

static mf_status open_room(mf_model *model, const mf_model_options *options, mf_error *why)
{
    const mf_engine *engine = model->engine;
    struct forward_parts parts = { .allocator = &engine->allocator,
                                   .config = &model->model.config,
                                   .weights = &model->model.weights,
                                   .backend = engine->backend,
                                   .kv_format = model->kv_format };
    struct engine_room_sizes sizes;
    mf_status status = api_choose_room(&sizes, &parts, model->memory_bytes, options, why);
    return status == MF_OK ? engine_room_init(&model->room, &parts, sizes, why) : status;
}

/* Positions are computed by the same rule however far they go. */
static void stretch_context(struct model_config *config, uint32_t wanted,
                            const struct logger *logger)
{
    wanted = (uint32_t)min_size(wanted, CONTEXT_MAX);
    if (wanted <= config->context_length) return;
    log_note(logger, MF_LOG_WARNING,
             "the model was made for %u positions: behind them answers get worse",
             config->context_length);
    config->context_length = wanted;
}

mf_status api_model_open(mf_model **out, mf_engine *engine, const char *path,
                         const struct ancestors_paths *ancestors, const mf_model_options *options,
                         mf_error *why)
{
    enum kv_format kv_format;
    mf_status status = api_choose_kv_format(&kv_format, engine, options->kv_type, why);
    if (status != MF_OK) return status;
    mf_model *model = api_new_handle(&engine->allocator, sizeof *model);
    if (!model) return fail_memory(why, sizeof *model);
    model->engine = engine;
    model->kv_format = kv_format;
    pthread_mutex_init(&model->fingerprint_lock, NULL);
    pthread_mutex_init(&model->vocabulary_lock, NULL);
    model->memory_bytes = api_memory_limit(engine, options->memory_bytes);

    struct model_source source = { .files = &engine->files,
                                   .allocator = &engine->allocator,
                                   .path = path,
                                   .ancestors = ancestors,
                                   .text = &model->text.parts,
                                   .logger = &engine->logger,
                                   .uncached = options->memory_bytes != 0 };
    status = model_open(&model->model, &source, why);
    if (status != MF_OK) {
        engine->allocator.release(engine->allocator.user, model, sizeof *model);
        return status;
    }
    model->text.chat.chat = model->text.parts.chat;
    struct model_config *config = &model->model.config;
    if (options->experts_per_token && options->experts_per_token < config->experts_per_token)
        config->experts_per_token = options->experts_per_token;
    if (options->stretch_context) stretch_context(config, options->context_length, &engine->logger);
    pthread_mutex_lock(&engine->lock); /* the backend's scratch may grow */
    status = open_room(model, options, why);
    pthread_mutex_unlock(&engine->lock);
    if (status == MF_OK) status = api_open_cache(model, options, why);
    if (status == MF_OK) status = open_experts(model, options, why);
    if (status == MF_OK)
        *out = model;
    else
        mf_model_close(model);
    return status;
}

mf_status mf_model_open(mf_model **out, mf_engine *engine, const char *path,
                        const mf_model_options *options, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!engine) return api_missing(why, "engine");
    if (!path) return api_missing(why, "path");
    mf_model_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_MODEL_OPTIONS_INIT", why);
    return status == MF_OK ? api_model_open(out, engine, path, NULL, &own, why) : status;
}

void mf_model_close(mf_model *model)
{
    if (!model) return;
    mf_engine *engine = model->engine;
    expert_store_free(model->experts);
    tracer_free(atomic_load(&model->room.watch_tracer));
    api_close_cache(model);
    pthread_mutex_lock(&engine->lock); /* a device's memory has one user at a time */
    engine_room_free(&model->room);
    if (backend_is_device(engine->backend)) engine->backend->functions->forget(engine->backend);
    pthread_mutex_unlock(&engine->lock);
    model_close(&model->model);
    model_text_clear(&model->text.parts);
    pthread_mutex_destroy(&model->fingerprint_lock);
    pthread_mutex_destroy(&model->vocabulary_lock);
    grammar_vocabulary_free(model->vocabulary);
    engine->allocator.release(engine->allocator.user, model, sizeof *model);
}

uint32_t mf_model_vocab_size(const mf_model *model)
{
    return model ? model->model.config.vocab_size : 0;
}

uint32_t mf_model_context_length(const mf_model *model)
{
    return model ? model->model.config.context_length : 0;
}

const char *mf_model_name(const mf_model *model)
{
    return model ? model->model.name : NULL;
}

const char *mf_model_family(const mf_model *model)
{
    return model ? model->model.config.family->name : NULL;
}

int32_t mf_model_eos(const mf_model *model)
{
    return model && model->model.config.end_token_count ? model->model.config.end_tokens[0] : -1;
}

bool mf_model_is_end(const mf_model *model, int32_t token)
{
    return model && model_is_end_token(&model->model, token);
}

mf_engine *mf_model_engine(const mf_model *model)
{
    return model ? model->engine : NULL;
}

mf_status mf_model_stats(const mf_model *model, mf_model_statistics *out, mf_error *why)
{
    if (!model) return api_missing(why, "model");
    if (!out) return api_missing(why, "out");
    if (pthread_mutex_trylock(&model->engine->lock) == 0) { /* no step runs: to the last count */
        expert_store_publish(model->experts);
        pthread_mutex_unlock(&model->engine->lock);
    }
    const struct expert_report report = expert_store_report(model->experts);
    const struct expert_counters experts = report.counters;
    const struct expert_store_sizes sizes = report.sizes;
    const struct read_activity disk = report.disk;
    struct state_pool_sizes pool = state_pool_sizes(&((mf_model *)(uintptr_t)model)->room.pool);
    mf_model_statistics own = { .expert_mode = sizes.mode,
                                .expert_reader = sizes.reader,
                                .expert_direct = sizes.direct,
                                .experts_present = sizes.present,
                                .experts_total = sizes.total,
                                .expert_slots = sizes.slots,
                                .expert_slot_bytes = sizes.slot_bytes,
                                .weight_bytes = model->model.weights.resident_bytes,
                                .room_bytes = model->room.bytes,
                                .sequence_bytes = pool.held_bytes,
                                .policy_bytes = sizes.policy_bytes,
                                .expert_hits = experts.hits,
                                .expert_misses = experts.misses + experts.ahead_late,
                                .expert_bytes_read = experts.bytes_read,
                                .expert_waits = experts.waits,
                                .expert_wait_seconds = experts.wait_seconds,
                                .expert_evictions = experts.evictions,
                                .expert_ahead_reads = experts.ahead_reads,
                                .expert_ahead_hits = experts.ahead_hits,
                                .expert_ahead_late = experts.ahead_late,
                                .expert_ahead_wasted = experts.ahead_wasted,
                                .expert_ahead_bytes = experts.bytes_ahead,
                                .expert_wasted_bytes = experts.bytes_wasted,
                                .expert_ahead = sizes.ahead,
                                .expert_predictions = experts.predictions,
                                .expert_predictions_right = experts.predictions_right,
                                .expert_predict_seconds = experts.predict_seconds,
                                .disk_reads = disk.reads,
                                .disk_retries = disk.retries,
                                .disk_bytes = disk.bytes,
                                .disk_seconds = disk.seconds,
                                .disk_depth = disk.depth,
                                .disk_staged = disk.staged,
                                .pool_bytes = pool.limit_bytes,
                                .pool_pages = pool.held[BLOCK_PAGE],
                                .pool_states = pool.held[BLOCK_RECURRENT] };
    api_count_cache(&own, model);
    return api_statistics_out(out, &own, sizeof own, "MF_MODEL_STATISTICS_INIT", why);
}

void mf_model_reset_stats(mf_model *model)
{
    if (!model) return;
    pthread_mutex_lock(&model->engine->lock);
    expert_store_reset_counters(model->experts);
    if (model->prefixes) prefix_tree_reset_statistics(model->prefixes);
    pthread_mutex_unlock(&model->engine->lock);
}
