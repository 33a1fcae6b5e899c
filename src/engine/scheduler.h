/* scheduler.h: which rows the next step has.  Policy only: no clock, no thread, no model; times are
 * seconds of the caller's clock.
 *
 *     jobs ─ scheduler_plan ─▶ rows of each ─ the caller runs the step ─▶ scheduler_step_done
 *                                               │ at each layer boundary of a pausable step
 *                                               └▶ scheduler_pause ─ true: decode rows, now
 *
 * A generating sequence waits for whatever computes between two of its tokens.  The limit of that
 * gap is the deadline: the caller's, or 150 ms, and never less than twice a step of the decode rows
 * alone.  Only interactive jobs have one.  With decode rows that have a deadline, prompt rows go
 *
 *     beside them, in one step that is predicted to end within the deadline, or
 *     into a pausable step of their own: decode steps run at its layer boundaries, so that only a
 *     layer must fit in between.  A chunk reads every expert once; large chunks cost less per row.
 *
 * whichever computes the prompt faster.  In pauses decode steps get about a sixteenth of
 * the time, and more where the deadline asks for it.
 * Without such rows a step takes as many prompt rows as it has room for.
 *
 * Order of prompts: interactive before background ones; then the clients that have had the least
 * time, where less than a second does not count; then the shortest rest of a prompt.  An eighth of
 * the time goes to the prompt that has waited longest, whatever it is, so that none starves.
 * Decode rows all run in every step; beyond the limits, those that have waited longest.
 *
 * What a step takes is learned: for decode and for prompt rows, by number of rows, the time
 * of the last steps without their waits for reads, and the bytes of experts that they read; and
 * for each byte, the time that steps waited for it (cost.h).
 *
 * Threads: one call at a time. */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include "engine/cost.h"

/* Prompt rows come in multiples of this, but for the end of a prompt. */
enum { SCHEDULE_GRAIN = 16 };

/* Clients whose time is remembered; beyond them, those of the last plans. */
enum { SCHEDULE_CLIENTS = 256 };

struct scheduler_options {
    double max_gap_seconds; /* deadline between two tokens; 0: 150 ms */
    uint32_t chunk_rows;    /* rows of the largest step */
    uint32_t span_limit;    /* parts of a step, at most */
    uint32_t pause_rows;    /* decode rows of a step in a pause; 0: steps cannot pause */
    uint32_t layer_count;   /* of the model */
};

/* A sequence that could compute now; one that waits for anything else is left out by the caller. */
struct schedule_job {
    uint64_t client;      /* jobs with the same number share their time */
    bool background;      /* no deadline, after interactive ones */
    uint32_t prompt_left; /* rows of the prompt still to compute; 0: a generated token is next */
    double since;         /* end of the last step it had rows in, or its arrival */
    uint32_t rows;        /* out: of the next step; 0: none */
    uint32_t account;     /* set by the scheduler: index of its client */
};

struct schedule_plan {
    uint32_t decode_rows, prompt_rows; /* both 0: no job */
    bool pausable;            /* ask scheduler_pause before each layer; no decode rows are in it */
    double predicted_seconds; /* of the step, without pauses */
    double deadline_seconds;  /* of the gap between tokens; 0: no decode row has one */
};

/* What a step was, and took. */
struct schedule_step {
    uint32_t decode_rows, prompt_rows;
    bool in_pause;         /* run inside another step, after scheduler_pause said true */
    double seconds;        /* from its beginning to its end, its pauses included … */
    double wait_seconds;   /* … of these: nothing could be computed for lack of an expert */
    uint64_t expert_bytes; /* read meanwhile, pauses included */
};

struct scheduler {
    struct scheduler_options options;
    struct curve decode, prompt;             /* seconds of computing for each row */
    struct curve decode_bytes, prompt_bytes; /* of experts, for each row */
    struct learned wait_per_byte;            /* seconds */
    struct learned unevenness;               /* the longest layer of a step ÷ the average one */
    struct schedule_client {
        uint64_t client, last_plan;
        double served_seconds; /* predicted ones */
    } clients[SCHEDULE_CLIENTS];
    double floor_seconds; /* the least served_seconds of the clients of the last plan */
    uint64_t plan_count;
    double waiting_seconds; /* saved up for the prompt that has waited longest */
    size_t turn;            /* where decode rows are left out next */
    bool prompts_passed;    /* the last plan had decode rows only, for the deadline's sake */
    /* The present pausable step. */
    double layer_predicted, layer_longest, boundary; /* boundary: when the last one was; 0: none */
    double paused_seconds, paused_wait_seconds;
    uint64_t paused_bytes;
};

void scheduler_init(struct scheduler *scheduler, const struct scheduler_options *options);

/* Sets the rows of every job for the next step. */
void scheduler_plan(struct schedule_plan *out, struct scheduler *scheduler,
                    struct schedule_job *jobs, size_t count, double now);

/* At a layer boundary of a pausable step: whether decode rows must run now.  If so, sets the rows
 * of the decode jobs that run (1) and of all others (0); the caller runs them as a step in a pause
 * and calls scheduler_step_done.  `jobs`: all that are not part of the step, in any order. */
bool scheduler_pause(struct scheduler *scheduler, struct schedule_job *jobs, size_t count,
                     double now);

/* Learns from a step.  One that failed or was cancelled is not told. */
void scheduler_step_done(struct scheduler *scheduler, const struct schedule_step *step);

/* What a step without pauses would take, as far as it is known. */
double scheduler_predict(const struct scheduler *scheduler, uint32_t decode_rows,
                         uint32_t prompt_rows);

/* The deadline while `decode_rows` generate. */
double scheduler_deadline(const struct scheduler *scheduler, uint32_t decode_rows);

#endif
