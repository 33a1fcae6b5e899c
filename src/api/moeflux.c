/* moeflux.c: the public functions: arguments checked, handles made, nothing else. */
#include "api/handles.h"

#include "base/status.h"

const char *mf_version(void)
{
    return MOEFLUX_VERSION;
}

static void *new_handle(const mf_allocator *allocator, size_t bytes)
{
    void *handle = allocator->allocate(allocator->user, bytes, _Alignof(max_align_t));
    return handle ? memset(handle, 0, bytes) : NULL;
}

static mf_status missing(mf_error *why, const char *argument)
{
    return fail(why, MF_ERR_ARGUMENT, "the argument `%s` is NULL", argument);
}

/* ------------------------------------------------------------------ engine */

/* "reference" is the plain arithmetic with the plain set of kernels, "cpu" the tuned one with
 * the best set for this machine. */
static mf_status choose_kernels(mf_engine *engine, const char *backend, mf_error *why)
{
    if (!backend || strcmp(backend, "cpu") == 0)
        engine->kernels = kernels_select(&engine->machine, NULL);
    else if (strcmp(backend, "reference") == 0)
        engine->kernels = kernels_select(&engine->machine, "generic");
    else
        return fail(why, MF_ERR_ARGUMENT,
                    "the backend \"%.32s\" is not known; there are reference and cpu", backend);
    engine->exact = backend && strcmp(backend, "reference") == 0;
    return MF_OK;
}

mf_status mf_engine_open(mf_engine **out, const mf_engine_options *options, mf_error *why)
{
    if (!out) return missing(why, "out");
    *out = NULL;
    mf_engine_options none = { 0 };
    if (!options) options = &none;
    mf_allocator allocator = options->allocator ? *options->allocator : allocator_heap;
    mf_engine *engine = new_handle(&allocator, sizeof *engine);
    if (!engine) return fail_memory(why, sizeof *engine);
    engine->allocator = allocator;
    engine->files = options->files ? *options->files : files_posix;
    engine->logger = (struct logger){ options->log, options->log_user };
    pthread_mutex_init(&engine->lock, NULL);
    machine_probe(&engine->machine);

    unsigned threads = options->thread_count ? options->thread_count : engine->machine.core_count;
    mf_status status = choose_kernels(engine, options->backend, why);
    if (status == MF_OK) status = thread_pool_new(&engine->pool, &engine->allocator, threads, why);
    if (status == MF_OK)
        status = backend_cpu_new(&engine->backend, &engine->allocator, engine->pool,
                                 engine->kernels, engine->exact, why);
    if (status == MF_OK && (options->profile || options->trace))
        status = tracer_new(&engine->tracer,
                            &(struct tracer_options){ .allocator = &engine->allocator,
                                                      .machine = &engine->machine,
                                                      .worker_count = threads,
                                                      .function = options->trace,
                                                      .user = options->trace_user },
                            why);
    if (status == MF_OK) engine->backend->tracer = engine->tracer;
    if (status == MF_OK)
        *out = engine;
    else
        mf_engine_close(engine);
    return status;
}

void mf_engine_close(mf_engine *engine)
{
    if (!engine) return;
    if (engine->backend) engine->backend->functions->free(engine->backend);
    tracer_free(engine->tracer);
    thread_pool_free(engine->pool);
    pthread_mutex_destroy(&engine->lock);
    mf_allocator allocator = engine->allocator;
    allocator.release(allocator.user, engine, sizeof *engine);
}

void mf_engine_flush_trace(mf_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    tracer_flush(engine->tracer);
    pthread_mutex_unlock(&engine->lock);
}

const char *mf_stage_name(mf_stage stage)
{
    return stage_name(stage);
}

/* ------------------------------------------------------------------- model */

static mf_status choose_reader(enum read_engine *out, const char *name, mf_error *why)
{
    *out = READ_ENGINE_BEST;
    if (!name) return MF_OK;
    if (strcmp(name, "io_uring") == 0)
        *out = READ_ENGINE_URING;
    else if (strcmp(name, "threads") == 0)
        *out = READ_ENGINE_THREADS;
    else
        return fail(why, MF_ERR_ARGUMENT,
                    "the reader \"%.32s\" is not known; there are io_uring and threads", name);
    return MF_OK;
}

mf_status api_open_experts(mf_model *model, const mf_model_options *options, mf_error *why)
{
    struct expert_store_options store = { .allocator = &model->engine->allocator,
                                          .directory = &model->model.directory,
                                          .layers = model->model.weights.layers,
                                          .config = &model->model.config,
                                          .budget_bytes = api_expert_budget(model),
                                          .promise = options->memory_bytes != 0,
                                          .unchecked = options->no_checksums,
                                          .tracer = model->engine->tracer };
    static const enum expert_ahead ahead[] = { [MF_READ_AHEAD_MEASURED] = AHEAD_MEASURED,
                                               [MF_READ_AHEAD_NEVER] = AHEAD_NEVER,
                                               [MF_READ_AHEAD_ALWAYS] = AHEAD_ALWAYS };
    static const enum expert_place places[] = { [MF_EXPERTS_BY_SIZE] = PLACE_BY_SIZE,
                                                [MF_EXPERTS_RESIDENT] = PLACE_RESIDENT,
                                                [MF_EXPERTS_MAPPED] = PLACE_MAPPED };
    if ((size_t)options->read_ahead >= COUNT_OF(ahead))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_read_ahead", (int)options->read_ahead);
    if ((size_t)options->expert_mode >= COUNT_OF(places))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_expert_mode", (int)options->expert_mode);
    store.ahead = ahead[options->read_ahead];
    store.place = places[options->expert_mode];
    mf_status status = choose_reader(&store.engine, options->reader, why);
    if (status == MF_OK) status = api_admit_weights(model, why);
    return status == MF_OK ? expert_store_open(&model->experts, &store, why) : status;
}

mf_status api_model_open(mf_model **out, mf_engine *engine, const char *path,
                         const struct ancestors_paths *ancestors, const mf_model_options *options,
                         mf_error *why)
{
    mf_model_options none = { 0 };
    if (!options) options = &none;
    mf_model *model = new_handle(&engine->allocator, sizeof *model);
    if (!model) return fail_memory(why, sizeof *model);
    model->engine = engine;
    model->memory_bytes = api_memory_limit(engine, options->memory_bytes);

    struct model_source source = { .files = &engine->files,
                                   .allocator = &engine->allocator,
                                   .path = path,
                                   .ancestors = ancestors,
                                   .logger = &engine->logger,
                                   .uncached = options->memory_bytes != 0 };
    mf_status status = model_open(&model->model, &source, why);
    if (status != MF_OK) {
        engine->allocator.release(engine->allocator.user, model, sizeof *model);
        return status;
    }
    struct model_config *config = &model->model.config;
    if (options->experts_per_token && options->experts_per_token < config->experts_per_token)
        config->experts_per_token = options->experts_per_token;
    status = api_open_experts(model, options, why);
    if (status == MF_OK)
        *out = model;
    else
        mf_model_close(model);
    return status;
}

mf_status mf_model_open(mf_model **out, mf_engine *engine, const char *path,
                        const mf_model_options *options, mf_error *why)
{
    if (!out) return missing(why, "out");
    *out = NULL;
    if (!engine) return missing(why, "engine");
    if (!path) return missing(why, "path");
    return api_model_open(out, engine, path, NULL, options, why);
}

void mf_model_close(mf_model *model)
{
    if (!model) return;
    mf_engine *engine = model->engine;
    expert_store_free(model->experts);
    model_close(&model->model);
    engine->allocator.release(engine->allocator.user, model, sizeof *model);
}

uint32_t mf_model_vocab_size(const mf_model *model)
{
    return model->model.config.vocab_size;
}

uint32_t mf_model_context_length(const mf_model *model)
{
    return model->model.config.context_length;
}

const char *mf_model_name(const mf_model *model)
{
    return model->model.name;
}

const char *mf_model_family(const mf_model *model)
{
    return model->model.config.family->name;
}

int32_t mf_model_eos(const mf_model *model)
{
    return model->model.config.end_token_count ? model->model.config.end_tokens[0] : -1;
}

bool mf_model_is_end(const mf_model *model, int32_t token)
{
    return model_is_end_token(&model->model, token);
}

static mf_status need_tokenizer(const mf_model *model, mf_error *why)
{
    if (model->model.tokenizer) return MF_OK;
    return fail(why, MF_ERR_UNSUPPORTED, "%s has no tokenizer.json", model->model.path);
}

mf_status mf_model_tokenize(const mf_model *model, int32_t *out, size_t capacity, size_t *count,
                            const char *text, size_t length, mf_special special, mf_error *why)
{
    if (!model) return missing(why, "model");
    if (!count) return missing(why, "count");
    if (!text && length > 0) return missing(why, "text");
    if (!out && capacity > 0) return missing(why, "out");
    static const enum special_mode modes[] = { [MF_SPECIAL_PARSE] = SPECIAL_PARSE,
                                               [MF_SPECIAL_AS_TEXT] = SPECIAL_AS_TEXT,
                                               [MF_SPECIAL_NONE] = SPECIAL_NONE };
    if ((size_t)special >= COUNT_OF(modes))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_special", (int)special);
    struct token_list list = { 0 };
    *count = 0;
    mf_status status = need_tokenizer(model, why);
    if (status == MF_OK)
        status = tokenizer_encode(&list, model->model.tokenizer, text, length, modes[special], why);
    if (status == MF_OK) {
        *count = list.count;
        if (list.count > capacity)
            status = fail(why, MF_ERR_BUFFER_SIZE, "the text has %zu tokens, there is room for %zu",
                          list.count, capacity);
        else if (list.count > 0)
            memcpy(out, list.ids, list.count * sizeof *out);
    }
    token_list_free(&list);
    return status;
}

const char *mf_model_token_bytes(const mf_model *model, int32_t token, size_t *length)
{
    *length = 0;
    if (!model->model.tokenizer) return NULL;
    return tokenizer_token_bytes(model->model.tokenizer, token, length);
}

/* ----------------------------------------------------------------- session */

/* An expert is read, and made ready for the matrix unit, once per chunk: long ones pay, where
 * their activations (about 100 KB per row) do not take the room of the experts. */
enum { CONTEXT_STANDARD = 4096, CHUNK_STANDARD = 2048, CHUNK_SMALL = 512 };

static uint32_t standard_chunk(const mf_model *model)
{
    return model->memory_bytes >= UINT64_C(4) << 30 ? CHUNK_STANDARD : CHUNK_SMALL;
}

static mf_status choose_sizes(struct session_sizes *out, const mf_model *model,
                              const mf_sequence_options *options, mf_error *why)
{
    uint32_t limit = model->model.config.context_length;
    uint32_t context = options ? options->context_length : 0;
    if (context > limit)
        return fail(why, MF_ERR_ARGUMENT,
                    "a context of %u was asked for, the model goes to %u positions", context,
                    limit);
    if (context == 0) context = (uint32_t)min_size(limit, CONTEXT_STANDARD);
    uint32_t chunk = options && options->chunk_rows ? options->chunk_rows : standard_chunk(model);
    *out = (struct session_sizes){ context, (uint32_t)min_size(chunk, context) };
    return MF_OK;
}

mf_status mf_sequence_open(mf_sequence **out, mf_model *model, const mf_sequence_options *options,
                           mf_error *why)
{
    if (!out) return missing(why, "out");
    *out = NULL;
    if (!model) return missing(why, "model");
    mf_engine *engine = model->engine;
    struct session_sizes sizes;
    mf_status status = choose_sizes(&sizes, model, options, why);
    if (status != MF_OK) return status;
    mf_sequence *session = new_handle(&engine->allocator, sizeof *session);
    if (!session) return fail_memory(why, sizeof *session);
    session->model = model;
    struct forward_parts parts = { .config = &model->model.config,
                                   .weights = &model->model.weights,
                                   .experts = model->experts,
                                   .backend = engine->backend };
    pthread_mutex_lock(&engine->lock); /* the backend's scratch may grow */
    status = session_init(&session->session, &engine->allocator, &parts, sizes, why);
    if (status == MF_OK) {
        status = api_admit_session(session, why);
        if (status != MF_OK) session_free(&session->session);
    }
    pthread_mutex_unlock(&engine->lock);
    if (status == MF_OK)
        *out = session;
    else
        engine->allocator.release(engine->allocator.user, session, sizeof *session);
    return status;
}

void mf_sequence_close(mf_sequence *session)
{
    if (!session) return;
    mf_engine *engine = session->model->engine;
    pthread_mutex_lock(&engine->lock);
    api_dismiss_session(session);
    pthread_mutex_unlock(&engine->lock);
    session_free(&session->session);
    engine->allocator.release(engine->allocator.user, session, sizeof *session);
}

static mf_status feed(mf_sequence *session, const struct session_feed *what, mf_error *why)
{
    if (!session) return missing(why, "sequence");
    if (!what->tokens && what->count > 0) return missing(why, "tokens");
    if (what->phase != MF_PHASE_PROMPT && what->phase != MF_PHASE_GENERATED)
        return fail(why, MF_ERR_ARGUMENT, "the phase is %d, which is none", (int)what->phase);
    pthread_mutex_lock(&session->model->engine->lock);
    mf_status status = session_feed(&session->session, what, why);
    pthread_mutex_unlock(&session->model->engine->lock);
    return status;
}

mf_status mf_sequence_feed(mf_sequence *session, mf_phase phase, const int32_t *tokens,
                           size_t count, mf_error *why)
{
    return feed(session, &(struct session_feed){ phase, tokens, count, NULL, NULL }, why);
}

mf_status mf_sequence_feed_each(mf_sequence *session, mf_phase phase, const int32_t *tokens,
                                size_t count, mf_logits_function each, void *user, mf_error *why)
{
    if (!each) return missing(why, "each");
    return feed(session, &(struct session_feed){ phase, tokens, count, each, user }, why);
}

const float *mf_sequence_logits(const mf_sequence *session)
{
    return session->session.has_logits ? session->session.logits : NULL;
}

uint32_t mf_sequence_position(const mf_sequence *session)
{
    return session->session.sequence.position;
}

uint32_t mf_sequence_context_length(const mf_sequence *session)
{
    return session->session.sequence.capacity;
}

void mf_sequence_clear(mf_sequence *session)
{
    session_clear(&session->session);
}

mf_status mf_sequence_truncate(mf_sequence *session, uint32_t position, mf_error *why)
{
    if (!session) return missing(why, "session");
    return session_truncate(&session->session, position, why);
}

static void pass_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    const mf_sequence *session = user;
    mf_routes seen = { .layer = layer,
                       .row_count = (uint32_t)rows,
                       .per_row = routes->per_row,
                       .tokens = session->session.forward.tokens,
                       .experts = routes->experts,
                       .weights = routes->weights };
    session->watch_routes(session->watch_user, &seen);
}

void mf_sequence_watch_routes(mf_sequence *session, mf_routes_function each, void *user)
{
    session->watch_routes = each;
    session->watch_user = user;
    session->observer = (struct observer){ .user = session, .routes = pass_routes };
    session->session.forward.observer = each ? &session->observer : NULL;
}

void mf_sequence_stats(const mf_sequence *session, mf_stats *out)
{
    const struct session *s = &session->session;
    mf_engine *engine = session->model->engine;
    pthread_mutex_lock(&engine->lock);
    struct expert_counters experts = expert_store_counters(session->model->experts);
    struct expert_store_sizes sizes = expert_store_sizes(session->model->experts);
    struct read_activity disk;
    expert_store_disk(session->model->experts, &disk);
    double tick_seconds = tracer_tick_seconds(engine->tracer);
    pthread_mutex_unlock(&engine->lock);
    *out = (mf_stats){ .prompt_tokens = s->times.prompt_tokens,
                       .decode_tokens = s->times.decode_tokens,
                       .prompt_seconds = s->times.prompt_seconds,
                       .decode_seconds = s->times.decode_seconds,
                       .attention_seconds = s->forward.times.mixer_seconds,
                       .expert_wait_seconds = experts.wait_seconds,
                       .expert_seconds = s->forward.times.expert_seconds - experts.wait_seconds,
                       .head_seconds = s->forward.times.head_seconds,
                       .expert_mode = sizes.mode,
                       .expert_reader = sizes.reader,
                       .expert_direct = sizes.direct,
                       .expert_slots = sizes.slots,
                       .expert_slot_bytes = sizes.slot_bytes,
                       .expert_waits = experts.waits,
                       .expert_evictions = experts.evictions,
                       .expert_ahead_hits = experts.ahead_hits,
                       .expert_ahead_late = experts.ahead_late,
                       .expert_ahead_reads = experts.ahead_reads,
                       .expert_ahead_wasted = experts.ahead_wasted,
                       .expert_ahead_bytes = experts.bytes_ahead,
                       .expert_wasted_bytes = experts.bytes_wasted,
                       .expert_ahead_level = sizes.ahead_level,
                       .expert_predictions = experts.predictions,
                       .expert_predictions_right = experts.predictions_right,
                       .expert_predict_seconds = experts.predict_seconds,
                       .expert_hits = experts.hits,
                       .expert_misses = experts.misses + experts.ahead_late,
                       .expert_bytes_read = experts.bytes_read,
                       .experts_present = sizes.present,
                       .experts_total = sizes.total,
                       .disk_reads = disk.reads,
                       .disk_retries = disk.retries,
                       .disk_bytes = disk.bytes,
                       .disk_seconds = disk.seconds,
                       .disk_depth = disk.depth,
                       .disk_staged = disk.staged };
    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        out->prompt_stage_seconds[i] = (double)s->forward.times.stage_ticks[0][i] * tick_seconds;
        out->decode_stage_seconds[i] = (double)s->forward.times.stage_ticks[1][i] * tick_seconds;
    }
}

void mf_sequence_reset_stats(mf_sequence *session)
{
    mf_engine *engine = session->model->engine;
    pthread_mutex_lock(&engine->lock);
    expert_store_reset_counters(session->model->experts);
    pthread_mutex_unlock(&engine->lock);
    session->session.times = (struct session_times){ 0 };
    session->session.forward.times = (struct forward_times){ 0 };
}

/* ----------------------------------------------------------------- sampler */

mf_status mf_sampler_open(mf_sampler **out, const mf_model *model,
                          const mf_sampler_options *options, mf_error *why)
{
    if (!out) return missing(why, "out");
    *out = NULL;
    if (!model) return missing(why, "model");
    const mf_allocator *allocator = &model->engine->allocator;
    struct sampler_options chosen;
    sampler_options_default(&chosen);
    chosen.temperature = 0.0f;
    if (options) {
        chosen.temperature = options->temperature;
        chosen.top_k = (int32_t)min_size(options->top_k, INT32_MAX);
        chosen.top_p = options->top_p;
        chosen.min_p = options->min_p;
        chosen.seed = options->seed;
    }
    mf_sampler *sampler = new_handle(allocator, sizeof *sampler);
    if (!sampler) return fail_memory(why, sizeof *sampler);
    sampler->allocator = allocator;
    mf_status status =
        sampler_new(&sampler->sampler, allocator, &chosen, model->model.config.vocab_size,
                    model_usable_tokens(&model->model), why);
    if (status == MF_OK)
        *out = sampler;
    else
        mf_sampler_close(sampler);
    return status;
}

void mf_sampler_close(mf_sampler *sampler)
{
    if (!sampler) return;
    sampler_free(sampler->sampler);
    sampler->allocator->release(sampler->allocator->user, sampler, sizeof *sampler);
}

int32_t mf_sampler_pick(mf_sampler *sampler, const float *logits)
{
    return logits ? sampler_pick(sampler->sampler, logits) : -1;
}
