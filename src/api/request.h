/* request.h: what a request and a scheduler of the public header are.
 *
 *     logits ── sampler, constraint ── token ── whole characters ── stop strings ── parser ── events
 *
 * engine/requests.h runs the tokens; the text around them is made in the thread that it calls
 * back. */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include "api/handles.h"
#include "chat/output_parser.h"
#include "engine/requests.h"

enum { REQUEST_LOGPROBS_MAX = 20 };

struct mf_scheduler {
    mf_model *model;
    struct requests *requests;
    void (*step)(void *user, const mf_step_report *report);
    void *step_user;
};

struct mf_request {
    mf_scheduler *scheduler;
    struct request request;
    struct observer observer; /* passes routes on, where they are asked for */
    struct request_calls_of_user {
        mf_progress_function progress;
        bool (*token)(void *user, const mf_request_token *token);
        mf_event_function event;
        void (*ended)(void *user, const mf_request_result *result);
        mf_routes_function routes;
        void (*prompt_token)(void *user, size_t position, const mf_request_token *token);
        void *user;
    } calls;
    int32_t *tokens; /* of the prompt */
    size_t token_count;
    uint32_t limit, count; /* tokens of the answer: at most, and so far */
    uint32_t logprobs;     /* that `token` is told of */
    bool token_logprobs, ignore_end;
    mf_sampler *sampler;
    mf_constraint *constraint;   /* NULL: any answer */
    mf_stops *stops;             /* NULL: none */
    mf_detokenizer *detokenizer; /* NULL: the model has no tokenizer */
    mf_parser *parser;           /* NULL: all text is content, kept in … */
    struct output_message content;
    char *json;          /* of mf_request_message */
    mf_error text_error; /* what ended the text early: a callback, or no memory; MF_OK: nothing */
    mf_finish finish;
    mf_request_result result;
    pthread_mutex_t lock;
    pthread_cond_t has_ended;
    bool ended; /* under the lock */
};

/* The parts that make text of tokens, as the options want them. */
mf_status request_text_open(mf_request *request, const mf_request_options *options, mf_error *why);
void request_text_close(mf_request *request);

/* engine/requests.h: the next token, or -1 with request->finish set.  `user`: the request. */
int32_t request_next_token(void *user, const float *logits);

/* The same: of the prompt's token at `position`; the logits are of the next one. */
void request_score_token(void *user, size_t position, const float *logits);

/* Hands over the text that was held back. */
void request_finish_text(mf_request *request);

#endif
