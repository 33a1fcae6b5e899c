/* delta.cu: the gated delta net: a recurrent state instead of a cache.
 *
 *     S ← γ·S;  u = β·(v - S·k);  S ← S + u kᵀ;  o = S·q          one position of one value head
 *
 * Rows of S [value_width][key_width] are independent of each other; positions are not.  So a block
 * keeps some rows of a head's state in registers while it goes through the rows of a span, whose
 * queries and keys it copies to shared memory, some rows at a time.  A state is read and written
 * once for a span, and prompts and generated rows share the arithmetic. */
#include "backend/cuda/common.cuh"

#include <assert.h>

/* Numbers of a row after the convolution: [queries | keys | values]. */
static __host__ __device__ size_t delta_channels(const struct cuda_delta *shape)
{
    return 2 * (size_t)shape->key_heads * shape->key_width +
           (size_t)shape->value_heads * shape->value_width;
}

/* ------------------------------------------------------------------------ convolution */

constexpr uint32_t CONV_THREADS = 128;
constexpr uint32_t CONV_ROWS = 32; /* of a span in one block, or taps - 1 if that is more */

struct conv_arguments {
    const struct cuda_span *spans;
    size_t channels;
    uint32_t taps, rows; /* rows of a span in one block */
};

/* Input t of the span in a channel; before the span, where t is negative, the state's. */
static __device__ __forceinline__ float conv_input(const float *a, const struct cuda_span *span,
                                                   const struct conv_arguments *p, size_t channel,
                                                   int64_t t)
{
    if (t >= 0) return a[((size_t)span->first_row + (size_t)t) * p->channels + channel];
    return span->conv_in[(size_t)((int64_t)p->taps - 1 + t) * p->channels + channel];
}

/* The last taps - 1 inputs become the state.  Ascending order: where the state is updated in place,
 * an entry is read before it is overwritten. */
static __device__ void conv_keep(const float *a, const struct cuda_span *span,
                                 const struct conv_arguments *p, size_t channel)
{
    const uint32_t kept = p->taps - 1;
    for (uint32_t j = 0; j < kept; j++)
        span->conv_out[j * p->channels + channel] =
            conv_input(a, span, p, channel, (int64_t)span->row_count + j - kept);
}

/* Blocks: (channels, rows of a span, spans).  A thread computes one channel of the block's rows.
 * The first rows of a span alone read its state, because a block has taps - 1 rows or more; so the
 * thread that computes them also writes the state, which may be the one that it has read.
 * `fixed_taps`: the count of taps when known to the compiler, or 0. */
template <uint32_t fixed_taps>
static __global__ void conv_kernel(float *__restrict__ out, const float *__restrict__ a,
                                   const float *__restrict__ weight, struct conv_arguments p)
{
    const size_t channel = (size_t)blockIdx.x * CONV_THREADS + threadIdx.x;
    const struct cuda_span span = p.spans[blockIdx.z];
    const size_t begin = (size_t)blockIdx.y * p.rows;
    if (channel >= p.channels || (begin > 0 && begin >= span.row_count)) return;

    const uint32_t taps = fixed_taps ? fixed_taps : p.taps;
    const size_t end = begin + p.rows < span.row_count ? begin + p.rows : span.row_count;
    const float *w = weight + channel * taps;
    for (size_t t = begin; t < end; t++) {
        float sum = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < taps; j++)
            sum = fmaf(w[j], conv_input(a, &span, &p, channel, (int64_t)(t + j) - (taps - 1)), sum);
        out[((size_t)span.first_row + t) * p.channels + channel] = silu(sum);
    }
    if (begin == 0) conv_keep(a, &span, &p, channel);
}

void cuda_conv(cuda_stream stream, float *out, const float *a, const struct cuda_weight *weight,
               const struct cuda_rows *rows, const struct cuda_delta *shape)
{
    if (rows->row_count == 0 || rows->span_count == 0) return;
    struct conv_arguments p = { rows->spans, delta_channels(shape), shape->taps, CONV_ROWS };
    if (shape->taps > CONV_ROWS) p.rows = shape->taps - 1;
    /* The lengths of the spans are on the device: blocks for the longest one possible. */
    const dim3 grid(blocks_for(p.channels, CONV_THREADS), blocks_for(rows->row_count, p.rows),
                    rows->span_count);
    const float *w = (const float *)(const void *)weight->values; /* [channels][taps] */
    if (shape->taps == 4)
        start_kernel(conv_kernel<4>, grid, CONV_THREADS, 0, stream, out, a, w, p);
    else
        start_kernel(conv_kernel<0>, grid, CONV_THREADS, 0, stream, out, a, w, p);
}

/* ------------------------------------------------------------------------------ norms */

/* Queries, then keys, at the front of every row. */
static __global__ void unit_norm_kernel(float *a, float epsilon, float query_scale,
                                        size_t head_count, size_t channels, uint32_t key_heads,
                                        uint32_t width)
{
    const size_t index = warp_head();
    if (index >= head_count) return; /* the whole warp */
    const uint32_t head = (uint32_t)(index % (2 * key_heads));
    float *x = a + index / (2 * key_heads) * channels + (size_t)head * width;
    const float scale = head < key_heads ? query_scale : 1.0f;
    const float factor = scale / sqrtf(head_squares(x, width) + epsilon);
    for (uint32_t i = threadIdx.x % WARP; i < width; i += WARP) x[i] *= factor;
}

void cuda_unit_norm(cuda_stream stream, float *a, float epsilon, uint32_t row_count,
                    const struct cuda_delta *shape)
{
    const size_t head_count = 2 * (size_t)shape->key_heads * row_count;
    if (head_count == 0) return;
    const float query_scale = (float)(1.0 / sqrt((double)shape->key_width));
    start_kernel(unit_norm_kernel, blocks_for(head_count, HEADS_PER_BLOCK), HEADS_PER_BLOCK * WARP,
                 0, stream, a, epsilon, query_scale, head_count, delta_channels(shape),
                 shape->key_heads, shape->key_width);
}

static __global__ void gated_norm_kernel(float *out, const float *a, const float *gate,
                                         const float *weight, float epsilon, size_t head_count,
                                         uint32_t width)
{
    const size_t index = warp_head();
    if (index >= head_count) return; /* the whole warp */
    const size_t head = index * width;
    const float squares = head_squares(a + head, width);
    const float scale = 1.0f / sqrtf(squares / (float)width + epsilon);
    for (uint32_t i = threadIdx.x % WARP; i < width; i += WARP)
        out[head + i] = silu(gate[head + i]) * (a[head + i] * scale * weight[i]);
}

void cuda_gated_norm(cuda_stream stream, float *out, const float *a, const float *gate,
                     const float *weight, float epsilon, uint32_t row_count,
                     const struct cuda_delta *shape)
{
    const size_t head_count = (size_t)row_count * shape->value_heads;
    if (head_count == 0) return;
    start_kernel(gated_norm_kernel, blocks_for(head_count, HEADS_PER_BLOCK), HEADS_PER_BLOCK * WARP,
                 0, stream, out, a, gate, weight, epsilon, head_count, shape->value_width);
}

/* ------------------------------------------------------------------------- delta rule */

/* Eight lanes share a row of the state: few enough that a sum over them is three exchanges, enough
 * that a row of 256 keys fits into their registers.  Lane l holds keys 32c + 4l … 32c + 4l + 3. */
constexpr uint32_t DELTA_LANES = 8;
constexpr uint32_t DELTA_THREADS = 128;
constexpr uint32_t DELTA_VALUES = DELTA_THREADS / DELTA_LANES; /* rows of the state in a block */
constexpr uint32_t DELTA_ROWS = 16;                            /* rows of the span in a tile */
constexpr uint32_t DELTA_KEYS_MAX = 256;

struct delta_arguments {
    float *out;         /* [rows][value_heads * value_width] */
    const float *mixed; /* [rows][channels] */
    const float *strength, *decay, *decay_weight, *dt_bias;
    const struct cuda_span *spans;
    struct cuda_delta shape;
};

/* Some rows of a span as one block reads them; zeroes follow the last key and the last value. */
template <uint32_t chunks> struct alignas(16) delta_tile {
    float k[DELTA_ROWS][chunks * 32], q[DELTA_ROWS][chunks * 32];
    float v[DELTA_ROWS][DELTA_VALUES];
    float decay[DELTA_ROWS], strength[DELTA_ROWS];
};

/* The part of a row of the state that one lane holds. */
template <uint32_t chunks> struct state_part {
    float s[chunks][4];
};

/* γ = e^(weight·ln(1 + e^(decay + bias))), in double: its error would grow with every position. */
static __device__ float delta_decay(const struct delta_arguments *p, size_t row, uint32_t head)
{
    const double x = (double)p->decay[row * p->shape.value_heads + head] + (double)p->dt_bias[head];
    const double dt = x > 20.0 ? x : log1p(exp(x));
    return (float)exp((double)p->decay_weight[head] * dt);
}

static __device__ __forceinline__ uint32_t delta_key_head(const struct cuda_delta *shape,
                                                          uint32_t head)
{
    return shape->tiled ? head % shape->key_heads : head / (shape->value_heads / shape->key_heads);
}

/* Copies `count` rows from row `first` of the step on. */
template <uint32_t chunks>
static __device__ void load_tile(struct delta_tile<chunks> *tile, const struct delta_arguments *p,
                                 size_t first, uint32_t count)
{
    const struct cuda_delta *shape = &p->shape;
    const uint32_t head = blockIdx.y, keys = shape->key_width, values = shape->value_width;
    const size_t channels = delta_channels(shape), all_keys = (size_t)shape->key_heads * keys;
    const float *q = p->mixed + first * channels + (size_t)delta_key_head(shape, head) * keys;
    const float *v = p->mixed + first * channels + 2 * all_keys + (size_t)head * values;

    for (uint32_t i = threadIdx.x; i < count * chunks * 32; i += DELTA_THREADS) {
        const uint32_t t = i / (chunks * 32), key = i % (chunks * 32);
        tile->q[t][key] = key < keys ? q[t * channels + key] : 0.0f;
        tile->k[t][key] = key < keys ? q[t * channels + all_keys + key] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < count * DELTA_VALUES; i += DELTA_THREADS) {
        const uint32_t t = i / DELTA_VALUES, value = blockIdx.x * DELTA_VALUES + i % DELTA_VALUES;
        tile->v[t][i % DELTA_VALUES] = value < values ? v[t * channels + value] : 0.0f;
    }
    if (threadIdx.x < count) {
        const size_t row = first + threadIdx.x;
        tile->decay[threadIdx.x] = delta_decay(p, row, head);
        tile->strength[threadIdx.x] = sigmoid_of_one(p->strength[row * shape->value_heads + head]);
    }
}

static __device__ __forceinline__ void load_four(float to[4], const float *from)
{
    const float4 four = *reinterpret_cast<const float4 *>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

static __device__ __forceinline__ bool in_fours(const float *row, uint32_t keys)
{
    return keys % 4 == 0 && (uintptr_t)row % sizeof(float4) == 0;
}

/* `keys` is 0 for a lane whose row is behind the state's last one. */
template <uint32_t chunks>
static __device__ __forceinline__ void load_state(struct state_part<chunks> *part, const float *row,
                                                  uint32_t keys, uint32_t lane)
{
    const bool fours = in_fours(row, keys);
#pragma unroll
    for (uint32_t c = 0; c < chunks; c++) {
        const uint32_t key = 32 * c + 4 * lane;
        if (fours && key < keys) {
            load_four(part->s[c], row + key);
            continue;
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) part->s[c][j] = key + j < keys ? row[key + j] : 0.0f;
    }
}

template <uint32_t chunks>
static __device__ __forceinline__ void
store_state(float *row, const struct state_part<chunks> *part, uint32_t keys, uint32_t lane)
{
    const bool fours = in_fours(row, keys);
#pragma unroll
    for (uint32_t c = 0; c < chunks; c++) {
        const float *s = part->s[c];
        const uint32_t key = 32 * c + 4 * lane;
        if (fours && key < keys) {
            *reinterpret_cast<float4 *>(row + key) = make_float4(s[0], s[1], s[2], s[3]);
            continue;
        }
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (key + j < keys) row[key + j] = s[j];
    }
}

/* Row t of a tile for one row of the state, whose number in the block is `value`; returns S·q.
 * Four sums in each lane, so that an addition need not wait for the one before it. */
template <uint32_t chunks>
static __device__ __forceinline__ float delta_step(struct state_part<chunks> *part,
                                                   const struct delta_tile<chunks> *tile,
                                                   uint32_t t, uint32_t value, uint32_t lane)
{
    const float decay = tile->decay[t];
    float k[chunks][4], q[4], sums[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
#pragma unroll
    for (uint32_t c = 0; c < chunks; c++) {
        load_four(k[c], &tile->k[t][32 * c + 4 * lane]);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            part->s[c][j] *= decay;
            sums[j] = fmaf(part->s[c][j], k[c][j], sums[j]);
        }
    }
    const float remembered = lane_sum<DELTA_LANES>((sums[0] + sums[1]) + (sums[2] + sums[3]));
    const float change = tile->strength[t] * (tile->v[t][value] - remembered);

    sums[0] = sums[1] = sums[2] = sums[3] = 0.0f;
#pragma unroll
    for (uint32_t c = 0; c < chunks; c++) {
        load_four(q, &tile->q[t][32 * c + 4 * lane]);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            part->s[c][j] = fmaf(change, k[c][j], part->s[c][j]);
            sums[j] = fmaf(part->s[c][j], q[j], sums[j]);
        }
    }
    return lane_sum<DELTA_LANES>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* Blocks: (rows of the state, value heads, spans).  delta_out may be delta_in: a lane reads its part
 * of the state before it writes the same numbers. */
template <uint32_t chunks>
static __global__ void __launch_bounds__(DELTA_THREADS) delta_kernel(struct delta_arguments p)
{
    __shared__ struct delta_tile<chunks> tile;
    const struct cuda_span span = p.spans[blockIdx.z];
    const uint32_t head = blockIdx.y, values = p.shape.value_width;
    const uint32_t lane = threadIdx.x % DELTA_LANES, local = threadIdx.x / DELTA_LANES;
    const uint32_t value = blockIdx.x * DELTA_VALUES + local;
    const bool present = value < values;
    const uint32_t keys = present ? p.shape.key_width : 0;
    const size_t state = present ? ((size_t)head * values + value) * keys : 0;

    struct state_part<chunks> part;
    load_state(&part, span.delta_in + state, keys, lane);
    for (uint32_t begin = 0; begin < span.row_count; begin += DELTA_ROWS) {
        const uint32_t left = span.row_count - begin;
        const uint32_t count = left < DELTA_ROWS ? left : DELTA_ROWS;
        const size_t first = (size_t)span.first_row + begin;
        __syncthreads(); /* the tile before this one has been read */
        load_tile(&tile, &p, first, count);
        __syncthreads();
        for (uint32_t t = 0; t < count; t++) {
            const float read = delta_step(&part, &tile, t, local, lane);
            if (present && lane == 0)
                p.out[((first + t) * p.shape.value_heads + head) * values + value] = read;
        }
    }
    store_state(span.delta_out + state, &part, keys, lane);
}

void cuda_delta_rule(cuda_stream stream, float *out, const float *mixed, const float *strength,
                     const float *decay, const float *decay_weight, const float *dt_bias,
                     const struct cuda_rows *rows, const struct cuda_delta *shape)
{
    if (rows->row_count == 0 || rows->span_count == 0) return;
    const struct delta_arguments p = { out,          mixed,   strength,    decay,
                                       decay_weight, dt_bias, rows->spans, *shape };
    const dim3 grid(blocks_for(shape->value_width, DELTA_VALUES), shape->value_heads,
                    rows->span_count);
    assert(shape->key_width <= DELTA_KEYS_MAX);
    if (shape->key_width <= 32)
        start_kernel(delta_kernel<1>, grid, DELTA_THREADS, 0, stream, p);
    else if (shape->key_width <= 64)
        start_kernel(delta_kernel<2>, grid, DELTA_THREADS, 0, stream, p);
    else if (shape->key_width <= 128)
        start_kernel(delta_kernel<4>, grid, DELTA_THREADS, 0, stream, p);
    else
        start_kernel(delta_kernel<8>, grid, DELTA_THREADS, 0, stream, p);
}
