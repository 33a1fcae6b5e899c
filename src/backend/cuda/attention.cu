/* attention.cu: rotary positions, full attention and its cache; the attention itself is attend.cu,
 * of generated rows attend_decode.cu, latent attention is latent.cu. */
#include "backend/cuda/launch.h"

#include "backend/cuda/attend.cuh"
#include "backend/cuda/common.cuh"
#include "backend/cuda/kv_cache.cuh"

enum { THREADS = 256 };

__device__ static size_t thread_index(void)
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

/* ---------------------------------------------------------------------------- rotary positions */

__global__ static void rope_angles_kernel(float *angles, const struct cuda_row *rows, size_t count,
                                          struct cuda_rope rope)
{
    uint32_t half = rope.width / 2;
    size_t index = thread_index();
    if (index >= count) return;
    size_t row = index / half, i = index % half;
    double sine, cosine;
    sincos(rows[row].position * rope.frequencies[i], &sine, &cosine);
    float *out = angles + row * rope.width;
    out[i] = (float)(cosine * rope.multiplier);
    out[half + i] = (float)(sine * rope.multiplier);
}

void cuda_rope_angles(cuda_stream stream, float *angles, const struct cuda_rows *rows,
                      const struct cuda_rope *rope)
{
    size_t count = (size_t)rows->row_count * (rope->width / 2);
    if (count == 0) return;
    start_kernel(rope_angles_kernel, blocks_for(count, THREADS), THREADS, 0, stream, angles,
                 rows->rows, count, *rope);
}

/* Rotates pair i of a head.  The rounding is spelt out, so that all kernels have the same bits. */
__device__ static void rotate_pair(float *head, const float *angles, uint32_t i,
                                   const struct cuda_rope &rope)
{
    uint32_t half = rope.width / 2;
    float *u = head + rope.offset + (rope.interleaved ? 2 * i : i);
    float *v = u + (rope.interleaved ? 1 : half);
    float cosine = angles[i], sine = angles[half + i], old_u = *u, old_v = *v;
    *u = __fmaf_rn(old_u, cosine, -__fmul_rn(old_v, sine));
    *v = __fmaf_rn(old_u, sine, __fmul_rn(old_v, cosine));
}

/* A thread has one pair of one head. */
__global__ static void rope_kernel(float *a, const float *angles, size_t count, uint32_t heads,
                                   uint32_t head_width, struct cuda_rope rope)
{
    uint32_t half = rope.width / 2;
    size_t index = thread_index();
    if (index >= count) return;
    size_t head = index / half, row = head / heads;
    rotate_pair(a + head * head_width, angles + row * rope.width, (uint32_t)(index % half), rope);
}

void cuda_rope(cuda_stream stream, float *a, const float *angles, uint32_t row_count,
               uint32_t heads, uint32_t head_width, const struct cuda_rope *rope)
{
    size_t count = (size_t)row_count * heads * (rope->width / 2);
    if (count == 0) return;
    start_kernel(rope_kernel, blocks_for(count, THREADS), THREADS, 0, stream, a, angles, count,
                 heads, head_width, *rope);
}

/* -------------------------------------------------------------------------- gates and the cache */

__global__ static void split_gate_kernel(float *q, float *gate, const float *a, size_t count,
                                         uint32_t head_width)
{
    size_t index = thread_index();
    if (index >= count) return;
    const float *both = a + index / head_width * 2 * head_width;
    q[index] = both[index % head_width];
    gate[index] = both[head_width + index % head_width];
}

void cuda_split_gate(cuda_stream stream, float *q, float *gate, const float *a, uint32_t row_count,
                     uint32_t heads, uint32_t head_width)
{
    size_t count = (size_t)row_count * heads * head_width;
    if (count == 0) return;
    start_kernel(split_gate_kernel, blocks_for(count, THREADS), THREADS, 0, stream, q, gate, a,
                 count, head_width);
}

/* A whole warp stores a group of 32 channels of a head's key, or value, in one row. */
__device__ static void append_group(const float *from, struct cuda_row row,
                                    const struct cuda_span *span, bool is_key, size_t kv_head,
                                    size_t group, uint32_t head_width)
{
    uint32_t channel = (uint32_t)group * KV_CHUNK + threadIdx.x % WARP;
    int format = span->kv_format;
    kv_part part = { head_width, head_width, is_key && format != KV_F32 };
    uint8_t *head = span->pages[row.position / KV_PAGE_TOKENS] +
                    (is_key ? span->keys : span->values) +
                    kv_head * kv_head_bytes(format, head_width);
    kv_store(head, part, format, row.position % KV_PAGE_TOKENS, channel,
             channel < head_width ? from[channel] : 0.0f);
}

__global__ static void kv_append_kernel(const float *keys, const float *values,
                                        const struct cuda_row *rows, const struct cuda_span *spans,
                                        size_t warps, uint32_t kv_heads, uint32_t head_width)
{
    uint32_t groups = (head_width + KV_CHUNK - 1) / KV_CHUNK;
    size_t warp = thread_index() / WARP;
    if (warp >= warps) return;
    size_t item = warp / groups / 2; /* row and head */
    bool is_key = warp / groups % 2 == 0;
    const float *from = (is_key ? keys : values) + item * head_width;
    struct cuda_row row = rows[item / kv_heads];
    append_group(from, row, &spans[row.span], is_key, item % kv_heads, warp % groups, head_width);
}

void cuda_kv_append(cuda_stream stream, const float *keys, const float *values,
                    const struct cuda_rows *rows, uint32_t kv_heads, uint32_t head_width)
{
    size_t groups = (head_width + KV_CHUNK - 1) / KV_CHUNK;
    size_t warps = (size_t)rows->row_count * kv_heads * 2 * groups;
    if (warps == 0) return;
    start_kernel(kv_append_kernel, blocks_for(warps * WARP, THREADS), THREADS, 0, stream, keys,
                 values, rows->rows, rows->spans, warps, kv_heads, head_width);
}

/* ------------------------------------------------------------------------------ all of it at once */

/* The arithmetic of rows.cu's head_norm_kernel. */
__device__ static void norm_head(float *head, const float *weight, float epsilon, uint32_t width)
{
    float squares = head_squares(head, width);
    float scale = 1.0f / sqrtf(squares / (float)width + epsilon);
    for (uint32_t i = threadIdx.x % WARP; i < width; i += WARP)
        head[i] = head[i] * scale * weight[i];
}

/* A warp has one head of a row: the heads of queries, of keys and of values follow each other.  In
 * between its numbers are in shared memory, since the lanes that norm a pair are not those that
 * rotate it. */
__global__ static void prepare_heads_kernel(struct cuda_heads h, const struct cuda_row *rows,
                                            const struct cuda_span *spans, size_t head_count)
{
    float *const memory = block_memory<float>(); /* [HEADS_PER_BLOCK][head_width] */
    uint32_t lane = threadIdx.x % WARP, width = h.head_width;
    uint32_t per_row = h.heads + 2 * h.kv_heads;
    if (warp_head() >= head_count) return; /* the whole warp */
    size_t row_index = warp_head() / per_row, index = warp_head() % per_row;
    bool is_query = index < h.heads, is_key = !is_query && index < h.heads + h.kv_heads;
    if (!is_query) index -= is_key ? h.heads : h.heads + h.kv_heads;
    float *head = memory + threadIdx.x / WARP * width;
    size_t at = (row_index * (is_query ? h.heads : h.kv_heads) + index) * width;
    float *own = is_query ? h.queries + at : h.keys + at; /* of values: not written */
    const float *from = is_query || is_key ? own : h.values + at;
    struct cuda_row row = rows[row_index];

    for (uint32_t i = lane; i < width; i += WARP) head[i] = from[i];
    if (is_query || is_key) {
        const float *norm = is_query ? h.query_norm : h.key_norm;
        if (norm) norm_head(head, norm, h.epsilon, width);
        __syncwarp();
        const float *angles = h.angles + row_index * h.rope.width;
        for (uint32_t i = lane; h.angles && i < h.rope.width / 2; i += WARP)
            rotate_pair(head, angles, i, h.rope);
        __syncwarp();
        for (uint32_t i = lane; i < width; i += WARP) own[i] = head[i];
    }
    __syncwarp();
    for (uint32_t group = 0; !is_query && group * KV_CHUNK < width; group++)
        append_group(head, row, &spans[row.span], is_key, index, group, width);
}

void cuda_prepare_heads(cuda_stream stream, const struct cuda_rows *rows,
                        const struct cuda_heads *heads)
{
    size_t count = (size_t)rows->row_count * (heads->heads + 2 * (size_t)heads->kv_heads);
    size_t bytes = HEADS_PER_BLOCK * heads->head_width * sizeof(float);
    if (count == 0) return;
    start_kernel(prepare_heads_kernel, blocks_for(count, HEADS_PER_BLOCK), HEADS_PER_BLOCK * WARP,
                 bytes, stream, *heads, rows->rows, rows->spans, count);
}

/* ---------------------------------------------------------------------------------- attention */

void cuda_attend(cuda_stream stream, float *out, const float *queries, const struct cuda_rows *rows,
                 const struct cuda_attention *shape, uint32_t last_position)
{
    (void)last_position; /* blocks read their rows' positions on the device */
    struct attend_task task = {};
    task.queries = queries;
    task.out = out;
    task.query_row = task.out_row = (size_t)shape->heads * shape->head_width;
    task.query_head = task.out_head = shape->head_width;
    task.row_count = rows->row_count;
    task.rows = rows->rows;
    task.spans = rows->spans;
    task.kv_heads = shape->kv_heads;
    task.group = shape->heads / shape->kv_heads;
    task.key_width = task.value_width = shape->head_width;
    task.window = shape->window;
    task.sinks = shape->sinks;
    task.scale = shape->scale;
    attend_launch(stream, &task, rows->span_count);
}
