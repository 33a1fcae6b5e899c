/* attend.cuh: attention over a cache, for attention.cu and latent.cu. */
#ifndef BACKEND_CUDA_ATTEND_CUH
#define BACKEND_CUDA_ATTEND_CUH

#include "backend/cuda/launch.h"

/* Heads of queries in groups, each with one head of keys and values in the cache. */
struct attend_task {
    const float *queries; /* row r, head h: at r * query_row + h * query_head, key_width numbers */
    float *out;           /* as the queries, value_width numbers; may be the queries' memory */
    size_t query_row, query_head, out_row, out_head;
    uint32_t row_count;
    const struct cuda_row *rows;
    const struct cuda_span *spans;
    uint32_t kv_heads, group; /* heads = kv_heads x group */
    uint32_t key_width, value_width;
    bool latent; /* one head of keys by position, the first part of which are the values, too */
    uint32_t window;
    const float *sinks; /* [heads], or NULL */
    float scale;
};

/* `span_count` only helps to choose how many rows share a block. */
void attend_launch(cuda_stream stream, const struct attend_task *task, uint32_t span_count);

#endif
