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
    double paused_seconds;       /* of the step, for others */
    struct requests_steps inner; /* steps in its pauses */
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

/* Logits take time after the last layer, where a step cannot pause: it is kept short. */
enum { EACH_ROWS_LEAST = 16, EACH_ROWS_MOST = 512 };
#define EACH_SECONDS_LEAST 0.05
#define EACH_SECONDS_MOST  0.1

static void adapt_each_rows(struct request *request, double seconds)
{
    uint32_t rows = request->each_rows;
    if (seconds > EACH_SECONDS_MOST && rows > EACH_ROWS_LEAST) request->each_rows = rows / 2;
    if (seconds < EACH_SECONDS_LEAST && rows < EACH_ROWS_MOST) request->each_rows = rows * 2;
}

static void pass_logits(void *user, size_t index, const float *logits)
{
    const struct request *request = user;
    const struct request_calls *calls = &request->wishes.calls;
    calls->each(calls->user, request->sequence.state.position + index, logits);
}

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
    if (wishes->calls.each) {
        if (request->each_rows == 0) request->each_rows = EACH_ROWS_LEAST;
        feed.count = min_size(feed.count, request->each_rows);
        feed.each = pass_logits;
        feed.user = request;
    }
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

/* What a step is measured with: the clock, and counters of the engine. */
struct measure {
    double begin, waited;
    uint64_t bytes, experts;
    double stages[MF_STAGE_COUNT];
};

static struct measure begin_measure(const struct requests *requests)
{
    const struct engine_room *room = requests->options.room;
    struct expert_counters counters = expert_store_counters(room->forward.experts);
    struct measure measure = { .begin = clock_seconds(),
                               .waited = counters.wait_seconds,
                               .bytes = counters.bytes_read,
                               .experts = counters.hits + counters.ahead_late + counters.misses };
    memcpy(measure.stages, room->stage_seconds, sizeof measure.stages);
    return measure;
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

static struct requests_steps count_step(const struct members *members,
                                        const struct measure *measure)
{
    const struct requests_steps *inner = &members->inner;
    struct measure now = begin_measure(members->requests);
    struct requests_steps step = {
        .count = 1,
        .experts = now.experts - measure->experts - inner->experts,
        .seconds = now.begin - measure->begin - members->paused_seconds,
        .wait_seconds = now.waited - measure->waited - inner->wait_seconds,
    };
    for (int i = 0; i < MF_STAGE_COUNT; i++)
        step.stage_seconds[i] = now.stages[i] - measure->stages[i] - inner->stage_seconds[i];
    for (size_t i = 0; i < members->count; i++) {
        const struct feed *feed = &members->feeds[i];
        if (feed->status == MF_OK)
            *(feed->phase == MF_PHASE_PROMPT ? &step.prompt_rows : &step.decode_rows) +=
                feed->count;
    }
    requests_count_step(members->requests, &step);
    return step;
}

static void end_feeds(struct members *members, const struct requests_steps *step)
{
    for (size_t i = 0; i < members->count; i++) {
        if (members->feeds[i].each) adapt_each_rows(members->list[i], step->seconds);
        end_feed(members, i);
    }
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
    struct requests_steps step = count_step(&inner, &measure);
    requests_add_step(&outer->inner, &step);
    end_feeds(&inner, &step);
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
    struct requests_steps step = count_step(&members, &measure);
    pthread_mutex_unlock(requests->options.engine_lock);
    end_feeds(&members, &step);
}
