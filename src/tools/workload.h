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
 *               once, because only the last token's logits are computed */
#ifndef TOOLS_WORKLOAD_H
#define TOOLS_WORKLOAD_H

#include "model/model.h"
#include "moeflux_tools.h"
#include "state/shape.h"

void workload_count(mf_workload *out, const struct model *model, enum kv_format kv_format);

#endif
