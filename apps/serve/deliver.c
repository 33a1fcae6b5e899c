#include "serve/deliver.h"

#include "common/basics.h"
#include "serve/reply.h"

#include <math.h>
#include <stdlib.h>

static const double ping_seconds = 5;

json_t *list_json_new(const struct byte_list *text)
{
    return json_text_new(text->bytes ? text->bytes : "", text->count);
}

/* ----------------------------------------------------------------- collecting */

static json_t *token_json_new(const mf_text *text, int32_t token, float logprob)
{
    size_t length = 0;
    const char *bytes = mf_text_token_bytes(text, token, &length);
    json_t *list = json_array();

    for (size_t i = 0; i < length; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    /* JSON has no infinity. */
    double value = isfinite(logprob) ? (double)logprob : -9999.0;
    return json_pack("{s:o, s:f, s:o}", "token", json_text_new(bytes ? bytes : "", length),
                     "logprob", value, "bytes", list);
}

static void take_token(struct delivery *delivery, struct collected *answer,
                       const struct job_token *token)
{
    const mf_text *text = delivery->serve->text;
    json_t *best = json_array(), *one = token_json_new(text, token->token, token->logprob);

    for (size_t i = 0; i < token->count; i++)
        json_array_append_new(best,
                              token_json_new(text, token->best[i].token, token->best[i].logprob));
    json_object_set_new(one, "top_logprobs", best);
    if (!answer->pending_logprobs) answer->pending_logprobs = json_array();
    json_array_append_new(answer->pending_logprobs, one);
}

/* Whether the bytes of the tokens from `first` on are those that a text begins with. */
static bool tokens_begin(const json_t *tokens, size_t first, const struct byte_list *text)
{
    size_t offset = 0, i;
    json_t *byte;

    for (size_t t = first; t < json_array_size(tokens); t++) {
        json_array_foreach(json_object_get(json_array_get(tokens, t), "bytes"), i, byte)
        {
            if (offset == text->count) return true;
            if ((unsigned char)text->bytes[offset++] != json_integer_value(byte)) return false;
        }
    }
    return true;
}

/* What ends reasoning stands before the tokens of the content. */
static void drop_markup(json_t *tokens, const struct byte_list *text)
{
    size_t first = 0, count = json_array_size(tokens);

    while (first < count && !tokens_begin(tokens, first, text)) first++;
    for (size_t i = 0; i < first && first < count; i++) json_array_remove(tokens, 0);
}

/* Tokens that have come belong to the content that comes now, or (NULL) to nothing that has any. */
static void settle_logprobs(struct collected *answer, const struct byte_list *content)
{
    if (content && answer->pending_logprobs) {
        drop_markup(answer->pending_logprobs, content);
        if (!answer->logprobs) answer->logprobs = json_array();
        json_array_extend(answer->logprobs, answer->pending_logprobs);
        answer->fresh_logprobs = answer->pending_logprobs;
    } else {
        json_decref(answer->pending_logprobs);
    }
    answer->pending_logprobs = NULL;
}

static void begin_call(struct delivery *delivery, struct collected *answer,
                       const struct byte_list *name)
{
    struct collected_call *call;

    if (list_reserve((void **)&answer->calls, &answer->call_capacity, sizeof *answer->calls,
                     answer->call_count + 1, NULL) != MF_OK)
        return;
    call = &answer->calls[answer->call_count++];
    *call = (struct collected_call){ .name = strdup(name->bytes ? name->bytes : "") };
    ask_new_id(call->id, sizeof call->id, delivery->writer->call_prefix);
}

static void append(struct byte_list *out, const struct byte_list *text)
{
    if (text->count > 0) byte_list_append(out, text->bytes, text->count, NULL);
}

static struct collected *collect(struct delivery *delivery, const struct job_event *event)
{
    struct collected *answer = &delivery->answers[event->choice];
    struct collected_call *call =
        event->call < answer->call_count ? &answer->calls[event->call] : NULL;

    json_decref(answer->fresh_logprobs);
    answer->fresh_logprobs = NULL;
    if (event->kind != JOB_TOKEN && event->kind != JOB_PROGRESS)
        settle_logprobs(answer, event->kind == JOB_CONTENT ? &event->text : NULL);
    if (event->kind == JOB_TOKEN) take_token(delivery, answer, event->token);
    if (event->kind == JOB_REASONING) append(&answer->reasoning, &event->text);
    if (event->kind == JOB_CONTENT) append(&answer->content, &event->text);
    if (event->kind == JOB_CALL_BEGIN) begin_call(delivery, answer, &event->text);
    if (event->kind == JOB_CALL_ARGUMENTS && call) append(&call->arguments, &event->text);
    if (event->kind == JOB_CALL_END && call) call->complete = true;
    if (event->kind == JOB_ENDED) {
        answer->ended = true;
        answer->result = *event->result;
        answer->reasoning_tokens = event->reasoning_tokens;
    }
    if (delivery->writer->collect) delivery->writer->collect(delivery, event, answer);
    return answer;
}

const char *finish_reason(const struct collected *answer)
{
    if (answer->result.finish == MF_FINISH_LENGTH) return "length";
    return answer->call_count > 0 ? "tool_calls" : "stop";
}

uint32_t delivery_answer_tokens(const struct delivery *delivery)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < delivery->ask->choices; i++)
        sum += delivery->answers[i].result.answer_tokens;
    return sum;
}

uint32_t delivery_reasoning_tokens(const struct delivery *delivery)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < delivery->ask->choices; i++)
        sum += delivery->answers[i].reasoning_tokens;
    return sum;
}

uint32_t delivery_cached_tokens(const struct delivery *delivery)
{
    const struct ask *ask = delivery->ask;
    uint32_t sum = 0,
             each = ask->choices / (ask->prompt_count > 1 ? (uint32_t)ask->prompt_count : 1);

    for (uint32_t i = 0; i < ask->choices; i += each)
        sum += delivery->answers[i].result.cached.resumed;
    return sum;
}

/* ----------------------------------------------------------------------- life */

static void free_answer(struct collected *answer)
{
    for (size_t i = 0; i < answer->call_count; i++) {
        free(answer->calls[i].name);
        byte_list_free(&answer->calls[i].arguments);
    }
    free(answer->calls);
    byte_list_free(&answer->reasoning);
    byte_list_free(&answer->content);
    json_decref(answer->logprobs);
    json_decref(answer->fresh_logprobs);
    json_decref(answer->pending_logprobs);
}

static void free_delivery(void *user)
{
    struct delivery *delivery = user;

    job_free(delivery->job);
    if (delivery->writer->free_state) delivery->writer->free_state(delivery->state);
    for (uint32_t i = 0; i < ASK_CHOICES_MAX; i++) free_answer(&delivery->answers[i]);
    ask_close(delivery->ask);
    free(delivery->ask);
    free(delivery);
}

/* --------------------------------------------------------------------- whole */

static bool any_failed(const struct delivery *delivery, struct failure *failure)
{
    for (uint32_t i = 0; i < delivery->ask->choices; i++)
        if (job_failed(failure, &delivery->answers[i].result)) return true;
    return false;
}

/* The reply's body; *status is its status.  NULL with *failure filled: there is none. */
static json_t *answer_whole(struct delivery *delivery, struct failure *failure)
{
    struct job_event *event;

    while (!job_is_over(delivery->job)) {
        enum job_wait got = job_next(delivery->job, ping_seconds, &event);
        if (job_is_cut(failure, got)) return NULL;
        if (got == JOB_EVENT) collect(delivery, event);
        job_event_free(event);
    }
    refuse(failure, FAILURE_ENGINE, NULL, "no memory is left for a reply");
    return any_failed(delivery, failure) ? NULL : delivery->writer->whole(delivery);
}

/* -------------------------------------------------------------------- stream */

/* False: the stream is over. */
static bool write_event(struct delivery *delivery, const struct job_event *event,
                        struct byte_list *out)
{
    struct collected *answer = collect(delivery, event);
    struct failure failure;

    if (event->kind == JOB_ENDED && job_failed(&failure, event->result)) {
        delivery->writer->break_off(delivery, &failure, out);
        return false;
    }
    delivery->writer->event(delivery, event, answer, out);
    if (!job_is_over(delivery->job)) return true;
    delivery->writer->finish(delivery, out);
    return false;
}

static void write_ping(struct delivery *delivery, struct byte_list *out)
{
    if (delivery->writer->ping)
        delivery->writer->ping(delivery, out);
    else
        sse_add_ping(out);
}

enum { STREAM_PIECE = 16 << 10 };

static bool fill_stream(void *user, struct byte_list *out)
{
    struct delivery *delivery = user;
    struct job_event *event;
    struct failure failure;
    bool goes_on = true;

    if (!delivery->begun && delivery->writer->begin) delivery->writer->begin(delivery, out);
    delivery->begun = true;
    /* What is ready goes out in one piece. */
    while (goes_on && out->count < STREAM_PIECE) {
        enum job_wait got = job_next(delivery->job, out->count > 0 ? 0 : ping_seconds, &event);
        if (job_is_cut(&failure, got)) {
            delivery->writer->break_off(delivery, &failure, out);
            return false;
        }
        if (got == JOB_QUIET && out->count > 0) break;
        if (got == JOB_QUIET) write_ping(delivery, out);
        if (got == JOB_EVENT) goes_on = write_event(delivery, event, out);
        job_event_free(event);
    }
    return goes_on;
}

static bool fill_refusal(void *user, struct byte_list *out)
{
    struct delivery *delivery = user;

    if (delivery->writer->begin) delivery->writer->begin(delivery, out);
    delivery->writer->break_off(delivery, &delivery->refused, out);
    return false;
}

/* ------------------------------------------------------------------- deliver */

/* True: the failure goes out as a stream, which takes the delivery over. */
static bool tells_itself(struct delivery *delivery, const struct failure *failure)
{
    struct exchange_stream stream = { fill_refusal, free_delivery, delivery };

    if (!delivery->ask->stream || !delivery->writer->tells_too_long ||
        failure->kind != FAILURE_TOO_LONG)
        return false;
    delivery->refused = *failure;
    exchange_reply_stream(delivery->exchange, delivery->writer->stream_type, &stream);
    return true;
}

/* NULL: no memory; ask and state are gone then. */
static struct delivery *new_delivery(struct serve *serve, struct exchange *exchange,
                                     struct ask *ask, const struct writer *writer, void *state)
{
    struct delivery *delivery = calloc(1, sizeof *delivery);

    if (!delivery) {
        if (writer->free_state) writer->free_state(state);
        ask_close(ask);
        free(ask);
        return NULL;
    }
    *delivery = (struct delivery){
        .serve = serve, .exchange = exchange, .ask = ask, .writer = writer, .state = state
    };
    for (uint32_t i = 0; i < ASK_CHOICES_MAX; i++) delivery->answers[i].index = i;
    return delivery;
}

void deliver(struct serve *serve, struct exchange *exchange, struct ask *ask,
             const struct writer *writer, void *state)
{
    struct delivery *delivery = new_delivery(serve, exchange, ask, writer, state);
    struct failure failure;
    json_t *body = NULL;

    if (!delivery) return; /* the reply is "no memory" */
    bool started = job_start(&delivery->job, ask, exchange, &failure);
    if (!started && tells_itself(delivery, &failure)) return;
    if (started && ask->stream) {
        struct exchange_stream stream = { fill_stream, free_delivery, delivery };
        exchange_reply_stream(exchange, writer->stream_type, &stream);
        return;
    }
    if (started) body = answer_whole(delivery, &failure);
    if (body)
        reply_json(exchange, 200, body);
    else
        failure_reply(exchange, ask->dialect, &failure);
    free_delivery(delivery);
}

json_t *deliver_now(unsigned *status, struct serve *serve, struct ask *ask,
                    const struct writer *writer, void *state)
{
    struct delivery *delivery = new_delivery(serve, NULL, ask, writer, state);
    struct failure failure;
    json_t *body = NULL;

    *status = 500;
    if (!delivery) return NULL;
    if (job_start(&delivery->job, ask, NULL, &failure)) body = answer_whole(delivery, &failure);
    *status = body ? 200 : failure_status(&failure);
    if (!body) body = failure_json_new(&failure, ask->dialect, NULL);
    free_delivery(delivery);
    return body;
}
