/* tiny_model.h: an in-memory checkpoint with random weights, of any shape.
 *
 *     struct tiny_model tiny;
 *     tiny_model_init(&tiny, &tiny_standard);        or a changed copy of it
 *     tiny_model_drop(&tiny, "norm.weight", 0);      optional: damage tensors or config
 *     tiny_model_write(&tiny);
 *     ... mf_model_open(&model, engine whose files are &tiny.files.files, TINY_PATH, ...);
 *     tiny_model_free(&tiny);
 *
 * The model is a qwen3_5_moe with the tensor names of Hugging Face, or with TINY_STACKED those of
 * MLX.  Each tensor also keeps its numbers as f32, after rounding to its format, so that tests can
 * compute expected results.  Running out of memory aborts the test.  Threads: one. */
#ifndef SUPPORT_TINY_MODEL_H
#define SUPPORT_TINY_MODEL_H

#include "quant/format.h"
#include "support/byte_writer.h"
#include "support/memory_files.h"

#include <jansson.h>

#define TINY_PATH "tiny"

enum tiny_layout {
    TINY_FUSED,    /* experts.gate_up_proj and experts.down_proj */
    TINY_SEPARATE, /* experts.N.gate_proj.weight, … */
    TINY_STACKED,  /* switch_mlp.gate_proj.weight, …, norms as MLX keeps them */
};

struct tiny_shape {
    uint32_t width, vocab_size, context_length;
    uint32_t layers, interval; /* every interval-th layer is full attention */
    uint32_t heads, kv_heads, head_width;
    double rotary_factor;
    uint32_t key_heads, value_heads, key_width, value_width, taps;
    uint32_t experts, experts_per_token, expert_width, shared_width;
    enum format format; /* of matrices: F32, F16, BF16, an affine one */
    uint32_t group;     /* affine: numbers per scale */
    enum tiny_layout layout;
    bool tied;   /* no lm_head */
    bool nested; /* sizes in text_config, tensors under model.language_model. */
    uint64_t seed;
};

/* Four layers, the second and fourth full attention, f32. */
extern const struct tiny_shape tiny_standard;

/* No size is a multiple of 16, one KV head, three taps, every token uses every expert; bf16. */
extern const struct tiny_shape tiny_odd;

/* 4-bit affine weights in groups of 32, stacked experts. */
extern const struct tiny_shape tiny_affine;

struct tiny_tensor {
    char *name;
    enum format format; /* U32: the packed values of an affine matrix */
    uint32_t rank;
    uint64_t shape[4];
    uint8_t *bytes;
    size_t byte_count;
    float *numbers; /* [element_count] what the model computes with; NULL for scales and biases */
    size_t element_count;
};

struct tiny_model {
    struct tiny_shape shape;
    struct memory_files files;
    json_t *config; /* change it, then write */
    char *config_text;
    struct byte_writer weights;
    struct tiny_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    uint64_t random;
};

void tiny_model_init(struct tiny_model *tiny, const struct tiny_shape *shape);

/* Writes config.json and model.safetensors, as they are now, to tiny->files under TINY_PATH. */
void tiny_model_write(struct tiny_model *tiny);
void tiny_model_free(struct tiny_model *tiny);

/* The object that holds the sizes: the config itself, or its text_config. */
json_t *tiny_model_sizes(struct tiny_model *tiny);

/* The tensor `name` without the prefix of the naming scheme; `%u` stands for `layer`.  Aborts if
 * there is none. */
struct tiny_tensor *tiny_model_find(struct tiny_model *tiny, const char *name, uint32_t layer);

/* The numbers of that tensor, slowest dimension first; borrowed. */
const float *tiny_model_numbers(struct tiny_model *tiny, const char *name, uint32_t layer);

/* Matrix `part` (0 gate, 1 up, 2 down) of an expert, whatever the layout. */
const float *tiny_model_expert(struct tiny_model *tiny, uint32_t layer, uint32_t expert,
                               unsigned part);

void tiny_model_drop(struct tiny_model *tiny, const char *name, uint32_t layer);

/* Adds a tensor under any full name, for names that no family has: `count` zeroes. */
void tiny_model_add(struct tiny_model *tiny, const char *name, enum format format, size_t count);

#endif
