/* ptx.cuh: what CUDA has no function for: the start of a kernel with any arguments, a block's memory,
 * and instructions of PTX.
 *
 * tests/emulated has a header of this name, for kernels that run on the host. */
#ifndef BACKEND_CUDA_PTX_CUH
#define BACKEND_CUDA_PTX_CUH

#include "backend/cuda/launch.h"

#include <stddef.h>
#include <stdint.h>

/* Queues a kernel; behind a call that failed, none, since it might read what has not been written. */
template <typename... P, typename... A>
static void start_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t bytes,
                         cuda_stream stream, A... arguments)
{
    if (cudaPeekAtLastError() == cudaSuccess)
        kernel<<<grid, block, bytes, stream>>>(static_cast<P>(arguments)...);
}

/* The shared memory that a launch asks for. */
template <typename T> static __device__ __forceinline__ T *block_memory(void)
{
    extern __shared__ uint4 memory_of_block[];
    return (T *)memory_of_block;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/* Starts a copy of 16 aligned bytes to shared memory. */
static __device__ __forceinline__ void copy_16_bytes(void *to, const void *from)
{
    const uint32_t shared = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}

/* Waits for this thread's copies; a barrier is to follow. */
static __device__ __forceinline__ void finish_copies(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Four 8 x 8 matrices of bf16; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void load_fragment(uint32_t *words, const uint4 *row)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
}

/* sums[16 rows][8 channels] += x[16][16 columns] · w[8][16]ᵀ */
static __device__ __forceinline__ void multiply_fragments(float *sums, const uint32_t *x,
                                                          const uint32_t *w)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(w[0]), "r"(w[1]));
}

#endif

/* Asks for a line of memory to come to the L2 cache. */
static __device__ __forceinline__ void prefetch_line(const void *line)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
}

#endif
