#include "engine/step.h"

#include "base/clock.h"
#include "base/status.h"

/* A step: the feeds that have a part in it. */
struct feeds_step {
    struct forward *forward;
    const struct feed_pause *pause; /* NULL: none */
    double paused_seconds;
    struct feed *feeds[SPANS_MAX];
    struct step_part parts[SPANS_MAX];
    uint32_t first_rows[SPANS_MAX];
    size_t count, row_count;
};

/* ------------------------------------------------------------------- before */

static mf_status check_tokens(const struct feed *feed, mf_error *why)
{
    const struct sequence *state = &feed->sequence->state;
    uint32_t vocab_size = state->pool->shape.config->vocab_size;
    for (size_t i = 0; i < feed->count; i++) {
        if (feed->tokens[i] < 0 || (uint32_t)feed->tokens[i] >= vocab_size)
            return fail(why, MF_ERR_ARGUMENT,
                        "token %zu has the id %d, the model's vocabulary ends at %u", i,
                        feed->tokens[i], vocab_size - 1);
    }
    if (feed->count > state->capacity)
        return fail(why, MF_ERR_CONTEXT_FULL, "%zu tokens do not fit: the context holds %u",
                    feed->count, state->capacity);
    return MF_OK;
}

/* A row of logits that no fork reads. */
static mf_status own_logits(struct engine_sequence *sequence, mf_error *why)
{
    struct state_pool *pool = &sequence->room->pool;
    void *row;
    if (sequence->logits && !state_pool_is_shared(pool, BLOCK_LOGITS, sequence->logits))
        return MF_OK;
    mf_status status = state_pool_take(&row, pool, BLOCK_LOGITS, why);
    if (status != MF_OK) return status;
    if (sequence->logits && sequence->has_logits)
        memcpy(row, sequence->logits, pool->shape.config->vocab_size * sizeof(float));
    state_pool_drop(pool, BLOCK_LOGITS, sequence->logits);
    sequence->logits = row;
    return MF_OK;
}

static mf_status reserve(struct feed *feed)
{
    struct engine_sequence *sequence = feed->sequence;
    mf_status status = check_tokens(feed, feed->why);
    if (status == MF_OK)
        status = sequence_reserve(&sequence->state, (uint32_t)feed->count, feed->why);
    if (status == MF_OK && feed->count > 0 && !feed->quiet)
        status = own_logits(sequence, feed->why);
    sequence->progress.done = 0;
    sequence->progress.total = feed->count;
    return status;
}

/* -------------------------------------------------------------------- rows */

/* The feed's next rows join the step; a cancelled feed ends here. */
static void join_step(struct feeds_step *step, struct feed *feed)
{
    struct engine_sequence *sequence = feed->sequence;
    if (atomic_load(&sequence->cancelled)) {
        feed->status = fail(feed->why, MF_ERR_CANCELLED, "cancelled after %zu of %zu tokens",
                            feed->done, feed->count);
        return;
    }
    size_t rows = min_size(sequence->chunk_rows, feed->count - feed->done);
    rows = min_size(rows, step->forward->row_capacity - step->row_count);
    step->feeds[step->count] = feed;
    step->first_rows[step->count] = (uint32_t)step->row_count;
    step->parts[step->count++] = (struct step_part){ .sequence = &sequence->state,
                                                     .tokens = feed->tokens + feed->done,
                                                     .count = (uint32_t)rows,
                                                     .decode = feed->phase == MF_PHASE_GENERATED,
                                                     .cancel = &sequence->cancelled };
    step->row_count += rows;
}

static void fill_step(struct feeds_step *step, struct feed *feeds, size_t count)
{
    step->count = step->row_count = 0;
    for (size_t i = 0; i < count; i++) {
        bool room = step->count < SPANS_MAX && step->row_count < step->forward->row_capacity;
        if (room && feeds[i].status == MF_OK && feeds[i].done < feeds[i].count)
            join_step(step, &feeds[i]);
    }
}

/* ------------------------------------------------------------------ watching */

static void report(const struct engine_sequence *sequence, size_t more)
{
    const struct feed_progress *progress = &sequence->progress;
    if (progress->function)
        progress->function(progress->user, progress->done + more, progress->total);
}

/* A step of which l of n layers are done counts as l/n of its tokens. */
static void report_layer(void *user, uint32_t layer)
{
    const struct feeds_step *step = user;
    for (size_t i = 0; i < step->count; i++)
        report(step->feeds[i]->sequence,
               (size_t)step->parts[i].count * layer / step->forward->config->layer_count);
}

/* True: steps have run in the pause. */
static bool pause_step(void *user)
{
    struct feeds_step *step = user;
    const struct engine_room *room = step->feeds[0]->sequence->room;
    uint64_t before = room->pause_steps;
    double begin = clock_seconds();
    step->pause->function(step->pause->user);
    step->paused_seconds += clock_seconds() - begin;
    return room->pause_steps != before;
}

static void pass_hidden(void *user, int layer, const float *x, size_t rows)
{
    const struct feeds_step *step = user;
    (void)rows;
    for (size_t i = 0; i < step->count; i++) {
        const struct observer *observer = step->feeds[i]->sequence->observer;
        if (observer && observer->hidden)
            observer->hidden(observer->user, layer,
                             x + (size_t)step->first_rows[i] * step->forward->config->width,
                             step->parts[i].count);
    }
}

static void pass_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    const struct feeds_step *step = user;
    (void)rows;
    for (size_t i = 0; i < step->count; i++) {
        const struct observer *observer = step->feeds[i]->sequence->observer;
        size_t first = (size_t)step->first_rows[i] * routes->per_row;
        struct routes own = { routes->experts + first, routes->weights + first, routes->per_row };
        if (observer && observer->routes)
            observer->routes(observer->user, layer, &own, step->parts[i].count);
    }
}

/* -------------------------------------------------------------------- after */

/* What went wrong with a step went wrong with the feed. */
static void fail_with_step(struct feed *feed, const mf_error *why)
{
    feed->status = why->status;
    if (feed->why) *feed->why = *why;
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
static mf_status check_logits(const struct forward *f, const float *logits, mf_error *why)
{
    char culprit[128] = "no resident weight is the cause: one of an expert that was chosen";
    if (all_finite(logits, f->config->vocab_size)) return MF_OK;
    weights_find_not_finite(culprit, sizeof culprit, f->weights, f->config->layer_count);
    return fail(why, MF_ERR_NOT_FINITE,
                "the logits are not finite numbers, which they are with sound weights; look at: %s",
                culprit);
}

/* Hands over the logits of all rows of a feed. */
static mf_status each_row(const struct feeds_step *step, size_t index)
{
    const struct feed *feed = step->feeds[index];
    size_t vocab_size = step->forward->config->vocab_size, rows = step->parts[index].count;
    for (size_t r = 0; r < rows; r += LOGIT_ROWS) {
        const float *logits;
        uint32_t wanted[LOGIT_ROWS];
        size_t count = min_size(LOGIT_ROWS, rows - r);
        for (size_t i = 0; i < count; i++) wanted[i] = step->first_rows[index] + (uint32_t)(r + i);
        mf_status status = forward_logits(&logits, step->forward, wanted, count, feed->why);
        if (status != MF_OK) return status;
        for (size_t i = 0; i < count; i++)
            feed->each(feed->user, feed->done + r + i, logits + i * vocab_size);
    }
    return MF_OK;
}

/* The logits of the last rows of up to LOGIT_ROWS feeds that have ended. */
static void keep_logits(const struct feeds_step *step, const size_t *ended, size_t count)
{
    uint32_t rows[LOGIT_ROWS];
    const float *logits;
    mf_error why;
    size_t vocab_size = step->forward->config->vocab_size;
    for (size_t i = 0; i < count; i++)
        rows[i] = step->first_rows[ended[i]] + step->parts[ended[i]].count - 1;
    mf_status status = forward_logits(&logits, step->forward, rows, count, &why);
    for (size_t i = 0; i < count; i++) {
        struct feed *feed = step->feeds[ended[i]];
        if (status != MF_OK)
            fail_with_step(feed, &why);
        else
            feed->status = check_logits(step->forward, logits + i * vocab_size, feed->why);
        if (feed->status == MF_OK)
            memcpy(feed->sequence->logits, logits + i * vocab_size, vocab_size * sizeof(float));
    }
}

static void gather_logits(struct feeds_step *step)
{
    size_t ended[LOGIT_ROWS], count = 0;
    for (size_t i = 0; i < step->count; i++) {
        struct feed *feed = step->feeds[i];
        if (feed->status == MF_OK && feed->each) feed->status = each_row(step, i);
        if (feed->status != MF_OK || feed->quiet || feed->done + step->parts[i].count < feed->count)
            continue;
        ended[count++] = i;
        if (count == LOGIT_ROWS) keep_logits(step, ended, count);
        if (count == LOGIT_ROWS) count = 0;
    }
    if (count > 0) keep_logits(step, ended, count);
}

/* A sequence's part of what the step took. */
static void count_times(const struct feeds_step *step, size_t index, double seconds)
{
    const struct forward_times *spent = &step->forward->times;
    const struct step_part *part = &step->parts[index];
    struct sequence_times *times = &step->feeds[index]->sequence->times;
    double share = (double)part->count / (double)step->row_count;
    *(part->decode ? &times->decode_tokens : &times->prompt_tokens) += part->count;
    *(part->decode ? &times->decode_seconds : &times->prompt_seconds) += seconds;
    times->mixer_seconds += share * spent->mixer_seconds;
    times->expert_seconds += share * spent->expert_seconds;
    times->wait_seconds += share * spent->wait_seconds;
    times->head_seconds += share * spent->head_seconds;
    for (int i = 0; i < MF_STAGE_COUNT; i++)
        times->stage_ticks[part->decode][i] += share * (double)spent->stage_ticks[i];
}

/* Seconds are added up, not ticks: a tick's length is known better as time goes by, and sums of
 * seconds never shrink. */
static void count_stages(const struct feeds_step *step, double stages[MF_STAGE_COUNT])
{
    const struct forward *f = step->forward;
    double tick_seconds = tracer_tick_seconds(f->backend->tracer);
    struct engine_room *room = step->feeds[0]->sequence->room;
    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        stages[i] = (double)f->times.stage_ticks[i] * tick_seconds;
        room->stage_seconds[i] += stages[i];
    }
}

static void tell_watcher(const struct feeds_step *step, double seconds, const double *stages)
{
    const struct forward *f = step->forward;
    mf_expert_batch batch = { .seconds = seconds, .stage_seconds = stages };
    for (size_t i = 0; i < step->count; i++)
        if (step->feeds[i]->status == MF_OK)
            *(step->parts[i].decode ? &batch.decode_rows : &batch.prompt_rows) +=
                step->parts[i].count;
    expert_store_tell_step(f->experts, &batch);
}

/* Passes on what some feed of the step observes. */
static struct observer observer_of(struct feeds_step *step)
{
    struct observer out = { .user = step };
    for (size_t i = 0; i < step->count; i++) {
        const struct observer *observer = step->feeds[i]->sequence->observer;
        if (observer && observer->hidden) out.hidden = pass_hidden;
        if (observer && observer->routes) out.routes = pass_routes;
    }
    return out;
}

static void run_step(struct feeds_step *step)
{
    struct forward *f = step->forward;
    const struct observer observer = observer_of(step);
    const struct step_watch watch = { step, report_layer, step->pause ? pause_step : NULL };
    mf_error why;
    double begin = clock_seconds();
    step->paused_seconds = 0;
    f->observer = &observer;
    f->watch = &watch;
    f->times = (struct forward_times){ 0 };
    mf_status status = forward_step(f, step->parts, step->count, &why);
    f->observer = NULL;
    f->watch = NULL;
    for (size_t i = 0; i < step->count; i++) {
        if (status != MF_OK)
            fail_with_step(step->feeds[i], &why);
        else if (step->parts[i].cancelled)
            step->feeds[i]->status =
                fail(step->feeds[i]->why, MF_ERR_CANCELLED, "cancelled during a step");
    }
    if (status == MF_OK) gather_logits(step);
    double seconds = clock_seconds() - begin - step->paused_seconds;
    double stages[MF_STAGE_COUNT];
    count_stages(step, stages);
    if (expert_store_is_watched(f->experts)) tell_watcher(step, seconds, stages);
    for (size_t i = 0; i < step->count; i++) {
        struct feed *feed = step->feeds[i];
        if (feed->status != MF_OK) continue;
        count_times(step, i, seconds);
        feed->done += step->parts[i].count;
        feed->sequence->progress.done = feed->done;
        report(feed->sequence, 0);
    }
}

/* -------------------------------------------------------------------- feeds */

/* All but the commits: tokens are pending, or after a failure nothing is. */
static void run_feeds(struct forward *forward, struct feed *feeds, size_t count,
                      const struct feed_pause *pause)
{
    struct feeds_step step = { .forward = forward, .pause = pause };
    for (size_t i = 0; i < count; i++) feeds[i].status = reserve(&feeds[i]);
    for (;;) {
        fill_step(&step, feeds, count);
        if (step.count == 0) break;
        run_step(&step);
    }
    for (size_t i = 0; i < count; i++) {
        struct engine_sequence *sequence = feeds[i].sequence;
        if (feeds[i].status == MF_OK) continue;
        if (feeds[i].status == MF_ERR_CANCELLED) atomic_store(&sequence->cancelled, false);
        sequence_abandon(&sequence->state); /* also pages taken before the pool was full */
    }
}

static void commit_feeds(struct feed *feeds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct engine_sequence *sequence = feeds[i].sequence;
        if (feeds[i].status != MF_OK || feeds[i].count == 0) continue;
        sequence_commit(&sequence->state);
        sequence->has_logits = !feeds[i].quiet;
    }
}

void engine_feed(struct feed *feeds, size_t count)
{
    engine_feed_pausable(feeds, count, NULL);
}

void engine_feed_pausable(struct feed *feeds, size_t count, const struct feed_pause *pause)
{
    if (count == 0) return;
    struct engine_room *room = feeds[0].sequence->room;
    struct backend *backend = room->forward.backend;
    struct tracer *before = backend->tracer, *watch = atomic_load(&room->watch_tracer);
    if (watch && expert_store_is_watched(room->forward.experts)) backend->tracer = watch;
    run_feeds(&room->forward, feeds, count, room->nested ? pause : NULL);
    backend->tracer = before;
    commit_feeds(feeds, count);
}

void engine_feed_in_pause(struct feed *feeds, size_t count)
{
    if (count == 0) return;
    struct engine_room *room = feeds[0].sequence->room;
    room->pause_steps++;
    run_feeds(room->nested, feeds, count, NULL);
    commit_feeds(feeds, count);
}

void engine_rehearse(struct feed *feed)
{
    run_feeds(&feed->sequence->room->forward, feed, 1, NULL);
    if (feed->status != MF_OK || feed->count == 0) return;
    sequence_abandon(&feed->sequence->state);
    feed->sequence->has_logits = false; /* they are of another sequence */
}
