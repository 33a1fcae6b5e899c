/* ptx.cuh: the emulated device's form of src/backend/cuda/ptx.cuh. */
#ifndef EMULATED_PTX_CUH
#define EMULATED_PTX_CUH

#include "backend/cuda/launch.h"

#include <cuda_pipeline.h>
#include <functional>

namespace emulated
{
void *block_memory(void);
void launch(const void *kernel, const std::function<void()> &call, dim3 grid, dim3 block,
            size_t bytes, cuda_stream stream);
} // namespace emulated

template <typename T> static T *block_memory(void)
{
    return (T *)emulated::block_memory();
}

template <typename... P, typename... A>
static void start_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t bytes,
                         cuda_stream stream, A... arguments)
{
    if (cudaPeekAtLastError() == cudaSuccess)
        emulated::launch((const void *)kernel, [=] { kernel(static_cast<P>(arguments)...); }, grid,
                         block, bytes, stream);
}

static inline void copy_16_bytes(void *to, const void *from)
{
    emulated::copy_later(to, from, 16);
}

static inline void finish_copies(void)
{
    emulated::end_copies();
    emulated::wait_for_copies(0);
}

static inline void prefetch_line(const void *)
{
}

/* Matrix m has its row r at the address of lane 8m + r; lane l gets columns 2 (l % 4) and the one
 * behind it of row l / 4 of every matrix. */
static inline void load_fragment(uint32_t *words, const uint4 *row)
{
    const uint8_t(*rows)[emulated::LANE_BYTES] =
        emulated::meet(emulated::MEET_LOAD, row, sizeof *row);
    const unsigned lane = emulated::this_lane();
    for (unsigned m = 0; m < 4; m++) memcpy(&words[m], rows[8 * m + lane / 4] + lane % 4 * 4, 4);
}

namespace emulated
{
static inline float low_bf16(uint32_t word)
{
    return emulated_bits<float>(word << 16);
}
static inline float high_bf16(uint32_t word)
{
    return emulated_bits<float>(word & 0xffff0000u);
}
} // namespace emulated

/* Lane l has of x the rows l / 4 and that + 8, columns 2 (l % 4) + 0, 1, 8, 9; of w the channel l / 4
 * with the same columns; of the sums these rows, channels 2 (l % 4) + 0, 1. */
static inline void multiply_fragments(float *sums, const uint32_t *x, const uint32_t *w)
{
    const uint32_t own[6] = { x[0], x[1], x[2], x[3], w[0], w[1] };
    const uint8_t(*all)[emulated::LANE_BYTES] =
        emulated::meet(emulated::MEET_MULTIPLY, own, sizeof own);
    const unsigned lane = emulated::this_lane();
    for (unsigned half = 0; half < 2; half++) {
        for (unsigned c = 0; c < 2; c++) {
            float sum = sums[2 * half + c];
            for (unsigned k = 0; k < 8; k++) { /* pairs of columns */
                const uint32_t *from_x = (const uint32_t *)all[lane / 4 * 4 + k % 4];
                const uint32_t *from_w = (const uint32_t *)all[(lane % 4 * 2 + c) * 4 + k % 4];
                const uint32_t a = from_x[half + k / 4 * 2], b = from_w[4 + k / 4];
                sum = __fmaf_rn(emulated::low_bf16(a), emulated::low_bf16(b), sum);
                sum = __fmaf_rn(emulated::high_bf16(a), emulated::high_bf16(b), sum);
            }
            sums[2 * half + c] = sum;
        }
    }
}

#endif
