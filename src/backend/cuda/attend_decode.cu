/* attend_decode.cu: attention of generated rows, in f32.
 *
 * One row of a long context is too little work for a GPU if a block walks all of it.  So what a row
 * sees is cut into stretches, and each is a block's, with all query heads of a head of keys:
 *
 *     block    stretch 0   stretch 1   …      running softmax: sums, greatest score, weight sum
 *                  ╰───────────┴── … ──╯
 *     the last block to finish joins them in ascending order
 *
 * Stretches are whole units of 32 positions, and as long as their greatest number asks for: they
 * depend on the row's position, on the window and on the number of heads, so that a row's bits do not
 * depend on the rows beside it, nor on the context that the launch is made for.
 *
 * A block walks its stretch in tiles of up to 32 positions.  Keys and values of a tile are copied to
 * shared memory as they are stored, asynchronously, and every number is read from there once:
 *
 *     scores    a thread has one position, and every so manieth four channels, of all heads
 *     weights   a warp adds up the scores of a head; then its running softmax
 *     sums      a thread has four channels, and every so manieth position, of all heads
 *
 * The keys of the next tile are on their way while the present one's values are added, and the other
 * way round. */
#include "backend/cuda/common.cuh"
#include "backend/cuda/kv_cache.cuh"

#include <cuda_pipeline.h>

enum { THREADS = 256, WARPS = THREADS / WARP, POSITIONS = 32 };

/* Stretches of a row are WANTED_BLOCKS for all heads of keys together, which fills a large GPU;
 * a constant, since the bits depend on it. */
enum { WANTED_BLOCKS = 256, STRETCHES_MIN = 16, STRETCHES_MAX = 128 };

/* A tile's keys, and its values, without scales and padding; and the room for all of it. */
enum { TILE_BYTES = 16 * 1024, TILE_ROOM = TILE_BYTES + 1024 };

/* Shared memory that a block may take: all that the smallest supported device has. */
enum { ROOM_BYTES = 64 * 1024, ROOM_BYTES_PLAIN = 48 * 1024 };

enum { WIDTH_MAX = 1024, HEADS_MAX = 32 }; /* of a head, and of a block */
enum { COUNTERS = 4096 };                  /* at the start of the scratch */
enum { HEADS_AT_ONCE = 4 };                /* when the sums of threads are added up */

struct decode_task {
    const float *queries; /* [row_count][heads][head_width] */
    float *out;           /* as the queries, may be their memory */
    const struct cuda_row *rows;
    const struct cuda_span *spans;
    uint32_t *counters; /* [row_count][kv_heads x parts]: stretches that are finished */
    float *partials;    /* [row_count][kv_heads x parts][stretches], see partial_floats */
    const float *sinks; /* [heads], or NULL */
    uint32_t group;     /* query heads of a head of keys */
    uint32_t parts, heads_per_block;
    uint32_t head_width, quads; /* quads: four channels, the last one may have fewer */
    uint32_t window, most_stretches;
    float scale;
};

/* What a block computes. */
struct decode_part {
    size_t row;
    uint32_t kv_head, first_head, head_count;
    uint32_t first, end;                 /* the positions that the row sees */
    uint32_t stretch, stretch_count;     /* of the row */
    uint32_t stretch_first, stretch_end; /* positions */
};

/* Shared memory, as it is laid out. */
struct decode_room {
    uint8_t *keys, *values;               /* [TILE_ROOM] */
    float4 *queries;                      /* [heads][quads] */
    float *partial;                       /* [slices][heads][tile]: THREADS numbers for each head */
    float *weights;                       /* [tile][heads + 4] */
    float *greatest, *weight_sums, *keep; /* [heads]; keep: factor of the sums after a tile */
};

/* One head's keys and values in the pages, and how they are cut into tiles. */
struct decode_cache {
    uint8_t *const *pages;
    size_t keys, values;
    uint32_t tile; /* positions, a power of two */
};

/* -------------------------------------------------------------------------------------- sizes */

/* Of a block's heads in the compiled kernels. */
__host__ static uint32_t round_heads(uint32_t heads)
{
    return heads <= 4 ? 4 : heads <= 8 ? 8 : heads <= 16 ? 16 : HEADS_MAX;
}

__host__ static size_t room_bytes(uint32_t heads, uint32_t quads)
{
    size_t head = (size_t)quads * 4 + THREADS + POSITIONS + 3;
    return 2 * TILE_ROOM + (heads * head + POSITIONS * 4) * sizeof(float);
}

__device__ static decode_room make_room(void *memory, uint32_t heads, uint32_t quads)
{
    decode_room room;
    room.keys = (uint8_t *)memory;
    room.values = room.keys + TILE_ROOM;
    room.queries = (float4 *)(room.values + TILE_ROOM);
    room.partial = (float *)(room.queries + heads * quads);
    room.weights = room.partial + heads * THREADS;
    room.greatest = room.weights + POSITIONS * (heads + 4);
    room.weight_sums = room.greatest + heads;
    room.keep = room.weight_sums + heads;
    return room;
}

/* Of a block in global memory: the sums [heads][quads][4], then the greatest scores and the weight
 * sums of the heads; a multiple of 4. */
__host__ __device__ static inline size_t partial_floats(uint32_t heads, uint32_t quads)
{
    return ((size_t)heads * quads * 4 + 2 * heads + 3) / 4 * 4;
}

__device__ static uint32_t tile_positions(int format, uint32_t quads)
{
    uint32_t bytes = quads * 4 * (uint32_t)kv_number_bytes(format), tile = POSITIONS;
    while (tile * bytes > TILE_BYTES) tile /= 2;
    return tile;
}

/* False: the row has fewer stretches than the grid. */
__device__ static bool find_part(decode_part *p, const decode_task &task, uint32_t position)
{
    p->row = blockIdx.z;
    p->kv_head = blockIdx.y / task.parts;
    uint32_t head_in_group = blockIdx.y % task.parts * task.heads_per_block;
    p->first_head = p->kv_head * task.group + head_in_group;
    p->head_count = min(task.heads_per_block, task.group - head_in_group);

    bool all = task.window == 0 || position < task.window; /* attention_first of graph.h */
    p->first = all ? 0 : position + 1 - task.window;
    p->end = position + 1;
    uint32_t unit = p->first / POSITIONS, units = position / POSITIONS + 1 - unit;
    uint32_t each = (units + task.most_stretches - 1) / task.most_stretches;
    p->stretch = blockIdx.x;
    p->stretch_count = (units + each - 1) / each;
    p->stretch_first = max((unit + p->stretch * each) * POSITIONS, p->first);
    p->stretch_end = min((unit + (p->stretch + 1) * each) * POSITIONS, p->end);
    return p->stretch < p->stretch_count;
}

/* -------------------------------------------------------------------------------------- tiles */

/* Copies rows of whole 16 bytes. */
__device__ static void copy_wide(uint8_t *to, size_t to_stride, const uint8_t *from,
                                 size_t from_stride, uint32_t row_count, uint32_t row_bytes)
{
    uint32_t pieces = row_bytes / 16;
    for (uint32_t i = threadIdx.x; i < row_count * pieces; i += THREADS) {
        uint32_t row = i / pieces, at = i % pieces * 16;
        __pipeline_memcpy_async(to + row * to_stride + at, from + row * from_stride + at, 16);
    }
}

/* Copies rows of `count` numbers that are not whole 16 bytes; strides in numbers. */
template <typename number>
__device__ static void copy_numbers(uint8_t *to, uint32_t to_stride, const uint8_t *from,
                                    uint32_t row_count, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < row_count * count; i += THREADS)
        ((number *)to)[i / count * to_stride + i % count] = ((const number *)from)[i];
}

/* The scales of q8, which follow a head's numbers: [groups][64] of all channels in the page,
 * [groups][tile] in the room. */
__device__ static void copy_scales(uint8_t *to, const uint8_t *head, uint32_t first, uint32_t tile,
                                   const decode_task &task)
{
    const uint8_t *from = head + (size_t)task.head_width * KV_PAGE_TOKENS;
    uint32_t groups = (task.head_width + Q8_GROUP - 1) / Q8_GROUP;
    copy_wide(to + task.quads * 4 * tile, tile * sizeof(__half), from + first * sizeof(__half),
              KV_PAGE_TOKENS * sizeof(__half), groups, tile * sizeof(__half));
}

/* Rows of f32 keys in the room are an odd number of float4, against bank conflicts. */
__device__ static uint32_t key_stride(uint32_t quads)
{
    return quads | 1;
}

/* Asks for the keys of the tile at position `first` of a page: f32 [tile][key_stride][4], otherwise
 * [channels][tile]. */
template <int FORMAT>
__device__ static void fetch_keys(const decode_room &room, const decode_task &task,
                                  const uint8_t *head, uint32_t first, uint32_t tile)
{
    uint32_t width = task.head_width, bytes = (uint32_t)kv_number_bytes(FORMAT);
    if (FORMAT == KV_F32) {
        uint32_t stride = key_stride(task.quads) * 4;
        head += (size_t)first * width * bytes;
        if (width % 4 == 0)
            copy_wide(room.keys, stride * bytes, head, width * bytes, tile, width * bytes);
        else
            copy_numbers<float>(room.keys, stride, head, tile, width);
        return;
    }
    copy_wide(room.keys, tile * bytes, head + first * bytes, KV_PAGE_TOKENS * bytes, width,
              tile * bytes);
    if (FORMAT == KV_Q8) copy_scales(room.keys, head, first, tile, task);
}

/* The values: [tile][quads][4]. */
template <int FORMAT>
__device__ static void fetch_values(const decode_room &room, const decode_task &task,
                                    const uint8_t *head, uint32_t first, uint32_t tile)
{
    uint32_t width = task.head_width, bytes = (uint32_t)kv_number_bytes(FORMAT);
    const uint8_t *from = head + (size_t)first * width * bytes;
    if (width % 4 == 0)
        copy_wide(room.values, 0, from, 0, 1, tile * width * bytes);
    else if (FORMAT == KV_F32)
        copy_numbers<float>(room.values, task.quads * 4, from, tile, width);
    else if (FORMAT == KV_F16)
        copy_numbers<uint16_t>(room.values, task.quads * 4, from, tile, width);
    else
        copy_numbers<uint8_t>(room.values, task.quads * 4, from, tile, width);
    if (FORMAT == KV_Q8) copy_scales(room.values, head, first, tile, task);
}

__device__ static float q8_scale(const uint8_t *numbers, uint32_t quads, uint32_t tile,
                                 uint32_t quad, uint32_t position)
{
    const __half *scales = (const __half *)(numbers + quads * 4 * tile);
    return __half2float(scales[quad / (Q8_GROUP / 4) * tile + position]);
}

/* Four channels of a key; 0 past the width. */
template <int FORMAT>
__device__ static float4 load_key(const uint8_t *keys, uint32_t width, uint32_t quads,
                                  uint32_t tile, uint32_t quad, uint32_t position)
{
    float k[4];
    if (FORMAT == KV_F32) {
        float4 four = ((const float4 *)keys)[position * key_stride(quads) + quad];
        k[0] = four.x, k[1] = four.y, k[2] = four.z, k[3] = four.w;
    }
    float scale = FORMAT == KV_Q8 ? q8_scale(keys, quads, tile, quad, position) : 1.0f;
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        uint32_t at = (quad * 4 + j) * tile + position;
        if (quad * 4 + j >= width)
            k[j] = 0.0f;
        else if (FORMAT == KV_F16)
            k[j] = __half2float(((const __half *)keys)[at]);
        else if (FORMAT == KV_Q8)
            k[j] = (float)((const int8_t *)keys)[at] * scale;
    }
    return make_float4(k[0], k[1], k[2], k[3]);
}

/* Four channels of a value; past the width they may be anything. */
template <int FORMAT>
__device__ static float4 load_value(const uint8_t *values, uint32_t quads, uint32_t tile,
                                    uint32_t quad, uint32_t position)
{
    uint32_t at = position * quads + quad;
    if (FORMAT == KV_F32) return ((const float4 *)values)[at];
    if (FORMAT == KV_F16) {
        uint2 v = ((const uint2 *)values)[at];
        return make_float4(half_in_word(v.x, 0), half_in_word(v.x, 1), half_in_word(v.y, 0),
                           half_in_word(v.y, 1));
    }
    float scale = q8_scale(values, quads, tile, quad, position);
    char4 v = ((const char4 *)values)[at];
    return make_float4((float)(int8_t)v.x * scale, (float)(int8_t)v.y * scale,
                       (float)(int8_t)v.z * scale, (float)(int8_t)v.w * scale);
}

/* ---------------------------------------------------------------------------------- arithmetic */

/* This thread's channels of the scores of one position. */
template <int HEADS, int FORMAT>
__device__ static void add_scores(const decode_room &room, const decode_task &task,
                                  uint32_t head_count, uint32_t tile)
{
    uint32_t position = threadIdx.x % tile, slice = threadIdx.x / tile, slices = THREADS / tile;
    uint32_t quads = task.quads;
    float scores[HEADS] = {};
#pragma unroll 2
    for (uint32_t quad = slice; quad < quads; quad += slices) {
        float4 k = load_key<FORMAT>(room.keys, task.head_width, quads, tile, quad, position);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h++) {
            if (h >= head_count) break;
            float4 q = room.queries[h * quads + quad];
            scores[h] = fmaf(q.x, k.x, scores[h]);
            scores[h] = fmaf(q.y, k.y, scores[h]);
            scores[h] = fmaf(q.z, k.z, scores[h]);
            scores[h] = fmaf(q.w, k.w, scores[h]);
        }
    }
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++)
        if (h < head_count) room.partial[(slice * HEADS + h) * tile + position] = scores[h];
}

/* Turns a tile's scores into weights; a warp has every WARPS-th head, a lane one position.  Positions
 * that the row does not see may hold anything, and weigh 0. */
template <int HEADS>
__device__ static void weigh(const decode_room &room, const decode_part &part, uint32_t position,
                             uint32_t tile, float scale)
{
    uint32_t lane = threadIdx.x % WARP, slices = THREADS / tile;
    bool seen = lane < tile && position + lane >= part.first && position + lane < part.end;
    for (uint32_t h = threadIdx.x / WARP; h < part.head_count; h += WARPS) {
        float score = 0.0f, old = room.greatest[h];
#pragma unroll 8
        for (uint32_t slice = 0; slice < slices; slice++)
            if (lane < tile) score += room.partial[(slice * HEADS + h) * tile + lane];
        score = seen ? score * scale : -CUDART_INF_F;
        float greatest = score;
        for (uint32_t distance = WARP / 2; distance > 0; distance /= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, distance));
        greatest = fmaxf(greatest, old);
        /* Any other number keeps the differences from being NaN. */
        float shift = greatest == -CUDART_INF_F ? 0.0f : greatest;
        float weight = expf(score - shift), sum = warp_sum(weight), keep = expf(old - shift);
        if (lane < tile) room.weights[lane * (HEADS + 4) + h] = weight;
        __syncwarp(); /* all lanes have read the old greatest score */
        if (lane > 0) continue;
        room.keep[h] = keep;
        room.greatest[h] = greatest;
        room.weight_sums[h] = fmaf(room.weight_sums[h], keep, sum);
    }
}

/* The least power of two that is not less. */
__device__ static uint32_t round_up(uint32_t count)
{
    return count <= 1 ? 1 : 2u << (31 - __clz((int)(count - 1)));
}

/* This thread's positions of the sums of four channels.  Positions that are not seen are left out: a
 * weight of 0 would not do, as the page may hold stale data that are not finite. */
template <int HEADS, int FORMAT>
__device__ static void add_values(float (&sums)[HEADS][4], const decode_room &room,
                                  const decode_task &task, const decode_part &part,
                                  uint32_t position, uint32_t tile)
{
    uint32_t columns = round_up(task.quads), quad = threadIdx.x % columns;
    uint32_t from = part.first > position ? part.first - position : 0;
    uint32_t to = min(part.end - position, tile);
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        if (h >= part.head_count) break;
        float keep = room.keep[h];
#pragma unroll
        for (int j = 0; j < 4; j++) sums[h][j] *= keep;
    }
    if (quad >= task.quads) return;
#pragma unroll 2
    for (uint32_t p = threadIdx.x / columns; p < to; p += THREADS / columns) {
        if (p < from) continue;
        float4 v = load_value<FORMAT>(room.values, task.quads, tile, quad, p);
#pragma unroll
        for (uint32_t h = 0; h < HEADS; h += 4) {
            if (h >= part.head_count) break;
            float4 four = *(const float4 *)&room.weights[p * (HEADS + 4) + h];
            const float w[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                sums[h + i][0] = fmaf(w[i], v.x, sums[h + i][0]);
                sums[h + i][1] = fmaf(w[i], v.y, sums[h + i][1]);
                sums[h + i][2] = fmaf(w[i], v.z, sums[h + i][2]);
                sums[h + i][3] = fmaf(w[i], v.w, sums[h + i][3]);
            }
        }
    }
}

template <int HEADS, int FORMAT>
__device__ static void attend_stretch(float (&sums)[HEADS][4], const decode_room &room,
                                      const decode_task &task, const decode_part &part,
                                      const decode_cache &cache)
{
    const uint32_t tile = cache.tile, page = KV_PAGE_TOKENS;
    uint32_t position = part.stretch_first / tile * tile;
    uint8_t *now = cache.pages[position / page], *next = now;
    fetch_keys<FORMAT>(room, task, now + cache.keys, position % page, tile);
    __pipeline_commit();
    fetch_values<FORMAT>(room, task, now + cache.values, position % page, tile);
    __pipeline_commit();
    for (; position < part.stretch_end; position += tile) {
        uint32_t after = position + tile;
        bool more = after < part.stretch_end;
        if (more) next = cache.pages[after / page];
        __pipeline_wait_prior(1);
        __syncthreads(); /* the keys are there */
        add_scores<HEADS, FORMAT>(room, task, part.head_count, tile);
        __syncthreads(); /* and have been read */
        if (more) fetch_keys<FORMAT>(room, task, next + cache.keys, after % page, tile);
        __pipeline_commit();
        weigh<HEADS>(room, part, position, tile, task.scale);
        __pipeline_wait_prior(1);
        __syncthreads(); /* the values and the weights are there */
        add_values<HEADS, FORMAT>(sums, room, task, part, position, tile);
        __syncthreads(); /* and have been read */
        if (more) fetch_values<FORMAT>(room, task, next + cache.values, after % page, tile);
        __pipeline_commit();
    }
}

/* ------------------------------------------------------------------------------------ joining */

/* Adds up the threads' sums, in ascending order of their first positions, and writes what the block
 * has found.  The tiles' memory is free. */
template <int HEADS>
__device__ static void write_partial(float *partial, const float (&sums)[HEADS][4],
                                     const decode_room &room, const decode_task &task,
                                     const decode_part &part)
{
    static_assert(HEADS_AT_ONCE * THREADS * sizeof(float4) <= 2 * TILE_ROOM, "the tiles' memory");
    float4 *all = (float4 *)room.keys; /* [heads at once][slices][columns] */
    uint32_t columns = round_up(task.quads), slices = THREADS / columns;
#pragma unroll
    for (uint32_t first = 0; first < HEADS; first += HEADS_AT_ONCE) {
        if (first >= part.head_count) break;
#pragma unroll
        for (uint32_t h = 0; h < HEADS_AT_ONCE; h++) {
            const float *s = sums[first + h];
            all[h * THREADS + threadIdx.x] = make_float4(s[0], s[1], s[2], s[3]);
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < HEADS_AT_ONCE * columns; i += THREADS) {
            uint32_t head = first + i / columns, quad = i % columns;
            const float4 *own = all + i / columns * THREADS + quad;
            float4 sum = own[0];
#pragma unroll 4
            for (uint32_t slice = 1; slice < slices; slice++) {
                float4 s = own[slice * columns];
                sum.x += s.x, sum.y += s.y, sum.z += s.z, sum.w += s.w;
            }
            if (head < part.head_count && quad < task.quads)
                ((float4 *)partial)[head * task.quads + quad] = sum;
        }
        __syncthreads();
    }
    float *stats = partial + (size_t)part.head_count * task.quads * 4;
    for (uint32_t h = threadIdx.x; h < part.head_count; h += THREADS) {
        stats[h] = room.greatest[h];
        stats[part.head_count + h] = room.weight_sums[h];
    }
}

/* True in the block that finishes last of the row's stretches; it leaves the counter at 0. */
__device__ static bool is_last(uint32_t *counter, uint32_t stretch_count)
{
    __shared__ bool last;
    __threadfence(); /* this thread's part of the partial is written before it is counted */
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(counter, stretch_count - 1) == stretch_count - 1;
    __syncthreads();
    __threadfence();
    return last;
}

/* The factors [stretches][heads] of the sums, and the weight sums of all stretches.  A sink is one
 * more position, without a value. */
__device__ static void weigh_stretches(float *factors, const decode_room &room,
                                       const decode_task &task, const decode_part &part,
                                       const float *partials, size_t stride)
{
    uint32_t lane = threadIdx.x % WARP, heads = part.head_count, count = part.stretch_count;
    const float *stats = partials + (size_t)heads * task.quads * 4;
    for (uint32_t h = threadIdx.x / WARP; h < heads; h += WARPS) {
        float sink = task.sinks ? task.sinks[part.first_head + h] : -CUDART_INF_F;
        float greatest = sink, sum = 0.0f;
        for (uint32_t s = lane; s < count; s += WARP)
            greatest = fmaxf(greatest, __ldcg(stats + s * stride + h));
        for (uint32_t distance = WARP / 2; distance > 0; distance /= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, distance));
        float shift = greatest == -CUDART_INF_F ? 0.0f : greatest;
        for (uint32_t s = lane; s < count; s += WARP) {
            float factor = expf(__ldcg(stats + s * stride + h) - shift);
            factors[s * heads + h] = factor;
            sum = fmaf(__ldcg(stats + s * stride + heads + h), factor, sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) room.weight_sums[h] = sum + expf(sink - shift);
    }
    __syncthreads();
}

/* Joins a row's stretches, in ascending order. */
__device__ static void join(const decode_room &room, const decode_task &task,
                            const decode_part &part, const float *partials, size_t stride)
{
    static_assert(STRETCHES_MAX * HEADS_MAX * sizeof(float) <= 2 * TILE_ROOM, "the tiles' memory");
    float *factors = (float *)room.keys;
    uint32_t heads = part.head_count, quads = task.quads, width = task.head_width;
    weigh_stretches(factors, room, task, part, partials, stride);
    size_t first = (part.row * gridDim.y / task.parts * task.group + part.first_head) * width;
    for (uint32_t i = threadIdx.x; i < heads * quads; i += THREADS) {
        uint32_t h = i / quads, c = i % quads * 4;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
        for (uint32_t s = 0; s < part.stretch_count; s++) {
            float4 v = __ldcg((const float4 *)(partials + s * stride) + i);
            float factor = factors[s * heads + h];
            sum.x = fmaf(v.x, factor, sum.x);
            sum.y = fmaf(v.y, factor, sum.y);
            sum.z = fmaf(v.z, factor, sum.z);
            sum.w = fmaf(v.w, factor, sum.w);
        }
        float *out = task.out + first + h * width + c, weight_sum = room.weight_sums[h];
        const float four[4] = { sum.x, sum.y, sum.z, sum.w };
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (c + j < width) out[j] = four[j] / weight_sum;
    }
}

/* ------------------------------------------------------------------------------------- kernel */

__device__ static void begin(const decode_room &room, const decode_task &task,
                             const decode_part &part)
{
    uint32_t width = task.head_width, padded = task.quads * 4;
    size_t heads = (size_t)gridDim.y / task.parts * task.group;
    const float *queries = task.queries + (part.row * heads + part.first_head) * width;
    for (uint32_t i = threadIdx.x; i < part.head_count * padded; i += THREADS) {
        uint32_t h = i / padded, c = i % padded;
        ((float *)room.queries)[i] = c < width ? queries[h * width + c] : 0.0f;
    }
    for (uint32_t h = threadIdx.x; h < part.head_count; h += THREADS) {
        room.greatest[h] = -CUDART_INF_F;
        room.weight_sums[h] = 0.0f;
    }
}

/* Blocks: (stretches, parts of groups, rows). */
template <int HEADS>
__global__ static void __launch_bounds__(THREADS)
    decode_kernel(const __grid_constant__ decode_task task)
{
    float4 *const decode_memory = block_memory<float4>();
    decode_part part;
    struct cuda_row row = task.rows[blockIdx.z];
    if (!find_part(&part, task, row.position)) return;
    decode_room room = make_room(decode_memory, HEADS, task.quads);
    begin(room, task, part);

    const struct cuda_span *span = &task.spans[row.span];
    int format = span->kv_format;
    size_t head = part.kv_head * kv_head_bytes(format, task.head_width);
    decode_cache cache = { span->pages, span->keys + head, span->values + head,
                           tile_positions(format, task.quads) };
    float sums[HEADS][4] = {};
    if (format == KV_F32)
        attend_stretch<HEADS, KV_F32>(sums, room, task, part, cache);
    else if (format == KV_F16)
        attend_stretch<HEADS, KV_F16>(sums, room, task, part, cache);
    else
        attend_stretch<HEADS, KV_Q8>(sums, room, task, part, cache);

    size_t stride = partial_floats(task.heads_per_block, task.quads);
    size_t index = part.row * gridDim.y + blockIdx.y; /* of the counter */
    float *partials = task.partials + index * gridDim.x * stride;
    write_partial<HEADS>(partials + part.stretch * stride, sums, room, task, part);
    if (is_last(task.counters + index, part.stretch_count))
        join(room, task, part, partials, stride);
}

/* ------------------------------------------------------------------------------------ launch */

struct decode_grid {
    uint32_t parts, heads_per_block, quads;
    uint32_t most_stretches, stretches; /* that a row may have at all, and in this context */
    uint32_t rows;                      /* that a launch has counters for */
};

static struct decode_grid make_grid(const struct cuda_attention *shape, uint32_t context)
{
    struct decode_grid grid = {};
    uint32_t group = shape->heads / shape->kv_heads, units = blocks_for(context, POSITIONS);
    grid.quads = blocks_for(shape->head_width, 4);
    do {
        grid.parts++;
        grid.heads_per_block = blocks_for(group, grid.parts);
    } while (grid.heads_per_block > 1 &&
             (grid.heads_per_block > HEADS_MAX ||
              room_bytes(round_heads(grid.heads_per_block), grid.quads) > ROOM_BYTES));
    grid.parts = blocks_for(group, grid.heads_per_block);

    uint32_t most = WANTED_BLOCKS / shape->kv_heads;
    grid.most_stretches = most < STRETCHES_MIN   ? (uint32_t)STRETCHES_MIN
                          : most > STRETCHES_MAX ? (uint32_t)STRETCHES_MAX
                                                 : most;
    if (shape->window > 0) { /* units that a window may touch */
        uint32_t touched = (shape->window - 1 + POSITIONS - 1) / POSITIONS + 1;
        if (units > touched) units = touched;
    }
    grid.stretches = units < grid.most_stretches ? units : grid.most_stretches;
    grid.rows = COUNTERS / (shape->kv_heads * grid.parts);
    return grid;
}

size_t cuda_attend_decode_scratch(const struct cuda_attention *shape, uint32_t row_count,
                                  uint32_t context)
{
    struct decode_grid grid = make_grid(shape, context);
    size_t rows = row_count < grid.rows ? row_count : grid.rows;
    return COUNTERS + rows * shape->kv_heads * grid.parts * grid.stretches *
                          partial_floats(grid.heads_per_block, grid.quads);
}

template <int HEADS>
static void launch(cuda_stream stream, const struct decode_task *task, dim3 blocks)
{
    size_t bytes = room_bytes(HEADS, task->quads);
    if (bytes > ROOM_BYTES_PLAIN)
        cudaFuncSetAttribute(decode_kernel<HEADS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)bytes);
    start_kernel(decode_kernel<HEADS>, blocks, THREADS, bytes, stream, *task);
}

void cuda_attend_decode(cuda_stream stream, float *out, const float *queries,
                        const struct cuda_rows *rows, const struct cuda_attention *shape,
                        uint32_t context, float *scratch)
{
    if (shape->head_width > WIDTH_MAX) {
        cuda_attend(stream, out, queries, rows, shape, context - 1);
        return;
    }
    struct decode_grid grid = make_grid(shape, context);
    struct decode_task task = {};
    size_t row_floats = (size_t)shape->heads * shape->head_width;
    task.spans = rows->spans;
    task.counters = (uint32_t *)scratch;
    task.partials = scratch + COUNTERS;
    task.sinks = shape->sinks;
    task.group = shape->heads / shape->kv_heads;
    task.parts = grid.parts;
    task.heads_per_block = grid.heads_per_block;
    task.head_width = shape->head_width;
    task.quads = grid.quads;
    task.window = shape->window;
    task.most_stretches = grid.most_stretches;
    task.scale = shape->scale;
    for (uint32_t first = 0; first < rows->row_count; first += grid.rows) {
        uint32_t count = rows->row_count - first < grid.rows ? rows->row_count - first : grid.rows;
        dim3 blocks(grid.stretches, shape->kv_heads * grid.parts, count);
        task.queries = queries + first * row_floats;
        task.out = out + first * row_floats;
        task.rows = rows->rows + first;
        uint32_t heads = round_heads(grid.heads_per_block);
        if (heads == 4)
            launch<4>(stream, &task, blocks);
        else if (heads == 8)
            launch<8>(stream, &task, blocks);
        else if (heads == 16)
            launch<16>(stream, &task, blocks);
        else
            launch<32>(stream, &task, blocks);
    }
}
