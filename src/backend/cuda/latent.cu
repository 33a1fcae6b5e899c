/* latent.cu: multi-head latent attention, absorbed form for all rows (backend/cpu/ops_latent.c).
 *
 *     1  q_nope · Wk ─▶ query [latent | rope] of each head
 *     2  attention of all heads over the one cached head [latent | rope], whose first part
 *        is also the values ─▶ weighted latent of each head, in the place of its query
 *     3  weighted latent · Wv ─▶ out
 *
 * Wk and Wv are blocks of rows of a matrix in any format.  They are not multiplied by
 * cuda_project: rows of both phases come together, a head's block may begin within a tile of
 * scales, one product is with the transposed block, and one launch has all heads.
 *
 * Steps with many rows are computed in parts of LATENT_ROWS, which bounds the scratch. */
#include "backend/cuda/launch.h"

#include "backend/cuda/attend.cuh"
#include "backend/cuda/common.cuh"
#include "backend/cuda/formats.cuh"
#include "backend/cuda/kv_cache.cuh"

enum { THREADS = 256, WARPS = THREADS / WARP };

/* Rows of a launch, and those that a dequantised number is multiplied with. */
enum { LATENT_ROWS = 256, ROW_TILE = 8 };

static_assert((int)ROW_TILE == (int)WARPS, "multiply_transposed adds up one row per warp");

/* ------------------------------------------------------------------------------------ append */

/* Channel c of a key after its rotation. */
__device__ static float rotated(const float *key, const float *angles, uint32_t c,
                                const struct cuda_rope &rope)
{
    uint32_t half = rope.width / 2;
    uint32_t pair = rope.interleaved ? c / 2 : c % half;
    bool second = rope.interleaved ? c % 2 == 1 : c >= half;
    float u = key[rope.interleaved ? 2 * pair : pair];
    float v = key[rope.interleaved ? 2 * pair + 1 : pair + half];
    float cosine = angles[pair], sine = angles[half + pair];
    return second ? u * sine + v * cosine : u * cosine - v * sine;
}

/* A block has one row. */
__global__ static void latent_append_kernel(const float *a, const float *angles,
                                            const struct cuda_row *rows,
                                            const struct cuda_span *spans, const float *norm,
                                            float epsilon, uint32_t latent, struct cuda_rope rope)
{
    uint32_t stored = latent + rope.width;
    struct cuda_row row = rows[blockIdx.x];
    const struct cuda_span *span = &spans[row.span];
    uint8_t *head = span->pages[row.position / KV_PAGE_TOKENS] + span->keys;
    kv_part part = { stored, stored, false };
    a += (size_t)blockIdx.x * stored;
    angles += (size_t)blockIdx.x * rope.width;
    float squares = block_sum(sum_squares(a, latent, threadIdx.x, THREADS));
    float scale = 1.0f / sqrtf(squares / (float)latent + epsilon);
    uint32_t lane = threadIdx.x % WARP;
    for (uint32_t first = threadIdx.x / WARP * KV_CHUNK; first < stored; first += THREADS) {
        uint32_t c = first + lane;
        float x = 0.0f;
        if (c < latent)
            x = a[c] * scale * norm[c];
        else if (c < stored)
            x = rotated(a + latent, angles, c - latent, rope);
        kv_store(head, part, span->kv_format, row.position % KV_PAGE_TOKENS, c, x);
    }
}

void cuda_latent_append(cuda_stream stream, const float *a, const float *angles,
                        const struct cuda_rows *rows, const float *norm, float epsilon,
                        uint32_t latent_width, const struct cuda_rope *rope)
{
    if (rows->row_count == 0) return;
    start_kernel(latent_append_kernel, rows->row_count, THREADS, 0, stream, a, angles, rows->rows,
                 rows->spans, norm, epsilon, latent_width, *rope);
}

/* ---------------------------------------------------------------------- products of the heads */

/* Head h has rows [h * head_rows + first, …) of the weight. */
struct head_product {
    struct cuda_weight weight;
    uint64_t head_rows, first;
    uint32_t heads, inputs, outputs, row_count;
    const float *x; /* row r, head h: at r * x_row + h * x_head, `inputs` numbers */
    float *out;     /* likewise, `outputs` numbers */
    size_t x_row, x_head, out_row, out_head;
};

__device__ static uint32_t tile_rows(const head_product &p)
{
    return min(p.row_count - blockIdx.y * ROW_TILE, (uint32_t)ROW_TILE);
}

/* Eight numbers of a row of head `head` from column k on. */
__device__ static void load_unit(float *w, const head_product &p, size_t head, size_t row,
                                 uint32_t k)
{
    const struct weight_row bytes = row_of_weight(p.weight, head * p.head_rows + p.first + row);
    dequantise_unit<FORMAT_ANY>(w, p.weight, bytes, k);
}

/* out[o] = Σ W[o][i] · x[i].  A warp has one output of one head, a lane every 32nd unit. */
__global__ static void multiply(head_product p)
{
    size_t index = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    if (index >= (size_t)p.heads * p.outputs) return;
    size_t head = index / p.outputs, o = index % p.outputs, row = blockIdx.y * ROW_TILE;
    uint32_t lane = threadIdx.x % WARP, count = tile_rows(p);
    const float *x = p.x + row * p.x_row + head * p.x_head;
    float *out = p.out + row * p.out_row + head * p.out_head + o;
    float sums[ROW_TILE] = {};
    for (uint32_t k = lane * UNIT; k < p.inputs; k += WARP * UNIT) {
        float w[UNIT];
        load_unit(w, p, head, o, k);
#pragma unroll
        for (uint32_t r = 0; r < ROW_TILE; r++)
            for (uint32_t j = 0; j < UNIT; j++)
                if (r < count && k + j < p.inputs)
                    sums[r] = fmaf(w[j], x[r * p.x_row + k + j], sums[r]);
    }
#pragma unroll
    for (uint32_t r = 0; r < ROW_TILE; r++) {
        float sum = warp_sum(sums[r]);
        if (lane == 0 && r < count) out[r * p.out_row] = sum;
    }
}

/* out[o] = Σ W[i][o] · x[i].  A block has 32 outputs of one head, in four units; a warp has
 * TRANSPOSED_PARTS lanes of each, and a lane adds up every 64th input.  Those of a warp are added
 * first, then the warps' sums in ascending order. */
enum { TRANSPOSED_UNITS = 4, TRANSPOSED_OUTPUTS = TRANSPOSED_UNITS * UNIT };
enum { TRANSPOSED_PARTS = WARP / TRANSPOSED_UNITS };

/* Adds up what this lane has of its unit of outputs. */
__device__ static void sum_unit(float (&sums)[ROW_TILE][UNIT], const head_product &p, size_t head,
                                uint32_t o)
{
    uint32_t count = tile_rows(p);
    const float *x = p.x + (size_t)blockIdx.y * ROW_TILE * p.x_row + head * p.x_head;
    for (uint32_t i = threadIdx.x / TRANSPOSED_UNITS; i < p.inputs; i += WARPS * TRANSPOSED_PARTS) {
        float w[UNIT];
        load_unit(w, p, head, i, o);
#pragma unroll
        for (uint32_t r = 0; r < ROW_TILE; r++) {
            float factor = r < count ? x[r * p.x_row + i] : 0.0f;
#pragma unroll
            for (uint32_t j = 0; j < UNIT; j++) sums[r][j] = fmaf(w[j], factor, sums[r][j]);
        }
    }
}

__global__ static void multiply_transposed(head_product p, uint32_t blocks_per_head)
{
    __shared__ float parts[WARPS][ROW_TILE][TRANSPOSED_OUTPUTS];
    uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t unit = lane % TRANSPOSED_UNITS;
    size_t head = blockIdx.x / blocks_per_head;
    uint32_t first = blockIdx.x % blocks_per_head * TRANSPOSED_OUTPUTS;
    float sums[ROW_TILE][UNIT] = {};
    if (first + unit * UNIT < p.outputs) sum_unit(sums, p, head, first + unit * UNIT);
    __syncwarp();
#pragma unroll
    for (uint32_t r = 0; r < ROW_TILE; r++) {
#pragma unroll
        for (uint32_t j = 0; j < UNIT; j++) {
            float sum = sums[r][j];
            for (uint32_t distance = WARP / 2; distance >= TRANSPOSED_UNITS; distance /= 2)
                sum += __shfl_xor_sync(ALL_LANES, sum, distance);
            if (lane == unit) parts[warp][r][unit * UNIT + j] = sum;
        }
    }
    __syncthreads();
    if (warp >= tile_rows(p) || first + lane >= p.outputs) return;
    float sum = 0.0f;
    for (uint32_t i = 0; i < WARPS; i++) sum += parts[i][warp][lane];
    size_t row = (size_t)blockIdx.y * ROW_TILE + warp;
    p.out[row * p.out_row + head * p.out_head + first + lane] = sum;
}

static void launch_multiply(cuda_stream stream, const struct head_product *p)
{
    dim3 grid(blocks_for((size_t)p->heads * p->outputs, WARPS), blocks_for(p->row_count, ROW_TILE));
    start_kernel(multiply, grid, THREADS, 0, stream, *p);
}

static void launch_multiply_transposed(cuda_stream stream, const struct head_product *p)
{
    uint32_t blocks_per_head = blocks_for(p->outputs, TRANSPOSED_OUTPUTS);
    dim3 grid(p->heads * blocks_per_head, blocks_for(p->row_count, ROW_TILE));
    start_kernel(multiply_transposed, grid, THREADS, 0, stream, *p, blocks_per_head);
}

/* ------------------------------------------------------------------------------- attention */

/* A part of a step's rows; `latents` [rows][heads][latent | rope] are the queries, then the
 * weighted latents. */
struct latent_part {
    const struct cuda_latent *shape;
    float *out;
    const float *queries;
    float *latents;
    uint32_t row_count;
};

static uint32_t stored_width(const struct cuda_latent *shape)
{
    return shape->latent_width + shape->rope_width;
}

static uint32_t query_width(const struct cuda_latent *shape)
{
    return shape->nope_width + shape->rope_width;
}

static void make_queries(cuda_stream stream, const struct latent_part *part)
{
    const struct cuda_latent *shape = part->shape;
    bool by_latent = !shape->kv_b.values;
    struct head_product p = {};
    p.weight = by_latent ? shape->k_b : shape->kv_b;
    p.head_rows =
        by_latent ? shape->latent_width : (uint64_t)shape->nope_width + shape->value_width;
    p.heads = shape->heads;
    p.inputs = shape->nope_width;
    p.outputs = shape->latent_width;
    p.row_count = part->row_count;
    p.x = part->queries;
    p.x_head = query_width(shape);
    p.x_row = shape->heads * p.x_head;
    p.out = part->latents;
    p.out_head = stored_width(shape);
    p.out_row = shape->heads * p.out_head;
    if (by_latent)
        launch_multiply(stream, &p);
    else
        launch_multiply_transposed(stream, &p);
    cudaMemcpy2DAsync(part->latents + shape->latent_width, p.out_head * sizeof(float),
                      part->queries + shape->nope_width, p.x_head * sizeof(float),
                      shape->rope_width * sizeof(float), (size_t)part->row_count * shape->heads,
                      cudaMemcpyDeviceToDevice, stream);
}

static void attend_latents(cuda_stream stream, const struct latent_part *part,
                           const struct cuda_row *row_list, const struct cuda_rows *rows)
{
    const struct cuda_latent *shape = part->shape;
    struct attend_task task = {};
    task.queries = task.out = part->latents;
    task.query_head = task.out_head = stored_width(shape);
    task.query_row = task.out_row = shape->heads * task.query_head;
    task.row_count = part->row_count;
    task.rows = row_list;
    task.spans = rows->spans;
    task.kv_heads = 1;
    task.group = shape->heads;
    task.key_width = stored_width(shape);
    task.value_width = shape->latent_width;
    task.latent = true;
    task.scale = shape->scale;
    attend_launch(stream, &task, rows->span_count);
}

static void make_values(cuda_stream stream, const struct latent_part *part)
{
    const struct cuda_latent *shape = part->shape;
    bool separate = !shape->kv_b.values;
    struct head_product p = {};
    p.weight = separate ? shape->v_b : shape->kv_b;
    p.head_rows = shape->value_width + (separate ? 0 : (uint64_t)shape->nope_width);
    p.first = separate ? 0 : shape->nope_width;
    p.heads = shape->heads;
    p.inputs = shape->latent_width;
    p.outputs = shape->value_width;
    p.row_count = part->row_count;
    p.x = part->latents;
    p.x_head = stored_width(shape);
    p.x_row = shape->heads * p.x_head;
    p.out = part->out;
    p.out_head = shape->value_width;
    p.out_row = shape->heads * p.out_head;
    launch_multiply(stream, &p);
}

/* Rows of the next part. */
static uint32_t part_rows(uint32_t rows_left)
{
    const uint32_t most = LATENT_ROWS;
    return rows_left < most ? rows_left : most;
}

size_t cuda_latent_scratch(const struct cuda_latent *shape, uint32_t row_count)
{
    return (size_t)part_rows(row_count) * shape->heads * stored_width(shape);
}

void cuda_latent_attend(cuda_stream stream, float *out, const float *queries,
                        const struct cuda_rows *rows, const struct cuda_latent *shape,
                        uint32_t last_position, float *scratch)
{
    (void)last_position; /* blocks read their rows' positions on the device */
    size_t query_row = (size_t)shape->heads * query_width(shape);
    size_t out_row = (size_t)shape->heads * shape->value_width;
    for (uint32_t first = 0; first < rows->row_count; first += LATENT_ROWS) {
        struct latent_part part = { shape, out + first * out_row, queries + first * query_row,
                                    scratch, part_rows(rows->row_count - first) };
        make_queries(stream, &part);
        attend_latents(stream, &part, rows->rows + first, rows);
        make_values(stream, &part);
    }
}
