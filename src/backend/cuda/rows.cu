/* rows.cu: norms, biases and gates, row by row. */
#include "backend/cuda/common.cuh"

/* ------------------------------------------------------------------------------ norms */

/* A block computes one row.  `out` may be `a`: a thread writes only numbers that it reads. */
template <bool add>
static __global__ void rms_norm_kernel(float *out, const float *a, const float *weight,
                                       float epsilon, uint32_t width)
{
    const size_t row = (size_t)blockIdx.x * width;
    const float squares = block_sum(sum_squares(a + row, width, threadIdx.x, blockDim.x));
    const float scale = 1.0f / sqrtf(squares / (float)width + epsilon);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        const float normed = a[row + i] * scale * weight[i];
        out[row + i] = add ? out[row + i] + normed : normed;
    }
}

/* Whole warps, with four numbers or more for each thread: of the width alone, because the order of
 * the sum depends on it. */
static uint32_t norm_threads(uint32_t width)
{
    const uint32_t warps = blocks_for(width, 4 * WARP);
    return (warps < 1 ? 1 : warps > WARP ? WARP : warps) * WARP;
}

void cuda_rms_norm(cuda_stream stream, float *out, const float *a, const float *weight,
                   float epsilon, uint32_t row_count, uint32_t width)
{
    if (row_count == 0) return;
    start_kernel(rms_norm_kernel<false>, row_count, norm_threads(width), 0, stream, out, a, weight,
                 epsilon, width);
}

void cuda_add_rms_norm(cuda_stream stream, float *out, const float *a, const float *weight,
                       float epsilon, uint32_t row_count, uint32_t width)
{
    if (row_count == 0) return;
    start_kernel(rms_norm_kernel<true>, row_count, norm_threads(width), 0, stream, out, a, weight,
                 epsilon, width);
}

static __global__ void head_norm_kernel(float *a, const float *weight, float epsilon,
                                        size_t head_count, uint32_t width)
{
    const size_t index = warp_head();
    if (index >= head_count) return; /* the whole warp */
    float *head = a + index * width;
    const float squares = head_squares(head, width);
    const float scale = 1.0f / sqrtf(squares / (float)width + epsilon);
    for (uint32_t i = threadIdx.x % WARP; i < width; i += WARP)
        head[i] = head[i] * scale * (weight ? weight[i] : 1.0f);
}

void cuda_head_norm(cuda_stream stream, float *a, const float *weight, float epsilon,
                    uint32_t row_count, uint32_t heads, uint32_t head_width)
{
    const size_t head_count = (size_t)row_count * heads;
    if (head_count == 0) return;
    start_kernel(head_norm_kernel, blocks_for(head_count, HEADS_PER_BLOCK), HEADS_PER_BLOCK * WARP,
                 0, stream, a, weight, epsilon, head_count, head_width);
}

/* -------------------------------------------------------------------- number by number */

constexpr uint32_t COLUMNS = 256; /* of one row, in one block */

/* Rows are blocks along x, where a grid may have the most of them. */
static dim3 columns_grid(uint32_t row_count, uint32_t width)
{
    return dim3(row_count, blocks_for(width, COLUMNS));
}

static __device__ __forceinline__ uint32_t this_column()
{
    return blockIdx.y * COLUMNS + threadIdx.x;
}

static __global__ void scale_kernel(float *a, const float *weight, uint32_t width)
{
    const uint32_t column = this_column();
    if (column < width) a[(size_t)blockIdx.x * width + column] *= weight[0];
}

void cuda_scale(cuda_stream stream, float *a, const float *weight, uint32_t row_count,
                uint32_t width)
{
    if (row_count == 0 || width == 0) return;
    start_kernel(scale_kernel, columns_grid(row_count, width), COLUMNS, 0, stream, a, weight,
                 width);
}

static __global__ void soft_cap_kernel(float *a, float cap, uint32_t width)
{
    const uint32_t column = this_column();
    const size_t i = (size_t)blockIdx.x * width + column;
    if (column < width) a[i] = tanhf(a[i] / cap) * cap;
}

void cuda_soft_cap(cuda_stream stream, float *a, float cap, uint32_t row_count, uint32_t width)
{
    if (row_count == 0 || width == 0) return;
    start_kernel(soft_cap_kernel, columns_grid(row_count, width), COLUMNS, 0, stream, a, cap,
                 width);
}

static __global__ void add_bias_kernel(float *a, const float *weight, uint32_t width)
{
    const uint32_t column = this_column();
    if (column < width) a[(size_t)blockIdx.x * width + column] += weight[column];
}

void cuda_add_bias(cuda_stream stream, float *a, const float *weight, uint32_t row_count,
                   uint32_t width)
{
    if (row_count == 0 || width == 0) return;
    start_kernel(add_bias_kernel, columns_grid(row_count, width), COLUMNS, 0, stream, a, weight,
                 width);
}

static __global__ void sigmoid_multiply_kernel(float *out, const float *a, const float *gate,
                                               uint32_t width)
{
    const uint32_t column = this_column();
    const size_t i = (size_t)blockIdx.x * width + column;
    if (column < width) out[i] = a[i] * sigmoid(gate[i]);
}

void cuda_sigmoid_multiply(cuda_stream stream, float *out, const float *a, const float *gate,
                           uint32_t row_count, uint32_t width)
{
    if (row_count == 0 || width == 0) return;
    start_kernel(sigmoid_multiply_kernel, columns_grid(row_count, width), COLUMNS, 0, stream, out,
                 a, gate, width);
}

static __global__ void activate_kernel(float *out, const float *gate, const float *up,
                                       int activation, uint32_t width)
{
    const uint32_t column = this_column();
    const size_t i = (size_t)blockIdx.x * width + column;
    if (column < width) out[i] = activate(activation, gate[i], up[i]);
}

void cuda_activate(cuda_stream stream, float *out, const float *gate, const float *up,
                   int activation, uint32_t row_count, uint32_t width)
{
    if (row_count == 0 || width == 0) return;
    start_kernel(activate_kernel, columns_grid(row_count, width), COLUMNS, 0, stream, out, gate, up,
                 activation, width);
}
