/* report.h: what `moeflux simulate` found: a table, JSON, a plot. */
#ifndef SIMULATE_REPORT_H
#define SIMULATE_REPORT_H

#include "moeflux_tools.h"

#include <jansson.h>
#include <stdio.h>

enum { SIMULATED_SIZES_MAX = 32 };

/* One size of memory. */
struct simulated_size {
    uint64_t memory_bytes; /* of everything; 0: only a share of the experts was asked for */
    uint64_t slot_bytes;   /* of the experts then */
    mf_simulation_result results[MF_CACHE_POLICY_COUNT];
};

struct simulate_report {
    mf_route_trace_info trace;
    uint32_t rows;                /* tokens of a visit; 0: as recorded */
    double disk_rate;             /* bytes per second */
    double step_seconds;          /* of a token that waits for no read; 0: unknown */
    struct simulated_size *sizes; /* the smallest first */
    size_t size_count;
};

/* Percent of the uses; 100 when there were none. */
double simulated_hits(const mf_simulation_result *result);

/* Tokens per second: reading and computing at once, or one after the other.  0 where
 * nothing takes time. */
double simulated_rate(const struct simulate_report *report, const mf_simulation_result *result,
                      bool at_once);

void simulate_print_table(const struct simulate_report *report, FILE *out);
json_t *simulate_json_new(const struct simulate_report *report);

/* Two panels over the memory: hits and tokens per second, a line for every policy. */
void simulate_write_plot(const struct simulate_report *report, FILE *out);

#endif
