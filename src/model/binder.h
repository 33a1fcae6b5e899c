/* binder.h: finding a matrix among a checkpoint's tensors; shared by the files
 * that bind resident weights (weights.c) and experts (weights_experts.c). */
#ifndef MODEL_BINDER_H
#define MODEL_BINDER_H

#include "model/families.h"
#include "model/weights.h"

enum { TENSOR_NAME_MAX = 256 };

struct binder {
    const struct weights_source *source;
    const char *prefix;         /* of the language model's tensors */
    const char *head_prefix;    /* of lm_head */
    const json_t *quantization; /* MLX's list of modules, or NULL */
    bool mlx;                   /* written by MLX: norms are kept as they are */
    struct arena *arena;
};

/* Where a matrix is: `shape` without data, and the tensors that hold it. */
struct matrix_source {
    struct weight shape;
    const struct tensor *values, *scales, *biases;
};

/* A matrix [rows][cols], or with `stack` > 0 that many of them in one tensor. */
struct matrix_need {
    const char *name; /* of the tensor with its values */
    uint64_t stack, rows, cols;
};

mf_status binder_find_matrix(struct matrix_source *out, const struct binder *binder,
                             const struct matrix_need *need, mf_error *why);

/* prefix + name, %u replaced by the numbers given (ignored where the name has none). */
void binder_name(char out[TENSOR_NAME_MAX], const char *prefix, const char *name, uint32_t first,
                 uint32_t second);

mf_status binder_bind_experts(struct expert_matrix out[EXPERT_PARTS], const struct binder *binder,
                              uint32_t layer, mf_error *why);

#endif
