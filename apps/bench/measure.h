/* measure.h: prefill and decode of a model, timed at chosen depths.
 *
 * A test is a number of tokens behind `depth` others: a prompt fed at once, or tokens
 * fed one by one.  All tests of one depth take turns, so that a slow moment of the
 * machine does not hit one of them alone:
 *
 *     for each depth, ascending:
 *         fill the context up to it
 *         warm up: each test once, not counted
 *         rounds times: each prefill test, each decode test
 *
 * A prefill leaves the sequence where it was.  A decode is cut back where the model
 * can do that; with recurrent layers the next round goes on behind it, so that the
 * last round is (rounds - 1) x tokens deeper than the first. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "moeflux.h"

enum { ROUNDS_MAX = 1000 };

enum bench_kind { BENCH_PREFILL, BENCH_DECODE };

/* Middle, slowest and fastest round. */
struct spread {
    double median, low, high;
};

struct bench_test {
    enum bench_kind kind;
    uint32_t tokens, depth;
    double *rates;  /* [rounds] tokens per second, in the order of the rounds */
    double *memory; /* [rounds] what the plan's probe gave before each; decode only */
    size_t rounds_done;
    double seconds;                                  /* of all rounds */
    uint64_t expert_hits, expert_misses, bytes_read; /* in all rounds */
    uint64_t expert_ahead_hits;                      /* of the hits: because read ahead */
};

struct bench_plan {
    struct bench_test *tests; /* sorted by depth; within it prefill first */
    size_t test_count;
    size_t rounds;
    bool warm_up;
    const int32_t *tokens; /* what is fed, again and again; at least one */
    size_t token_count;
    uint64_t longest;            /* positions that a sequence must have room for */
    double (*probe)(void *user); /* NULL, or asked before every decode */
    void *probe_user;
};

/* Every number of tokens at every depth.  Zeroes among prompts and counts mean: none. */
struct bench_wishes {
    const uint64_t *prompts, *counts, *depths;
    size_t prompt_count, count_count, depth_count;
    size_t rounds;
    bool warm_up;
    bool recurrent; /* the model's state cannot be cut back */
};

mf_status bench_plan_make(struct bench_plan *out, const struct bench_wishes *wishes, mf_error *why);
void bench_plan_free(struct bench_plan *plan);

/* What begins now. */
struct bench_moment {
    enum { BENCH_FILLING, BENCH_WARMING_UP, BENCH_TIMING } what;
    const struct bench_test *test; /* with the same depth, where the context is filled */
    uint32_t position;             /* of the context */
    size_t done;                   /* of the plan's test_count x rounds */
};
typedef void (*bench_watcher)(void *user, const struct bench_moment *moment);

/* Fills the rates.  `watcher` (may be NULL) hears before anything begins that takes time. */
mf_status bench_plan_run(struct bench_plan *plan, mf_sequence *sequence, bench_watcher watcher,
                         void *user, mf_error *why);

/* "decode 64 at 8192" */
const char *bench_test_name(const struct bench_test *test, char *out, size_t capacity);

struct spread spread_of(const double *values, size_t count); /* 0 < count ≤ ROUNDS_MAX */

#endif
