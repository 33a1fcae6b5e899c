/* sequence.c: mf_sequence_*: one text, fed and cut. */
#include "api/handles.h"

#include "base/status.h"

static mf_status choose_sizes(struct engine_room_sizes *out, const mf_model *model,
                              const mf_sequence_options *options, mf_error *why)
{
    mf_sequence_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_SEQUENCE_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    uint32_t limit = model->model.config.context_length;
    uint32_t context = own.context_length ? own.context_length : model->room.sizes.context_length;
    uint32_t chunk = own.chunk_rows ? own.chunk_rows : model->room.sizes.chunk_rows;
    *out = (struct engine_room_sizes){ context,
                                       (uint32_t)min_size(chunk, model->room.sizes.chunk_rows) };
    if (context > limit)
        return fail(why, MF_ERR_ARGUMENT,
                    "a context of %u was asked for, the model goes to %u positions", context,
                    limit);
    if (context > model->room.sizes.context_length)
        return fail(why, MF_ERR_ARGUMENT,
                    "a context of %u was asked for, the model was opened for up to %u positions",
                    context, model->room.sizes.context_length);
    return MF_OK;
}

mf_status mf_sequence_open(mf_sequence **out, mf_model *model, const mf_sequence_options *options,
                           mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    mf_engine *engine = model->engine;
    struct engine_room_sizes sizes;
    mf_status status = choose_sizes(&sizes, model, options, why);
    if (status != MF_OK) return status;
    mf_sequence *sequence = api_new_handle(&engine->allocator, sizeof *sequence);
    if (!sequence) return fail_memory(why, sizeof *sequence);
    sequence->model = model;
    status =
        engine_sequence_init(&sequence->sequence, &engine->allocator, &model->room, sizes, why);
    pthread_mutex_lock(&engine->lock);
    if (status == MF_OK) {
        status = api_admit_sequence(sequence, why);
        if (status != MF_OK) engine_sequence_free(&sequence->sequence);
    }
    pthread_mutex_unlock(&engine->lock);
    if (status == MF_OK)
        *out = sequence;
    else
        engine->allocator.release(engine->allocator.user, sequence, sizeof *sequence);
    return status;
}

void mf_sequence_close(mf_sequence *sequence)
{
    if (!sequence) return;
    mf_engine *engine = sequence->model->engine;
    pthread_mutex_lock(&engine->lock);
    api_dismiss_sequence(sequence);
    pthread_mutex_unlock(&engine->lock);
    engine_sequence_free(&sequence->sequence);
    engine->allocator.release(engine->allocator.user, sequence, sizeof *sequence);
}

static mf_status feed(mf_sequence *sequence, const struct sequence_feed *what, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    if (!what->tokens && what->count > 0) return api_missing(why, "tokens");
    if (what->phase != MF_PHASE_PROMPT && what->phase != MF_PHASE_GENERATED)
        return fail(why, MF_ERR_ARGUMENT, "the phase is %d, which is none", (int)what->phase);
    pthread_mutex_lock(&sequence->model->engine->lock);
    mf_status status = engine_sequence_feed(&sequence->sequence, what, why);
    pthread_mutex_unlock(&sequence->model->engine->lock);
    return status;
}

mf_status mf_sequence_feed(mf_sequence *sequence, mf_phase phase, const int32_t *tokens,
                           size_t count, mf_error *why)
{
    return feed(sequence, &(struct sequence_feed){ phase, tokens, count, NULL, NULL }, why);
}

mf_status mf_sequence_feed_each(mf_sequence *sequence, mf_phase phase, const int32_t *tokens,
                                size_t count, mf_logits_function each, void *user, mf_error *why)
{
    if (!each) return api_missing(why, "each");
    return feed(sequence, &(struct sequence_feed){ phase, tokens, count, each, user }, why);
}

void mf_sequence_cancel(mf_sequence *sequence)
{
    if (sequence) engine_sequence_cancel(&sequence->sequence);
}

void mf_sequence_watch_progress(mf_sequence *sequence, mf_progress_function each, void *user)
{
    if (!sequence) return;
    sequence->sequence.progress = (struct feed_progress){ .function = each, .user = user };
}

const float *mf_sequence_logits(const mf_sequence *sequence)
{
    return sequence && sequence->sequence.has_logits ? sequence->sequence.logits : NULL;
}

mf_model *mf_sequence_model(const mf_sequence *sequence)
{
    return sequence ? sequence->model : NULL;
}

uint32_t mf_sequence_position(const mf_sequence *sequence)
{
    return sequence ? sequence->sequence.state.position : 0;
}

uint32_t mf_sequence_context_length(const mf_sequence *sequence)
{
    return sequence ? sequence->sequence.state.capacity : 0;
}

void mf_sequence_clear(mf_sequence *sequence)
{
    if (sequence) engine_sequence_clear(&sequence->sequence);
}

mf_status mf_sequence_truncate(mf_sequence *sequence, uint32_t position, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    return engine_sequence_truncate(&sequence->sequence, position, why);
}

static void pass_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    const mf_sequence *sequence = user;
    mf_routes seen = { .layer = layer,
                       .row_count = (uint32_t)rows,
                       .per_row = routes->per_row,
                       .tokens = sequence->model->room.forward.tokens,
                       .experts = routes->experts,
                       .weights = routes->weights };
    sequence->watch_routes(sequence->watch_user, &seen);
}

void mf_sequence_watch_routes(mf_sequence *sequence, mf_routes_function each, void *user)
{
    if (!sequence) return;
    sequence->watch_routes = each;
    sequence->watch_user = user;
    sequence->observer = (struct observer){ .user = sequence, .routes = pass_routes };
    sequence->sequence.observer = each ? &sequence->observer : NULL;
}

mf_status mf_sequence_stats(const mf_sequence *sequence, mf_sequence_statistics *out, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    if (!out) return api_missing(why, "out");
    const struct sequence_times *spent = &sequence->sequence.times;
    const struct forward_times *times = &spent->forward;
    double tick_seconds = tracer_tick_seconds(sequence->model->engine->tracer);
    mf_sequence_statistics own = { .prompt_tokens = spent->prompt_tokens,
                                   .decode_tokens = spent->decode_tokens,
                                   .prompt_seconds = spent->prompt_seconds,
                                   .decode_seconds = spent->decode_seconds,
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

void mf_sequence_reset_stats(mf_sequence *sequence)
{
    if (sequence) sequence->sequence.times = (struct sequence_times){ 0 };
}
