/* request_text.c: the text of a request: tokens are picked, and become events. */
#include "api/request.h"

#include "base/json.h"
#include "base/status.h"

static mf_status open_parser(mf_request *request, const mf_request_options *options, mf_error *why)
{
    mf_parser_options parser = MF_PARSER_OPTIONS_INIT;
    if (!options->family) return MF_OK;
    parser.family = options->family;
    parser.tools = options->tools;
    parser.reasoning = mf_prompt_reasoning(options->prompt);
    parser.stream_calls = options->stream_calls;
    parser.each = request->calls.event;
    parser.user = request->calls.user;
    return mf_parser_open(&request->parser, &parser, why);
}

static mf_status open_detokenizer(mf_request *request, const mf_request_options *options,
                                  mf_error *why)
{
    mf_detokenizer_options text = MF_DETOKENIZER_OPTIONS_INIT;
    bool wanted = options->family || options->stop_count > 0 || options->event;
    if (!request->scheduler->model->text.parts.tokenizer && !wanted) return MF_OK;
    text.family = options->family;
    return mf_detokenizer_open(&request->detokenizer, &request->scheduler->model->text, &text, why);
}

mf_status request_text_open(mf_request *request, const mf_request_options *options, mf_error *why)
{
    mf_status status =
        mf_sampler_open(&request->sampler, request->scheduler->model, options->sampling, why);
    if (status == MF_OK && options->constraint)
        status = mf_constraint_open(&request->constraint, request->scheduler->model,
                                    options->constraint, why);
    if (status == MF_OK && options->stop_count > 0)
        status = mf_stops_open(&request->stops, options->stops, options->stop_count, why);
    if (status == MF_OK) status = open_detokenizer(request, options, why);
    if (status == MF_OK) status = open_parser(request, options, why);
    if (status == MF_OK)
        mf_sampler_accept_prompt(request->sampler, request->tokens, request->token_count);
    return status;
}

void request_text_close(mf_request *request)
{
    mf_sampler_close(request->sampler);
    mf_constraint_close(request->constraint);
    mf_stops_close(request->stops);
    mf_detokenizer_close(request->detokenizer);
    mf_parser_close(request->parser);
    output_message_clear(&request->content);
}

/* --------------------------------------------------------------------- text */

/* Whole characters, without stop strings. */
static void take_text(void *user, const char *text, size_t length)
{
    mf_request *request = user;
    mf_event event = { .kind = MF_EVENT_CONTENT, .text = text, .length = length };
    mf_error *why = &request->text_error;
    if (length == 0 || why->status != MF_OK) return;
    if (request->parser) {
        mf_parser_feed(request->parser, text, length, why);
        return;
    }
    struct output_event part = { .kind = OUTPUT_CONTENT, .text = text, .length = length };
    mf_status status = output_message_sink(&request->content, &part, why);
    if (status == MF_OK && request->calls.event &&
        !request->calls.event(request->calls.user, &event))
        fail(why, MF_ERR_CANCELLED, "the event function ended the request");
}

/* False: a stop string is complete. */
static bool push_text(mf_request *request, const char *text, size_t length)
{
    if (request->stops) return !mf_stops_feed(request->stops, text, length, take_text, request);
    take_text(request, text, length);
    return true;
}

void request_finish_text(mf_request *request)
{
    size_t length = 0;
    const char *text = mf_detokenizer_flush(request->detokenizer, &length);
    if (request->finish != MF_FINISH_STOP) push_text(request, text, length);
    if (request->stops && request->finish != MF_FINISH_STOP)
        mf_stops_finish(request->stops, take_text, request);
    if (!request->parser || request->text_error.status != MF_OK) return;
    if (request->finish == MF_FINISH_END)
        mf_parser_finish(request->parser, &request->text_error);
    else
        mf_parser_cut(request->parser, &request->text_error);
}

/* -------------------------------------------------------------------- tokens */

/* -1: nothing can follow. */
static int32_t pick(mf_request *request, const float *logits)
{
    if (!request->constraint) return mf_sampler_pick(request->sampler, logits);
    int32_t token = mf_constraint_pick(request->constraint, request->sampler, logits,
                                       request->limit - request->count);
    if (token >= 0) mf_constraint_accept(request->constraint, token);
    return token;
}

static mf_request_token describe_token(const mf_request *request, mf_logprob *best,
                                       const float *logits, int32_t token)
{
    mf_request_token seen = { .token = token, .logprobs = best };
    if (request->logprobs > 0)
        seen.logprob_count = mf_sampler_logprobs(request->sampler, best, request->logprobs, logits);
    if (request->token_logprobs)
        seen.logprob = mf_sampler_logprob_of(request->sampler, logits, token);
    return seen;
}

/* False: the caller does not want to go on. */
static bool tell_token(const mf_request *request, const float *logits, int32_t token)
{
    mf_logprob best[REQUEST_LOGPROBS_MAX];
    if (!request->calls.token) return true;
    mf_request_token seen = describe_token(request, best, logits, token);
    return request->calls.token(request->calls.user, &seen);
}

void request_score_token(void *user, size_t position, const float *logits)
{
    const mf_request *request = user;
    mf_logprob best[REQUEST_LOGPROBS_MAX];
    size_t next = position + 1;
    if (next >= request->token_count) return; /* the answer's first one */
    mf_request_token seen = describe_token(request, best, logits, request->tokens[next]);
    request->calls.prompt_token(request->calls.user, next, &seen);
}

/* MF_FINISH_NONE: the answer goes on after the token. */
static mf_finish take_token(mf_request *request, const float *logits, int32_t token)
{
    size_t length = 0;
    request->count++;
    mf_sampler_accept(request->sampler, token);
    if (!tell_token(request, logits, token))
        fail(&request->text_error, MF_ERR_CANCELLED, "the token function ended the request");
    if (request->text_error.status != MF_OK) return MF_FINISH_FAILED;
    const char *text = mf_detokenizer_push(request->detokenizer, token, &length);
    if (!push_text(request, text, length)) return MF_FINISH_STOP;
    if (request->text_error.status != MF_OK) return MF_FINISH_FAILED;
    if (request->constraint && mf_constraint_is_finished(request->constraint)) return MF_FINISH_END;
    return request->count == request->limit ? MF_FINISH_LENGTH : MF_FINISH_NONE;
}

int32_t request_next_token(void *user, const float *logits)
{
    mf_request *request = user;
    int32_t token = pick(request, logits);
    bool ends =
        token < 0 || (!request->ignore_end && mf_model_is_end(request->scheduler->model, token));
    request->finish = ends ? MF_FINISH_END : take_token(request, logits, token);
    return request->finish == MF_FINISH_NONE ? token : -1;
}
