/* launch.h: the kernels of the CUDA backend, as functions that C calls.
 *
 * Everything here is plain data: kernels see pointers and sizes, never a model or a graph.  Every
 * pointer in a struct, and every array argument, is one that the device reaches; structs themselves
 * are passed by address on the host and copied at launch, where a comment does not say "device".
 * Launches are queued on `stream` and return at once.
 *
 * Rows are independent: a row's bits depend on its own numbers, its position and its phase, never on
 * how many rows are launched with it.  So there are no atomic sums, and no split of a sum depends on a
 * count of rows; products of generated rows and of prompts may differ in arithmetic.
 *
 * C++ and C include this header. */
#ifndef BACKEND_CUDA_LAUNCH_H
#define BACKEND_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* cudaStream_t is a pointer to it */
typedef struct CUstream_st *cuda_stream;

/* A matrix [rows][cols], as struct weight of quant/format.h has it. */
struct cuda_weight {
    int format, scale_format; /* enum format */
    uint32_t group_rows, group_cols;
    uint64_t rows, cols;
    const uint8_t *values, *scales, *biases;
    uint64_t row_bytes, scale_row_bytes, col_bytes;
};

/* One sequence's part of a step, with its state in the current layer; see backend.h: struct span,
 * kv_view and recurrent_view, whose layouts of pages and states are the same here. */
struct cuda_span {
    uint32_t first_row, row_count;
    uint32_t position;
    uint32_t decode;
    uint8_t *const *pages; /* device: block table */
    uint64_t keys, values; /* offsets in a page */
    uint32_t kv_format;    /* enum kv_format: KV_F32, KV_F16 or KV_Q8 */
    const float *conv_in, *delta_in;
    float *conv_out, *delta_out;
};

struct cuda_row {
    uint32_t span, position;
};

/* Device arrays of a step. */
struct cuda_rows {
    uint32_t row_count, span_count;
    const int32_t *tokens;         /* [row_count] */
    const struct cuda_row *rows;   /* [row_count] */
    const struct cuda_span *spans; /* [span_count] */
};

/* ------------------------------------------------------------------------------- products.cu */

/* out[r][width] = row tokens[r] of `weight`, times `factor`. */
void cuda_embed(cuda_stream stream, float *out, const struct cuda_weight *weight,
                const int32_t *tokens, uint32_t row_count, float factor);

/* out[r][rows] = weight · x[r][cols], or += with `add`, for `row_count` rows of one phase. */
void cuda_project(cuda_stream stream, float *out, size_t out_stride, const float *x,
                  size_t x_stride, uint32_t row_count, const struct cuda_weight *weight, bool add,
                  bool decode);

/* An expert and the pairs routed to it (pair = row x per_row + index of the choice). */
struct cuda_expert {
    struct cuda_weight gate, up, down;
    /* Columns of numbers added to the products, [rows][1]; values NULL: none. */
    struct cuda_weight gate_addends, up_addends, down_addends;
    const uint32_t *pairs; /* device */
    uint32_t pair_count;
};

struct cuda_experts {
    const struct cuda_expert
        *experts; /* device, [expert_count]: same shapes, maybe other formats */
    uint32_t expert_count;
    uint32_t most_pairs; /* of one of them */
    uint32_t per_row;
    int activation; /* enum activation */
    uint32_t width, expert_width;
    int gate_format, up_format, down_format; /* of all experts, or -1: not all the same */
    bool decode;                             /* the phase of all pairs */
    const float *routed;                     /* [rows][width] */
    float *hidden;                           /* [pairs][expert width], scratch */
    float *answers;                          /* [pairs][width], the result */
};

void cuda_run_experts(cuda_stream stream, const struct cuda_experts *batch);

/* Up to four products of generated rows with the same x in one launch, each with the bits of
 * cuda_project.  With `norm` they are of rms(x, norm), with the bits of cuda_rms_norm. */
enum { CUDA_PRODUCTS_MAX = 4 };
struct cuda_products {
    const float *x;
    size_t x_stride;
    const float *norm; /* or NULL */
    float epsilon;
    uint32_t row_count, count;
    struct cuda_product {
        struct cuda_weight weight; /* all have the same columns */
        float *out;
        size_t out_stride;
        bool add;
    } parts[CUDA_PRODUCTS_MAX];
};
void cuda_project_many(cuda_stream stream, const struct cuda_products *products);

/* -------------------------------------------------------------------------------- matrices.cu */

/* As cuda_project and cuda_run_experts for prompt rows, on tensor cores: activations and weights are
 * rounded to bf16, sums are f32 (docs/numerics.md).  A row's bits do not depend on the others. */
void cuda_project_matrix(cuda_stream stream, float *out, size_t out_stride, const float *x,
                         size_t x_stride, uint32_t row_count, const struct cuda_weight *weight,
                         bool add);
void cuda_run_experts_matrix(cuda_stream stream, const struct cuda_experts *batch);

/* ------------------------------------------------------------------------------ attention.cu */

struct cuda_rope {
    uint32_t offset, width;
    bool interleaved;
    const double *frequencies; /* device, [width / 2] */
    double multiplier;
};

/* angles[r] = [cosines | sines] of row r's position, [width] in all; in double, rounded at the end. */
void cuda_rope_angles(cuda_stream stream, float *angles, const struct cuda_rows *rows,
                      const struct cuda_rope *rope);
/* Rotates `heads` heads of every row of a, [rows][heads * head_width], in place. */
void cuda_rope(cuda_stream stream, float *a, const float *angles, uint32_t row_count,
               uint32_t heads, uint32_t head_width, const struct cuda_rope *rope);
/* a: per head [q | gate]; q and gate get [heads * head_width] each. */
void cuda_split_gate(cuda_stream stream, float *q, float *gate, const float *a, uint32_t row_count,
                     uint32_t heads, uint32_t head_width);

struct cuda_attention {
    uint32_t heads, kv_heads, head_width, window;
    const float *sinks; /* [heads], or NULL */
    float scale;
};

void cuda_kv_append(cuda_stream stream, const float *keys, const float *values,
                    const struct cuda_rows *rows, uint32_t kv_heads, uint32_t head_width);
/* `last_position` is the largest of the step's rows. */
void cuda_attend(cuda_stream stream, float *out, const float *queries, const struct cuda_rows *rows,
                 const struct cuda_attention *shape, uint32_t last_position);

/* The same for a step of generated rows, one for each span: stretches of the context are computed by
 * blocks of their own and joined in ascending order.  The launch does not depend on positions, so
 * that a captured one stays valid while they are below `context`.  `scratch`:
 * cuda_attend_decode_scratch floats, zeroed before the first use (launches leave their counters at
 * zero). */
size_t cuda_attend_decode_scratch(const struct cuda_attention *shape, uint32_t row_count,
                                  uint32_t context);
void cuda_attend_decode(cuda_stream stream, float *out, const float *queries,
                        const struct cuda_rows *rows, const struct cuda_attention *shape,
                        uint32_t context, float *scratch);

/* Norms of heads (each may be NULL), rotation and append in one launch, with the bits of
 * cuda_head_norm, cuda_rope and cuda_kv_append one after the other.  Queries and keys are changed in
 * place. */
struct cuda_heads {
    float *queries, *keys;
    const float *values;
    const float *query_norm, *key_norm, *angles;
    float epsilon;
    uint32_t heads, kv_heads, head_width;
    struct cuda_rope rope;
};
void cuda_prepare_heads(cuda_stream stream, const struct cuda_rows *rows,
                        const struct cuda_heads *heads);

struct cuda_latent {
    uint32_t heads, latent_width, nope_width, rope_width, value_width;
    float scale;
    struct cuda_weight kv_b;     /* per head [keys | values] from the latent; or values NULL and */
    struct cuda_weight k_b, v_b; /* [heads][latent][keys] and [heads][values][latent] */
};

/* a: [rows][latent | rope]; the latent is normalised with `norm`, the rest rotated; to the cache. */
void cuda_latent_append(cuda_stream stream, const float *a, const float *angles,
                        const struct cuda_rows *rows, const float *norm, float epsilon,
                        uint32_t latent_width, const struct cuda_rope *rope);
/* `scratch`: cuda_latent_scratch(shape, row_count) floats. */
size_t cuda_latent_scratch(const struct cuda_latent *shape, uint32_t row_count);
void cuda_latent_attend(cuda_stream stream, float *out, const float *queries,
                        const struct cuda_rows *rows, const struct cuda_latent *shape,
                        uint32_t last_position, float *scratch);

/* ----------------------------------------------------------------------------------- rows.cu */

void cuda_rms_norm(cuda_stream stream, float *out, const float *a, const float *weight,
                   float epsilon, uint32_t row_count, uint32_t width);
/* out += rms(a, weight) */
void cuda_add_rms_norm(cuda_stream stream, float *out, const float *a, const float *weight,
                       float epsilon, uint32_t row_count, uint32_t width);
/* `weight` [head_width], or NULL: as if it were all ones. */
void cuda_head_norm(cuda_stream stream, float *a, const float *weight, float epsilon,
                    uint32_t row_count, uint32_t heads, uint32_t head_width);
/* a ← a · weight[0] */
void cuda_scale(cuda_stream stream, float *a, const float *weight, uint32_t row_count,
                uint32_t width);
void cuda_soft_cap(cuda_stream stream, float *a, float cap, uint32_t row_count, uint32_t width);
void cuda_add_bias(cuda_stream stream, float *a, const float *weight, uint32_t row_count,
                   uint32_t width);
void cuda_sigmoid_multiply(cuda_stream stream, float *out, const float *a, const float *gate,
                           uint32_t row_count, uint32_t width);
void cuda_activate(cuda_stream stream, float *out, const float *gate, const float *up,
                   int activation, uint32_t row_count, uint32_t width);

/* ---------------------------------------------------------------------------------- delta.cu */

struct cuda_delta {
    uint32_t key_heads, value_heads, key_width, value_width, taps;
    bool tiled;
};

/* Limits of what the kernels hold in registers and in shared memory. */
enum { CUDA_DELTA_KEYS_MAX = 256, CUDA_EXPERTS_MAX = 4000 };

/* The ops CONV, UNIT_NORM, DELTA and GATED_NORM of backend/graph.h; states as in backend.h. */
void cuda_conv(cuda_stream stream, float *out, const float *a, const struct cuda_weight *weight,
               const struct cuda_rows *rows, const struct cuda_delta *shape);
void cuda_unit_norm(cuda_stream stream, float *a, float epsilon, uint32_t row_count,
                    const struct cuda_delta *shape);
void cuda_delta_rule(cuda_stream stream, float *out, const float *mixed, const float *strength,
                     const float *decay, const float *decay_weight, const float *dt_bias,
                     const struct cuda_rows *rows, const struct cuda_delta *shape);
void cuda_gated_norm(cuda_stream stream, float *out, const float *a, const float *gate,
                     const float *weight, float epsilon, uint32_t row_count,
                     const struct cuda_delta *shape);

/* ---------------------------------------------------------------------------------- route.cu */

struct cuda_router {
    bool sigmoid, renormalise;
    float scale;
    const float *bias;   /* [experts] with `sigmoid`, else NULL */
    const float *scales; /* [experts], or NULL */
    uint32_t groups, top_groups;
};

/* The choice of struct router_shape for each row of logits [rows][experts], which it overwrites. */
void cuda_route(cuda_stream stream, uint32_t *experts, float *weights, uint32_t per_row,
                float *logits, uint32_t row_count, uint32_t expert_count,
                const struct cuda_router *router);

/* The experts that the routes of a step name, as cuda_run_experts takes them: slot i of `out`
 * [slots] is the i-th of them in ascending id with its pairs, a slot behind the last has no pairs.
 * `table` [expert_count] has their weights; `slots` is the least of expert_count and row_count x
 * per_row; `pairs` [row_count x per_row] is filled.  All arrays are on the device. */
void cuda_bucket(cuda_stream stream, struct cuda_expert *out, uint32_t slots, uint32_t *pairs,
                 const struct cuda_expert *table, uint32_t expert_count, const uint32_t *experts,
                 uint32_t row_count, uint32_t per_row);

/* out = Σ weights · answers, in ascending order of the choices; or with `add` out += that
 * + sigmoid(scale) · shared, where `shared` and then `scale` [rows][1] may be NULL. */
void cuda_combine(cuda_stream stream, float *out, const float *answers, const float *weights,
                  uint32_t per_row, const float *shared, const float *scale, uint32_t row_count,
                  uint32_t width, bool add);

#ifdef __cplusplus
}
#endif

#endif
