#include "bench/workload.h"

double workload_decode_bytes(const mf_workload *w, double position)
{
    return (double)w->weight_bytes + (double)w->state_fixed_bytes +
           (double)w->state_position_bytes * position;
}

/* Token i of the prompt looks at itself and at the depth + i positions before it. */
double workload_prefill_flops(const mf_workload *w, double depth, double count)
{
    double pairs = count * (depth + (count + 1) / 2);
    return count * w->token_flops + w->head_flops + pairs * w->pair_flops;
}
