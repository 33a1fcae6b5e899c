/* prefetch.h: does reading ahead pay, and which predictions are worth a read?
 *
 * Predictions of a layer's experts come ranked, the surest first, one or two visits before
 * the layer's own (the reach).  For every reach and rank it is counted how often a predicted
 * expert that was not in memory was then needed.  What is read follows from the level:
 *
 *     0   nothing; nothing is predicted either
 *     1   of the next layer, ranks that are right at least every second time
 *     2   of the next two layers, every fourth time: more reads for fewer waits, where the
 *         disk has room
 *     3   every tenth time: where a read takes long but many go on at once
 *
 * The level is found by trial.  What a token costs is the time that it waits for reads,
 * which a wrong prediction makes longer, and the time that predicting and beginning to
 * read takes; so disk, cache, model and load need no model here.  Time in which it computes
 * is left out: it varies by more than there is to find.
 *
 *              home, other, home, another … two tokens each
 *            ┌────────────────────────────────────────────┐   others: one level up and
 *     ┌────▶ │                   TRIAL                    │   one down; all of them at
 *     │      └─────────────────────┬──────────────────────┘   first, and at times from 0
 *     │                            ▼  home = the cheapest, by the medians
 *     └─────────────── STEADY at home; for a short time if home has changed, else each
 *                      time twice as long
 *
 * At level 0 there is no trial while too little time is spent waiting to win anything.
 *
 * Threads: one owner. */
#ifndef EXPERTS_PREFETCH_H
#define EXPERTS_PREFETCH_H

#include "base/common.h"

enum { PREFETCH_RANKS = 128, PREFETCH_LEVELS = 4, PREFETCH_TRIAL = 8, PREFETCH_REACH = 2 };

/* What each token of a trial cost at one level. */
struct prefetch_costs {
    double seconds[PREFETCH_TRIAL * (PREFETCH_LEVELS - 1)];
    uint32_t count;
};

struct prefetch {
    uint32_t visits_per_token;
    uint32_t level, home;
    bool in_trial;
    uint32_t tokens;        /* of this phase so far */
    uint32_t steady_tokens; /* how long a steady phase lasts */
    uint32_t trials;        /* so far */
    uint32_t others[PREFETCH_LEVELS - 1], other_count;
    struct prefetch_costs costs[PREFETCH_LEVELS]; /* of this trial */
    uint32_t visits;                              /* of the token at hand … */
    double cost;                                  /* … and what they cost, in seconds */
    double steady_seconds, steady_waiting;
    float right[PREFETCH_REACH][PREFETCH_RANKS]; /* share of predictions that came true */
};

/* `per_token`: experts of a layer that a token wants.  Begins with a trial of all
 * levels; with less than two visits per token nothing can be read ahead. */
void prefetch_init(struct prefetch *out, uint32_t visits_per_token, uint32_t per_token);

/* From the token's last visit to this one it took so long, of which so much was waiting,
 * and so much was work that reading ahead makes. */
void prefetch_visit(struct prefetch *prefetch, double seconds, double waiting, double predicting);

/* A token begins with this visit. */
void prefetch_token(struct prefetch *prefetch);

/* An expert that was not in memory was predicted at this rank, `reach` visits (from 1 on)
 * before; was it needed? */
void prefetch_learn(struct prefetch *prefetch, uint32_t reach, uint32_t rank, bool needed);

/* Is a prediction of this rank worth a read at `level`? */
bool prefetch_trusts(const struct prefetch *prefetch, uint32_t reach, uint32_t rank,
                     uint32_t level);

/* How many ranks are worth predicting: those that are trusted, and some from which to
 * learn.  0 at level 0. */
uint32_t prefetch_ranks(const struct prefetch *prefetch, uint32_t reach, uint32_t level);

/* Expected visits until an expert that was predicted at this rank is used. */
float prefetch_distance(const struct prefetch *prefetch, uint32_t reach, uint32_t rank);

#endif
