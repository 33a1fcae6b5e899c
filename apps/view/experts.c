#include "view/experts_internal.h"

#include "common/basics.h"
#include "common/clock.h"

#include <stdlib.h>

/* ------------------------------------------- callbacks, in the thread that computes */

static void count_event(const struct experts *experts, const mf_expert_event *event)
{
    struct gathering *open = experts->open;
    size_t cell = (size_t)experts->row_of[event->layer] * experts->layout.expert_count;
    size_t at = (cell + event->expert) * EXPERT_KINDS + event->kind;

    if (event->kind >= EXPERT_KINDS) return; /* of a later version */
    if (open->counts[at] == 0) open->touched[open->touched_count++] = (uint32_t)at;
    if (open->counts[at] < UINT8_MAX) open->counts[at]++;
    open->event_count++;
}

static void take_batch(void *user, const mf_expert_batch *batch)
{
    struct experts *experts = user;
    struct expert_sums *sums = &experts->sums;

    pthread_mutex_lock(&experts->lock);
    for (size_t i = 0; i < batch->count; i++) count_event(experts, &batch->events[i]);
    memcpy(sums->events, batch->totals, sizeof sums->events);
    sums->bytes_read = batch->bytes_read;
    sums->bytes_ahead = batch->bytes_ahead;
    sums->bytes_wasted = batch->bytes_wasted;
    experts->present = batch->present;
    if (batch->stage_seconds) {
        sums->steps++;
        sums->prompt_rows += batch->prompt_rows;
        sums->decode_rows += batch->decode_rows;
        for (int i = 0; i < MF_STAGE_COUNT; i++) sums->stages[i] += batch->stage_seconds[i];
        experts->log.fresh = true;
    }
    experts->happened |= batch->count > 0 || batch->stage_seconds;
    pthread_mutex_unlock(&experts->lock);
}

static void show_token(struct experts *experts, const struct expert_trail *trail, uint32_t index)
{
    struct gathering *open = experts->open;
    size_t choices = experts->choice_count;

    if (open->token_count == FRAME_TOKENS) return;
    struct shown_token *token = &open->tokens[open->token_count];
    size_t length = min_size(strlen(trail->request), sizeof token->request - 1);
    memcpy(token->request, trail->request, length);
    token->request[length] = '\0';
    token->owner = trail->owner;
    token->index = index;
    memcpy(open->token_experts + open->token_count * choices,
           experts->log.experts + trail->first % ROUTE_ROWS * choices,
           choices * sizeof *open->token_experts);
    open->token_count++;
}

void experts_take_routes(struct experts *experts, struct expert_trail *trail,
                         const mf_routes *routes)
{
    if (!atomic_load_explicit(&experts->on, memory_order_relaxed)) return;
    pthread_mutex_lock(&experts->lock);
    bool whole = route_log_add(experts, trail, routes, experts->row_of[routes->layer]);
    if (whole && trail->request && routes->position >= trail->prompt_tokens)
        show_token(experts, trail, routes->position - trail->prompt_tokens);
    pthread_mutex_unlock(&experts->lock);
}

/* ------------------------------------------------------------------- sessions */

static bool take_memory(struct experts *experts)
{
    size_t counts = (size_t)experts->layout.row_count * experts->layout.expert_count * EXPERT_KINDS;

    for (int i = 0; i < 2; i++) {
        struct gathering *gathering = &experts->gatherings[i];
        if (gathering->token_experts) continue;
        free(gathering->counts);
        free(gathering->touched);
        gathering->counts = calloc(counts, sizeof *gathering->counts);
        gathering->touched = calloc(counts, sizeof *gathering->touched);
        if (!gathering->counts || !gathering->touched) return false;
        gathering->token_experts =
            calloc((size_t)FRAME_TOKENS * experts->choice_count, sizeof *gathering->token_experts);
        if (!gathering->token_experts) return false;
    }
    return experts->log.rows || route_log_new(&experts->log, experts->choice_count);
}

static void clear(const struct experts *experts, struct gathering *gathering)
{
    size_t cells = (size_t)experts->layout.row_count * experts->layout.expert_count;

    memset(gathering->counts, 0, cells * EXPERT_KINDS);
    gathering->touched_count = gathering->token_count = 0;
    gathering->event_count = 0;
}

/* The counters of now, from which the frames go on. */
static mf_status begin_sums(struct experts *experts, mf_error *why)
{
    mf_model_statistics model = MF_MODEL_STATISTICS_INIT;
    mf_status status = mf_model_stats(experts->serve->model, &model, why);

    experts->sums = (struct expert_sums){
        .events = { [MF_EXPERT_HIT] = model.expert_hits - model.expert_ahead_hits,
                    [MF_EXPERT_AHEAD] = model.expert_ahead_hits,
                    [MF_EXPERT_LATE] = model.expert_ahead_late,
                    [MF_EXPERT_DEMAND] = model.expert_misses - model.expert_ahead_late,
                    [MF_EXPERT_EVICTED] = model.expert_evictions,
                    [MF_EXPERT_WASTED] = model.expert_ahead_wasted },
        .bytes_read = model.expert_bytes_read,
        .bytes_ahead = model.expert_ahead_bytes,
        .bytes_wasted = model.expert_wasted_bytes,
    };
    experts->present = model.experts_present;
    return status;
}

mf_status experts_begin(struct experts *experts, mf_error *why)
{
    pthread_mutex_lock(&experts->lock);
    if (!take_memory(experts)) {
        pthread_mutex_unlock(&experts->lock);
        return fail_memory(why, ROUTE_ROWS * sizeof *experts->log.rows);
    }
    for (int i = 0; i < 2; i++) clear(experts, &experts->gatherings[i]);
    mf_status status = begin_sums(experts, why);
    experts->happened = false;
    experts->session++;
    pthread_mutex_lock(&experts->frames_lock);
    experts->told = experts->sums;
    experts->told_present = experts->present;
    experts->told_at = clock_seconds();
    pthread_mutex_unlock(&experts->frames_lock);
    pthread_mutex_unlock(&experts->lock);
    if (status == MF_OK)
        status = mf_model_watch_experts(experts->serve->model, take_batch, experts, why);
    if (status == MF_OK) atomic_store(&experts->on, true);
    return status;
}

void experts_end(struct experts *experts)
{
    atomic_store(&experts->on, false);
    mf_model_watch_experts(experts->serve->model, NULL, NULL, NULL);
}

/* ----------------------------------------------------------------------- life */

static void init_locks(struct experts *experts)
{
    pthread_condattr_t clock;

    pthread_mutex_init(&experts->switching, NULL);
    pthread_mutex_init(&experts->lock, NULL);
    pthread_mutex_init(&experts->frames_lock, NULL);
    pthread_mutex_init(&experts->whatif_lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&experts->changed, &clock);
    pthread_condattr_destroy(&clock);
}

mf_status experts_new(struct experts **out, const struct serve *serve, mf_error *why)
{
    struct experts *experts = calloc(1, sizeof *experts);
    mf_status status;

    *out = NULL;
    if (!experts) return fail_memory(why, sizeof *experts);
    init_locks(experts);
    experts->serve = serve;
    experts->open = &experts->gatherings[0];
    experts->layout = (mf_experts)MF_EXPERTS_INIT;
    status = mf_model_experts(serve->model, &experts->layout, why);
    experts->choice_count = experts->layout.row_count * experts->layout.experts_per_token;
    if (status == MF_OK) {
        experts->row_of = calloc(experts->layout.layer_count, sizeof *experts->row_of);
        if (!experts->row_of) status = fail_memory(why, experts->layout.layer_count);
    }
    if (status == MF_OK) {
        for (uint32_t i = 0; i < experts->layout.row_count; i++)
            experts->row_of[experts->layout.rows[i]] = i;
        experts->has_encoder =
            pthread_create(&experts->encoder, NULL, experts_encode, experts) == 0;
        if (!experts->has_encoder) status = fail(why, MF_ERR_MEMORY, "no thread could be started");
    }
    if (status == MF_OK)
        *out = experts;
    else
        experts_free(experts);
    return status;
}

void experts_free(struct experts *experts)
{
    if (!experts) return;
    pthread_mutex_lock(&experts->frames_lock);
    experts->closing = true;
    pthread_cond_signal(&experts->changed);
    pthread_mutex_unlock(&experts->frames_lock);
    if (experts->has_encoder) pthread_join(experts->encoder, NULL);
    for (int i = 0; i < 2; i++) {
        free(experts->gatherings[i].counts);
        free(experts->gatherings[i].touched);
        free(experts->gatherings[i].token_experts);
    }
    for (size_t i = 0; i < FRAMES_KEPT; i++) frame_free(&experts->frames[i]);
    route_log_free(&experts->log);
    free(experts->whatif);
    free(experts->row_of);
    pthread_cond_destroy(&experts->changed);
    pthread_mutex_destroy(&experts->whatif_lock);
    pthread_mutex_destroy(&experts->frames_lock);
    pthread_mutex_destroy(&experts->lock);
    pthread_mutex_destroy(&experts->switching);
    free(experts);
}
