/* products.cu: embedding rows, products with matrices and experts, in f32 on the weights that
 * quant/format.h's `dequantise` gives.  Each kernel is compiled for every usual format and once for
 * any:
 *
 *     decode_parts, decode_experts   generated rows (product_decode.cuh).  8, 16 or 32 lanes of a warp
 *                                    per output channel, one row of activations or up to eight
 *     product_tiled                  prompts, where tensor cores are not wanted (matrices.cu).
 *                                    64 channels x 64 rows per block, 32 columns at a time by way of
 *                                    shared memory
 *
 * An expert's gate and up are one launch: the kernels are compiled PAIRED as well, with two
 * matrices and the activation after them.  Everything else is a product with one matrix.
 *
 * Order of a sum: of generated rows by lanes, then a tree of shuffles; in product_tiled in ascending
 * order of the columns.  The matrix's shape alone determines the lane of a column, so a row has the
 * same bits in any batch. */
#include "backend/cuda/product_decode.cuh"

/* ---------------------------------------------------------------------------------- prompts */

/* w: [column][channel].  Of PAIRED the tile's channels are gate, gate, up, up, gate ..., so that a
 * lane's four are two of both. */
struct alignas(16) tile {
    float w[TILE_COLS][TILE_CHANNELS];
    float x[TILE_ROWS][X_STRIDE];
};

template <bool PAIRED> DEVICE uint32_t channel_of_tile(uint32_t index)
{
    const uint32_t first = blockIdx.x * (PAIRED ? TILE_CHANNELS / 2 : TILE_CHANNELS);
    return first + (PAIRED ? index / 4 * 2 + index % 2 : index);
}

/* A thread has one channel of the tile: neighbouring threads store to neighbouring banks. */
template <int FORMAT>
DEVICE void load_weight_tile(struct tile *tile, const struct product &product,
                             const struct cuda_weight &weight, const struct weight_row &row,
                             bool inside, uint32_t first_col)
{
    constexpr uint32_t UNITS = TILE_COLS / UNIT, STEP = TILE_THREADS / TILE_CHANNELS;
    const uint32_t index = threadIdx.x % TILE_CHANNELS;
#pragma unroll
    for (uint32_t unit = 0; unit < UNITS; unit += STEP) {
        const uint32_t col = (unit + threadIdx.x / TILE_CHANNELS) * UNIT;
        float w[UNIT] = {};
        if (inside && first_col + col < product.cols)
            dequantise_unit<FORMAT>(w, weight, row, first_col + col);
#pragma unroll
        for (int j = 0; j < UNIT; j++) tile->w[col + j][index] = w[j];
    }
}

/* Eight neighbouring threads have a row; x: of the thread's rows, NULL: zeroes. */
enum { X_THREADS = TILE_COLS / 4, X_STEP = TILE_THREADS / X_THREADS, X_LOADS = TILE_ROWS / X_STEP };

DEVICE void load_x_tile(struct tile *tile, const struct product &product, const float *const *x,
                        uint32_t first_col)
{
    const uint32_t col = threadIdx.x % X_THREADS * 4, row = threadIdx.x / X_THREADS;
    const uint32_t left = first_col + col < product.cols ? product.cols - first_col - col : 0;
#pragma unroll
    for (int i = 0; i < X_LOADS; i++) {
        float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (x[i]) four = load_four(x[i] + first_col + col, left, product.wide_x);
        *(float4 *)&tile->x[row + i * X_STEP][col] = four;
    }
}

/* Adds the tile's columns to the lane's sums, in ascending order. */
DEVICE void multiply_tile(float (*sums)[LANE_CHANNELS], const struct tile *tile, uint32_t first_row,
                          uint32_t first_channel)
{
#pragma unroll 2
    for (int k = 0; k < TILE_COLS; k += 4) {
        float w[4][LANE_CHANNELS];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float4 four = *(const float4 *)&tile->w[k + j][first_channel];
            w[j][0] = four.x, w[j][1] = four.y, w[j][2] = four.z, w[j][3] = four.w;
        }
#pragma unroll
        for (int r = 0; r < LANE_ROWS; r++) {
            const float4 four = *(const float4 *)&tile->x[first_row + 2 * r][k];
            const float x[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int c = 0; c < LANE_CHANNELS; c++)
                    sums[r][c] = __fmaf_rn(w[j][c], x[j], sums[r][c]);
        }
    }
}

template <bool PAIRED>
DEVICE void store_tile(const struct product &product, const struct block_rows &rows,
                       const float (*sums)[LANE_CHANNELS], uint32_t first_row,
                       uint32_t first_channel)
{
#pragma unroll
    for (int r = 0; r < LANE_ROWS; r++) {
        const uint32_t index = first_row + 2 * r;
        if (index >= rows.count) break;
        const size_t row = out_row(rows, index);
#pragma unroll
        for (int c = 0; c < (PAIRED ? 2 : LANE_CHANNELS); c++) {
            const uint32_t channel = channel_of_tile<PAIRED>(first_channel + c);
            if (channel < product.channels)
                store_result<PAIRED>(product, row, channel, sums[r][c],
                                     PAIRED ? sums[r][c + 2] : 0.0f);
        }
    }
}

/* Row tiles are block index y.  A lane has every second row of its warp's 16, and four channels. */
template <int FORMAT, bool PAIRED>
static __global__ void __launch_bounds__(TILE_THREADS)
    product_tiled(const __grid_constant__ struct product product)
{
    __shared__ struct tile tile;
    const struct block_rows rows = rows_of_block(product);
    const uint32_t first = blockIdx.y * TILE_ROWS;
    if (first >= rows.count) return; /* for all of the block */

    const uint32_t index = threadIdx.x % TILE_CHANNELS;
    const uint32_t channel = channel_of_tile<PAIRED>(index);
    const struct cuda_weight weight = *matrix_of_block<PAIRED>(product, index / 2 % 2);
    const struct weight_row weight_row = row_of_weight(weight, channel);
    const float *x[X_LOADS];
#pragma unroll
    for (int i = 0; i < X_LOADS; i++) {
        const uint32_t row = first + threadIdx.x / X_THREADS + i * X_STEP;
        x[i] = row < rows.count ? x_of_row(product, rows, row) : NULL;
    }

    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t lane_row = warp * WARP_ROWS + lane / 16, lane_channel = lane % 16 * 4;
    float sums[LANE_ROWS][LANE_CHANNELS] = {};
    for (uint32_t col = 0; col < product.cols; col += TILE_COLS) {
        load_weight_tile<FORMAT>(&tile, product, weight, weight_row, channel < product.channels,
                                 col);
        load_x_tile(&tile, product, x, col);
        __syncthreads();
        if (first + warp * WARP_ROWS < rows.count)
            multiply_tile(sums, &tile, lane_row, lane_channel);
        __syncthreads();
    }
    store_tile<PAIRED>(product, rows, sums, first + lane_row, lane_channel);
}

/* -------------------------------------------------------------------------------- launches */

/* More lanes share a channel of a small matrix, so that enough loads are in flight.  Of the shape
 * alone, and each lane has 32 columns at least. */
static uint32_t choose_lanes_per_channel(uint64_t channels, uint64_t cols)
{
    uint32_t lanes = 8;
    while (lanes < WARP && channels * lanes < WANTED_LANES && cols >= (uint64_t)64 * lanes)
        lanes *= 2;
    return lanes;
}

static bool rows_are_wide(const float *x, size_t stride)
{
    return (uintptr_t)x % 16 == 0 && stride % 4 == 0;
}

/* channels_of_lane for a format that is known at run time. */
static uint32_t channels_of_format(int format, bool one_row)
{
    if (one_row) return 1;
#define CHANNELS_CASE(id)                                                                          \
    case FORMAT_##id:                                                                              \
        return packed<FORMAT_##id>::MANY ? MANY_CHANNELS : 1;
    switch (format) {
        MIXED_LIST(CHANNELS_CASE)
    default:
        return 1;
    }
#undef CHANNELS_CASE
}

/* Warps of a block, of `count` in all: few where many processors would be without a block. */
static uint32_t warps_of_block(uint64_t count, bool one_row)
{
    const uint32_t processors = 128, most = one_row ? ONE_ROW_WARPS : MANY_ROWS_WARPS;
    uint32_t warps = 4;
    while (warps < most && count >= (uint64_t)2 * warps * processors) warps *= 2;
    return warps;
}

/* Bytes of shared memory for a tile. */
static uint32_t tile_bytes(uint32_t cols, bool one_row)
{
    const uint32_t most = DECODE_TILE / (one_row ? 1 : DECODE_ROWS);
    const uint32_t octets = blocks_for(cols < most && one_row ? cols : most, 8 * CHUNK);
    return octets * (OCTET + TILE_PAD_MAX) * (one_row ? 1 : DECODE_ROWS) * (uint32_t)sizeof(float);
}

static uint64_t warps_of_product(const struct product *product, uint32_t channels_of_lane)
{
    return (uint64_t)blocks_for(product->channels, channels_of_lane) * product->lanes_per_channel /
           WARP;
}

/* Blocks of `warps` warps that cover the channels. */
static uint32_t blocks_of_product(const struct product *product, uint32_t warps,
                                  uint32_t channels_of_lane)
{
    return blocks_for(product->channels,
                      warps * WARP / product->lanes_per_channel * channels_of_lane);
}

#define LAUNCH_CASE(id, ...)                                                                       \
    case FORMAT_##id:                                                                              \
        launch.template one<FORMAT_##id>();                                                        \
        return;

/* launch.one<FORMAT>() of a format that is known at run time. */
template <class LAUNCH> static void launch_format(const LAUNCH &launch, int format)
{
    switch (format) {
        COMPILED_PLAIN_LIST(LAUNCH_CASE)
        COMPILED_AFFINE_LIST(LAUNCH_CASE)
        COMPILED_BLOCK_LIST(LAUNCH_CASE)
    case FORMAT_MIXED:
        launch.template one<FORMAT_MIXED>();
        return;
    default:
        launch.template one<FORMAT_ANY>();
    }
}
#undef LAUNCH_CASE

template <bool PAIRED> struct tiled_launch {
    cuda_stream stream;
    const struct product *product;
    uint32_t matrix_count;

    template <int FORMAT> void one() const
    {
        const uint32_t channels = PAIRED ? TILE_CHANNELS / 2 : TILE_CHANNELS;
        const dim3 grid(blocks_for(product->channels, channels),
                        blocks_for(product->row_count, TILE_ROWS), matrix_count);
        start_kernel(product_tiled < FORMAT == FORMAT_MIXED ? FORMAT_ANY : FORMAT, PAIRED >, grid,
                     TILE_THREADS, 0, stream, *product);
    }
};

struct parts_launch {
    cuda_stream stream;
    const struct parts *parts;
    uint32_t block_count, row_count, warps, bytes;

    template <int FORMAT> void one() const
    {
        if (row_count == 1)
            start_kernel(decode_parts<FORMAT, 1>, block_count, warps * WARP, bytes, stream, *parts);
        else
            start_kernel(decode_parts<FORMAT, DECODE_ROWS>,
                         dim3(block_count, blocks_for(row_count, DECODE_ROWS)), warps * WARP, bytes,
                         stream, *parts);
    }
};

template <bool PAIRED> struct experts_launch {
    cuda_stream stream;
    const struct product *product;
    uint32_t expert_count;

    template <int FORMAT> void one() const
    {
        constexpr int MANY =
            FORMAT == FORMAT_MIXED ? 1 : channels_of_lane<FORMAT, DECODE_ROWS, PAIRED>();
        const bool one_row = product->row_count == 1;
        const uint32_t channels = one_row ? 1 : MANY;
        const uint32_t bytes = tile_bytes(product->cols, one_row);
        const uint32_t warps =
            warps_of_block(warps_of_product(product, channels) * expert_count, one_row);
        const dim3 grid(blocks_of_product(product, warps, channels),
                        one_row ? 1 : blocks_for(product->row_count, DECODE_ROWS), expert_count);
        if (one_row)
            start_kernel(decode_experts<FORMAT, 1, PAIRED>, grid, warps * WARP, bytes, stream,
                         *product);
        else
            start_kernel(decode_experts<FORMAT, DECODE_ROWS, PAIRED>, grid, warps * WARP, bytes,
                         stream, *product);
    }
};

static struct product whole_product(float *out, size_t out_stride, const float *x, size_t x_stride,
                                    uint32_t row_count, const struct cuda_weight *weight, bool add)
{
    struct product product = {};
    product.weight = *weight;
    product.x = x;
    product.out = out;
    product.x_stride = x_stride;
    product.out_stride = out_stride;
    product.row_count = row_count;
    product.channels = (uint32_t)weight->rows;
    product.cols = (uint32_t)weight->cols;
    product.lanes_per_channel = choose_lanes_per_channel(weight->rows, weight->cols);
    product.add = add;
    product.wide_x = rows_are_wide(x, x_stride);
    return product;
}

static void launch_parts(cuda_stream stream, struct parts *parts)
{
    const uint32_t row_count = parts->products[0].row_count;
    const bool one_row = row_count == 1;
    int format = parts->products[0].weight.format;
    uint64_t warp_count = 0;
    for (uint32_t p = 0; p < parts->count; p++) {
        const struct product *product = &parts->products[p];
        if (product->weight.format != format) format = FORMAT_MIXED;
        warp_count +=
            warps_of_product(product, channels_of_format(product->weight.format, one_row));
    }
    struct parts_launch launch = {};
    launch.stream = stream;
    launch.parts = parts;
    launch.row_count = row_count;
    launch.warps = warps_of_block(warp_count, one_row);
    launch.bytes = tile_bytes(parts->products[0].cols, one_row);
    for (uint32_t p = 0; p < parts->count; p++) {
        const struct product *product = &parts->products[p];
        parts->first_block[p] = launch.block_count;
        launch.block_count += blocks_of_product(
            product, launch.warps, channels_of_format(product->weight.format, one_row));
    }
    launch_format(launch, format);
}

void cuda_project_many(cuda_stream stream, const struct cuda_products *products)
{
    struct parts parts = {};
    if (products->row_count == 0) return;
    for (uint32_t p = 0; p < products->count; p++) {
        const auto *part = &products->parts[p];
        if (part->weight.rows == 0) continue;
        parts.products[parts.count++] =
            whole_product(part->out, part->out_stride, products->x, products->x_stride,
                          products->row_count, &part->weight, part->add);
    }
    parts.norm = { products->norm, products->epsilon };
    if (parts.count > 0) launch_parts(stream, &parts);
}

void cuda_project(cuda_stream stream, float *out, size_t out_stride, const float *x,
                  size_t x_stride, uint32_t row_count, const struct cuda_weight *weight, bool add,
                  bool decode)
{
    if (row_count == 0 || weight->rows == 0) return;
    struct parts parts = {};
    parts.products[parts.count++] =
        whole_product(out, out_stride, x, x_stride, row_count, weight, add);
    if (decode)
        launch_parts(stream, &parts);
    else
        launch_format(tiled_launch<false>{ stream, &parts.products[0], 1 }, weight->format);
}

template <bool PAIRED>
static void launch_experts(cuda_stream stream, const struct product *product, int format,
                           const struct cuda_experts *batch)
{
    if (batch->decode)
        launch_format(experts_launch<PAIRED>{ stream, product, batch->expert_count }, format);
    else
        launch_format(tiled_launch<PAIRED>{ stream, product, batch->expert_count }, format);
}

void cuda_run_experts(cuda_stream stream, const struct cuda_experts *batch)
{
    const uint32_t width = batch->width, expert_width = batch->expert_width;
    struct product hidden = {};
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
    hidden.lanes_per_channel =
        choose_lanes_per_channel((uint64_t)expert_width * USUAL_EXPERTS, width);
    hidden.activation = batch->activation;
    hidden.wide_x = rows_are_wide(batch->routed, width);

    struct product answers = hidden;
    answers.x = batch->hidden;
    answers.out = batch->answers;
    answers.x_stride = expert_width;
    answers.out_stride = width;
    answers.pairs_per_x = 1;
    answers.channels = width;
    answers.cols = expert_width;
    answers.lanes_per_channel =
        choose_lanes_per_channel((uint64_t)width * USUAL_EXPERTS, expert_width);
    answers.wide_x = rows_are_wide(batch->hidden, expert_width);

    /* Kernels for every combination of two formats would be too many. */
    const bool same = batch->gate_format == batch->up_format && batch->gate_format >= 0;
    launch_experts<true>(stream, &hidden, same ? batch->gate_format : FORMAT_MIXED, batch);
    launch_experts<false>(stream, &answers,
                          batch->down_format >= 0 ? batch->down_format : FORMAT_MIXED, batch);
}

/* ------------------------------------------------------------------------------ embeddings */

enum { EMBED_THREADS = 128 };

/* A thread has eight numbers; block index y is the row. */
static __global__ void __launch_bounds__(EMBED_THREADS)
    embed(float *out, const __grid_constant__ struct cuda_weight weight, const int32_t *tokens,
          float factor)
{
    const uint32_t cols = (uint32_t)weight.cols;
    const uint32_t k = (blockIdx.x * EMBED_THREADS + threadIdx.x) * UNIT;
    if (k >= cols) return;
    const struct weight_row row = row_of_weight(weight, (size_t)tokens[blockIdx.y]);
    float w[UNIT];
    dequantise_unit<FORMAT_ANY>(w, weight, row, k);
    float *to = out + (size_t)blockIdx.y * cols + k;
#pragma unroll
    for (int j = 0; j < UNIT; j++)
        if (k + j < cols) to[j] = __fmul_rn(w[j], factor);
}

void cuda_embed(cuda_stream stream, float *out, const struct cuda_weight *weight,
                const int32_t *tokens, uint32_t row_count, float factor)
{
    const uint32_t most = 65535; /* of a grid in y */
    for (uint32_t first = 0; first < row_count; first += most) {
        const uint32_t rows = row_count - first < most ? row_count - first : most;
        const dim3 grid(blocks_for(weight->cols, EMBED_THREADS * UNIT), rows);
        start_kernel(embed, grid, EMBED_THREADS, 0, stream, out + first * weight->cols, *weight,
                     tokens + first, factor);
    }
}
