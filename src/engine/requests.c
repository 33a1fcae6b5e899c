#include "engine/requests_loop.h"

#include "base/clock.h"
#include "base/status.h"
#include "base/thread.h"
#include "engine/admission.h"

#include <stdlib.h>

/* ----------------------------------------------------------------------- end */

void requests_leave_active(struct requests *requests, const struct request *request)
{
    size_t kept = 0;
    for (size_t i = 0; i < requests->active_count; i++)
        if (requests->active[i] != request) requests->active[kept++] = requests->active[i];
    requests->active_count = kept;
}

void requests_end(struct requests *requests, struct request *request, const mf_error *why)
{
    const struct request_calls calls = request->wishes.calls;
    double now = clock_seconds();
    struct request_outcome outcome = { .error = { .status = MF_OK },
                                       .parked = request->parked.times,
                                       .cached = request->cached };
    if (why) outcome.error = *why;
    if (outcome.error.status == MF_ERR_CANCELLED)
        request_keep_cut(request, requests->options.prefixes);
    double begun = request->begun > 0 ? request->begun : now;
    double first = request->answered_first > 0 ? request->answered_first : now;
    outcome.wait_seconds = begun - request->submitted;
    outcome.prompt_seconds = first - begun;
    outcome.answer_seconds = now - first;
    requests_leave_active(requests, request);
    request_drop_parked(request);
    engine_sequence_release(&request->sequence);
    sequence_free(&request->sequence.state);
    calls.ended(calls.user, &outcome);
}

static void end_cancelled(struct requests *requests, struct request *request)
{
    mf_error why;
    fail(&why, MF_ERR_CANCELLED,
         "cancelled after %u of %u tokens of the prompt and %u of the answer",
         request->answering ? request->wishes.prompt_count : request->sequence.state.position,
         request->wishes.prompt_count, request->answered);
    requests_end(requests, request, &why);
}

/* ------------------------------------------------------------------- waiting */

/* Interactive ones first; then in the order of arrival, so that one that was parked comes back to
 * its place. */
static bool comes_before(const struct request *a, const struct request *b)
{
    if (a->wishes.background != b->wishes.background) return b->wishes.background;
    return a->number < b->number;
}

/* Under the lock. */
static void enqueue(struct requests *requests, struct request *request)
{
    struct request **place = &requests->waiting;
    while (*place && comes_before(*place, request)) place = &(*place)->following;
    request->following = *place;
    *place = request;
    requests->waiting_count++;
}

void requests_put_back(struct requests *requests, struct request *request)
{
    pthread_mutex_lock(&requests->lock);
    enqueue(requests, request);
    pthread_mutex_unlock(&requests->lock);
}

void requests_take_out(struct requests *requests, const struct request *request)
{
    pthread_mutex_lock(&requests->lock);
    struct request **place = &requests->waiting;
    while (*place != request) place = &(*place)->following;
    *place = request->following;
    requests->waiting_count--;
    pthread_mutex_unlock(&requests->lock);
}

/* Only the loop's thread takes requests out of the list. */
static struct request *find_cancelled(struct requests *requests)
{
    pthread_mutex_lock(&requests->lock);
    struct request *request = requests->waiting;
    while (request && !requests->closing && !atomic_load(&request->cancelled))
        request = request->following;
    pthread_mutex_unlock(&requests->lock);
    return request;
}

/* False: the loop is to end. */
static bool wait_for_work(struct requests *requests)
{
    pthread_mutex_lock(&requests->lock);
    while (requests->active_count == 0 && !requests->waiting && !requests->closing)
        pthread_cond_wait(&requests->submitted, &requests->lock);
    bool ends = requests->closing && requests->active_count == 0 && !requests->waiting;
    pthread_mutex_unlock(&requests->lock);
    return !ends;
}

static void end_all_cancelled(struct requests *requests)
{
    struct request *request;
    pthread_mutex_lock(&requests->lock);
    bool closing = requests->closing;
    pthread_mutex_unlock(&requests->lock);
    while ((request = find_cancelled(requests))) {
        requests_take_out(requests, request);
        end_cancelled(requests, request);
    }
    for (size_t i = requests->active_count; i-- > 0;)
        if (closing || atomic_load(&requests->active[i]->cancelled))
            end_cancelled(requests, requests->active[i]);
}

/* ---------------------------------------------------------------------- loop */

static void *run(void *argument)
{
    struct requests *requests = argument;
    while (wait_for_work(requests)) {
        end_all_cancelled(requests);
        requests_admit(requests);
        size_t active = requests->active_count;
        if (active > 0) requests_step(requests);
        /* One that ended has made room already. */
        if (requests->starved && requests->active_count == active) requests_make_room(requests);
        requests->starved = false;
    }
    return NULL;
}

mf_status requests_new(struct requests **out, const struct requests_options *options, mf_error *why)
{
    const struct engine_room *room = options->room;
    *out = NULL;
    mf_status status = requests_check_directory(options, why);
    if (status != MF_OK) return status;
    struct requests *requests = calloc(1, sizeof *requests);
    if (!requests) return fail_memory(why, sizeof *requests);
    requests->options = *options;
    if (options->park_directory) {
        requests->park_directory = strdup(options->park_directory);
        if (!requests->park_directory) {
            free(requests);
            return fail_memory(why, strlen(options->park_directory));
        }
    }
    scheduler_init(&requests->scheduler,
                   &(struct scheduler_options){ .max_gap_seconds = options->max_gap_seconds,
                                                .chunk_rows = room->sizes.chunk_rows,
                                                .span_limit = SPANS_MAX,
                                                .pause_rows = engine_room_pause_rows(room->sizes),
                                                .layer_count = room->forward.config->layer_count });
    pthread_mutex_init(&requests->lock, NULL);
    pthread_cond_init(&requests->submitted, NULL);
    int error = thread_start(&requests->thread, NULL, run, requests);
    if (error == 0) {
        *out = requests;
        return MF_OK;
    }
    pthread_cond_destroy(&requests->submitted);
    pthread_mutex_destroy(&requests->lock);
    free(requests->park_directory);
    free(requests);
    return fail_errno(why, MF_ERR_MEMORY, error, "the scheduler's thread cannot be started");
}

void requests_free(struct requests *requests)
{
    if (!requests) return;
    pthread_mutex_lock(&requests->lock);
    requests->closing = true;
    pthread_cond_signal(&requests->submitted);
    pthread_mutex_unlock(&requests->lock);
    pthread_join(requests->thread, NULL);
    pthread_cond_destroy(&requests->submitted);
    pthread_mutex_destroy(&requests->lock);
    free(requests->park_directory);
    free(requests);
}

/* -------------------------------------------------------------------- submit */

static mf_status check_wishes(const struct requests *requests, const struct request *request,
                              mf_error *why)
{
    struct state_pool *pool = &requests->options.room->pool;
    const struct request_wishes *wishes = &request->wishes;
    uint32_t vocab_size = pool->shape.config->vocab_size;
    for (uint32_t i = 0; i < wishes->prompt_count; i++)
        if (wishes->prompt[i] < 0 || (uint32_t)wishes->prompt[i] >= vocab_size)
            return fail(why, MF_ERR_ARGUMENT,
                        "token %u has the id %d, the model's vocabulary ends at %u", i,
                        wishes->prompt[i], vocab_size - 1);
    return admission_check(request_wanted_bytes(request, &pool->shape), wishes->prompt_count,
                           state_pool_sizes(pool).limit_bytes, why);
}

static void report_progress(void *user, size_t done, size_t total)
{
    const struct request *request = user;
    const struct request_wishes *wishes = &request->wishes;
    (void)total;
    if (!request->answering && wishes->calls.progress)
        wishes->calls.progress(wishes->calls.user, request->sequence.state.position + done,
                               wishes->prompt_count);
}

/* Requests that could begin, but for the loop's next turn, do not count as waiting.  Under the
 * lock. */
static bool is_full(const struct requests *requests)
{
    const struct requests_options *options = &requests->options;
    uint64_t count = 0;
    for (unsigned state = REQUEST_WAITING; state <= REQUEST_RUNNING; state++)
        count += (uint64_t)requests->counts.now[state][0] + requests->counts.now[state][1];
    return options->waiting > 0 && count >= (uint64_t)options->parallel + options->waiting;
}

mf_status requests_submit(struct requests *requests, struct request *request,
                          const struct request_wishes *wishes, mf_error *why)
{
    struct engine_room *room = requests->options.room;
    mf_status status;
    *request = (struct request){ .wishes = *wishes, .submitted = clock_seconds() };
    request->since = request->submitted;
    status = check_wishes(requests, request, why);
    if (status != MF_OK) return status;
    engine_sequence_init(&request->sequence, room, room->sizes);
    request->sequence.observer = wishes->observer;
    request->sequence.progress =
        (struct feed_progress){ .function = report_progress, .user = request };
    pthread_mutex_lock(&requests->lock);
    if (requests->closing)
        status = fail(why, MF_ERR_CANCELLED, "the scheduler is being closed");
    else if (is_full(requests))
        status = fail(why, MF_ERR_BUSY, "%zu requests wait already, and that is the limit",
                      requests->waiting_count);
    if (status == MF_OK) {
        request->number = requests->next_number++;
        requests_move_locked(requests, request, REQUEST_WAITING);
        enqueue(requests, request);
        pthread_cond_signal(&requests->submitted);
    }
    pthread_mutex_unlock(&requests->lock);
    return status;
}

void request_cancel(struct request *request)
{
    atomic_store(&request->cancelled, true);
    engine_sequence_cancel(&request->sequence);
}
