/* report.h: the results of `moeflux simulate` as a table, JSON or a plot. */
#ifndef SIMULATE_REPORT_H
#define SIMULATE_REPORT_H

#include "moeflux_tools.h"

#include <jansson.h>
#include <stdio.h>

enum { SIMULATED_SIZES_MAX = 32 };

/* One size of memory. */
struct simulated_size {
    uint64_t memory_bytes; /* for weights and experts; 0: given as a share of the experts */
    uint64_t slot_bytes;   /* of the expert slots that fit */
    mf_simulation_result results[MF_CACHE_POLICY_COUNT];
};

struct simulate_report {
    mf_route_trace_info trace;
    uint32_t rows;                /* tokens per step; 0: as recorded */
    double disk_rate;             /* bytes per second */
    double step_seconds;          /* per token, without waiting for reads; 0: unknown */
    struct simulated_size *sizes; /* ascending by slot_bytes */
    size_t size_count;
};

/* Hit rate in percent; 100 if no expert was used. */
double simulated_hits(const mf_simulation_result *result);

/* Tokens per second with reads and computation overlapped (`at_once`) or one after the other; 0 if
 * neither takes time. */
double simulated_rate(const struct simulate_report *report, const mf_simulation_result *result,
                      bool at_once);

void simulate_print_table(const struct simulate_report *report, FILE *out);
json_t *simulate_json_new(const struct simulate_report *report);

/* SVG with two panels over memory, hit rate and tokens per second, and a line per policy. */
void simulate_write_plot(const struct simulate_report *report, FILE *out);

#endif
