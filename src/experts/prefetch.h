/* prefetch.h: does reading ahead pay, and which predictions are worth a read?
 *
 * Predictions of a layer's experts come ranked, the surest first.  For every rank it
 * is counted how often a predicted expert that was not in memory was then needed.
 * What is read follows from the level:
 *
 *     0   nothing; nothing is predicted either
 *     1   ranks that are right at least every second time
 *     2   every fourth time: more reads for fewer waits, where the disk has room
 *     3   every eighth time
 *
 * The level is found by trial.  The cost of a visit is the time that it waited for
 * reads and the time that predicting took; nothing else is looked at, so that disk,
 * cache, model and load need no model here.
 *
 *              home, other, home, other: 4 tokens each
 *            ┌────────────────────────────────────────┐   other: one level up or
 *     ┌────▶ │                 TRIAL                  │   down, in turn
 *     │      └───────────────────┬────────────────────┘
 *     │                          ▼  home = the cheaper one
 *     └─────────────── STEADY at home; each time twice as long,
 *                      as long as home stays the same
 *
 * Threads: one owner. */
#ifndef EXPERTS_PREFETCH_H
#define EXPERTS_PREFETCH_H

#include "base/common.h"

enum { PREFETCH_RANKS = 64, PREFETCH_LEVELS = 4 };

struct prefetch {
    uint32_t visits_per_token;
    uint32_t level, home, other;
    bool try_up;                        /* the next trial's direction */
    uint32_t trial_phase;               /* 0: STEADY; else the part of the trial, from 1 */
    uint32_t visits_left;               /* of this phase */
    uint32_t steady_tokens;             /* how long the next steady phase lasts */
    double home_seconds, other_seconds; /* of the trial */
    float right[PREFETCH_RANKS];        /* share of predictions that came true */
};

/* Begins with a trial of level 1 against level 0. */
void prefetch_init(struct prefetch *out, uint32_t visits_per_token);

/* A visit is over that cost so much. */
void prefetch_visit(struct prefetch *prefetch, double seconds);

/* An expert that was not in memory was predicted at this rank; was it needed? */
void prefetch_learn(struct prefetch *prefetch, uint32_t rank, bool needed);

/* Is a prediction of this rank worth a read at `level`? */
bool prefetch_trusts(const struct prefetch *prefetch, uint32_t rank, uint32_t level);

/* Expected visits until an expert that was predicted at this rank is used. */
float prefetch_distance(const struct prefetch *prefetch, uint32_t rank);

#endif
