/* common.cuh: what several kernel files share: sums over lanes, and functions of one number.
 *
 * Sums have a fixed order, which depends on the count of threads alone.  A launch takes that count
 * from a row's width, never from the number of rows, so that a row's bits do not depend on the rows
 * beside it. */
#ifndef BACKEND_CUDA_COMMON_CUH
#define BACKEND_CUDA_COMMON_CUH

#include "backend/cuda/launch.h"
#include "backend/cuda/ptx.cuh"
#include "base/activation.h"

#include <math.h>

constexpr uint32_t WARP = 32;
constexpr uint32_t ALL_LANES = 0xffffffffu;

/* Blocks of `size` that cover `count`. */
static inline uint32_t blocks_for(size_t count, uint32_t size)
{
    return (uint32_t)((count + size - 1) / size);
}

/* ------------------------------------------------------------------------------- sums */

/* The sum over each `lanes` neighbouring lanes, in all of them; a power of two, up to a warp.
 * Every lane of the warp calls. */
template <uint32_t lanes> static __device__ __forceinline__ float lane_sum(float x)
{
#pragma unroll
    for (uint32_t distance = lanes / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, distance);
    return x;
}

static __device__ __forceinline__ float warp_sum(float x)
{
    return lane_sum<WARP>(x);
}

/* The sum over a block of whole warps, in all threads.  Every thread of the block calls. */
static __device__ __forceinline__ float block_sum(float x)
{
    __shared__ float sums[WARP];
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    x = warp_sum(x);
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    x = warp_sum(lane < blockDim.x / WARP ? sums[lane] : 0.0f);
    __syncthreads(); /* the next call overwrites the sums */
    return x;
}

/* This thread's part of Σ x², of `threads` that share the row. */
static __device__ __forceinline__ float sum_squares(const float *x, uint32_t width, uint32_t thread,
                                                    uint32_t threads)
{
    float sum = 0.0f;
    for (uint32_t i = thread; i < width; i += threads) sum = fmaf(x[i], x[i], sum);
    return sum;
}

/* Heads are short rows: a warp computes one, and a block some of them. */
constexpr uint32_t HEADS_PER_BLOCK = 4;

/* Number of the head that this warp computes, of all heads of all rows. */
static __device__ __forceinline__ size_t warp_head()
{
    return (size_t)blockIdx.x * HEADS_PER_BLOCK + threadIdx.x / WARP;
}

/* Σ x² of a head, in all lanes of the warp. */
static __device__ __forceinline__ float head_squares(const float *head, uint32_t width)
{
    return warp_sum(sum_squares(head, width, threadIdx.x % WARP, WARP));
}

/* -------------------------------------------------------------------------- functions */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Where one number weighs a whole row or head: in double, as on the CPU. */
static __device__ __forceinline__ float sigmoid_of_one(float x)
{
    return (float)(1.0 / (1.0 + exp(-(double)x)));
}

static __device__ __forceinline__ float silu(float x)
{
    return x * sigmoid(x);
}

/* GELU by its tanh: ½ (1 + tanh(u)) is sigmoid(2u). */
static __device__ __forceinline__ float gelu(float x)
{
    const float linear = 1.59576912f, cubic = 0.0713548163f; /* 2√(2/π), and 0.044715 of it */
    return x * sigmoid(x * (x * x * cubic + linear));
}

/* NaN stays NaN, which fminf and fmaxf would not do. */
static __device__ __forceinline__ float clamped_gate(float gate, float up)
{
    const float slope = 1.702f, limit = 7.0f;
    const float g = gate > limit ? limit : gate;
    const float least = up > limit ? limit : up;
    const float u = least < -limit ? -limit : least;
    return g * sigmoid(g * slope) * (u + 1.0f);
}

/* What an enum activation makes of a gate and the other half. */
static __device__ __forceinline__ float activate(int activation, float gate, float up)
{
    if (activation == ACTIVATION_CLAMPED) return clamped_gate(gate, up);
    return (activation == ACTIVATION_GELU ? gelu(gate) : silu(gate)) * up;
}

#endif
