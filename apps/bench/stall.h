/* stall.h: what a sequence that generates, and a long prompt that is read beside it, cost each other.
 *
 *     rounds times, for STALL_SECONDS each:
 *         alone    the prompt is read, again and again
 *         beside   the same while another request generates; the times between its tokens are kept
 *
 * The deadline of a gap is the scheduler's: the option, or 150 ms, and never less than two decode
 * steps without a prompt. */
#ifndef BENCH_STALL_H
#define BENCH_STALL_H

#include "bench/measure.h"

#include <jansson.h>
#include <stdio.h>

#define STALL_SECONDS 2.0

/* Tokens that the generating request is in advance of the prompt. */
enum { STALL_LEAD = 24, STALL_GAPS_MAX = 1 << 16 };

struct stall_plan {
    uint32_t prompt; /* tokens */
    uint32_t answer; /* tokens that the other request may generate */
    size_t rounds;
    bool warm_up;
    double max_gap_seconds; /* 0: the scheduler's default */
    const int32_t *ids;     /* what is fed */
    size_t id_count;
};

struct stall_figures {
    double *alone, *beside; /* [rounds] tokens of the prompt per second */
    double *gaps;           /* [gap_count] seconds, ascending */
    size_t gap_count;
    double step_seconds; /* between two tokens without a prompt, the median */
    double deadline_seconds;
    size_t late, much_late; /* gaps above 1.25 and above 2 deadlines */
};

/* `watcher` (may be NULL) hears of each round before it begins. */
mf_status stall_run(struct stall_figures *out, const struct stall_plan *plan, mf_model *model,
                    void (*watcher)(void *user, size_t round), void *user, mf_error *why);
void stall_figures_free(struct stall_figures *figures);

struct stall_report {
    const struct stall_plan *plan;
    const struct stall_figures *figures;
    const mf_model *model;
    const char *kernels;
    unsigned threads;
};
void stall_print(const struct stall_report *report, FILE *out);
json_t *stall_json_new(const struct stall_report *report);

#endif
