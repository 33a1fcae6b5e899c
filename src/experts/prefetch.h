/* prefetch.h: does reading ahead pay, and which predictions are worth a read?
 *
 * Predictions of a layer's experts come ranked, the surest first.  For every rank it
 * is counted how often a predicted expert that was not in memory was then needed.
 * What is read follows from the level:
 *
 *     0   nothing; nothing is predicted either
 *     1   ranks that are right at least every second time
 *     2   every fourth time: more reads for fewer waits, where the disk has room
 *     3   every tenth time
 *     4   every fortieth time: where a read takes long but many go on at once
 *
 * The level is found by trial.  What a token costs is the time that it waits for reads,
 * which a wrong prediction makes longer, and the time that predicting and beginning to
 * read takes; so disk, cache, model and load need no model here.  Time in which it computes
 * is left out: it varies by more than there is to find.
 *
 *              home, other, home, other … two tokens each
 *            ┌────────────────────────────────────────────┐   other: one level up or
 *     ┌────▶ │                   TRIAL                    │   down, in turn
 *     │      └─────────────────────┬──────────────────────┘
 *     │                            ▼  home = the cheaper one, by the medians
 *     └─────────────── STEADY at home; not at all if home has changed, else each
 *                      time twice as long
 *
 * At level 0 there is no trial while too little time is spent waiting to win anything.
 *
 * Threads: one owner. */
#ifndef EXPERTS_PREFETCH_H
#define EXPERTS_PREFETCH_H

#include "base/common.h"

enum { PREFETCH_RANKS = 128, PREFETCH_LEVELS = 5, PREFETCH_TRIAL = 8 };

/* What each token of one side of a trial cost. */
struct prefetch_costs {
    double seconds[PREFETCH_TRIAL];
    uint32_t count;
};

struct prefetch {
    uint32_t visits_per_token;
    uint32_t level, home, other;
    bool in_trial;
    bool try_up;            /* the next trial's direction */
    uint32_t tokens;        /* of this phase so far */
    uint32_t steady_tokens; /* how long a steady phase lasts */
    struct prefetch_costs at_home, at_other;
    uint32_t visits; /* of the token at hand … */
    double cost;     /* … and what they cost, in seconds */
    double steady_seconds, steady_waiting;
    float right[PREFETCH_RANKS]; /* share of predictions that came true */
};

/* `per_token`: experts of a layer that a token wants.  Begins with a trial of level 1
 * against level 0; with less than two visits per token nothing can be read ahead. */
void prefetch_init(struct prefetch *out, uint32_t visits_per_token, uint32_t per_token);

/* From the token's last visit to this one it took so long, of which so much was waiting,
 * and so much was work that reading ahead makes. */
void prefetch_visit(struct prefetch *prefetch, double seconds, double waiting, double predicting);

/* A token begins with this visit. */
void prefetch_token(struct prefetch *prefetch);

/* An expert that was not in memory was predicted at this rank; was it needed? */
void prefetch_learn(struct prefetch *prefetch, uint32_t rank, bool needed);

/* Is a prediction of this rank worth a read at `level`? */
bool prefetch_trusts(const struct prefetch *prefetch, uint32_t rank, uint32_t level);

/* How many ranks are worth predicting: those that are trusted, and some from which to
 * learn.  0 at level 0. */
uint32_t prefetch_ranks(const struct prefetch *prefetch, uint32_t level);

/* Expected visits until an expert that was predicted at this rank is used. */
float prefetch_distance(const struct prefetch *prefetch, uint32_t rank);

#endif
