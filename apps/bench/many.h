/* many.h: tokens generated for many sequences in shared steps, timed.
 *
 *     once, not counted, and rounds times, for each number of sequences in turn:
 *         that many sequences, each `depth` tokens deep, get `tokens` further ones, a token each
 *         in every step
 *
 * A step reads the weights that every token uses once, and each chosen expert once: that is what
 * sequences share, and what bounds the step. */
#ifndef BENCH_MANY_H
#define BENCH_MANY_H

#include "bench/ceilings.h"
#include "bench/measure.h"

#include <stdio.h>

enum { MANY_MAX = 1024, MANY_TESTS = 16 };

struct many_test {
    uint32_t sequences;
    double *rates; /* [rounds] tokens per second of all sequences together */
    double *disk;  /* [rounds] bytes per second that the plan's probe gave before each */
    size_t rounds_done;
    double seconds, wait_seconds; /* of all rounds, as are the next */
    uint64_t steps, bytes_read;
    uint64_t bytes_wasted; /* of these: of experts that were read ahead and not used */
    double union_experts;  /* different ones in a layer and a step, on average */
};

struct many_plan {
    struct many_test tests[MANY_TESTS];
    size_t test_count;
    uint32_t tokens, depth;
    size_t rounds;
    bool warm_up;       /* the round that is not counted */
    const int32_t *ids; /* what is fed */
    size_t id_count;
    double (*disk_probe)(void *user); /* NULL, or asked before every round: on shared machines the
                                         disk's rate of one minute says little about the next */
    void *probe_user;
};

mf_status many_plan_make(struct many_plan *out, const uint64_t *sequences, size_t count,
                         size_t rounds, mf_error *why);
void many_plan_free(struct many_plan *plan);

/* `watcher` (may be NULL) hears of each round before it begins. */
mf_status many_plan_run(struct many_plan *plan, mf_model *model,
                        void (*watcher)(void *user, const struct many_test *test, size_t done),
                        void *user, mf_error *why);

/* What the machine allows: the longest of reading the step's weights from memory, its missed
 * experts from disk (at the median of the rates before each round), and its arithmetic. */
struct many_bound {
    double rate;       /* tokens per second; 0: not known */
    const char *of;    /* "memory", "disk", "bf16", … */
    double step_bytes; /* of weights and state */
};
struct many_bound many_bound(const struct many_plan *plan, const struct many_test *test,
                             const mf_model *model, const mf_ceilings *ceilings);

struct many_report {
    const struct many_plan *plan;
    const mf_model *model;
    mf_ceilings ceilings; /* all 0: not measured */
    const char *kernels;
    unsigned threads;
};
void many_print_table(const struct many_report *report, FILE *out);
json_t *many_json_new(const struct many_report *report);
void many_write_plot(const struct many_report *report, FILE *out);

#endif
