/* request.c: mf_scheduler_* and mf_request_*: answers to many prompts at a time. */
#include "api/prompt.h"
#include "api/request.h"

#include "base/status.h"

#include <stdlib.h>

enum { BREAKPOINTS_MAX = 4 };
_Static_assert(BREAKPOINTS_MAX + PROMPT_PLACES <= REQUEST_PLACES_MAX, "room for all places");

/* ---------------------------------------------------------------- scheduler */

static void tell_step(void *user, const struct requests_steps *step)
{
    const mf_scheduler *scheduler = user;
    mf_step_report report = { .prompt_rows = (uint32_t)step->prompt_rows,
                              .decode_rows = (uint32_t)step->decode_rows,
                              .experts = step->experts,
                              .seconds = step->seconds,
                              .expert_wait_seconds = step->wait_seconds,
                              .stage_seconds = step->stage_seconds };
    scheduler->step(scheduler->step_user, &report);
}

mf_status mf_scheduler_open(mf_scheduler **out, mf_model *model,
                            const mf_scheduler_options *options, mf_error *why)
{
    mf_scheduler_options own;
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    mf_status status = api_options_in(&own, sizeof own, options, "MF_SCHEDULER_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    if (own.parallel > REQUESTS_PARALLEL_MAX)
        return fail(why, MF_ERR_ARGUMENT, "%u requests at a time were asked for, at most %d are",
                    own.parallel, REQUESTS_PARALLEL_MAX);
    if (!(own.max_gap_seconds >= 0))
        return fail(why, MF_ERR_ARGUMENT, "max_gap_seconds is %g", own.max_gap_seconds);
    mf_scheduler *scheduler = api_new_handle(&model->engine->allocator, sizeof *scheduler);
    if (!scheduler) return fail_memory(why, sizeof *scheduler);
    scheduler->model = model;
    scheduler->step = own.step;
    scheduler->step_user = own.step_user;
    uint32_t sequences = (uint32_t)min_size(model->room.sizes.sequences, REQUESTS_PARALLEL_MAX);
    struct requests_options settings = { .room = &model->room,
                                         .prefixes = model->prefixes,
                                         .engine_lock = &model->engine->lock,
                                         .parallel = own.parallel ? own.parallel : sequences,
                                         .waiting = own.waiting,
                                         .max_gap_seconds = own.max_gap_seconds,
                                         .park_directory = own.park_directory,
                                         .step = own.step ? tell_step : NULL,
                                         .step_user = scheduler };
    status = requests_new(&scheduler->requests, &settings, why);
    if (status == MF_OK)
        *out = scheduler;
    else
        mf_scheduler_close(scheduler);
    return status;
}

void mf_scheduler_close(mf_scheduler *scheduler)
{
    if (!scheduler) return;
    const mf_allocator *allocator = &scheduler->model->engine->allocator;
    requests_free(scheduler->requests);
    allocator->release(allocator->user, scheduler, sizeof *scheduler);
}

mf_status mf_scheduler_stats(const mf_scheduler *scheduler, mf_scheduler_statistics *out,
                             mf_error *why)
{
    if (!scheduler) return api_missing(why, "scheduler");
    if (!out) return api_missing(why, "out");
    const struct requests_counts counts = requests_counts(scheduler->requests);
    const uint32_t *parked = counts.now[REQUEST_PARKED], *running = counts.now[REQUEST_RUNNING];
    mf_scheduler_statistics own = {
        .running = running[0] + running[1],
        .waiting_interactive = counts.now[REQUEST_WAITING][0],
        .waiting_background = counts.now[REQUEST_WAITING][1],
        .parked = parked[0] + parked[1],
        .submitted = counts.submitted,
        .refused_busy = counts.refused_busy,
        .refused_large = counts.refused_large,
        .refused_wrong = counts.refused_wrong,
        .parked_times = counts.parked,
        .steps = counts.steps.count,
        .decode_rows = counts.steps.decode_rows,
        .prompt_rows = counts.steps.prompt_rows,
        .step_seconds = counts.steps.seconds,
        .last_decode_rows = (uint32_t)counts.last.decode_rows,
        .last_prompt_rows = (uint32_t)counts.last.prompt_rows,
        .last_step_seconds = counts.last.seconds,
    };
    _Static_assert(sizeof own.ended == sizeof counts.ended, "the same kinds");
    memcpy(own.ended, counts.ended, sizeof own.ended);
    return api_statistics_out(out, &own, sizeof own, "MF_SCHEDULER_STATISTICS_INIT", why);
}

/* ----------------------------------------------------------------- callbacks */

static void tell_progress(void *user, size_t done, size_t total)
{
    const mf_request *request = user;
    if (request->calls.progress) request->calls.progress(request->calls.user, done, total);
}

static void pass_routes(void *user, uint32_t layer, struct routes *routes, size_t rows)
{
    const mf_request *request = user;
    uint32_t position = sequence_next_position(&request->request.sequence.state);
    bool prompt = position < request->token_count;
    mf_routes seen = { .layer = layer,
                       .row_count = (uint32_t)rows,
                       .per_row = routes->per_row,
                       .tokens = prompt ? request->tokens + position : &request->request.token,
                       .experts = routes->experts,
                       .weights = routes->weights,
                       .position = position };
    request->calls.routes(request->calls.user, &seen);
}

static void fill_result(mf_request *request, const struct request_outcome *outcome)
{
    const mf_error *error = outcome->error.status != MF_OK ? &outcome->error : &request->text_error;
    mf_finish finish = request->finish;
    if (error->status == MF_ERR_CANCELLED)
        finish = MF_FINISH_CANCELLED;
    else if (error->status != MF_OK)
        finish = MF_FINISH_FAILED;
    request->result =
        (mf_request_result){ .struct_size = sizeof request->result,
                             .finish = finish,
                             .error = *error,
                             .stop = mf_stops_found(request->stops),
                             .prompt_tokens = (uint32_t)request->token_count,
                             .answer_tokens = request->count,
                             .wait_seconds = outcome->wait_seconds,
                             .prompt_seconds = outcome->prompt_seconds,
                             .answer_seconds = outcome->answer_seconds,
                             .parked = outcome->parked,
                             .cached = api_resumed(&outcome->cached,
                                                   request->scheduler->model->prefixes) };
}

static void end_request(void *user, const struct request_outcome *outcome)
{
    mf_request *request = user;
    request_finish_text(request);
    fill_result(request, outcome);
    requests_count_end(request->scheduler->requests, &request->request, request->result.finish);
    if (request->calls.ended) request->calls.ended(request->calls.user, &request->result);
    pthread_mutex_lock(&request->lock);
    request->ended = true;
    pthread_cond_broadcast(&request->has_ended);
    pthread_mutex_unlock(&request->lock);
}

/* -------------------------------------------------------------------- submit */

static mf_status copy_prompt(mf_request *request, const mf_request_options *options, mf_error *why)
{
    size_t count = options->token_count;
    const int32_t *tokens = options->tokens;
    if ((options->prompt != NULL) == (tokens != NULL))
        return fail(why, MF_ERR_ARGUMENT, "a request has a prompt or tokens, and not both");
    if (options->prompt) tokens = mf_prompt_tokens(options->prompt, &count);
    if (count == 0) return fail(why, MF_ERR_ARGUMENT, "the prompt is empty");
    request->tokens = malloc(count * sizeof *request->tokens);
    if (!request->tokens) return fail_memory(why, count * sizeof *request->tokens);
    memcpy(request->tokens, tokens, count * sizeof *request->tokens);
    request->token_count = count;
    return MF_OK;
}

static mf_status read_options(mf_request *request, const mf_request_options *options, mf_error *why)
{
    size_t context = request->scheduler->model->room.sizes.context_length;
    if (options->logprobs > REQUEST_LOGPROBS_MAX)
        return fail(why, MF_ERR_ARGUMENT, "%u logprobs were asked for, at most %d are possible",
                    options->logprobs, REQUEST_LOGPROBS_MAX);
    if (options->priority != MF_PRIORITY_INTERACTIVE && options->priority != MF_PRIORITY_BACKGROUND)
        return fail(why, MF_ERR_ARGUMENT, "the priority is %d, which is none", options->priority);
    mf_status status = copy_prompt(request, options, why);
    if (status != MF_OK) return status;
    if (request->token_count > context)
        return fail(why, MF_ERR_CONTEXT_FULL, "the prompt has %zu tokens, the context holds %zu",
                    request->token_count, context);
    /* The last token need not be fed. */
    size_t most = options->max_tokens ? options->max_tokens : UINT32_MAX;
    request->limit = (uint32_t)min_size(most, context - request->token_count + 1);
    request->logprobs = options->logprobs;
    request->token_logprobs = options->token_logprobs;
    request->ignore_end = options->ignore_end;
    request->calls =
        (struct request_calls_of_user){ options->progress, options->token,  options->event,
                                        options->ended,    options->routes, options->prompt_token,
                                        options->user };
    request->observer = (struct observer){ .user = request, .routes = pass_routes };
    return request_text_open(request, options, why);
}

static void add_place(struct request_wishes *wishes, uint32_t position, enum prefix_place place)
{
    size_t at = wishes->place_count;
    if (position == 0 || position >= wishes->prompt_count) return;
    while (at > 0 && wishes->places[at - 1].position > position) {
        wishes->places[at] = wishes->places[at - 1];
        at--;
    }
    wishes->places[at] = (struct request_place){ position, place };
    wishes->place_count++;
}

static mf_status read_places(struct request_wishes *wishes, const mf_request_options *options,
                             mf_error *why)
{
    size_t count;
    const mf_prompt_place *places = mf_prompt_places(options->prompt, &count);
    if (options->breakpoint_count > BREAKPOINTS_MAX)
        return fail(why, MF_ERR_ARGUMENT, "%zu breakpoints were given, at most %d are possible",
                    options->breakpoint_count, BREAKPOINTS_MAX);
    if (options->breakpoint_count > 0 && !options->breakpoints)
        return api_missing(why, "options->breakpoints");
    for (size_t i = 0; i < options->breakpoint_count; i++)
        add_place(wishes, options->breakpoints[i], PREFIX_BREAKPOINT);
    for (size_t i = 0; i < count; i++)
        add_place(wishes, places[i].position, (enum prefix_place)places[i].place);
    return MF_OK;
}

static mf_status submit(mf_request *request, mf_scheduler *scheduler,
                        const mf_request_options *options, mf_error *why)
{
    mf_status status = read_options(request, options, why);
    if (status != MF_OK) return status;
    struct request_wishes wishes = {
        .prompt = request->tokens,
        .prompt_count = (uint32_t)request->token_count,
        .answer_count = request->limit,
        .client = options->client,
        .background = options->priority == MF_PRIORITY_BACKGROUND,
        .observer = options->routes ? &request->observer : NULL,
        .calls = { .next = request_next_token,
                   .progress = tell_progress,
                   .each = options->prompt_token ? request_score_token : NULL,
                   .ended = end_request,
                   .user = request },
    };
    status = read_places(&wishes, options, why);
    if (status != MF_OK) return status;
    return requests_submit(scheduler->requests, &request->request, &wishes, why);
}

static void release(mf_request *request)
{
    request_text_close(request);
    pthread_cond_destroy(&request->has_ended);
    pthread_mutex_destroy(&request->lock);
    free(request->tokens);
    free(request->json);
    free(request);
}

mf_status mf_request_submit(mf_request **out, mf_scheduler *scheduler,
                            const mf_request_options *options, mf_error *why)
{
    mf_request_options own;
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!scheduler) return api_missing(why, "scheduler");
    if (!options) return api_missing(why, "options");
    mf_status status = api_options_in(&own, sizeof own, options, "MF_REQUEST_OPTIONS_INIT", why);
    if (status != MF_OK) {
        requests_count_refusal(scheduler->requests, status);
        return status;
    }
    mf_request *request = calloc(1, sizeof *request);
    if (!request) return fail_memory(why, sizeof *request);
    request->scheduler = scheduler;
    pthread_mutex_init(&request->lock, NULL);
    pthread_cond_init(&request->has_ended, NULL);
    *out = request; /* before the first callback */
    status = submit(request, scheduler, &own, why);
    if (status == MF_OK) return MF_OK;
    requests_count_refusal(scheduler->requests, status);
    *out = NULL;
    release(request);
    return status;
}

/* --------------------------------------------------------------------- after */

void mf_request_cancel(mf_request *request)
{
    if (request) request_cancel(&request->request);
}

static void wait_for_end(mf_request *request)
{
    pthread_mutex_lock(&request->lock);
    while (!request->ended) pthread_cond_wait(&request->has_ended, &request->lock);
    pthread_mutex_unlock(&request->lock);
}

mf_status mf_request_wait(mf_request *request, mf_request_result *out, mf_error *why)
{
    if (!request) return api_missing(why, "request");
    wait_for_end(request);
    if (out) {
        mf_status status = api_statistics_out(out, &request->result, sizeof request->result,
                                              "MF_REQUEST_RESULT_INIT", why);
        if (status != MF_OK) return status;
    }
    if (request->result.error.status != MF_OK && why) *why = request->result.error;
    return request->result.error.status;
}

mf_status mf_request_message(const char **out, mf_request *request, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!request) return api_missing(why, "request");
    pthread_mutex_lock(&request->lock);
    bool ended = request->ended;
    pthread_mutex_unlock(&request->lock);
    if (!ended) return fail(why, MF_ERR_ARGUMENT, "the request has not ended");
    if (request->parser) return mf_parser_message(out, request->parser, why);
    free(request->json);
    request->json = NULL;
    mf_status status = output_message_json_new(&request->json, &request->content, why);
    *out = request->json;
    return status;
}

void mf_request_close(mf_request *request)
{
    if (!request) return;
    mf_request_cancel(request);
    wait_for_end(request);
    release(request);
}
