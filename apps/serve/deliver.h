/* deliver.h: how the events of a job become a reply, whole or as a stream.
 *
 * A dialect gives a `writer`; `deliver` runs the job and calls it:
 *
 *     whole    events are collected ─▶ whole
 *     stream   begin ─▶ event … (a ping where nothing comes for 5 s) ─▶ finish, or break_off
 *
 * Either way all that has come is in `collected`, so that both say the same. */
#ifndef SERVE_DELIVER_H
#define SERVE_DELIVER_H

#include "serve/job.h"

struct collected_call {
    char id[48]; /* "call_…" or "toolu_…": made here */
    char *name;
    struct byte_list arguments;
    bool complete;
};

/* One answer. */
struct collected {
    uint32_t index;
    struct byte_list reasoning, content;
    struct collected_call *calls;
    size_t call_count, call_capacity;
    bool ended;
    mf_request_result result; /* when it has ended */
    uint32_t reasoning_tokens;
    /* With ask.logprobs, as OpenAI's APIs have them: of all content, and of what the present event
     * brings.  Tokens of reasoning and calls have none. */
    json_t *logprobs, *fresh_logprobs, *pending_logprobs;
};

struct delivery {
    struct serve *serve;
    struct exchange *exchange;
    struct ask *ask;
    struct job *job;
    const struct writer *writer;
    struct collected answers[ASK_CHOICES_MAX];
    void *state; /* the dialect's own, or NULL */
    bool begun;
    struct failure refused; /* of writer.tells_too_long */
};

struct writer {
    const char *stream_type; /* "text/event-stream" */
    const char *call_prefix; /* of ids of calls */
    /* Every event, also of a reply that is written whole, after `answer` has taken it in and before
     * `event`; may be NULL. */
    void (*collect)(struct delivery *delivery, const struct job_event *event,
                    struct collected *answer);
    /* A stream tells itself, by begin and break_off, that the prompt does not fit: clients look for
     * it there.  There is no job then. */
    bool tells_too_long;
    void (*begin)(struct delivery *delivery, struct byte_list *out); /* may be NULL */
    /* `answer` has taken the event in already. */
    void (*event)(struct delivery *delivery, const struct job_event *event,
                  struct collected *answer, struct byte_list *out);
    void (*finish)(struct delivery *delivery, struct byte_list *out);
    void (*break_off)(struct delivery *delivery, const struct failure *failure,
                      struct byte_list *out);
    void (*ping)(struct delivery *delivery, struct byte_list *out); /* NULL: an SSE comment */
    json_t *(*whole)(struct delivery *delivery);
    void (*free_state)(void *state); /* may be NULL */
};

/* Starts a job of `ask` and replies.  Takes the ask (from malloc, it is closed and freed) and the
 * state over. */
void deliver(struct serve *serve, struct exchange *exchange, struct ask *ask,
             const struct writer *writer, void *state);

/* The same without a connection: the body of the reply, and its status. */
json_t *deliver_now(unsigned *status, struct serve *serve, struct ask *ask,
                    const struct writer *writer, void *state);

/* What OpenAI calls it: "stop", "length", "tool_calls". */
const char *finish_reason(const struct collected *answer);

/* Sums over all answers; cached tokens are counted once for each prompt. */
uint32_t delivery_answer_tokens(const struct delivery *delivery);
uint32_t delivery_reasoning_tokens(const struct delivery *delivery);
uint32_t delivery_cached_tokens(const struct delivery *delivery);

/* Text of a list as a JSON string. */
json_t *list_json_new(const struct byte_list *text);

#endif
