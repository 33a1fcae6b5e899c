/* product.cuh: what the kernels of products.cu multiply, and where their results go. */
#ifndef BACKEND_CUDA_PRODUCT_CUH
#define BACKEND_CUDA_PRODUCT_CUH

#include "backend/cuda/common.cuh"
#include "backend/cuda/packed.cuh"

enum {
    DECODE_ROWS = 8,    /* of activations for one read of the weights */
    DECODE_TILE = 8192, /* numbers of x in shared memory */
    MANY_CHANNELS = 4,  /* of a lane, when it has several rows */
    ONE_ROW_WARPS = 16, /* of a block, at most */
    MANY_ROWS_WARPS = 8,
    /* Lanes that keep a large GPU busy, and experts of one generated row.  Constants, not the
     * device's own numbers, so that every device sums in the same order. */
    WANTED_LANES = 131072,
    USUAL_EXPERTS = 8,

    TILE_CHANNELS = 64,
    TILE_ROWS = 64,
    TILE_COLS = 32,
    TILE_WARPS = 4,
    TILE_THREADS = TILE_WARPS * WARP,
    WARP_ROWS = TILE_ROWS / TILE_WARPS,
    LANE_ROWS = 8,            /* two lanes share the 16 rows of a warp */
    LANE_CHANNELS = 4,        /* and 16 of them the 64 channels */
    X_STRIDE = TILE_COLS + 4, /* neighbouring rows start in different banks, and are aligned */
};

/* What a launch multiplies.  Of experts, block index z is the expert. */
struct product {
    const struct cuda_expert *experts; /* device; NULL: `weight` is the matrix */
    struct cuda_weight weight;
    const float *x;
    float *out;
    size_t x_stride, out_stride;
    uint32_t row_count;      /* of experts: the largest one's pairs */
    uint32_t pairs_per_x;    /* of experts: row of x = pair / pairs_per_x */
    uint32_t channels, cols; /* the matrix's shape */
    uint32_t lanes_per_channel;
    int activation;
    bool add;
    bool wide_x; /* rows of x are aligned to 16 bytes */
};

/* The rows of a block's matrix: all of them, or an expert's pairs. */
struct block_rows {
    const uint32_t *pairs;
    uint32_t count;
};

DEVICE struct block_rows rows_of_block(const struct product &product)
{
    if (!product.experts) return { NULL, product.row_count };
    const struct cuda_expert *expert = product.experts + blockIdx.z;
    return { expert->pairs, expert->pair_count };
}

DEVICE size_t out_row(const struct block_rows &rows, uint32_t index)
{
    return rows.pairs ? rows.pairs[index] : index;
}

DEVICE const float *x_of_row(const struct product &product, const struct block_rows &rows,
                             uint32_t index)
{
    const uint32_t row = rows.pairs ? rows.pairs[index] / product.pairs_per_x : index;
    return product.x + row * product.x_stride;
}

/* Matrix `which` of the block: gate or up when PAIRED, else the only one. */
template <bool PAIRED>
DEVICE const struct cuda_weight *matrix_of_block(const struct product &product, uint32_t which)
{
    if (!product.experts) return &product.weight;
    const struct cuda_expert *expert = product.experts + blockIdx.z;
    if (!PAIRED) return &expert->down;
    return which == 0 ? &expert->gate : &expert->up;
}

/* ------------------------------------------------------------------------------- the results */

DEVICE float with_addend(float sum, const struct cuda_weight &addends, uint32_t channel)
{
    if (!addends.values) return sum;
    return sum + load_number(addends.format, addends.values + channel * addends.row_bytes, 0);
}

/* Stores a channel of a row; `up` is of PAIRED only. */
template <bool PAIRED>
DEVICE void store_result(const struct product &product, size_t row, uint32_t channel, float sum,
                         float up)
{
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

#endif
