/* sequence.c: mf_sequence_*: one text, fed and cut. */
#include "api/handles.h"

#include "base/status.h"

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
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    mf_engine *engine = model->engine;
    struct session_sizes sizes;
    mf_status status = choose_sizes(&sizes, model, options, why);
    if (status != MF_OK) return status;
    mf_sequence *session = api_new_handle(&engine->allocator, sizeof *session);
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
    if (!session) return api_missing(why, "sequence");
    if (!what->tokens && what->count > 0) return api_missing(why, "tokens");
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
    if (!each) return api_missing(why, "each");
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
    if (!session) return api_missing(why, "session");
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
