/* probe.h: single operations and single layers of a model, for differential tests.
 *
 * A probe runs what a sequence runs: an operation is taken out of the layer's own
 * recipe, with its parameters and weights, and executed as a graph of one on the
 * model's backend; experts come through the store.  Nothing is computed twice.
 *
 *     probe_new(&probe, allocator, &parts, sizes, why);
 *     probe_norm((struct floats){ out, n }, probe, 3, WEIGHT_FFN_NORM, (struct numbers){ x, n }, why);
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

struct probe;

struct floats {
    float *values;
    size_t count;
};

struct numbers {
    const float *values;
    size_t count;
};

struct probe_sizes {
    uint32_t rows;    /* at most in one call */
    uint32_t context; /* positions of attention layers */
};

mf_status probe_new(struct probe **out, const mf_allocator *allocator,
                    const struct forward_parts *parts, struct probe_sizes sizes, mf_error *why);
void probe_free(struct probe *probe);

/* Rows of the embedding: [count][width]. */
mf_status probe_embed(struct floats out, struct probe *probe, const int32_t *tokens, size_t count,
                      mf_error *why);

/* rms norm with the weights in `id`; WEIGHT_FINAL_NORM is the same for every layer. */
mf_status probe_norm(struct floats out, struct probe *probe, uint32_t layer, enum weight_id id,
                     struct numbers x, mf_error *why);

/* rms norm of each head; WEIGHT_Q_NORM or WEIGHT_K_NORM. */
mf_status probe_head_norm(struct floats in_out, struct probe *probe, uint32_t layer,
                          enum weight_id id, mf_error *why);

/* A resident matrix of the layer times each row of x. */
mf_status probe_project(struct floats out, struct probe *probe, uint32_t layer, enum weight_id id,
                        struct numbers x, mf_error *why);

/* Rows of queries, or of keys, turned by their positions. */
struct probe_positions {
    const uint32_t *values; /* [rows] */
    size_t count;
    bool keys; /* the rows are keys, not queries */
};
mf_status probe_rope(struct floats in_out, struct probe *probe, uint32_t layer,
                     struct probe_positions positions, mf_error *why);

/* The last rows' queries over a cache that is filled with all keys and values:
 * row i of n queries sees the first positions - n + 1 + i of them. */
struct probe_attention {
    struct numbers queries;      /* [rows][heads x head width] */
    struct numbers keys, values; /* [positions][kv heads x head width] */
};
mf_status probe_attend(struct floats out, struct probe *probe, uint32_t layer,
                       const struct probe_attention *in, mf_error *why);

/* x ⊙ sigmoid(gate), as the attention layer `layer` does. */
mf_status probe_gate(struct floats out, struct probe *probe, uint32_t layer, struct numbers x,
                     struct numbers gate, mf_error *why);

/* x: what the router reads, [rows][width].  Out: [rows][experts per token], ascending ids. */
struct probe_routes {
    uint32_t *experts;
    float *weights;
    size_t count; /* of each */
};
mf_status probe_route(struct probe_routes out, struct probe *probe, uint32_t layer,
                      struct numbers x, mf_error *why);

/* Causal convolution and silu of consecutive rows; state: [taps - 1][channels]. */
mf_status probe_conv(struct floats out, struct floats state_in_out, struct probe *probe,
                     uint32_t layer, struct numbers x, mf_error *why);

/* Queries and keys at the front of each row of channels brought to length 1. */
mf_status probe_unit_norm(struct floats in_out, struct probe *probe, uint32_t layer, mf_error *why);

/* The recurrence over consecutive rows; state: [value heads][value width][key width]. */
struct probe_recurrence {
    struct numbers mixed;           /* [rows][channels]: queries, keys, values */
    struct numbers strength, decay; /* [rows][value heads]: raw b and a */
};
mf_status probe_delta(struct floats out, struct floats state_in_out, struct probe *probe,
                      uint32_t layer, const struct probe_recurrence *in, mf_error *why);

/* rms norm of each value head, times silu(gate). */
mf_status probe_gated_norm(struct floats out, struct probe *probe, uint32_t layer, struct numbers x,
                           struct numbers gate, mf_error *why);

/* The output matrix without the norm before it: [rows][vocabulary]. */
mf_status probe_lm_head(struct floats out, struct probe *probe, struct numbers x, mf_error *why);

/* One expert's answer: [rows][width]. */
mf_status probe_expert(struct floats out, struct probe *probe, uint32_t layer, uint32_t expert,
                       struct numbers x, mf_error *why);

/* Values, scales and biases of gate, up and down, as they lie in the files, one after
 * the other.  `capacity` must be what probe_expert_size says. */
size_t probe_expert_size(const struct probe *probe, uint32_t layer);
mf_status probe_expert_bytes(uint8_t *out, size_t capacity, struct probe *probe, uint32_t layer,
                             uint32_t expert, mf_error *why);

/* x += Σ weight·expert(routed) + the shared expert's part, for given routes. */
struct probe_combination {
    struct numbers routed;   /* [rows][width] */
    const uint32_t *experts; /* [rows][experts per token], ascending in each row */
    const float *weights;    /* [rows][experts per token] */
};
mf_status probe_experts(struct floats x_in_out, struct probe *probe, uint32_t layer,
                        const struct probe_combination *in, mf_error *why);

/* A whole layer over consecutive rows.  What lies between may be asked for: an
 * array without values is left out. */
struct probe_layer {
    enum mixer_kind kind;       /* what the caller takes the layer for */
    struct numbers x;           /* [rows][width] */
    struct floats out;          /* [rows][width] */
    struct floats after_mixer;  /* [rows][width] the residual stream before routing */
    struct floats routed;       /* [rows][width] what router and experts read */
    struct floats shared;       /* [rows][width] the shared expert's answer */
    struct floats shared_score; /* [rows] of the shared expert's gate, before the sigmoid */
    struct probe_routes routes; /* [rows][experts per token] */
};

/* `position` is that of the first row: 0 starts the layer's own sequence anew, and
 * otherwise it must be where the layer's last call ended. */
mf_status probe_layer(const struct probe_layer *io, struct probe *probe, uint32_t layer,
                      int64_t position, mf_error *why);

#endif
