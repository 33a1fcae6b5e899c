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
#ifndef TOOLS_CEILINGS_H
#define TOOLS_CEILINGS_H

#include "base/file.h"
#include "base/machine.h"
#include "moeflux_tools.h"

/* Raises the figures.  Takes about a second; all memory is given back. */
mf_status ceilings_measure(mf_ceilings *ceilings, const struct machine *machine,
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
mf_status ceilings_measure_disk(mf_ceilings *ceilings, const struct file *files, size_t file_count,
                                mf_error *why);

#endif
