/* moeflux_compat.h: the calls and probes of the ancestors, the earlier engines of this name, on top
 * of moeflux.h.  New programs use moeflux.h.
 *
 *     mf_context     one model and its sequences behind one handle
 *       └ mf_probe   single operations and layers of that model, on the caller's own numbers
 *
 * Positions are given by the caller and count from 0; a call continues where the sequence ends, and
 * any other start position is an error, never a silent overwrite.  Sequences have ids (`seq_id`)
 * from 0 and begin, empty, when they are first used; a negative id is MF_ERR_ARGUMENT.
 * Structs, lifetimes, threads and errors: as in moeflux.h.  A probe is closed before its context;
 * a context and its probes have one owner at a time. */
#ifndef MOEFLUX_COMPAT_H
#define MOEFLUX_COMPAT_H

#include "moeflux.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------- context */

typedef struct mf_context mf_context;

typedef struct mf_context_options {
    size_t struct_size;
    uint64_t memory_bytes;    /* as in mf_model_options; 0: what is free now */
    uint32_t context_length;  /* positions of the sequence, at most the model's limit; 0: as in
                                 mf_model_options */
    uint32_t thread_count;    /* 0: one for every CPU this process may use */
    const char *backend;      /* "reference", "cpu"; NULL: the best one here */
    uint32_t experts_per_tok; /* clamped to [1, what the model has]; 0: all */
    /* Of the ancestors' files; all NULL and false for any other checkpoint. */
    const char *manifest;
    const char *vocab;       /* not read: the tokenizer is found beside config.json */
    const char *experts_dir; /* that holds packed_experts */
    bool use_2bit;           /* packed_experts_2bit instead */
    uint32_t sequences;      /* as in mf_model_options: how many long ones there is memory for */
    const char *kernels;     /* a kernel set by name, as in "avx2"; NULL: the best one here */
    const char *kv_type;     /* as in mf_model_options */
} mf_context_options;
#define MF_CONTEXT_OPTIONS_INIT MF_SIZED(mf_context_options)

/* `weights`: a checkpoint as mf_model_open takes it, or the ancestors' model_weights.bin, for which
 * the options name the manifest and the directory of the experts.  `options` may be NULL. */
MF_API mf_status mf_context_open_with(mf_context **out, const char *weights,
                                      const mf_context_options *options, mf_error *why);

/* The ancestors' call: mf_context_open_with, with these options and the defaults of the others. */
MF_API mf_status mf_context_open(mf_context **out, const char *weights, const char *manifest,
                                 const char *vocab, const char *experts_dir,
                                 uint32_t experts_per_tok, bool use_2bit, mf_error *why);
MF_API void mf_context_close(mf_context *context);

/* The model behind it, for what moeflux.h and moeflux_tools.h tell of a model; borrowed. */
MF_API const mf_model *mf_context_model(const mf_context *context);

MF_API size_t mf_context_n_vocab(const mf_context *context);
MF_API size_t mf_context_n_ctx(const mf_context *context);
MF_API int32_t mf_context_eos(const mf_context *context);
MF_API const char *mf_context_model_name(const mf_context *context);

/* Logits of the last token into `logits`, whose length must be n_vocab.  No
 * tokens: success, logits untouched. */
MF_API mf_status mf_context_eval_prompt(mf_context *context, const int32_t *tokens, size_t count,
                                        int32_t start_pos, int32_t seq_id, float *logits,
                                        size_t logits_length, mf_error *why);
MF_API mf_status mf_context_eval_token(mf_context *context, int32_t token, int32_t pos,
                                       int32_t seq_id, float *logits, size_t logits_length,
                                       mf_error *why);

/* Forgets every sequence and every checkpoint. */
MF_API void mf_context_memory_clear(mf_context *context);

/* Forget positions [p0, end); p0 < 0 means 0; p1 must reach the end (< 0, or
 * beyond it).  A hybrid model can forget everything or nothing, and go back to a
 * checkpoint of the same tokens; else MF_ERR_CANNOT_TRUNCATE. */
MF_API mf_status mf_context_memory_seq_rm(mf_context *context, int32_t seq_id, int32_t p0,
                                          int32_t p1, mf_error *why);

/* The last position; -1: empty, or no such sequence. */
MF_API int32_t mf_context_memory_seq_pos_max(const mf_context *context, int32_t seq_id);

/* The state of a sequence as bytes: a snapshot (mf_sequence_save) of its present position.  The size
 * grows with the position: ask again after every evaluation.  0: no such sequence. */
MF_API size_t mf_context_state_size(const mf_context *context, int32_t seq_id);

/* Short buffers are MF_ERR_BUFFER_SIZE; `written` may be NULL. */
MF_API mf_status mf_context_state_save(const mf_context *context, int32_t seq_id, void *out,
                                       size_t capacity, size_t *written, mf_error *why);

/* In place of what the sequence holds; its checkpoints stay.  After a failure nothing has changed;
 * errors as those of mf_sequence_load. */
MF_API mf_status mf_context_state_load(mf_context *context, int32_t seq_id, const void *bytes,
                                       size_t count, mf_error *why);

/* Keeps the present state of a sequence under the name `pos`, in place of one that is there; it
 * becomes the newest.  Each sequence keeps 4, or what mf_context_set_max_checkpoints says: then
 * the oldest goes, but never position 0 or the one just kept, even if more remain than that.  They
 * share memory with the sequence.  An evaluation that finds no memory removes them, too, by the same
 * rule, before it fails with MF_ERR_POOL_FULL. */
MF_API mf_status mf_context_checkpoint_pos(mf_context *context, int32_t seq_id, int32_t pos,
                                           mf_error *why);

/* Goes back to the state kept under `pos`, else MF_ERR_NO_CHECKPOINT; it stays kept, and all above
 * `pos` are removed. */
MF_API mf_status mf_context_restore_to(mf_context *context, int32_t seq_id, int32_t pos,
                                       mf_error *why);

/* Removes one, if it is there. */
MF_API void mf_context_forget_pos(mf_context *context, int32_t seq_id, int32_t pos);

/* Takes effect when the next one is kept. */
MF_API void mf_context_set_max_checkpoints(mf_context *context, size_t count);
MF_API size_t mf_context_checkpoint_count(const mf_context *context, int32_t seq_id);

/* Layer dump: calls `each` while the context evaluates, in the thread that does, with the residual
 * stream of the rows of a step: after the embedding (layer -1) and after each layer, in order.
 * x: [row_count][width], borrowed for the call.  It may use nothing of the engine.  Pass NULL to
 * unsubscribe. */
typedef void (*mf_hidden_function)(void *user, int32_t layer, const float *x, size_t row_count,
                                   size_t width);
MF_API void mf_context_watch_hidden(mf_context *context, mf_hidden_function each, void *user);

/* ------------------------------------------------------------------- probes
 * Single operations and single layers, for tests that compare engines.  A probe runs what the
 * context runs: an operation is taken out of the layer's own graph, with its parameters and
 * weights, and executed by the context's backend in the arithmetic of prompts; with the backend
 * "reference" that is plain f32.  The context's sequence is not touched: attention and recurrent
 * layers of a probe have a state of their own.
 *
 * Arrays are rows of numbers whose lengths are checked (MF_ERR_BUFFER_SIZE); the number of rows
 * follows from them.  Widths are in mf_model_shape (moeflux_tools.h); "queries" is heads ×
 * head_width, "keys" kv_heads × head_width, "channels" the queries, keys and values of a delta net.
 * A layer that does not have the operation is MF_ERR_ARGUMENT.  Outputs are written only on
 * success; an array that is both input and output is called in_out. */
typedef struct mf_probe mf_probe;

typedef struct mf_floats {
    float *values;
    size_t count;
} mf_floats;

typedef struct mf_numbers {
    const float *values;
    size_t count;
} mf_numbers;

typedef struct mf_probe_options {
    size_t struct_size;
    uint32_t row_capacity;   /* rows of one call, at most; 0: 64 */
    uint32_t context_length; /* positions of its layers, at most the context's; 0: as that */
} mf_probe_options;
#define MF_PROBE_OPTIONS_INIT MF_SIZED(mf_probe_options)

/* Its buffers are taken beside the memory that the context was given.  `options` may be NULL. */
MF_API mf_status mf_probe_open(mf_probe **out, mf_context *context, const mf_probe_options *options,
                               mf_error *why);
MF_API void mf_probe_close(mf_probe *probe);

/* Rows of the embedding: [count][width]. */
MF_API mf_status mf_probe_embed(mf_floats out, mf_probe *probe, const int32_t *tokens, size_t count,
                                mf_error *why);

/* rms norm of rows of width.  `weight`: "mixer_norm" and "ffn_norm", before the two halves of a
 * layer, or "final_norm", the same for every layer. */
MF_API mf_status mf_probe_norm(mf_floats out, mf_probe *probe, uint32_t layer, const char *weight,
                               mf_numbers x, mf_error *why);

/* rms norm of each head: "q_norm" of rows of queries, "k_norm" of rows of keys. */
MF_API mf_status mf_probe_head_norm(mf_floats in_out, mf_probe *probe, uint32_t layer,
                                    const char *weight, mf_error *why);

/* A matrix times each row of x: "q" (with its gates, where the family has them), "k", "v",
 * "attention_out"; "q_a", "q_b", "kv_a" of latent attention; "delta_qkv", "delta_z", "delta_b",
 * "delta_a", "delta_out"; "router"; "shared_gate", "shared_up", "shared_down", "shared_scale";
 * "dense_gate", "dense_up", "dense_down"; "head", the same for every layer. */
MF_API mf_status mf_probe_project(mf_floats out, mf_probe *probe, uint32_t layer,
                                  const char *weight, mf_numbers x, mf_error *why);

/* Logits without the norm before them: [rows][vocab_size]. */
MF_API mf_status mf_probe_lm_head(mf_floats out, mf_probe *probe, mf_numbers x, mf_error *why);

/* Rows of queries, or of keys, rotated by their positions. */
typedef struct mf_probe_positions {
    const uint32_t *values; /* [rows] */
    size_t count;
    bool keys; /* the rows are keys, not queries */
} mf_probe_positions;
MF_API mf_status mf_probe_rope(mf_floats in_out, mf_probe *probe, uint32_t layer,
                               mf_probe_positions positions, mf_error *why);

/* Attention of the last rows over a cache that is filled with all keys and values: row i of n
 * sees the first positions - n + 1 + i of them.  The layer's own sequence starts anew. */
typedef struct mf_probe_attention {
    mf_numbers queries;      /* [rows][queries] */
    mf_numbers keys, values; /* [positions][keys] */
} mf_probe_attention;
MF_API mf_status mf_probe_attend(mf_floats out, mf_probe *probe, uint32_t layer,
                                 const mf_probe_attention *in, mf_error *why);

/* x ⊙ sigmoid(gate), of an attention layer with an output gate: rows of queries. */
MF_API mf_status mf_probe_gate(mf_floats out, mf_probe *probe, uint32_t layer, mf_numbers x,
                               mf_numbers gate, mf_error *why);

/* Causal convolution and silu of consecutive rows of channels; state: [taps - 1][channels]. */
MF_API mf_status mf_probe_conv(mf_floats out, mf_floats state_in_out, mf_probe *probe,
                               uint32_t layer, mf_numbers x, mf_error *why);

/* Queries and keys at the front of each row of channels, brought to length 1 head by head. */
MF_API mf_status mf_probe_unit_norm(mf_floats in_out, mf_probe *probe, uint32_t layer,
                                    mf_error *why);

/* The gated delta rule over consecutive rows; state: [value heads][value width][key width]. */
typedef struct mf_probe_recurrence {
    mf_numbers mixed;           /* [rows][channels]: queries, keys, values */
    mf_numbers strength, decay; /* [rows][value heads]: raw b and a */
} mf_probe_recurrence;
MF_API mf_status mf_probe_delta(mf_floats out, mf_floats state_in_out, mf_probe *probe,
                                uint32_t layer, const mf_probe_recurrence *in, mf_error *why);

/* rms norm of each value head, times silu(gate): rows of value heads × value width. */
MF_API mf_status mf_probe_gated_norm(mf_floats out, mf_probe *probe, uint32_t layer, mf_numbers x,
                                     mf_numbers gate, mf_error *why);

/* What the router chooses for rows of width: [rows][experts_per_token], ascending ids. */
typedef struct mf_probe_routes {
    uint32_t *experts;
    float *weights;
    size_t count; /* of each */
} mf_probe_routes;
MF_API mf_status mf_probe_route(mf_probe_routes out, mf_probe *probe, uint32_t layer, mf_numbers x,
                                mf_error *why);

/* What one expert makes of rows of width. */
MF_API mf_status mf_probe_expert(mf_floats out, mf_probe *probe, uint32_t layer, uint32_t expert,
                                 mf_numbers x, mf_error *why);

/* x += Σ weight · expert(routed) + the shared expert's part, for given routes. */
typedef struct mf_probe_combination {
    mf_numbers routed;       /* [rows][width] */
    const uint32_t *experts; /* [rows][experts_per_token], ascending in each row */
    const float *weights;    /* [rows][experts_per_token] */
} mf_probe_combination;
MF_API mf_status mf_probe_experts(mf_floats x_in_out, mf_probe *probe, uint32_t layer,
                                  const mf_probe_combination *in, mf_error *why);

/* The bytes of an expert, read from its files past every cache: not from the slots, and the
 * system is asked to drop its cached pages before.  Values, scales and biases of gate, up and
 * down, one after the other.  `capacity` must be mf_probe_expert_size, which is 0 where the layer
 * has no experts. */
MF_API size_t mf_probe_expert_size(const mf_probe *probe, uint32_t layer);
MF_API mf_status mf_probe_expert_bytes(uint8_t *out, size_t capacity, mf_probe *probe,
                                       uint32_t layer, uint32_t expert, mf_error *why);

/* What mixes the rows of a layer with those before them. */
typedef enum mf_mixer {
    MF_MIXER_ATTENTION, /* full attention */
    MF_MIXER_LATENT,    /* latent attention (MLA) */
    MF_MIXER_DELTA,     /* a gated delta net */
    MF_MIXER_WINDOW     /* attention over the last positions only */
} mf_mixer;

/* A whole layer over consecutive rows.  An output whose pointer is NULL is left out. */
typedef struct mf_probe_step {
    size_t struct_size;
    mf_mixer mixer; /* the layer's; any other is MF_ERR_ARGUMENT */
    uint32_t layer;
    int64_t position;       /* of the first row: 0 starts the layer's own sequence anew, otherwise
                               it must be where the layer's last call ended */
    mf_numbers x;           /* [rows][width] */
    mf_floats out;          /* [rows][width]; required */
    mf_floats after_mixer;  /* [rows][width] the residual stream before routing */
    mf_floats routed;       /* [rows][width] input of router and experts */
    mf_floats shared;       /* [rows][width] output of the shared expert */
    mf_floats shared_score; /* [rows] of the shared expert's gate, before the sigmoid */
    mf_probe_routes routes; /* [rows][experts_per_token] */
} mf_probe_step;
#define MF_PROBE_STEP_INIT MF_SIZED(mf_probe_step)

MF_API mf_status mf_probe_layer(const mf_probe_step *step, mf_probe *probe, mf_error *why);

#ifdef __cplusplus
}
#endif
#endif
