/* job_internal.h: what job.c, prompt.c and the list of requests share. */
#ifndef SERVE_JOB_INTERNAL_H
#define SERVE_JOB_INTERNAL_H

#include "view/experts.h"
#include "serve/job.h"
#include "serve/metrics.h"
#include "view/registry.h"

#include <pthread.h>

/* One answer of a job. */
struct choice {
    struct job *job;
    mf_request *request;
    uint32_t index;
    bool cut;              /* the end of the answer has cut a call off: the rest is its markup */
    struct job_event *end; /* the last event, until it is told */
    double last_token;     /* clock; 0: none yet; the scheduler's thread alone */
    struct expert_trail trail;   /* for the live view; the same */
    uint32_t answered, reasoned; /* tokens, and those up to the end of reasoning; the same */
    struct score *scores; /* of its prompt; NULL: not asked for, or another choice has them */
    bool scored;          /* they are complete; the thread that calls job_next alone */
};

struct job {
    struct ask *ask;
    struct exchange *exchange;
    struct record *record; /* in the list of requests */
    mf_prompt *prompt;
    uint32_t prompt_tokens;
    uint32_t breakpoints[ASK_BREAKPOINTS_MAX]; /* positions */
    size_t breakpoint_count;
    double submitted; /* clock */
    int wake;         /* eventfd: there are events */
    pthread_mutex_t lock;
    struct job_event *first, *last;
    struct job_event *held; /* taken before the scores of their prompt; as `scored` */
    uint32_t ended;         /* choices, as job_next has told */
    uint32_t choice_count;
    struct choice choices[ASK_CHOICES_MAX];
};

/* Positions of the prompt after which the messages of ask->breakpoints end. */
size_t prompt_breakpoints(uint32_t out[ASK_BREAKPOINTS_MAX], const struct ask *ask,
                          const mf_prompt *prompt);

#endif
