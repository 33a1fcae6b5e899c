/* sequence.c: mf_sequence_*: one text, fed and cut. */
#include "api/handles.h"

#include "base/status.h"

static mf_status choose_sizes(struct session_sizes *out, const mf_model *model,
                              const mf_sequence_options *options, mf_error *why)
{
    mf_sequence_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_SEQUENCE_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    uint32_t limit = model->model.config.context_length;
    uint32_t context = own.context_length ? own.context_length : model->context_length;
    uint32_t chunk = own.chunk_rows ? own.chunk_rows : model->chunk_rows;
    *out = (struct session_sizes){ context, (uint32_t)min_size(chunk, model->chunk_rows) };
    if (context > limit)
        return fail(why, MF_ERR_ARGUMENT,
                    "a context of %u was asked for, the model goes to %u positions", context,
                    limit);
    if (context > model->context_length)
        return fail(why, MF_ERR_ARGUMENT,
                    "a context of %u was asked for, the model was opened for up to %u positions",
                    context, model->context_length);
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
    return session && session->session.has_logits ? session->session.logits : NULL;
}

mf_model *mf_sequence_model(const mf_sequence *session)
{
    return session ? session->model : NULL;
}

uint32_t mf_sequence_position(const mf_sequence *session)
{
    return session ? session->session.sequence.position : 0;
}

uint32_t mf_sequence_context_length(const mf_sequence *session)
{
    return session ? session->session.sequence.capacity : 0;
}

void mf_sequence_clear(mf_sequence *session)
{
    if (session) session_clear(&session->session);
}

mf_status mf_sequence_truncate(mf_sequence *session, uint32_t position, mf_error *why)
{
    if (!session) return api_missing(why, "sequence");
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
    if (!session) return;
    session->watch_routes = each;
    session->watch_user = user;
    session->observer = (struct observer){ .user = session, .routes = pass_routes };
    session->session.forward.observer = each ? &session->observer : NULL;
}

mf_status mf_sequence_stats(const mf_sequence *session, mf_sequence_statistics *out, mf_error *why)
{
    if (!session) return api_missing(why, "sequence");
    if (!out) return api_missing(why, "out");
    const struct session *s = &session->session;
    const struct forward_times *times = &s->forward.times;
    double tick_seconds = tracer_tick_seconds(session->model->engine->tracer);
    mf_sequence_statistics own = { .prompt_tokens = s->times.prompt_tokens,
                                   .decode_tokens = s->times.decode_tokens,
                                   .prompt_seconds = s->times.prompt_seconds,
                                   .decode_seconds = s->times.decode_seconds,
                                   .attention_seconds = times->mixer_seconds,
                                   .expert_seconds = times->expert_seconds - times->wait_seconds,
                                   .expert_wait_seconds = times->wait_seconds,
                                   .head_seconds = times->head_seconds };
    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        own.prompt_stage_seconds[i] = (double)times->stage_ticks[0][i] * tick_seconds;
        own.decode_stage_seconds[i] = (double)times->stage_ticks[1][i] * tick_seconds;
    }
    return api_statistics_out(out, &own, sizeof own, "MF_SEQUENCE_STATISTICS_INIT", why);
}

void mf_sequence_reset_stats(mf_sequence *session)
{
    if (!session) return;
    session->session.times = (struct session_times){ 0 };
    session->session.forward.times = (struct forward_times){ 0 };
}
