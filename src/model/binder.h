/* binder.h: finding a matrix among a checkpoint's tensors; shared by the files
 * that bind resident weights (weights.c) and experts (weights_experts.c). */
#ifndef MODEL_BINDER_H
#define MODEL_BINDER_H

#include "model/families.h"
#include "model/weights.h"

enum { TENSOR_NAME_MAX = 256 };

struct binder {
    const struct weights_source *source;
    const char *prefix;            /* of the language model's tensors */
    const char *head_prefix;       /* of lm_head */
    bool gguf;                     /* GGUF's names; else those of Hugging Face and MLX */
    const json_t *quantization;    /* MLX's list of modules, or NULL */
    uint32_t tile_rows, tile_cols; /* of FP8's scales; 0 columns: whole rows */
    const char *tile_scales;       /* what they are called beside the values */
    bool keeps_norms;              /* written by MLX or as GGUF: norms hold 1 + w already */
    enum mixer_kind mixer;         /* of the layer whose weights are bound */
    struct arena *arena;
    struct weights *listing;   /* gets the origins instead of data; NULL: data is read */
    struct arena_tally *tally; /* of a listing: what the data would take of the arena; NULL: what
                                  is listed is not kept */
};

/* A size in the layer whose weights are bound. */
static inline uint64_t binder_size(const struct binder *binder, enum dimension dimension)
{
    return dimension_size(binder->source->config, binder->mixer, dimension);
}

/* Where a matrix is: `shape` without data, and the tensors that hold it. */
struct matrix_source {
    struct weight shape;
    const struct tensor *values, *scales, *biases;
};

/* A matrix [rows][cols], or with `stack` > 0 that many of them in one tensor of rank 3. */
struct matrix_need {
    const char *name; /* of the tensor with its values */
    uint64_t stack, rows, cols;
    enum weight_id id; /* it is bound to */
};

mf_status binder_find_matrix(struct matrix_source *out, const struct binder *binder,
                             const struct matrix_need *need, mf_error *why);

/* prefix + name, %u replaced by the numbers given (ignored where the name has none). */
void binder_name(char out[TENSOR_NAME_MAX], const char *prefix, const char *name, uint32_t first,
                 uint32_t second);

/* The name of a rule's tensor in this checkpoint; false when it cannot have one. */
bool binder_rule_name(char out[TENSOR_NAME_MAX], const struct binder *binder,
                      const struct tensor_rule *rule, uint32_t layer);

/* Counts what a listing does not take. */
void binder_count(const struct binder *binder, uint64_t count, size_t size);

/* Lists where a weight comes from and marks it as bound, without data. */
void binder_describe(struct weight *out, const struct binder *binder,
                     const struct weight_origin *origin);

/* Reads a matrix into the arena, or describes it. */
mf_status binder_read_matrix(struct weight *out, const struct binder *binder,
                             const struct matrix_need *need, mf_error *why);

/* binder_delta.c: fused projections of a delta net, whose rows are grouped by key head. */
mf_status binder_bind_fused_delta(struct weight weights[WEIGHT_COUNT], const struct binder *binder,
                                  const struct tensor_rule *rule, const char *name, mf_error *why);

/* weights_experts.c */
mf_status binder_bind_experts(struct expert_matrix out[EXPERT_PARTS], const struct binder *binder,
                              uint32_t layer, mf_error *why);
/* weights_interleaved.c: experts whose rows of gate and up alternate, and the biases of layers. */
bool binder_is_interleaved(const struct binder *binder, uint32_t layer);
mf_status binder_bind_interleaved(struct expert_matrix out[EXPERT_PARTS],
                                  const struct binder *binder, uint32_t layer, mf_error *why);
/* Tensor `name`, [experts][rows]. */
mf_status binder_bind_addends(struct expert_matrix *out, const struct binder *binder,
                              const char *name, uint64_t rows, mf_error *why);
/* The same from a packed model's manifest. */
mf_status binder_bind_packed(struct layer_weights *out, const struct binder *binder, uint32_t layer,
                             mf_error *why);

#endif
