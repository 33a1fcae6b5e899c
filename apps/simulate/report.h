/* report.h: what `moeflux simulate` found: a table, JSON, a plot. */
#ifndef SIMULATE_REPORT_H
#define SIMULATE_REPORT_H

#include "base/json.h"
#include "experts/simulation.h"

#include <stdio.h>

enum { SIMULATED_SIZES_MAX = 32 };

/* One size of memory. */
struct simulated_size {
    uint64_t memory_bytes; /* of everything; 0: only a share of the experts was asked for */
    uint64_t budget_bytes; /* of slots */
    struct simulation_result results[CACHE_POLICIES];
};

struct simulate_report {
    const struct route_trace *trace;
    uint32_t rows;                /* tokens of a visit; 0: as recorded */
    double disk_rate;             /* bytes per second */
    double step_seconds;          /* of a token that waits for no read; 0: unknown */
    struct simulated_size *sizes; /* the smallest first */
    size_t size_count;
};

/* Percent of the uses; 100 when there were none. */
double simulated_hits(const struct simulation_result *result);

/* Tokens per second: reading and computing at once, or one after the other.  0 where
 * nothing takes time. */
double simulated_rate(const struct simulate_report *report, const struct simulation_result *result,
                      bool at_once);

void simulate_print_table(const struct simulate_report *report, FILE *out);
json_t *simulate_json_new(const struct simulate_report *report);

/* Two panels over the memory: hits and tokens per second, a line for every policy. */
void simulate_write_plot(const struct simulate_report *report, FILE *out);

#endif
