#include "serve/job_internal.h"

#include "common/basics.h"
#include "common/clock.h"
#include "serve/request_log.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* --------------------------------------------------------------------- queue */

void job_event_free(struct job_event *event)
{
    if (!event) return;
    byte_list_free(&event->text);
    free(event->token);
    free(event->result);
    free(event);
}

static void append(struct job *job, struct job_event *event)
{
    uint64_t one = 1;

    pthread_mutex_lock(&job->lock);
    bool was_empty = !job->first;
    if (job->last)
        job->last->next = event;
    else
        job->first = event;
    job->last = event;
    pthread_mutex_unlock(&job->lock);
    /* A counter that is full is readable as well. */
    if (was_empty && write(job->wake, &one, sizeof one) < 0) return;
}

/* True: the text was joined to the last event, which has not been taken yet. */
static bool join_last(struct job *job, const struct job_event *like, const char *text,
                      size_t length)
{
    bool joined = false;

    pthread_mutex_lock(&job->lock);
    struct job_event *last = job->last;
    if (last && last->kind == like->kind && last->choice == like->choice &&
        last->call == like->call)
        joined = byte_list_append(&last->text, text, length, NULL) == MF_OK;
    if (joined) last->tokens = like->tokens;
    pthread_mutex_unlock(&job->lock);
    return joined;
}

static bool put_text(struct choice *choice, enum job_event_kind kind, uint32_t call,
                     const char *text, size_t length)
{
    struct job_event like = {
        .kind = kind, .choice = choice->index, .call = call, .tokens = choice->answered
    };
    bool joins = kind == JOB_REASONING || kind == JOB_CONTENT || kind == JOB_CALL_ARGUMENTS;

    if (joins && join_last(choice->job, &like, text, length)) return true;
    struct job_event *event = malloc(sizeof *event);
    if (!event) return false;
    *event = like;
    if (byte_list_append(&event->text, text, length, NULL) != MF_OK) {
        job_event_free(event);
        return false;
    }
    append(choice->job, event);
    return true;
}

/* -------------------------------------------- callbacks, in the scheduler's thread */

static bool take_event(void *user, const mf_event *event)
{
    static const enum job_event_kind kinds[] = {
        [MF_EVENT_REASONING] = JOB_REASONING,   [MF_EVENT_CONTENT] = JOB_CONTENT,
        [MF_EVENT_CALL_BEGIN] = JOB_CALL_BEGIN, [MF_EVENT_CALL_ARGUMENTS] = JOB_CALL_ARGUMENTS,
        [MF_EVENT_CALL_END] = JOB_CALL_END,
    };
    struct choice *choice = user;

    if (event->kind == MF_EVENT_CALL_DROPPED) choice->cut = true;
    if (choice->cut) return true;
    if (event->kind == MF_EVENT_REASONING) choice->reasoned = choice->answered;
    return put_text(choice, kinds[event->kind], (uint32_t)event->call, event->text, event->length);
}

static void take_progress(void *user, size_t done, size_t total)
{
    struct choice *choice = user;
    struct job *job = choice->job;

    registry_progress(job->ask->serve->registry, job->record, done);
    if (!job->ask->wants_progress || choice->index > 0) return;
    struct job_event *event = calloc(1, sizeof *event);
    if (!event) return; /* the next one will tell */
    event->kind = JOB_PROGRESS;
    event->done = done;
    event->total = total;
    append(job, event);
}

static bool put_token(struct choice *choice, const mf_request_token *token)
{
    struct job_event *event = calloc(1, sizeof *event);
    struct job_token *copy = calloc(1, sizeof *copy);

    if (!event || !copy) {
        free(event);
        free(copy);
        return false;
    }
    copy->token = token->token;
    copy->logprob = token->logprob;
    copy->count = min_size(token->logprob_count, COUNT_OF(copy->best));
    for (size_t i = 0; i < copy->count; i++) copy->best[i] = token->logprobs[i];
    event->kind = JOB_TOKEN;
    event->choice = choice->index;
    event->token = copy;
    append(choice->job, event);
    return true;
}

static bool take_token(void *user, const mf_request_token *token)
{
    struct choice *choice = user;
    struct job *job = choice->job;
    struct serve *serve = job->ask->serve;
    double now = clock_seconds();

    if (choice->last_token == 0)
        metrics_observe(serve->metrics, METRIC_FIRST_TOKEN, now - job->submitted);
    else
        metrics_observe(serve->metrics, METRIC_INTER_TOKEN, now - choice->last_token);
    choice->last_token = now;
    choice->answered++;
    metrics_add(serve->metrics, METRIC_ANSWER_TOKENS, 1);
    registry_token(serve->registry, job->record);
    return !job->ask->logprobs || put_token(choice, token);
}

static void take_prompt_token(void *user, size_t position, const mf_request_token *token)
{
    const struct choice *choice = user;
    struct score *score = &choice->scores[position];

    score->logprob = token->logprob;
    score->count = min_size(token->logprob_count, SCORE_TOP_MAX);
    for (size_t i = 0; i < score->count; i++) score->best[i] = token->logprobs[i];
}

static void take_routes(void *user, const mf_routes *routes)
{
    struct choice *choice = user;

    experts_take_routes(choice->job->ask->serve->experts, &choice->trail, routes);
}

static void count_end(struct metrics *metrics, const struct job *job,
                      const mf_request_result *result)
{
    static const enum metric_counter by_finish[] = {
        [MF_FINISH_NONE] = METRIC_ENDED_FAILED,         [MF_FINISH_END] = METRIC_ENDED_STOP,
        [MF_FINISH_STOP] = METRIC_ENDED_STOP,           [MF_FINISH_LENGTH] = METRIC_ENDED_LENGTH,
        [MF_FINISH_CANCELLED] = METRIC_ENDED_CANCELLED, [MF_FINISH_FAILED] = METRIC_ENDED_FAILED,
    };

    metrics_add(metrics, by_finish[result->finish], 1);
    metrics_add(metrics, METRIC_PROMPT_TOKENS, result->prompt_tokens);
    metrics_add(metrics,
                job->ask->serve->has_checkpoints ? METRIC_CHECKPOINT_TOKENS : METRIC_KV_TOKENS,
                result->cached.resumed);
    metrics_add(metrics, METRIC_REPLAYED_TOKENS, result->cached.replayed);
    metrics_add(metrics, METRIC_MISSED_TOKENS, result->prompt_tokens - result->cached.matched);
    metrics_observe(metrics, METRIC_REQUEST, clock_seconds() - job->submitted);
    metrics_observe(metrics, job->ask->background ? METRIC_QUEUE_BACKGROUND : METRIC_QUEUE,
                    result->wait_seconds);
}

static void take_end(void *user, const mf_request_result *result)
{
    struct choice *choice = user;
    struct job *job = choice->job;
    struct job_event *event = choice->end;

    choice->end = NULL;
    count_end(job->ask->serve->metrics, job, result);
    request_log_end(job->ask, choice->index, result);
    registry_end(job->ask->serve->registry, job->record, result);
    *event->result = *result;
    event->reasoning_tokens = choice->reasoned;
    append(job, event);
}

/* The last event must come whatever memory is left then. */
static struct job_event *end_event_new(uint32_t index)
{
    struct job_event *event = calloc(1, sizeof *event);

    if (!event) return NULL;
    event->kind = JOB_ENDED;
    event->choice = index;
    event->result = calloc(1, sizeof *event->result);
    if (event->result) return event;
    free(event);
    return NULL;
}

/* --------------------------------------------------------------------- start */

static void fill_constraint(mf_constraint_options *out, const struct job *job, const char *tools)
{
    const struct ask *ask = job->ask;

    out->json_schema = ask->schema;
    out->grammar = ask->grammar;
    out->tools = tools;
    out->tool_choice = tools && ask->tool_choice[0] ? ask->tool_choice : NULL;
    out->one_call = ask->one_call;
    out->reasoning = mf_prompt_reasoning(job->prompt);
}

static void fill_request(mf_request_options *out, struct choice *choice)
{
    struct ask *ask = choice->job->ask;

    out->prompt = choice->job->prompt;
    if (ask->prompts) {
        const struct ask_prompt *prompt = &ask->prompts[ask_prompt_of(ask, choice->index)];
        out->tokens = prompt->ids;
        out->token_count = prompt->count;
    }
    out->max_tokens = ask->limit;
    out->ignore_end = ask->ignore_end;
    out->stops = ask->stops;
    out->stop_count = ask->stop_count;
    out->family = ask->messages ? mf_text_family(ask->serve->text) : NULL;
    out->stream_calls = ask->tools != NULL; /* their constraint lets no call fail */
    out->logprobs = ask->top_logprobs;
    out->token_logprobs = ask->logprobs;
    out->priority = ask->background ? MF_PRIORITY_BACKGROUND : MF_PRIORITY_INTERACTIVE;
    out->client = ask->client;
    out->progress = take_progress;
    out->token = take_token;
    out->event = take_event;
    out->ended = take_end;
    out->routes = take_routes;
    out->prompt_token = choice->scores ? take_prompt_token : NULL;
    out->user = choice;
}

/* Answers to one prompt differ in their seed. */
static uint64_t seed_of(const struct ask *ask, uint32_t index)
{
    size_t prompt = ask_prompt_of(ask, index);
    uint64_t seed = ask->sampling.seed + index;

    if (!ask->prompts) return seed;
    return seed - prompt * (ask->choices / ask->prompt_count) + ask->prompts[prompt].seed;
}

/* The first choice that is to the same prompt. */
static uint32_t first_of_prompt(const struct ask *ask, uint32_t index)
{
    uint32_t each = ask->choices / (uint32_t)max_size(ask->prompt_count, 1);

    return index - index % each;
}

/* One choice scores a prompt for all: a scored prompt is computed whole. */
static mf_status take_scores(struct choice *choice, const struct ask *ask, mf_error *why)
{
    uint32_t index = choice->index;

    if (!ask->score_prompts || !ask->prompts) return MF_OK;
    if (first_of_prompt(ask, index) != index) return MF_OK;
    const struct ask_prompt *prompt = &ask->prompts[ask_prompt_of(ask, index)];
    choice->scores = calloc(prompt->count, sizeof *choice->scores);
    return choice->scores ? MF_OK : fail_memory(why, prompt->count * sizeof *choice->scores);
}

const struct score *job_scores(const struct job *job, uint32_t choice)
{
    return job->choices[first_of_prompt(job->ask, choice)].scores;
}

static mf_status submit_choice(struct job *job, uint32_t index, const char *tools, mf_error *why)
{
    struct choice *choice = &job->choices[index];
    mf_sampler_options sampling = job->ask->sampling;
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    mf_constraint_options constraint = MF_CONSTRAINT_OPTIONS_INIT;
    struct ask *ask = job->ask;

    choice->job = job;
    choice->index = index;
    choice->trail.request = index == 0 ? ask->id : NULL;
    choice->trail.owner = ask->owner;
    choice->trail.prompt_tokens =
        ask->prompts ? (uint32_t)ask->prompts[0].count : job->prompt_tokens;
    choice->end = end_event_new(index);
    if (!choice->end) return fail_memory(why, sizeof *choice->end);
    mf_status status = take_scores(choice, ask, why);
    if (status != MF_OK) return status;
    fill_request(&options, choice);
    options.tools = tools;
    options.breakpoints = job->breakpoints;
    options.breakpoint_count = job->breakpoint_count;
    if (ask->schema || ask->grammar || tools) {
        fill_constraint(&constraint, job, tools);
        options.constraint = &constraint;
    }
    sampling.seed = seed_of(ask, index);
    options.sampling = &sampling;
    return mf_request_submit(&choice->request, ask->serve->scheduler, &options, why);
}

static bool submit(struct job *job, struct failure *failure)
{
    char *tools = job->ask->tools ? json_dumps(job->ask->tools, JSON_COMPACT) : NULL;
    mf_error why = { .text = "" };
    mf_status status = MF_OK;

    for (uint32_t i = 0; i < job->ask->choices && status == MF_OK; i++) {
        status = submit_choice(job, i, tools, &why);
        job->choice_count += status == MF_OK;
    }
    free(tools);
    if (status == MF_OK) return true;
    metrics_add(job->ask->serve->metrics,
                status == MF_ERR_BUSY ? METRIC_REFUSED_BUSY : METRIC_REFUSED_INVALID, 1);
    return refuse_error(failure, &why);
}

/* Agents look for these texts, word by word, and ask for less. */
static bool refuse_limit(const struct ask *ask, size_t count, struct failure *failure)
{
    uint32_t context = ask->serve->context;

    if (ask->limit > context)
        return refuse_code(failure, "invalid_value", "max_tokens",
                           "max_tokens: %u > %u, which is the maximum allowed number of output "
                           "tokens for %s",
                           ask->limit, context, mf_model_name(ask->serve->model));
    return refuse(failure, FAILURE_TOO_LONG, "max_tokens",
                  "input length and `max_tokens` exceed context limit: %zu + %u > %u; ask for "
                  "fewer, or start the server without --strict",
                  count, ask->limit, context);
}

/* A limit beyond the context is lowered: agents ask for 32,000 tokens of any model. */
static bool check_length(struct job *job, struct failure *failure)
{
    struct ask *ask = job->ask;
    size_t context = ask->serve->context, longest = 0, i = 0;

    do {
        size_t count = ask->prompts ? ask->prompts[i].count : 0;
        if (job->prompt) mf_prompt_tokens(job->prompt, &count);
        if (count == 0) return refuse(failure, FAILURE_INVALID, "prompt", "the prompt is empty");
        if (count > context) return refuse_too_long(failure, count, context);
        job->prompt_tokens += (uint32_t)count;
        longest = max_size(longest, count);
    } while (++i < ask->prompt_count);
    if (ask->limit <= context - longest + 1) return true;
    if (ask->serve->options.strict) return refuse_limit(ask, longest, failure);
    /* The scheduler ends each of several answers where its own context does. */
    if (ask->prompt_count <= 1) ask->limit = (uint32_t)(context - longest + 1);
    return ask_note(ask, failure, "max_tokens");
}

/* Answers wait together at first.  Where the queue is too short for that, "try again" is wrong. */
static bool check_choices(const struct ask *ask, struct failure *failure)
{
    uint32_t most = ask->serve->options.queue;

    if (most == 0 || ask->choices <= most || ask->choices == 1) return true;
    return refuse_code(failure, "invalid_value", ask->prompt_count > 1 ? "prompt" : "n",
                       "%u answers are asked for; this server takes at most %u at a time",
                       ask->choices, most);
}

/* Waits for events, for `seconds` at most. */
static bool is_given_up(const struct job *job, double seconds)
{
    struct pollfd watched[] = { { .fd = job->wake, .events = POLLIN },
                                { .fd = job->ask->stop, .events = POLLIN } };

    if (job->exchange) return exchange_wait(job->exchange, job->wake, seconds) == EXCHANGE_GONE;
    return poll(watched, COUNT_OF(watched), (int)(seconds * 1000)) > 0 && watched[1].revents != 0;
}

static bool prepare(struct job *job, struct failure *failure)
{
    struct ask *ask = job->ask;

    if (atomic_load(&ask->serve->phase) != SERVE_READY)
        return refuse(failure, FAILURE_CLOSING, NULL, "the server is shutting down");
    if (!ask->prompts && !job_render(&job->prompt, ask, failure)) return false;
    if (!check_length(job, failure) || !check_choices(ask, failure)) return false;
    if (job->prompt) job->breakpoint_count = prompt_breakpoints(job->breakpoints, ask, job->prompt);
    job->record = registry_begin(ask->serve->registry, ask, job->prompt_tokens);
    request_log_begin(ask, job->prompt);
    job->submitted = clock_seconds();
    return submit(job, failure);
}

bool job_start(struct job **out, struct ask *ask, struct exchange *exchange,
               struct failure *failure)
{
    struct job *job = calloc(1, sizeof *job);

    *out = NULL;
    if (!job) return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
    job->ask = ask;
    job->exchange = exchange;
    pthread_mutex_init(&job->lock, NULL);
    job->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool done = job->wake >= 0
                    ? prepare(job, failure)
                    : refuse(failure, FAILURE_ENGINE, NULL, "no event descriptor is left");
    if (!done) {
        job_free(job);
        return false;
    }
    if (exchange && ask->notes.count > 0)
        exchange_add_header(exchange, "x-moeflux-ignored", ask->notes.bytes);
    *out = job;
    return true;
}

static void free_events(struct job_event *first)
{
    for (struct job_event *event = first, *next; event; event = next) {
        next = event->next;
        job_event_free(event);
    }
}

void job_free(struct job *job)
{
    if (!job) return;
    for (uint32_t i = 0; i < job->choice_count; i++) mf_request_cancel(job->choices[i].request);
    for (uint32_t i = 0; i < job->choice_count; i++) mf_request_close(job->choices[i].request);
    registry_release(job->ask->serve->registry, job->record);
    for (uint32_t i = 0; i < ASK_CHOICES_MAX; i++) {
        job_event_free(job->choices[i].end);
        free(job->choices[i].scores);
    }
    free_events(job->first);
    free_events(job->held);
    mf_prompt_close(job->prompt);
    if (job->wake >= 0) close(job->wake);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

/* -------------------------------------------------------------------- events */

static struct job_event *take_first(struct job *job)
{
    uint64_t count;

    pthread_mutex_lock(&job->lock);
    struct job_event *event = job->first;
    if (event) {
        job->first = event->next;
        if (!job->first) job->last = NULL;
    }
    /* Only an empty queue sleeps: what comes now writes to `wake` again. */
    else if (read(job->wake, &count, sizeof count) < 0 && errno != EAGAIN)
        event = NULL;
    pthread_mutex_unlock(&job->lock);
    if (event) event->next = NULL;
    return event;
}

/* A choice's first event comes after the scores of its prompt; those of choices that share them come
 * from the queue at any time. */
static bool must_wait(const struct job *job, const struct job_event *event)
{
    uint32_t first = first_of_prompt(job->ask, event->choice);

    return job->ask->score_prompts && first != event->choice && !job->choices[first].scored;
}

static void hold(struct job *job, struct job_event *event)
{
    struct job_event **end = &job->held;

    while (*end) end = &(*end)->next;
    *end = event;
}

/* An event that was held and need not wait any more; NULL: there is none. */
static struct job_event *take_held(struct job *job)
{
    for (struct job_event **at = &job->held; *at; at = &(*at)->next) {
        struct job_event *event = *at;
        if (must_wait(job, event)) continue;
        *at = event->next;
        event->next = NULL;
        return event;
    }
    return NULL;
}

static struct job_event *take_next(struct job *job)
{
    struct job_event *event = take_held(job);

    while (!event && (event = take_first(job)) && must_wait(job, event)) {
        hold(job, event);
        event = NULL;
    }
    if (event && event->kind != JOB_PROGRESS) job->choices[event->choice].scored = true;
    return event;
}

enum job_wait job_next(struct job *job, double seconds, struct job_event **out)
{
    double until = clock_seconds() + seconds;
    double limit = job->ask->serve->options.time_limit_seconds;

    for (;;) {
        *out = take_next(job);
        if (*out) {
            job->ended += (*out)->kind == JOB_ENDED;
            return JOB_EVENT;
        }
        double now = clock_seconds(), left = until - now;
        if (limit > 0 && now - job->submitted > limit) return JOB_LATE;
        if (left <= 0) return JOB_QUIET;
        if (limit > 0) left = fmin(left, limit - (now - job->submitted));
        if (is_given_up(job, left)) return JOB_GONE;
    }
}

bool job_is_cut(struct failure *failure, enum job_wait got)
{
    if (got == JOB_GONE) refuse(failure, FAILURE_CLOSING, NULL, "the server is shutting down");
    if (got == JOB_LATE)
        refuse(failure, FAILURE_LATE, NULL,
               "the request has taken longer than the server's limit for one (--time-limit)");
    return got == JOB_GONE || got == JOB_LATE;
}

bool job_is_over(const struct job *job)
{
    return job->ended == job->choice_count;
}

uint32_t job_prompt_tokens(const struct job *job)
{
    return job->prompt_tokens;
}

uint32_t job_last_breakpoint(const struct job *job)
{
    uint32_t last = 0;

    for (size_t i = 0; i < job->breakpoint_count; i++)
        if (job->breakpoints[i] > last) last = job->breakpoints[i];
    return last;
}

const mf_prompt *job_prompt(const struct job *job)
{
    return job->prompt;
}

struct ask *job_ask(const struct job *job)
{
    return job->ask;
}

bool job_failed(struct failure *failure, const mf_request_result *result)
{
    if (result->finish != MF_FINISH_FAILED && result->finish != MF_FINISH_CANCELLED) return false;
    refuse_error(failure, &result->error);
    return true;
}
