/* requests_count.c: what the requests' loop has done, for any thread. */
#include "engine/requests_loop.h"

static uint32_t *gauge(struct requests *requests, const struct request *request)
{
    return &requests->counts.now[request->state][request->wishes.background];
}

void requests_move_locked(struct requests *requests, struct request *request,
                          enum request_state state)
{
    if (request->state == REQUEST_NEW)
        requests->counts.submitted++;
    else
        --*gauge(requests, request);
    request->state = state;
    ++*gauge(requests, request);
    if (state == REQUEST_PARKED) requests->counts.parked++;
}

void requests_move(struct requests *requests, struct request *request, enum request_state state)
{
    pthread_mutex_lock(&requests->lock);
    requests_move_locked(requests, request, state);
    pthread_mutex_unlock(&requests->lock);
}

void requests_count_end(struct requests *requests, struct request *request, unsigned end)
{
    pthread_mutex_lock(&requests->lock);
    requests_move_locked(requests, request, REQUEST_ENDED);
    requests->counts.ended[end]++;
    pthread_mutex_unlock(&requests->lock);
}

void requests_count_refusal(struct requests *requests, mf_status status)
{
    struct requests_counts *counts = &requests->counts;
    bool large = status == MF_ERR_CONTEXT_FULL || status == MF_ERR_POOL_FULL;
    pthread_mutex_lock(&requests->lock);
    ++*(status == MF_ERR_BUSY ? &counts->refused_busy
        : large               ? &counts->refused_large
                              : &counts->refused_wrong);
    pthread_mutex_unlock(&requests->lock);
}

void requests_add_step(struct requests_steps *sum, const struct requests_steps *step)
{
    sum->count += step->count;
    sum->decode_rows += step->decode_rows;
    sum->prompt_rows += step->prompt_rows;
    sum->experts += step->experts;
    sum->seconds += step->seconds;
    sum->wait_seconds += step->wait_seconds;
    for (int i = 0; i < MF_STAGE_COUNT; i++) sum->stage_seconds[i] += step->stage_seconds[i];
}

void requests_count_step(struct requests *requests, const struct requests_steps *step)
{
    const struct requests_options *options = &requests->options;
    pthread_mutex_lock(&requests->lock);
    requests_add_step(&requests->counts.steps, step);
    requests->counts.last = *step;
    pthread_mutex_unlock(&requests->lock);
    if (options->step) options->step(options->step_user, step);
}

struct requests_counts requests_counts(struct requests *requests)
{
    pthread_mutex_lock(&requests->lock);
    struct requests_counts counts = requests->counts;
    pthread_mutex_unlock(&requests->lock);
    return counts;
}
