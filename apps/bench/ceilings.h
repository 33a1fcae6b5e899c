/* ceilings.h: what the machine can do at most (mf_ceilings), for people and as JSON. */
#ifndef BENCH_CEILINGS_H
#define BENCH_CEILINGS_H

#include "moeflux_tools.h"

#include <jansson.h>

/* What a prompt's matrix products can reach: the matrix unit where there is one, else vectors. */
double ceilings_matrix_flops(const mf_ceilings *ceilings);
const char *ceilings_matrix_name(const mf_ceilings *ceilings); /* "AMX bf16", "bf16", "f32" */

json_t *ceilings_json_new(const mf_ceilings *ceilings);

/* "memory 28.9 GB/s, f32 0.29 TFLOP/s, …" */
void ceilings_describe(const mf_ceilings *ceilings, char *out, size_t capacity);

#endif
