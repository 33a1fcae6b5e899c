#include "engine/sequence.h"

#include "base/clock.h"
#include "base/status.h"

static size_t arena_bytes(const struct model_config *config, uint32_t context_length)
{
    return sequence_arena_bytes(config, context_length) +
           align_up(config->vocab_size * sizeof(float), CACHE_LINE);
}

uint64_t engine_sequence_bytes(const struct model_config *config, enum kv_format format,
                               uint32_t context_length)
{
    return sequence_pool_bytes(config, context_length, format) +
           arena_block_bytes(arena_bytes(config, context_length));
}

mf_status engine_sequence_init(struct engine_sequence *sequence, const mf_allocator *allocator,
                               struct engine_room *room, struct engine_room_sizes sizes,
                               mf_error *why)
{
    const struct model_config *config = room->forward.config;
    size_t bytes = arena_bytes(config, sizes.context_length);
    *sequence = (struct engine_sequence){ .room = room, .chunk_rows = sizes.chunk_rows };
    arena_init(&sequence->arena, allocator);
    mf_status status = sequence_pool_init(&sequence->pool, allocator, config, sizes.context_length,
                                          room->forward.backend->kv_format, why);
    if (status == MF_OK && !arena_reserve(&sequence->arena, bytes))
        status = fail_memory(why, bytes);
    if (status == MF_OK)
        status = sequence_init(&sequence->state, config, &sequence->pool, &sequence->arena,
                               sizes.context_length, why);
    if (status == MF_OK) {
        sequence->logits = ARENA_NEW(&sequence->arena, float, config->vocab_size);
        if (!sequence->logits) status = fail_memory(why, config->vocab_size * sizeof(float));
    }
    if (status != MF_OK) engine_sequence_free(sequence);
    return status;
}

void engine_sequence_free(struct engine_sequence *sequence)
{
    kv_pool_free(&sequence->pool);
    arena_free(&sequence->arena);
}

static mf_status check_tokens(const struct engine_sequence *sequence, const int32_t *tokens,
                              size_t count, mf_error *why)
{
    uint32_t vocab_size = sequence->state.config->vocab_size;
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= vocab_size)
            return fail(why, MF_ERR_ARGUMENT,
                        "token %zu has the id %d, the model's vocabulary ends at %u", i, tokens[i],
                        vocab_size - 1);
    }
    if (count > sequence->state.capacity)
        return fail(why, MF_ERR_CONTEXT_FULL, "%zu tokens do not fit: the context holds %u", count,
                    sequence->state.capacity);
    return MF_OK;
}

/* Hands over the logits of all rows of the last step; the last row's stay readable. */
static mf_status each_row(struct engine_sequence *sequence, size_t first_index, size_t rows,
                          mf_logits_function each, void *user, mf_error *why)
{
    size_t vocab_size = sequence->state.config->vocab_size;
    for (size_t r = 0; r < rows; r += LOGIT_ROWS) {
        const float *logits;
        size_t count = min_size(LOGIT_ROWS, rows - r);
        mf_status status = forward_logits(&logits, &sequence->room->forward, r, count, why);
        if (status != MF_OK) return status;
        for (size_t i = 0; i < count; i++) each(user, first_index + r + i, logits + i * vocab_size);
    }
    return MF_OK;
}

/* Neither infinite nor NaN: an exponent of all ones is one of the two. */
static bool all_finite(const float *values, size_t count)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t found = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & exponent) == exponent;
    }
    return !found;
}

/* A checkpoint with such a weight opens, because its experts are not read until they are
 * chosen; what it computes is refused here. */
static mf_status check_logits(const struct engine_sequence *sequence, const float *logits,
                              mf_error *why)
{
    const struct forward *f = &sequence->room->forward;
    char culprit[128] = "no resident weight is the cause: one of an expert that was chosen";
    if (all_finite(logits, f->config->vocab_size)) return MF_OK;
    weights_find_not_finite(culprit, sizeof culprit, f->weights, f->config->layer_count);
    return fail(why, MF_ERR_NOT_FINITE,
                "the logits are not finite numbers, which they are with sound weights; look at: %s",
                culprit);
}

/* Between layers: a chunk of which l of n layers are done counts as l/n of its tokens. */
static void report_layer(void *user, uint32_t layer, size_t rows)
{
    struct engine_sequence *sequence = user;
    const struct feed_progress *progress = &sequence->progress;
    if (!progress->function) return;
    size_t part = rows * layer / sequence->room->forward.config->layer_count;
    progress->function(progress->user, progress->done + part, progress->total);
}

static mf_status feed_chunks(struct engine_sequence *sequence, const struct sequence_feed *feed,
                             mf_error *why)
{
    for (size_t done = 0; done < feed->count;) {
        uint32_t rows = (uint32_t)min_size(sequence->chunk_rows, feed->count - done);
        struct step_part part = { &sequence->state, feed->tokens + done, rows,
                                  feed->phase == MF_PHASE_GENERATED };
        mf_status status = forward_step(&sequence->room->forward, &part, 1, why);
        if (status == MF_OK && feed->each)
            status = each_row(sequence, done, rows, feed->each, feed->user, why);
        if (status != MF_OK) return status;
        done += rows;
        sequence->progress.done = done;
        report_layer(sequence, 0, 0);
    }
    const float *logits;
    size_t last_row = (feed->count - 1) % sequence->chunk_rows;
    mf_status status = forward_logits(&logits, &sequence->room->forward, last_row, 1, why);
    if (status == MF_OK) status = check_logits(sequence, logits, why);
    if (status != MF_OK) return status;
    memcpy(sequence->logits, logits, sequence->state.config->vocab_size * sizeof(float));
    return MF_OK;
}

static void add_times(struct forward_times *to, const struct forward_times *more)
{
    to->mixer_seconds += more->mixer_seconds;
    to->expert_seconds += more->expert_seconds;
    to->wait_seconds += more->wait_seconds;
    to->head_seconds += more->head_seconds;
    for (int phase = 0; phase < 2; phase++)
        for (int i = 0; i < MF_STAGE_COUNT; i++)
            to->stage_ticks[phase][i] += more->stage_ticks[phase][i];
}

/* The engine room works for this sequence until the feed ends. */
static mf_status feed_in_room(struct engine_sequence *sequence, const struct sequence_feed *feed,
                              mf_error *why)
{
    struct forward *f = &sequence->room->forward;
    struct step_watch watch = { &sequence->cancelled, report_layer, sequence };
    sequence->progress.done = 0;
    sequence->progress.total = feed->count;
    f->observer = sequence->observer;
    f->watch = &watch;
    f->times = (struct forward_times){ 0 };
    mf_status status = feed_chunks(sequence, feed, why);
    add_times(&sequence->times.forward, &f->times);
    f->observer = NULL;
    f->watch = NULL;
    return status;
}

static void count_feed(struct sequence_times *times, const struct sequence_feed *feed,
                       double seconds)
{
    if (feed->phase == MF_PHASE_GENERATED) {
        times->decode_tokens += feed->count;
        times->decode_seconds += seconds;
    } else {
        times->prompt_tokens += feed->count;
        times->prompt_seconds += seconds;
    }
}

/* All but the commit: the tokens are pending, or after a failure nothing is. */
static mf_status feed_pending(struct engine_sequence *sequence, const struct sequence_feed *feed,
                              mf_error *why)
{
    mf_status status = check_tokens(sequence, feed->tokens, feed->count, why);
    if (status == MF_OK) status = sequence_reserve(&sequence->state, (uint32_t)feed->count, why);
    double begin = clock_seconds();
    if (status == MF_OK) status = feed_in_room(sequence, feed, why);
    if (status == MF_ERR_CANCELLED) atomic_store(&sequence->cancelled, false);
    if (status != MF_OK) {
        sequence_abandon(&sequence->state); /* also pages taken before the pool ran out */
        return status;
    }
    count_feed(&sequence->times, feed, clock_seconds() - begin);
    return MF_OK;
}

mf_status engine_sequence_feed(struct engine_sequence *sequence, const struct sequence_feed *feed,
                               mf_error *why)
{
    if (feed->count == 0) return MF_OK;
    mf_status status = feed_pending(sequence, feed, why);
    if (status != MF_OK) return status;
    sequence_commit(&sequence->state);
    sequence->has_logits = true;
    return MF_OK;
}

mf_status engine_sequence_rehearse(struct engine_sequence *sequence,
                                   const struct sequence_feed *feed, mf_error *why)
{
    if (feed->count == 0) return MF_OK;
    mf_status status = feed_pending(sequence, feed, why);
    if (status != MF_OK) return status;
    sequence_abandon(&sequence->state);
    sequence->has_logits = false; /* they are of another sequence */
    return MF_OK;
}

void engine_sequence_clear(struct engine_sequence *sequence)
{
    sequence_clear(&sequence->state);
    sequence->has_logits = false;
}

mf_status engine_sequence_truncate(struct engine_sequence *sequence, uint32_t position,
                                   mf_error *why)
{
    bool cut = position < sequence->state.position;
    mf_status status = sequence_truncate(&sequence->state, position, why);
    if (status == MF_OK && cut) sequence->has_logits = false;
    return status;
}

void engine_sequence_cancel(struct engine_sequence *sequence)
{
    atomic_store(&sequence->cancelled, true);
}

bool engine_sequence_check_invariants(const struct engine_sequence *sequence)
{
    const struct sequence *state = &sequence->state;
    bool settled = state->pending == 0 && state->pending_run_start == state->run_start &&
                   !state->recurrent.started;
    bool fits = state->position <= state->capacity && state->run_start <= state->position &&
                state->page_count == kv_pages_for(state->position) &&
                state->page_count + sequence->pool.free_count == sequence->pool.page_count;
    return settled && fits && (!sequence->has_logits || state->position > 0) &&
           sequence->chunk_rows <= sequence->room->sizes.chunk_rows;
}
