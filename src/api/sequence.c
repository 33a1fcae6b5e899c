/* sequence.c: mf_sequence_*: one text, fed and cut. */
#include "api/handles.h"

#include "base/status.h"

static mf_status choose_sizes(struct engine_room_sizes *out, const mf_model *model,
                              const mf_sequence_options *options, mf_error *why)
{
    mf_sequence_options own;
    mf_status status = api_options_in(&own, sizeof own, options, "MF_SEQUENCE_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    uint32_t context = own.context_length ? own.context_length : model->room.sizes.context_length;
    uint32_t chunk = own.chunk_rows ? own.chunk_rows : model->room.sizes.chunk_rows;
    *out = (struct engine_room_sizes){ context,
                                       (uint32_t)min_size(chunk, model->room.sizes.chunk_rows), 1 };
    status = api_check_context(&model->model.config, context, why);
    if (status != MF_OK) return status;
    if (context > model->room.sizes.context_length)
        return fail(why, MF_ERR_ARGUMENT,
                    "a context of %u was asked for, the model was opened for up to %u positions",
                    context, model->room.sizes.context_length);
    return MF_OK;
}

static mf_sequence *new_sequence(mf_model *model, mf_error *why)
{
    mf_sequence *sequence = api_new_handle(&model->engine->allocator, sizeof *sequence);
    if (sequence)
        sequence->model = model;
    else
        fail_memory(why, sizeof *sequence);
    return sequence;
}

static void release_sequence(mf_sequence *sequence)
{
    const mf_allocator *allocator = &sequence->model->engine->allocator;
    allocator->release(allocator->user, sequence, sizeof *sequence);
}

mf_status mf_sequence_open(mf_sequence **out, mf_model *model, const mf_sequence_options *options,
                           mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    struct engine_room_sizes sizes;
    mf_status status = choose_sizes(&sizes, model, options, why);
    if (status != MF_OK) return status;
    *out = new_sequence(model, why);
    if (!*out) return MF_ERR_MEMORY;
    engine_sequence_init(&(*out)->sequence, &model->room, sizes);
    return MF_OK;
}

mf_status mf_sequence_fork(mf_sequence **out, const mf_sequence *sequence, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!sequence) return api_missing(why, "sequence");
    mf_sequence *fork = new_sequence(sequence->model, why);
    if (!fork) return MF_ERR_MEMORY;
    mf_status status = engine_sequence_fork(&fork->sequence, &sequence->sequence, why);
    if (status == MF_OK)
        *out = fork;
    else
        release_sequence(fork);
    return status;
}

void mf_sequence_close(mf_sequence *sequence)
{
    if (!sequence) return;
    engine_sequence_free(&sequence->sequence);
    release_sequence(sequence);
}

static mf_status check_feed(const struct feed *feed, mf_error *why)
{
    if (!feed->tokens && feed->count > 0) return api_missing(why, "tokens");
    if (feed->phase != MF_PHASE_PROMPT && feed->phase != MF_PHASE_GENERATED)
        return fail(why, MF_ERR_ARGUMENT, "the phase is %d, which is none", (int)feed->phase);
    return MF_OK;
}

static mf_status feed_one(mf_sequence *sequence, struct feed feed, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    mf_status status = check_feed(&feed, why);
    if (status != MF_OK) return status;
    feed.sequence = &sequence->sequence;
    feed.why = why;
    pthread_mutex_lock(&sequence->model->engine->lock);
    engine_feed(&feed, 1);
    pthread_mutex_unlock(&sequence->model->engine->lock);
    return feed.status;
}

mf_status mf_sequence_feed(mf_sequence *sequence, mf_phase phase, const int32_t *tokens,
                           size_t count, mf_error *why)
{
    return feed_one(sequence, (struct feed){ .phase = phase, .tokens = tokens, .count = count },
                    why);
}

mf_status mf_sequence_feed_each(mf_sequence *sequence, mf_phase phase, const int32_t *tokens,
                                size_t count, mf_logits_function each, void *user, mf_error *why)
{
    if (!each) return api_missing(why, "each");
    struct feed feed = {
        .phase = phase, .tokens = tokens, .count = count, .each = each, .user = user
    };
    return feed_one(sequence, feed, why);
}

/* All parts are what they should be, and no sequence has two. */
static mf_status make_feeds(struct feed *feeds, const mf_model *model, const mf_part *parts,
                            size_t count, mf_error *why)
{
    for (size_t i = 0; i < count; i++) {
        const mf_part *part = &parts[i];
        if (!part->sequence) return api_missing(why, "sequence");
        if (part->sequence->model != model)
            return fail(why, MF_ERR_ARGUMENT, "the sequence of part %zu is another model's", i);
        for (size_t j = 0; j < i; j++)
            if (parts[j].sequence == part->sequence)
                return fail(why, MF_ERR_ARGUMENT, "parts %zu and %zu are of the same sequence", j,
                            i);
        feeds[i] = (struct feed){ .sequence = &part->sequence->sequence,
                                  .phase = part->phase,
                                  .tokens = part->tokens,
                                  .count = part->count,
                                  .why = part->why };
        mf_status status = check_feed(&feeds[i], why);
        if (status != MF_OK) return status;
    }
    return MF_OK;
}

mf_status mf_model_step(mf_model *model, mf_part *parts, size_t count, mf_error *why)
{
    if (!model) return api_missing(why, "model");
    if (!parts && count > 0) return api_missing(why, "parts");
    if (count == 0) return MF_OK;
    const mf_allocator *allocator = &model->engine->allocator;
    uint64_t bytes;
    struct feed *feeds = NULL;
    if (checked_multiply(&bytes, count, sizeof *feeds))
        feeds = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!feeds) return fail_memory(why, count * sizeof *feeds);
    mf_status status = make_feeds(feeds, model, parts, count, why);
    if (status == MF_OK) {
        pthread_mutex_lock(&model->engine->lock);
        engine_feed(feeds, count);
        pthread_mutex_unlock(&model->engine->lock);
        for (size_t i = count; i-- > 0;) {
            parts[i].status = feeds[i].status;
            if (feeds[i].status != MF_OK) status = feeds[i].status;
        }
    }
    allocator->release(allocator->user, feeds, bytes);
    return status;
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

mf_status mf_sequence_checkpoint(mf_sequence *sequence, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    return sequence_keep_checkpoint(&sequence->sequence.state, why);
}

void mf_sequence_forget(mf_sequence *sequence, uint32_t position)
{
    if (sequence) sequence_forget_checkpoint(&sequence->sequence.state, position);
}

mf_status mf_sequence_truncate(mf_sequence *sequence, uint32_t position, uint32_t *reached,
                               mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    return engine_sequence_truncate(&sequence->sequence, position, reached, why);
}

mf_status mf_sequence_tokens(const mf_sequence *sequence, uint32_t first, uint32_t count,
                             int32_t *ids, mf_phase *phases, mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    const struct sequence *state = &sequence->sequence.state;
    if (first > state->position || count > state->position - first)
        return fail(why, MF_ERR_ARGUMENT,
                    "%u tokens from position %u were asked for, the sequence holds %u", count,
                    first, state->position);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t token = state->tokens[first + i];
        if (ids) ids[i] = (int32_t)(token & ~TOKEN_GENERATED);
        if (phases) phases[i] = token & TOKEN_GENERATED ? MF_PHASE_GENERATED : MF_PHASE_PROMPT;
    }
    return MF_OK;
}

static void pass_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    const mf_sequence *sequence = user;
    const struct forward *forward = &sequence->model->room.forward;
    ptrdiff_t first_row = (routes->experts - forward->routes.experts) / (ptrdiff_t)routes->per_row;
    mf_routes seen = { .layer = layer,
                       .row_count = (uint32_t)rows,
                       .per_row = routes->per_row,
                       .tokens = forward->tokens + first_row,
                       .experts = routes->experts,
                       .weights = routes->weights,
                       .position = sequence_next_position(&sequence->sequence.state) };
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
    double tick_seconds = tracer_tick_seconds(sequence->model->engine->tracer);
    mf_sequence_statistics own = { .prompt_tokens = spent->prompt_tokens,
                                   .decode_tokens = spent->decode_tokens,
                                   .prompt_seconds = spent->prompt_seconds,
                                   .decode_seconds = spent->decode_seconds,
                                   .attention_seconds = spent->mixer_seconds,
                                   .expert_seconds = spent->expert_seconds - spent->wait_seconds,
                                   .expert_wait_seconds = spent->wait_seconds,
                                   .head_seconds = spent->head_seconds };
    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        own.prompt_stage_seconds[i] = spent->stage_ticks[0][i] * tick_seconds;
        own.decode_stage_seconds[i] = spent->stage_ticks[1][i] * tick_seconds;
    }
    return api_statistics_out(out, &own, sizeof own, "MF_SEQUENCE_STATISTICS_INIT", why);
}

void mf_sequence_reset_stats(mf_sequence *sequence)
{
    if (sequence) sequence->sequence.times = (struct sequence_times){ 0 };
}
