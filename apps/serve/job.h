/* job.h: an ask under way: its requests in the scheduler, and what comes of them as events.
 *
 *     scheduler's thread ── events ─▶ queue ─▶ job_next, in the connection's thread
 *
 * The queue never makes the scheduler wait.  Text of one kind that has not been taken yet is joined,
 * so that the queue of a client that reads slowly has few events.
 *
 * A call of a tool that the end of the answer cuts off keeps what was told of it; its markup never
 * becomes text. */
#ifndef SERVE_JOB_H
#define SERVE_JOB_H

#include "serve/ask.h"

enum job_event_kind {
    JOB_PROGRESS,       /* done, total: tokens of the prompt */
    JOB_REASONING,      /* text */
    JOB_CONTENT,        /* text */
    JOB_CALL_BEGIN,     /* text is the tool's name */
    JOB_CALL_ARGUMENTS, /* text is a piece of a JSON object */
    JOB_CALL_END,
    JOB_TOKEN, /* with ask.logprobs: comes before the text that it belongs to */
    JOB_ENDED  /* `result`; the last event of a choice */
};

/* A token with its probability and those of the most probable ones. */
struct job_token {
    int32_t token;
    float logprob;
    size_t count;
    mf_logprob best[20];
};

struct job_event {
    struct job_event *next;
    enum job_event_kind kind;
    uint32_t choice, call; /* call: its number in the choice, from 0 */
    uint32_t tokens;       /* of the choice, with those of this text */
    struct byte_list text;
    size_t done, total;
    struct job_token *token;   /* owned */
    mf_request_result *result; /* owned; its `stop` is borrowed from the job */
    uint32_t reasoning_tokens; /* of the answer that has ended */
};

struct job;

/* Renders, checks that the prompt fits, and submits.  `ask` is borrowed until job_free; without a
 * connection `exchange` is NULL. */
bool job_start(struct job **out, struct ask *ask, struct exchange *exchange,
               struct failure *failure);

/* Cancels what runs, and waits for its end.  NULL is legal. */
void job_free(struct job *job);

enum job_wait { JOB_EVENT, JOB_QUIET, JOB_GONE, JOB_LATE };

/* The next event, which the caller frees with job_event_free; JOB_QUIET: there is none within
 * `seconds`; JOB_GONE: the client has gone away, or the server ends; JOB_LATE: the request has taken
 * longer than --time-limit. */
enum job_wait job_next(struct job *job, double seconds, struct job_event **out);
void job_event_free(struct job_event *event);

/* Of JOB_GONE and JOB_LATE: true, and what the client is told. */
bool job_is_cut(struct failure *failure, enum job_wait got);

/* Whether all choices have ended. */
bool job_is_over(const struct job *job);

/* Tokens of the prompt, or of all prompts. */
uint32_t job_prompt_tokens(const struct job *job);
/* Tokens of the prompt up to the last of ask->breakpoints; 0: there is none. */
uint32_t job_last_breakpoint(const struct job *job);
const mf_prompt *job_prompt(const struct job *job); /* NULL: the ask was of ids */

/* With ask->score_prompts: one for each token of the choice's prompt, of which the first has none.
 * Valid when a part of the choice's answer has come. */
const struct score *job_scores(const struct job *job, uint32_t choice);

struct ask *job_ask(const struct job *job);

/* Renders without submitting: for the counting of tokens and for /apply-template. */
bool job_render(mf_prompt **out, struct ask *ask, struct failure *failure);

/* Of a choice whose request failed; false: it did not. */
bool job_failed(struct failure *failure, const mf_request_result *result);

#endif
