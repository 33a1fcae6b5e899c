/* matrices.cu: products of prompt rows with matrices and experts on tensor cores.
 *
 *     x [rows][cols] f32     ->  bf16, in a tile of shared memory
 *     weight [channels][cols] ->  f32 as quant/format.h's `dequantise`  ->  bf16, in another
 *     mma.sync m16n8k16, sums in f32  ->  out [rows][channels]
 *
 * A block has TILE_CHANNELS channels and up to ROWS rows, and goes through the columns TILE_COLS at
 * a time.  Dequantisation costs more than the products, so a weight is dequantised once for all rows
 * of the block.  Blocks of the GGUF formats are copied to shared memory ahead of their use, in words
 * of 16 bytes; the other formats are dequantised from where they are.  Two blocks of threads on a
 * multiprocessor take turns with dequantisation and products.
 *
 * An expert's gate and up are one launch (PAIRED): each half of a tile's channels is of one of them,
 * and a thread has the sums of both for the same channel, which it activates.
 *
 * Order of a sum: the columns ascend by 16, one mma after the other; columns past the end are
 * zeroes.  Neither the rows of a block nor the place of a row among them changes what an mma adds to
 * it, so a row has the same bits in any batch.
 *
 * Devices that run the PTX for compute_75 have no mma with bf16: they run cuda_project and
 * cuda_run_experts instead. */
#include "backend/cuda/common.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Blocks are dequantised from shared memory, which __ldg cannot read. */
#define __ldg(pointer) (*(pointer))
#include "backend/cuda/formats.cuh"
#undef __ldg

#ifndef MM_COLS
#define MM_COLS   128
#define MM_CHUNK  2
#define MM_BLOCKS 2
#define MM_ROWS   64
#endif

enum {
    THREADS = 256,
    TILE_CHANNELS = 128,
    TILE_COLS = MM_COLS,
    TILE_UNITS = TILE_COLS / UNIT,
    BLOCKS = MM_BLOCKS, /* of a multiprocessor: the limit of registers */

    /* A lane dequantises neighbouring units, which share a scale. */
    LANE_UNITS = MM_CHUNK,
    CHANNEL_LANES = TILE_UNITS / LANE_UNITS,
    PASS_CHANNELS = THREADS / CHANNEL_LANES,
    PASSES = TILE_CHANNELS / PASS_CHANNELS,
    X_ROWS = THREADS / TILE_UNITS, /* loaded at once */

    /* Two warps share the rows and four the channels. */
    FRAGMENT_ROWS = 16, /* of an mma */
    FRAGMENT_COLS = 16,
    FRAGMENT_CHANNELS = 8,
    ROW_WARPS = 2,
    WARP_CHANNELS = TILE_CHANNELS * ROW_WARPS / (THREADS / WARP),
    WARP_FRAGMENTS = WARP_CHANNELS / FRAGMENT_CHANNELS,

    COPY_BYTES = 16, /* of one cp.async */
};

/* What a launch multiplies.  Of experts, block index z is the expert. */
struct matrix_product {
    const struct cuda_expert *experts; /* device; NULL: `weight` is the matrix */
    struct cuda_weight weight;
    const float *x;
    float *out;
    size_t x_stride, out_stride;
    uint32_t row_count;      /* of experts: the largest one's pairs */
    uint32_t pairs_per_x;    /* of experts: row of x = pair / pairs_per_x */
    uint32_t channels, cols; /* the matrix's shape */
    int activation;
    bool add;
    bool wide_x; /* rows of x are aligned to 16 bytes */
};

/* The blocks of a channel that are copied together: those of a tile's columns, or one that has more.
 * Every copy is of aligned words, so copied bytes keep their distance from such a word, unless they
 * are whole words themselves. */
template <int FORMAT> struct blocks {
#define ELEMENTS_OF(id, name, elements) FORMAT == FORMAT_##id ? elements:
#define BYTES_OF(id, name, elements)    FORMAT == FORMAT_##id ? (int)sizeof(struct block_##name):
    static constexpr int ELEMENTS = COMPILED_BLOCK_LIST(ELEMENTS_OF) 0;
    static constexpr int BLOCK_BYTES = COMPILED_BLOCK_LIST(BYTES_OF) 0;
#undef ELEMENTS_OF
#undef BYTES_OF
    static constexpr bool EXIST = ELEMENTS > 0;
    static constexpr int COLS = ELEMENTS > TILE_COLS ? ELEMENTS : TILE_COLS;
    static constexpr int BYTES = EXIST ? COLS / (EXIST ? ELEMENTS : 1) * BLOCK_BYTES : 0;
    static constexpr bool WHOLE_WORDS = BYTES % COPY_BYTES == 0;
    /* Of a channel's bytes to the next one's; neighbours begin in different banks. */
    static constexpr int PITCH = !EXIST ? COPY_BYTES
                                 : WHOLE_WORDS
                                     ? BYTES + COPY_BYTES
                                     : (BYTES + 2 * (COPY_BYTES - 1)) / COPY_BYTES * COPY_BYTES;
    static constexpr int CHANNELS = EXIST ? TILE_CHANNELS : 1;
};

/* A block's shared memory.  Eight bf16 are a uint4; unit u of a row is at u ^ row % 8, so that neither
 * the stores of a row nor the loads of a fragment's column, eight rows of one unit, meet in a bank. */
template <int FORMAT, int ROWS> struct matrix_tiles {
    uint4 w[TILE_CHANNELS][TILE_UNITS];
    uint4 x[ROWS][TILE_UNITS];
    uint8_t copies[2][blocks<FORMAT>::CHANNELS][blocks<FORMAT>::PITCH];
    const uint8_t *channels[TILE_CHANNELS]; /* rows of the weights */
    const float *x_rows[ROWS];
    uint32_t out_rows[ROWS];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/* -------------------------------------------------------------------------------- to the tiles */

DEVICE uint32_t pack_bf16(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const uint32_t *)&pair;
}

DEVICE uint4 pack_unit(const float *w)
{
    return make_uint4(pack_bf16(w[0], w[1]), pack_bf16(w[2], w[3]), pack_bf16(w[4], w[5]),
                      pack_bf16(w[6], w[7]));
}

/* Of PAIRED, eight channels of gate and the same ones of up alternate. */
template <bool PAIRED> DEVICE uint32_t channel_of_tile(uint32_t index)
{
    const uint32_t first = blockIdx.x * (PAIRED ? TILE_CHANNELS / 2 : TILE_CHANNELS);
    return first + (PAIRED ? index / 16 * 8 + index % 8 : index);
}

template <bool PAIRED>
DEVICE const struct cuda_weight *matrix_of_tile(const struct matrix_product &product,
                                                uint32_t index)
{
    if (!product.experts) return &product.weight;
    const struct cuda_expert *expert = product.experts + blockIdx.z;
    if (!PAIRED) return &expert->down;
    return index / 8 % 2 == 0 ? &expert->gate : &expert->up;
}

/* Starts the copy of the blocks of columns `first_col` to `first_col` + COLS of all channels. */
template <int FORMAT, int ROWS>
DEVICE void start_copy(struct matrix_tiles<FORMAT, ROWS> *tiles, uint32_t cols, uint32_t first_col)
{
    typedef struct blocks<FORMAT> blocks;
    constexpr uint32_t WORDS = (blocks::WHOLE_WORDS ? blocks::BYTES : blocks::PITCH) / COPY_BYTES;
    const uint32_t first_byte = first_col / blocks::ELEMENTS * blocks::BLOCK_BYTES;
    const uint32_t row_bytes = cols / blocks::ELEMENTS * blocks::BLOCK_BYTES;
    const uint32_t bytes = min(row_bytes - first_byte, (uint32_t)blocks::BYTES);
    for (uint32_t i = threadIdx.x; i < TILE_CHANNELS * WORDS; i += THREADS) {
        const uint32_t channel = i / WORDS, at = i % WORDS * COPY_BYTES;
        const uint8_t *from = tiles->channels[channel] + first_byte;
        const uint32_t skew = (uint32_t)((uintptr_t)from % COPY_BYTES);
        uint8_t *to = tiles->copies[first_col / blocks::COLS % 2][channel] + at;
        if (at >= bytes + (blocks::WHOLE_WORDS ? 0 : skew)) continue;
        if (blocks::WHOLE_WORDS && skew != 0) {
            *(uint4 *)to = load_16_bytes(from + at);
            continue;
        }
        copy_16_bytes(to, from - skew + at);
    }
}

/* CHANNEL_LANES neighbouring threads have a channel.  What is past the end of a row is dequantised
 * from another place and then zeroed, without a branch between the loads. */
template <int FORMAT, int ROWS>
DEVICE void load_weights(struct matrix_tiles<FORMAT, ROWS> *tiles, const struct cuda_weight &weight,
                         const struct weight_row *rows, uint32_t cols, uint32_t first_col)
{
    typedef struct blocks<FORMAT> blocks;
    const uint32_t first_unit = threadIdx.x % CHANNEL_LANES * LANE_UNITS;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        const uint32_t channel = threadIdx.x / CHANNEL_LANES + pass * PASS_CHANNELS;
        struct weight_row row = rows[pass];
        if constexpr (blocks::EXIST) {
            row.values = tiles->copies[first_col / blocks::COLS % 2][channel];
            if (blocks::WHOLE_WORDS)
                __builtin_assume((uintptr_t)row.values % COPY_BYTES == 0);
            else
                row.values += ((uint32_t)(uintptr_t)tiles->channels[channel] +
                               first_col / blocks::COLS * blocks::BYTES) %
                              COPY_BYTES;
        }
#pragma unroll
        for (int i = 0; i < LANE_UNITS; i++) {
            const uint32_t k = (first_unit + i) * UNIT;
            const bool inside = first_col + k < cols;
            float w[UNIT];
            if constexpr (blocks::EXIST)
                dequantise_unit<FORMAT>(w, weight, row, first_col % blocks::COLS + k);
            else
                dequantise_unit<FORMAT>(w, weight, row, inside ? first_col + k : 0);
            uint4 unit = pack_unit(w);
            if (!inside) unit = make_uint4(0, 0, 0, 0);
            tiles->w[channel][(first_unit + i) ^ channel % 8] = unit;
        }
    }
}

/* Four activations from x; zeroes past the `left` ones of the row. */
DEVICE float4 load_four(const float *x, uint32_t left)
{
    return make_float4(left > 0 ? x[0] : 0.0f, left > 1 ? x[1] : 0.0f, left > 2 ? x[2] : 0.0f,
                       left > 3 ? x[3] : 0.0f);
}

/* Activations on the way to the tile: a thread's units, of every X_ROWS-th row. */
template <int ROWS> struct x_units {
    float4 low[ROWS / X_ROWS], high[ROWS / X_ROWS];
};

/* TILE_UNITS neighbouring threads have a row.  Rows from `count` on are not loaded. */
template <int FORMAT, int ROWS>
DEVICE void load_x(struct x_units<ROWS> *units, const struct matrix_tiles<FORMAT, ROWS> *tiles,
                   const struct matrix_product &product, uint32_t count, uint32_t first_col)
{
    const uint32_t k = first_col + threadIdx.x % TILE_UNITS * UNIT;
    const uint32_t first_row = threadIdx.x / TILE_UNITS;
    const bool whole = product.wide_x && first_col + TILE_COLS <= product.cols;
    const uint32_t left = k < product.cols ? product.cols - k : 0;
    if (whole) {
#pragma unroll
        for (int i = 0; i < ROWS / X_ROWS; i++) {
            const float *x = tiles->x_rows[first_row + i * X_ROWS] + k;
            if (first_row + i * X_ROWS < count) {
                units->low[i] = *(const float4 *)x;
                units->high[i] = *(const float4 *)(x + 4);
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < ROWS / X_ROWS; i++) {
            const float *x = tiles->x_rows[first_row + i * X_ROWS] + k;
            units->low[i] = load_four(x, left);
            units->high[i] = load_four(x + 4, left > 4 ? left - 4 : 0);
        }
    }
}

template <int FORMAT, int ROWS>
DEVICE void store_x(struct matrix_tiles<FORMAT, ROWS> *tiles, const struct x_units<ROWS> *units)
{
    const uint32_t unit = threadIdx.x % TILE_UNITS, first_row = threadIdx.x / TILE_UNITS;
#pragma unroll
    for (int i = 0; i < ROWS / X_ROWS; i++) {
        const uint32_t row = first_row + i * X_ROWS;
        const float4 low = units->low[i], high = units->high[i];
        tiles->x[row][unit ^ row % 8] =
            make_uint4(pack_bf16(low.x, low.y), pack_bf16(low.z, low.w), pack_bf16(high.x, high.y),
                       pack_bf16(high.z, high.w));
    }
}

/* ------------------------------------------------------------------------------ tensor cores */

/* First row of fragment i of this warp: the two warps of the same channels take turns. */
DEVICE uint32_t fragment_row(int i)
{
    return (i * ROW_WARPS + threadIdx.x / WARP % ROW_WARPS) * FRAGMENT_ROWS;
}

DEVICE uint32_t warp_channel(void)
{
    return threadIdx.x / WARP / ROW_WARPS * WARP_CHANNELS;
}

template <int FORMAT, int ROWS>
DEVICE void multiply_tiles(float (*sums)[WARP_FRAGMENTS][4],
                           const struct matrix_tiles<FORMAT, ROWS> *tiles, uint32_t count)
{
    constexpr int FRAGMENTS = ROWS / FRAGMENT_ROWS / ROW_WARPS;
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t channel = warp_channel() + lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int k = 0; k < TILE_COLS / FRAGMENT_COLS; k++) {
        uint32_t w[WARP_FRAGMENTS][2];
#pragma unroll
        for (int j = 0; j < WARP_FRAGMENTS; j += 2)
            load_fragment(
                w[j],
                &tiles->w[channel + j * FRAGMENT_CHANNELS][(2 * k + lane / 8 % 2) ^ lane % 8]);
#pragma unroll
        for (int i = 0; i < FRAGMENTS; i++) {
            if (fragment_row(i) >= count) break;
            uint32_t x[4];
            load_fragment(x,
                          &tiles->x[fragment_row(i) + lane % 16][(2 * k + lane / 16) ^ lane % 8]);
#pragma unroll
            for (int j = 0; j < WARP_FRAGMENTS; j++) multiply_fragments(sums[i][j], x, w[j]);
        }
    }
}

/* ------------------------------------------------------------------------------- the results */

DEVICE float with_addend(float sum, const struct cuda_weight &addends, uint32_t channel)
{
    if (!addends.values) return sum;
    return sum + load_number(addends.format, addends.values + channel * addends.row_bytes, 0);
}

/* Stores a channel of a row; `up` is of PAIRED only. */
template <bool PAIRED>
DEVICE void store_result(const struct matrix_product &product, size_t row, uint32_t channel,
                         float sum, float up)
{
    if (channel >= product.channels) return;
    float *out = product.out + row * product.out_stride + channel;
    if (!product.experts) {
        *out = product.add ? *out + sum : sum;
        return;
    }
    const struct cuda_expert *expert = product.experts + blockIdx.z;
    if (PAIRED)
        *out = activate(product.activation, with_addend(sum, expert->gate_addends, channel),
                        with_addend(up, expert->up_addends, channel));
    else
        *out = with_addend(sum, expert->down_addends, channel);
}

/* A lane has two neighbouring channels of two rows in each fragment. */
template <bool PAIRED, int ROWS>
DEVICE void store_sums(const struct matrix_product &product, const uint32_t *out_rows,
                       float (*sums)[WARP_FRAGMENTS][4], uint32_t count)
{
    constexpr int FRAGMENTS = ROWS / FRAGMENT_ROWS / ROW_WARPS, STEP = PAIRED ? 2 : 1;
    const uint32_t lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < FRAGMENTS; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = fragment_row(i) + half * 8 + lane / 4;
            if (row >= count) break;
#pragma unroll
            for (int j = 0; j < WARP_FRAGMENTS; j += STEP) {
                const uint32_t channel =
                    channel_of_tile<PAIRED>(warp_channel() + j * FRAGMENT_CHANNELS + lane % 4 * 2);
#pragma unroll
                for (int c = 0; c < 2; c++)
                    store_result<PAIRED>(product, out_rows[row], channel + c,
                                         sums[i][j][2 * half + c],
                                         PAIRED ? sums[i][j + STEP - 1][2 * half + c] : 0.0f);
            }
        }
}

/* Writes the addresses of the tile's rows and returns their count.  Rows past the last one repeat
 * it; they are not stored. */
template <int FORMAT, int ROWS>
DEVICE uint32_t find_rows(struct matrix_tiles<FORMAT, ROWS> *tiles,
                          const struct matrix_product &product)
{
    const uint32_t first = blockIdx.y * ROWS;
    uint32_t count = product.row_count;
    const uint32_t *pairs = NULL;
    if (product.experts) {
        count = product.experts[blockIdx.z].pair_count;
        pairs = product.experts[blockIdx.z].pairs;
    }
    if (first >= count) return 0;
    if (threadIdx.x < ROWS) {
        const uint32_t index = min(first + threadIdx.x, count - 1);
        const uint32_t out = pairs ? pairs[index] : index;
        tiles->out_rows[threadIdx.x] = out;
        tiles->x_rows[threadIdx.x] =
            product.x + (pairs ? out / product.pairs_per_x : out) * product.x_stride;
    }
    return min(count - first, (uint32_t)ROWS);
}

/* The address of channel `index` of the tile; channels past the last one repeat it. */
template <bool PAIRED>
DEVICE struct weight_row find_channel(const struct matrix_product &product, uint32_t index)
{
    const uint32_t channel = min(channel_of_tile<PAIRED>(index), product.channels - 1);
    return row_of_weight(*matrix_of_tile<PAIRED>(product, index), channel);
}

#endif

/* Row tiles are block index y. */
template <int FORMAT, bool PAIRED, int ROWS>
static __global__ void __launch_bounds__(THREADS, BLOCKS)
    multiply_matrix(const __grid_constant__ struct matrix_product product)
{
#if __CUDA_ARCH__ >= 800
    typedef struct blocks<FORMAT> blocks;
    uint4 *const shared = block_memory<uint4>();
    struct matrix_tiles<FORMAT, ROWS> *tiles = (struct matrix_tiles<FORMAT, ROWS> *)shared;
    const uint32_t count = find_rows(tiles, product), cols = product.cols;
    if (count == 0) return; /* for all of the block */

    const uint32_t index = threadIdx.x / CHANNEL_LANES;
    const struct cuda_weight weight = *matrix_of_tile<PAIRED>(product, index);
    struct weight_row rows[PASSES];
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++)
        rows[pass] = find_channel<PAIRED>(product, index + pass * PASS_CHANNELS);
    if (threadIdx.x < TILE_CHANNELS)
        tiles->channels[threadIdx.x] = find_channel<PAIRED>(product, threadIdx.x).values;
    __syncthreads();
    if constexpr (blocks::EXIST) start_copy<FORMAT>(tiles, cols, 0);

    float sums[ROWS / FRAGMENT_ROWS / ROW_WARPS][WARP_FRAGMENTS][4] = {};
    for (uint32_t col = 0; col < cols; col += TILE_COLS) {
        struct x_units<ROWS> x;
        load_x(&x, tiles, product, count, col);
        if constexpr (blocks::EXIST)
            if (col % blocks::COLS == 0) {
                finish_copies();
                __syncthreads();
                if (col + blocks::COLS < cols) start_copy<FORMAT>(tiles, cols, col + blocks::COLS);
            }
        load_weights(tiles, weight, rows, cols, col);
        store_x(tiles, &x);
        __syncthreads();
        multiply_tiles(sums, tiles, count);
        __syncthreads();
    }
    store_sums<PAIRED, ROWS>(product, tiles->out_rows, sums, count);
#endif
}

/* -------------------------------------------------------------------------------- launches */

/* Whether the device has code of this kernel with tensor cores, and shared memory for it. */
static bool prepare_kernel(const void *kernel, size_t shared_bytes)
{
    struct cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) return false;
    if (attributes.ptxVersion < 80) return false;
    if (attributes.maxDynamicSharedSizeBytes >= (int)shared_bytes) return true;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes) == cudaSuccess;
}

template <int FORMAT, bool PAIRED, int ROWS>
static bool launch_rows(cuda_stream stream, const struct matrix_product *product,
                        uint32_t matrix_count)
{
    const size_t shared_bytes = sizeof(struct matrix_tiles<FORMAT, ROWS>);
    const uint32_t channels = PAIRED ? TILE_CHANNELS / 2 : TILE_CHANNELS;
    const dim3 grid(blocks_for(product->channels, channels), blocks_for(product->row_count, ROWS),
                    matrix_count);
    if (!prepare_kernel((const void *)multiply_matrix<FORMAT, PAIRED, ROWS>, shared_bytes))
        return false;
    start_kernel(multiply_matrix<FORMAT, PAIRED, ROWS>, grid, THREADS, shared_bytes, stream,
                 *product);
    return true;
}

#define LAUNCH_CASE(id, ...)                                                                       \
    case FORMAT_##id:                                                                              \
        return launch_rows<FORMAT_##id, PAIRED, MM_ROWS>(stream, product, matrix_count);

/* Returns false if the device has no such kernel. */
template <bool PAIRED>
static bool launch_product(cuda_stream stream, const struct matrix_product *product, int format,
                           uint32_t matrix_count)
{
    switch (format) {
        COMPILED_PLAIN_LIST(LAUNCH_CASE)
        COMPILED_AFFINE_LIST(LAUNCH_CASE)
        COMPILED_BLOCK_LIST(LAUNCH_CASE)
    default:
        return launch_rows<FORMAT_ANY, PAIRED, MM_ROWS>(stream, product, matrix_count);
    }
}
#undef LAUNCH_CASE

static bool rows_are_wide(const float *x, size_t stride)
{
    return (uintptr_t)x % 16 == 0 && stride % 4 == 0;
}

void cuda_project_matrix(cuda_stream stream, float *out, size_t out_stride, const float *x,
                         size_t x_stride, uint32_t row_count, const struct cuda_weight *weight,
                         bool add)
{
    struct matrix_product product = {};
    if (row_count == 0) return;
    product.weight = *weight;
    product.x = x;
    product.out = out;
    product.x_stride = x_stride;
    product.out_stride = out_stride;
    product.row_count = row_count;
    product.channels = (uint32_t)weight->rows;
    product.cols = (uint32_t)weight->cols;
    product.add = add;
    product.wide_x = rows_are_wide(x, x_stride);
    if (!launch_product<false>(stream, &product, weight->format, 1))
        cuda_project(stream, out, out_stride, x, x_stride, row_count, weight, add, false);
}

void cuda_run_experts_matrix(cuda_stream stream, const struct cuda_experts *batch)
{
    const uint32_t width = batch->width, expert_width = batch->expert_width;
    struct matrix_product hidden = {};
    if (batch->expert_count == 0 || batch->most_pairs == 0) return;
    hidden.experts = batch->experts;
    hidden.x = batch->routed;
    hidden.out = batch->hidden;
    hidden.x_stride = width;
    hidden.out_stride = expert_width;
    hidden.row_count = batch->most_pairs;
    hidden.pairs_per_x = batch->per_row;
    hidden.channels = expert_width;
    hidden.cols = width;
    hidden.activation = batch->activation;
    hidden.wide_x = rows_are_wide(batch->routed, width);

    struct matrix_product answers = hidden;
    answers.x = batch->hidden;
    answers.out = batch->answers;
    answers.x_stride = expert_width;
    answers.out_stride = width;
    answers.pairs_per_x = 1;
    answers.channels = width;
    answers.cols = expert_width;
    answers.wide_x = rows_are_wide(batch->hidden, expert_width);

    /* Kernels for every combination of two formats would be too many. */
    const int format = batch->gate_format == batch->up_format ? batch->gate_format : FORMAT_ANY;
    if (!launch_product<true>(stream, &hidden, format, batch->expert_count) ||
        !launch_product<false>(stream, &answers, batch->down_format, batch->expert_count)) {
        struct cuda_experts prompt = *batch;
        prompt.decode = false;
        cuda_run_experts(stream, &prompt);
    }
}
