/* probe.h: single operations and single layers of a model, for differential tests: what
 * moeflux_compat.h shows as mf_probe, without its checks of pointers and its lock.
 *
 * A probe runs what a sequence runs: an operation is taken out of the layer's own
 * recipe, with its parameters and weights, and executed as a graph of one on the
 * model's backend; experts come through the store.  Nothing is computed twice.
 *
 *     probe_new(&probe, allocator, &parts, sizes, why);
 *     probe_norm((mf_floats){ out, n }, probe, 3, WEIGHT_FFN_NORM, (mf_numbers){ x, n }, why);
 *     probe_free(probe);
 *
 * Arrays are rows of f32; their lengths are checked, and the number of rows comes
 * from them.  A layer that does not have the operation (a delta net asked for
 * attention, or the other way round) is MF_ERR_ARGUMENT.  Outputs are written
 * only on success; an array that is both is called `in_out`.
 *
 * Lifetime: what is in `parts` outlives the probe.
 * Threads: one; and no sequence of the same engine may compute meanwhile. */
#ifndef COMPAT_PROBE_H
#define COMPAT_PROBE_H

#include "engine/forward.h"
#include "moeflux_compat.h"

struct probe;

struct probe_sizes {
    uint32_t rows;    /* at most in one call */
    uint32_t context; /* positions of attention layers */
};

mf_status probe_new(struct probe **out, const mf_allocator *allocator,
                    const struct forward_parts *parts, struct probe_sizes sizes, mf_error *why);
void probe_free(struct probe *probe);

/* Rows of the embedding: [count][width]. */
mf_status probe_embed(mf_floats out, struct probe *probe, const int32_t *tokens, size_t count,
                      mf_error *why);

/* rms norm with the weights in `id`; WEIGHT_FINAL_NORM is the same for every layer. */
mf_status probe_norm(mf_floats out, struct probe *probe, uint32_t layer, enum weight_id id,
                     mf_numbers x, mf_error *why);

/* rms norm of each head; WEIGHT_Q_NORM or WEIGHT_K_NORM. */
mf_status probe_head_norm(mf_floats in_out, struct probe *probe, uint32_t layer, enum weight_id id,
                          mf_error *why);

/* A resident matrix of the layer times each row of x. */
mf_status probe_project(mf_floats out, struct probe *probe, uint32_t layer, enum weight_id id,
                        mf_numbers x, mf_error *why);

/* Rows of queries, or of keys, rotated by their positions. */
mf_status probe_rope(mf_floats in_out, struct probe *probe, uint32_t layer,
                     mf_probe_positions positions, mf_error *why);

/* The last rows' queries over a cache that is filled with all keys and values:
 * row i of n queries sees the first positions - n + 1 + i of them. */
mf_status probe_attend(mf_floats out, struct probe *probe, uint32_t layer,
                       const mf_probe_attention *in, mf_error *why);

/* x ⊙ sigmoid(gate), as the attention layer `layer` does. */
mf_status probe_gate(mf_floats out, struct probe *probe, uint32_t layer, mf_numbers x,
                     mf_numbers gate, mf_error *why);

/* x: what the router reads, [rows][width].  Out: [rows][experts per token], ascending ids. */
mf_status probe_route(mf_probe_routes out, struct probe *probe, uint32_t layer, mf_numbers x,
                      mf_error *why);

/* Causal convolution and silu of consecutive rows; state: [taps - 1][channels]. */
mf_status probe_conv(mf_floats out, mf_floats state_in_out, struct probe *probe, uint32_t layer,
                     mf_numbers x, mf_error *why);

/* Queries and keys at the front of each row of channels brought to length 1. */
mf_status probe_unit_norm(mf_floats in_out, struct probe *probe, uint32_t layer, mf_error *why);

/* The recurrence over consecutive rows; state: [value heads][value width][key width]. */
mf_status probe_delta(mf_floats out, mf_floats state_in_out, struct probe *probe, uint32_t layer,
                      const mf_probe_recurrence *in, mf_error *why);

/* rms norm of each value head, times silu(gate). */
mf_status probe_gated_norm(mf_floats out, struct probe *probe, uint32_t layer, mf_numbers x,
                           mf_numbers gate, mf_error *why);

/* The output matrix without the norm before it: [rows][vocabulary]. */
mf_status probe_lm_head(mf_floats out, struct probe *probe, mf_numbers x, mf_error *why);

/* One expert's answer: [rows][width]. */
mf_status probe_expert(mf_floats out, struct probe *probe, uint32_t layer, uint32_t expert,
                       mf_numbers x, mf_error *why);

/* Values, scales and biases of gate, up and down, read from the files, one after the other.
 * `capacity` must be what probe_expert_size says. */
size_t probe_expert_size(const struct probe *probe, uint32_t layer);
mf_status probe_expert_bytes(uint8_t *out, size_t capacity, struct probe *probe, uint32_t layer,
                             uint32_t expert, mf_error *why);

/* x += Σ weight·expert(routed) + the shared expert's part, for given routes. */
mf_status probe_experts(mf_floats x_in_out, struct probe *probe, uint32_t layer,
                        const mf_probe_combination *in, mf_error *why);

/* A whole layer over consecutive rows. */
mf_status probe_layer(const mf_probe_step *io, struct probe *probe, mf_error *why);

#endif
