/* product_decode.cuh: the kernels of generated rows, for products.cu. */
#ifndef BACKEND_CUDA_PRODUCT_DECODE_CUH
#define BACKEND_CUDA_PRODUCT_DECODE_CUH

#include "backend/cuda/product.cuh"

/* -------------------------------------------------------------------------- generated rows
 *
 * A block stages its rows of x in shared memory, a tile of columns at a time, while its part of the
 * weights is on its way to the L2 cache.  A channel has 8, 16 or 32 lanes of a warp; a lane has the
 * spans of packed.cuh whose number is its own modulo that, in ascending order. */

/* Four activations from x; zeroes past the `left` ones of the row. */
DEVICE float4 load_four(const float *x, uint32_t left, bool wide)
{
    if (wide && left >= 4) return *(const float4 *)x;
    return make_float4(left > 0 ? x[0] : 0.0f, left > 1 ? x[1] : 0.0f, left > 2 ? x[2] : 0.0f,
                       left > 3 ? x[3] : 0.0f);
}

/* Threads of a block of rows.cu's rms_norm, whose order of sums depends on them. */
DEVICE uint32_t norm_threads(uint32_t width)
{
    const uint32_t warps = (width + 4 * WARP - 1) / (4 * WARP);
    return (warps < 1 ? 1 : warps > WARP ? WARP : warps) * WARP;
}

/* x ← rms(x, weight), or x as it is. */
struct norm {
    const float *weight; /* or NULL */
    float epsilon;
};

/* Several rows of a tile, eight chunks of one row after the other: see packed.cuh on PAD.  Every
 * chunk is [16 numbers | their sum | 3 unused]. */
enum { CHUNK_STRIDE = 20, OCTET = 8 * CHUNK_STRIDE, TILE_PAD_MAX = 16 };

template <int FORMAT> DEVICE uint32_t place_of_chunk(uint32_t chunk)
{
    return chunk * CHUNK_STRIDE + chunk / 8 * packed<FORMAT>::PAD;
}

template <int ROWS> DEVICE constexpr uint32_t tile_columns()
{
    return DECODE_TILE / ROWS;
}

template <int FORMAT, int ROWS> DEVICE constexpr uint32_t tile_stride()
{
    return tile_columns<ROWS>() / (8 * CHUNK) * (OCTET + packed<FORMAT>::PAD);
}

/* 1 / rms of `count` rows, in shared memory.  A block of rows.cu's rms_norm has one thread for each
 * of `threads`; a warp of this one stands for several of its warps, and sums in the same order. */
DEVICE void find_scales(float *scales, const struct product &product, const struct block_rows &rows,
                        uint32_t first, uint32_t count, float epsilon)
{
    __shared__ float squares[WARP];
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t threads = norm_threads(product.cols);
    for (uint32_t r = 0; r < count; r++) {
        const float *x = x_of_row(product, rows, first + r);
        for (uint32_t w = warp; w < threads / WARP; w += blockDim.x / WARP) {
            const float sum = warp_sum(sum_squares(x, product.cols, w * WARP + lane, threads));
            if (lane == 0) squares[w] = sum;
        }
        __syncthreads();
        if (warp == 0) {
            const float sum = warp_sum(lane < threads / WARP ? squares[lane] : 0.0f);
            if (lane == 0) scales[r] = 1.0f / sqrtf(sum / (float)product.cols + epsilon);
        }
        __syncthreads();
    }
}

/* A thread has four neighbouring numbers of one row. */
template <int FORMAT, int ROWS>
DEVICE void stage_tile(float *tile, const float *scales, const struct product &product,
                       const struct block_rows &rows, uint32_t first, uint32_t count,
                       uint32_t first_col, const float *norm_weight)
{
    const uint32_t cols = min(product.cols - first_col, tile_columns<ROWS>());
    const uint32_t quads = (cols + CHUNK - 1) / CHUNK * (CHUNK / 4);
    for (uint32_t r = 0; r < count; r++) {
        const float *x = x_of_row(product, rows, first + r) + first_col;
        for (uint32_t base = threadIdx.x / WARP * WARP; base < quads; base += blockDim.x) {
            const uint32_t quad = base + threadIdx.x % WARP, col = quad * 4;
            const uint32_t left = col < cols ? cols - col : 0;
            float4 v = load_four(x + col, left, product.wide_x);
            if (norm_weight) {
                const float *n = norm_weight + first_col + col;
                const float4 w = load_four(n, left, (uintptr_t)n % 16 == 0);
                const float scale = scales[r];
                v = make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z,
                                v.w * scale * w.w);
            }
            const float sum = lane_sum<4>(__fadd_rn(__fadd_rn(v.x, v.y), __fadd_rn(v.z, v.w)));
            if (quad >= quads) continue;
            float *to = tile + r * tile_stride<FORMAT, ROWS>() + place_of_chunk<FORMAT>(quad / 4);
            *(float4 *)(to + quad % 4 * 4) = v;
            if (quad % 4 == 0) to[CHUNK] = sum;
        }
    }
}

/* Adds one span of CHANNELS channels to the sums of `count` rows. */
template <int FORMAT, int ROWS, int CHANNELS>
DEVICE void add_span(float (*sums)[ROWS], const struct packed<FORMAT> *w, const float *tile,
                     uint32_t span, uint32_t first_col, uint32_t count)
{
    typedef struct packed<FORMAT> packed_t;
#pragma unroll
    for (int chunk = 0; chunk < packed_t::CHUNKS; chunk++) {
        const uint32_t place = (packed_t::column(span, chunk) - first_col) / CHUNK;
        const float *x = tile + place_of_chunk<FORMAT>(place);
        float part[CHANNELS][ROWS] = {};
#pragma unroll
        for (int i = 0; i < CHUNK / 4; i++) {
            float q[CHANNELS][4];
#pragma unroll
            for (int c = 0; c < CHANNELS; c++) w[c].quad(q[c], chunk, i);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= (int)count) break;
                const float4 v = *(const float4 *)(x + r * tile_stride<FORMAT, ROWS>() + 4 * i);
#pragma unroll
                for (int c = 0; c < CHANNELS; c++) {
                    float sum = packed_t::SCALED ? part[c][r] : sums[c][r];
                    sum = __fmaf_rn(q[c][0], v.x, sum);
                    sum = __fmaf_rn(q[c][1], v.y, sum);
                    sum = __fmaf_rn(q[c][2], v.z, sum);
                    sum = __fmaf_rn(q[c][3], v.w, sum);
                    (packed_t::SCALED ? part : sums)[c][r] = sum;
                }
            }
        }
        if constexpr (packed_t::SCALED) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (r >= (int)count) break;
                const float whole =
                    packed_t::HAS_MIN ? x[r * tile_stride<FORMAT, ROWS>() + CHUNK] : 0.0f;
#pragma unroll
                for (int c = 0; c < CHANNELS; c++) {
                    if (packed_t::HAS_MIN)
                        sums[c][r] = __fmaf_rn(-w[c].least(chunk), whole, sums[c][r]);
                    sums[c][r] = __fmaf_rn(w[c].scale(chunk), part[c][r], sums[c][r]);
                }
            }
        }
    }
}

/* The bytes of a row that a lane's group will read, towards the L2 cache. */
DEVICE void prefetch_row(const struct weight_row &row, uint64_t bytes, uint32_t lane,
                         uint32_t lanes)
{
    const uint32_t LINE = 128;
    for (uint64_t at = lane * LINE; at < bytes; at += lanes * LINE) prefetch_line(row.values + at);
}

/* Channels of a lane.  With several rows there are several, for each read of x. */
template <int FORMAT, int ROWS, bool PAIRED> DEVICE constexpr int channels_of_lane()
{
    return ROWS > 1 && packed<FORMAT>::MANY ? (PAIRED ? MANY_CHANNELS / 2 : MANY_CHANNELS) : 1;
}

/* Block `block` of a product, of those with the same rows.  The bits of a row do not depend on ROWS:
 * it is 1 for steps of one row, which need fewer registers. */
template <int FORMAT, int ROWS, bool PAIRED>
DEVICE void decode_block(const struct product &product, uint32_t block, const struct norm &norm)
{
    constexpr int CHANNELS = channels_of_lane<FORMAT, ROWS, PAIRED>(), MATRICES = PAIRED ? 2 : 1;
    constexpr int ALL = CHANNELS * MATRICES; /* channels of gate, then of up */
    constexpr int DEPTH = ROWS == 1 && packed<FORMAT>::SCALED ? 2 : 1;
    constexpr uint32_t SPAN = packed<FORMAT>::CHUNKS * CHUNK;
    float4 *const decode_tile = block_memory<float4>();
    __shared__ float scales[ROWS];
    float *tile = (float *)decode_tile;

    const uint32_t first = blockIdx.y * ROWS;
    const struct block_rows rows = rows_of_block(product);
    if (first >= rows.count) return; /* for all of the block */
    const uint32_t count = min((uint32_t)ROWS, rows.count - first);
    const uint32_t lanes = product.lanes_per_channel, lane = threadIdx.x % lanes;
    const uint32_t groups = blockDim.x / lanes;
    const uint32_t channel = block * groups * CHANNELS + threadIdx.x / lanes;

    if (block * groups * CHANNELS >= product.channels) return;
    struct cuda_weight weights[MATRICES];
    struct weight_row matrix_rows[ALL];
#pragma unroll
    for (int m = 0; m < MATRICES; m++) {
        weights[m] = *matrix_of_block<PAIRED>(product, m);
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            const uint32_t row = min(channel + c * groups, product.channels - 1);
            matrix_rows[m * CHANNELS + c] = row_of_weight(weights[m], row);
            prefetch_row(matrix_rows[m * CHANNELS + c], weights[m].row_bytes, lane, lanes);
        }
    }
    if (norm.weight) find_scales(scales, product, rows, first, count, norm.epsilon);

    float sums[ALL][ROWS] = {};
    for (uint32_t col = 0; col < product.cols; col += tile_columns<ROWS>()) {
        if (col > 0) __syncthreads(); /* the tile before has been read */
        stage_tile<FORMAT, ROWS>(tile, scales, product, rows, first, count, col, norm.weight);
        __syncthreads();
        const uint32_t end = min(product.cols, col + tile_columns<ROWS>());
        for (uint32_t span = col / SPAN + lane; span * SPAN < end; span += DEPTH * lanes) {
            struct packed<FORMAT> w[DEPTH][ALL];
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                const uint32_t next = span + d * lanes;
                if (d > 0 && next * SPAN >= end) break;
#pragma unroll
                for (int i = 0; i < ALL; i++)
                    w[d][i].load(weights[i / CHANNELS], matrix_rows[i], next);
            }
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                const uint32_t next = span + d * lanes;
                if (d > 0 && next * SPAN >= end) break;
                add_span<FORMAT, ROWS, ALL>(sums, w[d], tile, next, col, count);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (r >= (int)count) break;
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            float sum = sums[c][r], up = sums[ALL - CHANNELS + c][r];
            for (uint32_t distance = lanes / 2; distance > 0; distance /= 2) {
                sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, distance));
                if (PAIRED) up = __fadd_rn(up, __shfl_xor_sync(ALL_LANES, up, distance));
            }
            const uint32_t to = channel + c * groups;
            if (lane == (uint32_t)(r * CHANNELS + c) % lanes && to < product.channels)
                store_result<PAIRED>(product, out_row(rows, first + r), to, sum, up);
        }
    }
}

/* The formats that one kernel has bodies of, when blocks have several; each has the bits of its own
 * kernel.  What FORMAT_ANY dequantises has them too: only formats with a struct in packed.cuh must
 * be here. */
#define MIXED_LIST(X)                                                                              \
    X(F32) X(F16) X(BF16) X(Q4_0) X(Q8_0) X(IQ4_NL) X(MXFP4) X(Q4_K) X(Q5_K) X(Q6_K)

enum { FORMAT_MIXED = -2 };

#define BLOCK_CASE(id)                                                                             \
    case FORMAT_##id:                                                                              \
        decode_block<FORMAT_##id, ROWS, PAIRED>(product, block, norm);                             \
        return;

template <int FORMAT, int ROWS, bool PAIRED>
DEVICE void decode_format(const struct product &product, uint32_t block, const struct norm &norm)
{
    if constexpr (FORMAT != FORMAT_MIXED) {
        decode_block<FORMAT, ROWS, PAIRED>(product, block, norm);
    } else {
        const int format = matrix_of_block<PAIRED>(product, 0)->format;
        const bool same = !PAIRED || format == matrix_of_block<PAIRED>(product, 1)->format;
        switch (same ? format : (int)FORMAT_ANY) {
            MIXED_LIST(BLOCK_CASE)
        default:
            decode_block<FORMAT_ANY, ROWS, PAIRED>(product, block, norm);
        }
    }
}
#undef BLOCK_CASE

constexpr int threads_of(int rows)
{
    return rows == 1 ? ONE_ROW_WARPS * (int)WARP : MANY_ROWS_WARPS * (int)WARP;
}

/* Parts of a launch with the same x; part p has the blocks from first_block[p] on. */
struct parts {
    struct product products[CUDA_PRODUCTS_MAX];
    uint32_t first_block[CUDA_PRODUCTS_MAX];
    uint32_t count;
    struct norm norm;
};

template <int FORMAT, int ROWS>
static __global__ void __launch_bounds__(threads_of(ROWS), 2)
    decode_parts(const __grid_constant__ struct parts parts)
{
    uint32_t p = 0;
    while (p + 1 < parts.count && blockIdx.x >= parts.first_block[p + 1]) p++;
    decode_format<FORMAT, ROWS, false>(parts.products[p], blockIdx.x - parts.first_block[p],
                                       parts.norm);
}

template <int FORMAT, int ROWS, bool PAIRED>
static __global__ void __launch_bounds__(threads_of(ROWS), 2)
    decode_experts(const __grid_constant__ struct product product)
{
    if (product.experts[blockIdx.z].pair_count == 0) return;
    decode_format<FORMAT, ROWS, PAIRED>(product, blockIdx.x, { NULL, 0.0f });
}

#endif
