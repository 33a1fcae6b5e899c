/* ceilings.h: what this machine can do at most, measured and not looked up.
 *
 *     memory     bytes per second that N threads read from a buffer far beyond the caches
 *     f32        multiply-adds on registers, as two operations
 *     bf16       products of pairs on registers, as four, where vectors have them
 *     matrix     the same of the matrix unit, bf16 and int8, where there is one
 *     disk       bytes per second of direct reads at scattered places of the model's files
 *
 * Every figure is the best of several short attempts, and measuring again only raises
 * it: a neighbour on the same machine can slow an attempt down, nothing can speed it up. */
#ifndef BENCH_CEILINGS_H
#define BENCH_CEILINGS_H

#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/thread_pool.h"

struct ceilings {
    unsigned threads;
    const char *set;     /* instruction set of the f32 loop: "avx512" */
    double memory_bytes; /* per second; 0: not measured, here and below */
    double f32_flops;    /* per second */
    double bf16_ops;     /* per second, in vectors; 0 also where these have no such products */
    double amx_bf16_ops; /* per second; 0 also where there is no matrix unit */
    double amx_int8_ops;
    double disk_bytes; /* per second */
    bool disk_direct;  /* the file system let us pass by the page cache */
};

/* Zeroed ceilings are a good start.  Takes about a second; all memory is given back. */
mf_status ceilings_measure(struct ceilings *ceilings, const struct machine *machine,
                           unsigned thread_count, mf_error *why);

/* The memory alone, again and again while tests run: on a machine that others share, its
 * bandwidth of one minute says little about the next. */
struct memory_probe;

/* *out is NULL where too little memory is free for it; that is no failure. */
mf_status memory_probe_new(struct memory_probe **out, const struct machine *machine,
                           unsigned thread_count, mf_error *why);
void memory_probe_free(struct memory_probe *probe); /* NULL is legal */

/* Bytes per second now: the better one of two passes over the buffer. */
double memory_probe_rate(struct memory_probe *probe);

/* Reads for about a second. */
mf_status ceilings_measure_disk(struct ceilings *ceilings, const struct file *files,
                                size_t file_count, mf_error *why);

/* What a prompt's matrix products can reach: the matrix unit where there is one, else vectors. */
double ceilings_matrix_flops(const struct ceilings *ceilings);
const char *ceilings_matrix_name(const struct ceilings *ceilings); /* "AMX bf16", "bf16", "f32" */

json_t *ceilings_json_new(const struct ceilings *ceilings);

/* "memory 28.9 GB/s, f32 0.29 TFLOP/s, …" */
void ceilings_describe(const struct ceilings *ceilings, char *out, size_t capacity);

#endif
