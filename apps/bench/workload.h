/* workload.h: how much there is to do for a token: bytes to read, operations to compute.
 *
 * Counted from the shapes of the weights that are bound, not measured:
 *
 *     decode    every resident matrix and vector once (of the embedding one row), the chosen
 *               experts of every layer once, and the sequence's state: its cache up to the
 *               position and its recurrent part, read and written
 *     prefill   two operations for each weight that a token is multiplied with, four for each
 *               channel of each pair of positions in attention (half of that for keys, half
 *               for values), seven for each number of a delta net's state; the output matrix
 *               once, for only the last token's logits are wanted */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include "base/common.h"
#include "moeflux.h"

struct workload {
    uint64_t weight_bytes;         /* read for one generated token */
    uint64_t state_position_bytes; /* read for each position before it */
    uint64_t state_fixed_bytes;    /* read and written, whatever the position */
    double token_flops;            /* of the layers' matrices and recurrent states */
    double head_flops;
    double pair_flops; /* of attention, for one token looking at one position */
};

void workload_count(struct workload *out, const mf_model *model);

/* Of one token generated at `position`: weights and state. */
double workload_decode_bytes(const struct workload *workload, double position);

/* Of a prompt of `count` tokens behind `depth` others. */
double workload_prefill_flops(const struct workload *workload, double depth, double count);

#endif
