/* requests_step.c: a step of the requests' loop. */
#include "engine/requests_loop.h"

#include "base/clock.h"
#include "base/status.h"

/* Requests with a part in a step. */
struct members {
    struct requests *requests;
    struct request *list[REQUESTS_PARALLEL_MAX];
    struct feed feeds[REQUESTS_PARALLEL_MAX];
    mf_error whys[REQUESTS_PARALLEL_MAX];
    size_t count;
    double paused_seconds; /* of the step, for others */
};

/* What the scheduler may choose from. */
struct candidates {
    struct request *list[REQUESTS_PARALLEL_MAX];
    struct schedule_job jobs[REQUESTS_PARALLEL_MAX];
    size_t count;
};

static uint32_t prompt_left(const struct request *request)
{
    return request->answering ? 0 : request->wishes.prompt_count - request->sequence.state.position;
}

static void add_candidate(struct candidates *candidates, struct request *request)
{
    candidates->list[candidates->count] = request;
    candidates->jobs[candidates->count++] =
        (struct schedule_job){ .client = request->wishes.client,
                               .background = request->wishes.background,
                               .prompt_left = prompt_left(request),
                               .since = request->since };
}

/* -------------------------------------------------------------------- before */

static struct feed feed_of(struct request *request, const struct prefix_tree *prefixes,
                           uint32_t rows, mf_error *why)
{
    const struct request_wishes *wishes = &request->wishes;
    uint32_t position = request->sequence.state.position;
    struct feed feed = { .sequence = &request->sequence,
                         .phase = MF_PHASE_GENERATED,
                         .tokens = &request->token,
                         .count = 1,
                         .why = why };
    if (request->answering) return feed;
    feed.phase = MF_PHASE_PROMPT;
    feed.tokens = wishes->prompt + position;
    feed.count = min_size(rows, request_next_stop(request, prefixes) - position);
    feed.quiet = position + feed.count < wishes->prompt_count;
    return feed;
}

static void join(struct members *members, const struct candidates *candidates)
{
    double now = clock_seconds();
    members->count = 0;
    for (size_t i = 0; i < candidates->count; i++) {
        struct request *request = candidates->list[i];
        if (candidates->jobs[i].rows == 0) continue;
        if (request->begun == 0) request->begun = now;
        members->list[members->count] = request;
        members->feeds[members->count] =
            feed_of(request, members->requests->options.prefixes, candidates->jobs[i].rows,
                    &members->whys[members->count]);
        members->count++;
    }
}

/* --------------------------------------------------------------------- after */

/* The sequence has new logits. */
static void ask_next(struct requests *requests, struct request *request)
{
    const struct request_calls *calls = &request->wishes.calls;
    if (!request->answering) request->answered_first = clock_seconds();
    request->answering = true;
    request->token = calls->next(calls->user, request->sequence.logits);
    if (request->token >= 0) {
        request->answered++;
    } else {
        request_keep_answer(request, requests->options.prefixes);
        requests_end(requests, request, NULL);
    }
}

static void go_on(struct requests *requests, struct request *request)
{
    request_keep(request, requests->options.prefixes);
    if (prompt_left(request) == 0) ask_next(requests, request);
}

static void end_feed(struct members *members, size_t index)
{
    struct request *request = members->list[index];
    const struct feed *feed = &members->feeds[index];
    request->since = clock_seconds();
    if (feed->status == MF_ERR_POOL_FULL)
        members->requests->starved = true; /* it is tried again when there is room */
    else if (feed->status != MF_OK)
        requests_end(members->requests, request, &members->whys[index]);
    else
        go_on(members->requests, request);
}

/* What the scheduler is told of a step. */
struct measure {
    double begin, waited;
    uint64_t bytes;
};

static struct measure begin_measure(const struct requests *requests)
{
    struct expert_counters counters =
        expert_store_counters(requests->options.room->forward.experts);
    return (struct measure){ clock_seconds(), counters.wait_seconds, counters.bytes_read };
}

static void tell_scheduler(const struct members *members, const struct measure *measure,
                           bool in_pause)
{
    struct measure now = begin_measure(members->requests);
    struct schedule_step step = { .in_pause = in_pause,
                                  .seconds = now.begin - measure->begin,
                                  .wait_seconds = now.waited - measure->waited,
                                  .expert_bytes = now.bytes - measure->bytes };
    for (size_t i = 0; i < members->count; i++) {
        const struct feed *feed = &members->feeds[i];
        if (feed->status != MF_OK) return;
        *(feed->phase == MF_PHASE_PROMPT ? &step.prompt_rows : &step.decode_rows) +=
            (uint32_t)feed->count;
    }
    scheduler_step_done(&members->requests->scheduler, &step);
}

static void count_step(const struct members *members, const struct measure *measure)
{
    struct requests_steps step = { .count = 1,
                                   .seconds =
                                       clock_seconds() - measure->begin - members->paused_seconds };
    for (size_t i = 0; i < members->count; i++) {
        const struct feed *feed = &members->feeds[i];
        if (feed->status == MF_OK)
            *(feed->phase == MF_PHASE_PROMPT ? &step.prompt_rows : &step.decode_rows) +=
                feed->count;
    }
    requests_count_step(members->requests, &step);
}

static void end_feeds(struct members *members)
{
    for (size_t i = 0; i < members->count; i++) end_feed(members, i);
}

/* -------------------------------------------------------------------- pauses */

static bool is_member(const struct members *members, const struct request *request)
{
    for (size_t i = 0; i < members->count; i++)
        if (members->list[i] == request) return true;
    return false;
}

/* At a layer boundary of a step of prompts: tokens that are due. */
static void pause_step(void *user)
{
    struct members *outer = user;
    struct requests *requests = outer->requests;
    struct candidates candidates = { .count = 0 };
    struct members inner = { .requests = requests };
    for (size_t i = 0; i < requests->active_count; i++)
        if (!is_member(outer, requests->active[i])) add_candidate(&candidates, requests->active[i]);
    if (!scheduler_pause(&requests->scheduler, candidates.jobs, candidates.count, clock_seconds()))
        return;
    join(&inner, &candidates);
    struct measure measure = begin_measure(requests);
    engine_feed_in_pause(inner.feeds, inner.count);
    tell_scheduler(&inner, &measure, true);
    count_step(&inner, &measure);
    end_feeds(&inner);
    outer->paused_seconds += clock_seconds() - measure.begin;
}

void requests_step(struct requests *requests)
{
    struct candidates candidates = { .count = 0 };
    struct members members = { .requests = requests };
    struct schedule_plan plan;
    for (size_t i = 0; i < requests->active_count; i++)
        add_candidate(&candidates, requests->active[i]);
    scheduler_plan(&plan, &requests->scheduler, candidates.jobs, candidates.count, clock_seconds());
    join(&members, &candidates);
    const struct feed_pause pause = { pause_step, &members };
    pthread_mutex_lock(requests->options.engine_lock);
    struct measure measure = begin_measure(requests);
    engine_feed_pausable(members.feeds, members.count, plan.pausable ? &pause : NULL);
    tell_scheduler(&members, &measure, false);
    count_step(&members, &measure);
    pthread_mutex_unlock(requests->options.engine_lock);
    end_feeds(&members);
}
