/* moeflux_compat.h: the calls of the ancestors, the earlier engines of this name, on top of
 * moeflux.h.  New programs use moeflux.h.
 *
 * A context is one sequence of one model behind one handle.  Positions are given by the caller and
 * count from 0; a call continues where the sequence ends, and any other start position is an error,
 * never a silent overwrite.  `seq_id` is accepted and ignored: a context has one sequence. */
#ifndef MOEFLUX_COMPAT_H
#define MOEFLUX_COMPAT_H

#include "moeflux.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_context mf_context;

/* `weights`: a checkpoint as mf_model_open takes it, `manifest` and `experts_dir` NULL; or the
 * ancestors' model_weights.bin with its manifest and the directory of packed_experts, where
 * `use_2bit` chooses packed_experts_2bit.  `vocab` may be NULL.  `experts_per_tok` is clamped
 * to [1, what the model has]; 0 means all. */
MF_API mf_status mf_context_open(mf_context **out, const char *weights, const char *manifest,
                                 const char *vocab, const char *experts_dir,
                                 uint32_t experts_per_tok, bool use_2bit, mf_error *why);
MF_API void mf_context_close(mf_context *context);

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

MF_API void mf_context_memory_clear(mf_context *context);

/* Forget positions [p0, end); p0 < 0 means 0; p1 must reach the end (< 0, or
 * beyond it).  A hybrid model can only forget everything or nothing. */
MF_API mf_status mf_context_memory_seq_rm(mf_context *context, int32_t seq_id, int32_t p0,
                                          int32_t p1, mf_error *why);

/* The last position, -1 when empty. */
MF_API int32_t mf_context_memory_seq_pos_max(const mf_context *context, int32_t seq_id);

#ifdef __cplusplus
}
#endif
#endif
