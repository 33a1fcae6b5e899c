/* report.h: what was measured, beside what the machine could do: a table, JSON, a plot.
 *
 *     share of a decode    bytes per token x tokens/s ÷ memory bandwidth
 *     share of a prefill   operations x prompts/s ÷ peak of the matrix products
 *     share of the disk    bytes read per second ÷ rate of direct reads */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench/ceilings.h"
#include "bench/measure.h"
#include "bench/workload.h"

#include <stdio.h>

struct bench_report {
    const struct bench_plan *plan;
    const mf_workload *workload;
    mf_ceilings ceilings; /* all 0: not measured */
    const char *model, *family;
    const char *kernels;     /* "avx512" */
    const char *expert_mode; /* "resident", "streamed" */
    unsigned threads;
};

/* What limits a test, and how near it came.  `limit` is in the test's tokens per second;
 * both are 0 where the ceiling was not measured. */
struct bench_share {
    const char *of; /* "memory", "AMX bf16", "bf16", "f32" */
    double share;   /* 0 … 1 */
    double limit;
};
struct bench_share bench_share_of(const struct bench_report *report, const struct bench_test *test);

void bench_print_table(const struct bench_report *report, FILE *out);
json_t *bench_json_new(const struct bench_report *report);

/* Two panels, prefill and decode: tokens/s over depth, with the spread and the ceiling. */
void bench_write_plot(const struct bench_report *report, FILE *out);

#endif
