/* prefetch.h: whether read-ahead pays, and which predictions are worth a read.
 *
 * Predictions of a layer's experts come ranked, the most likely first, one or two visits before
 * the layer's own visit (the reach).  For every reach and rank, `right` estimates how often a
 * predicted expert that was not in memory was then needed; a rank is read ahead while that share
 * is above a threshold.  The threshold is low where the device carries out many reads at a time and
 * high where a wrong read delays the others.
 *
 * Whether to read ahead at all is measured.  The cost of a token is the time it waits for reads,
 * which wrong predictions lengthen, plus the time spent on predicting and submitting.  Computing
 * time is left out: its noise exceeds the gain.
 *
 *     ┌──▶ TRIAL: home, other, home, other … two tokens each
 *     │      │  home = the cheaper state, by the medians
 *     │      ▼
 *     └── STEADY at home, short after a change, else each time twice as long
 *
 * While read-ahead is off and little time is spent waiting, no trial is made.
 *
 * Threads: one owner. */
#ifndef EXPERTS_PREFETCH_H
#define EXPERTS_PREFETCH_H

#include "base/common.h"

enum { PREFETCH_RANKS = 128, PREFETCH_TRIAL = 6, PREFETCH_REACH = 2 };

struct prefetch {
    uint32_t visits_per_token;
    bool on;   /* read ahead now */
    bool home; /* outcome of the last trial */
    bool in_trial;
    uint32_t tokens;                 /* of this phase so far */
    uint32_t steady_tokens;          /* length of a steady phase */
    double costs[2][PREFETCH_TRIAL]; /* [on] seconds of each token of this trial */
    uint32_t cost_counts[2];
    float trust;     /* share of right predictions that is worth a read */
    uint32_t visits; /* of the current token … */
    double cost;     /* … and their cost in seconds */
    double steady_seconds, steady_waiting;
    float right[PREFETCH_REACH][PREFETCH_RANKS]; /* share of predictions that came true */
};

/* `per_token`: experts of a layer that a token uses.  Starts with a trial; with less than two
 * visits per token there is nothing to read ahead. */
void prefetch_init(struct prefetch *out, uint32_t visits_per_token, uint32_t per_token);

/* Time since the token's last visit, the part of it spent waiting, and the part spent on
 * predicting and submitting read-aheads. */
void prefetch_visit(struct prefetch *prefetch, double seconds, double waiting, double predicting);

/* A token begins with this visit. */
void prefetch_token(struct prefetch *prefetch);

/* Whether an expert that was not in memory, predicted at this rank `reach` (from 1) visits before,
 * was needed. */
void prefetch_learn(struct prefetch *prefetch, uint32_t reach, uint32_t rank, bool needed);

/* The reads that the device carries out at a time (read_pace.h).  A wrong read-ahead takes one of
 * them from other reads, so the more there are, the less a mistake costs. */
void prefetch_depth(struct prefetch *prefetch, uint32_t depth);

/* Whether a prediction of this rank is worth a read. */
bool prefetch_trusts(const struct prefetch *prefetch, uint32_t reach, uint32_t rank);

/* How many ranks are worth predicting: the trusted ones and a few to learn from. */
uint32_t prefetch_ranks(const struct prefetch *prefetch, uint32_t reach);

/* Expected visits until an expert predicted at this rank is used. */
float prefetch_distance(const struct prefetch *prefetch, uint32_t reach, uint32_t rank);

#endif
