/* workload.h: what a test of the benchmark has to do, from the work of one token. */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "moeflux_tools.h"

/* Bytes of one token generated at `position`: weights and state. */
double workload_decode_bytes(const mf_workload *workload, double position);

/* Operations of a prompt of `count` tokens behind `depth` others. */
double workload_prefill_flops(const mf_workload *workload, double depth, double count);

#endif
