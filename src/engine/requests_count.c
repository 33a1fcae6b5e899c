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

void requests_count_step(struct requests *requests, const struct requests_steps *step)
{
    pthread_mutex_lock(&requests->lock);
    struct requests_steps *sum = &requests->counts.steps;
    sum->count += step->count;
    sum->decode_rows += step->decode_rows;
    sum->prompt_rows += step->prompt_rows;
    sum->seconds += step->seconds;
    requests->counts.last = *step;
    pthread_mutex_unlock(&requests->lock);
}

struct requests_counts requests_counts(struct requests *requests)
{
    pthread_mutex_lock(&requests->lock);
    struct requests_counts counts = requests->counts;
    pthread_mutex_unlock(&requests->lock);
    return counts;
}
