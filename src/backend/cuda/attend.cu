/* attend.cu: attention over the pages of a cache, in f32.
 *
 * A block of threads has some lanes, each one head of one row: heads of a group, which read the
 * same keys and values, of some consecutive rows of a span.  It walks the pages that its rows see in
 * ascending order, one page being a tile of 64 positions, and a page in chunks of 32 channels:
 *
 *     chunk of keys    ─▶ scores[lane][64] +=                   …for all channels, then
 *     scores           ─▶ running softmax: weights[lane][64], and a factor for what is summed
 *     chunk of values  ─▶ sums[lane][32 channels] += weights·values
 *
 * While a chunk is computed the next one is on its way into registers.
 *
 * A lane's arithmetic does not depend on the other lanes: one thread adds up a score by ascending
 * channels, one a sum by ascending positions; positions that a lane does not see are never
 * multiplied, and a tile without any leaves its sums as they are.  So rows may share blocks in
 * any way. */
#include "backend/cuda/attend.cuh"

#include "backend/cuda/common.cuh"
#include "backend/cuda/kv_cache.cuh"

enum { THREADS = KV_THREADS, TILE = KV_PAGE_TOKENS, WARPS = THREADS / WARP };

/* Rows of a chunk in shared memory: keys [32][65], values [64][33].  An odd stride lets a warp
 * write a column, and read a row, without bank conflicts. */
enum { KEY_STRIDE = TILE + 1, VALUE_STRIDE = KV_CHUNK + 1, CHUNK_FLOATS = TILE * VALUE_STRIDE };

enum { SCORE_GROUPS = THREADS / TILE }; /* of lanes, whose scores are computed at a time */

/* Shared memory that a block may take: all that the smallest supported device has. */
enum { ROOM_BYTES = 64 * 1024, ROOM_BYTES_PLAIN = 48 * 1024, LANES_MAX = 32 };

/* Spans with this many rows on average are prompts, whose rows share blocks. */
enum { SHARED_ROWS = 4 };

/* A task and how it is cut into blocks. */
struct attend_grid {
    struct attend_task task;
    uint32_t lanes; /* that a block has room for */
    uint32_t rows_per_block, row_blocks;
    uint32_t heads_per_block, group_blocks; /* of one group */
};

struct attend_room {
    float *chunk;                         /* [CHUNK_FLOATS] */
    float *queries;                       /* [lanes][padded key width] */
    float *sums;                          /* [lanes][padded value width] */
    float *scores;                        /* [lanes][64], then the weights */
    float *greatest, *weight_sums, *keep; /* [lanes]; keep: factor of the sums after a tile */
    uint32_t *first, *end;                /* [lanes]: the positions that it sees */
};

/* Rows of one span, and heads of one group. */
struct attend_lanes {
    uint32_t first_row, row_count, first_head, head_count;
    uint32_t count; /* row_count x head_count */
    const struct cuda_span *span;
    size_t keys, values; /* of the head, in a page */
    kv_part key_part, value_part;
    uint32_t tiles, tiles_end;     /* that a lane sees */
    uint32_t all_see, all_see_end; /* positions that all lanes see */
};

__host__ __device__ static inline uint32_t padded(uint32_t width)
{
    return (width + KV_CHUNK - 1) / KV_CHUNK * KV_CHUNK;
}

__host__ static size_t room_bytes(const struct attend_task *task, uint32_t lanes)
{
    size_t lane = (size_t)padded(task->key_width) + padded(task->value_width) + TILE + 5;
    return (CHUNK_FLOATS + lanes * lane) * sizeof(float);
}

__device__ static attend_room make_room(float *memory, const attend_grid &grid)
{
    attend_room room;
    uint32_t lanes = grid.lanes;
    room.chunk = memory;
    room.queries = room.chunk + CHUNK_FLOATS;
    room.sums = room.queries + lanes * padded(grid.task.key_width);
    room.scores = room.sums + lanes * padded(grid.task.value_width);
    room.greatest = room.scores + lanes * TILE;
    room.weight_sums = room.greatest + lanes;
    room.keep = room.weight_sums + lanes;
    room.first = (uint32_t *)(room.keep + lanes);
    room.end = room.first + lanes;
    return room;
}

/* ------------------------------------------------------------------------------------- lanes */

/* attention_first of backend/graph.h */
__device__ static uint32_t first_seen(uint32_t window, uint32_t position)
{
    return window > 0 && position >= window ? position + 1 - window : 0;
}

/* The lanes of rows [row, …) that are of one span and end before `row_end`. */
__device__ static attend_lanes find_lanes(const attend_grid &grid, uint32_t row, uint32_t row_end)
{
    const attend_task &task = grid.task;
    attend_lanes l;
    uint32_t group_part = blockIdx.x / grid.row_blocks;
    uint32_t kv_head = group_part / grid.group_blocks, part = group_part % grid.group_blocks;
    uint32_t head_in_group = part * grid.heads_per_block;
    l.first_head = kv_head * task.group + head_in_group;
    l.head_count = min(grid.heads_per_block, task.group - head_in_group);
    l.first_row = row;
    l.row_count = 1;
    uint32_t span = task.rows[row].span;
    while (row + l.row_count < row_end && task.rows[row + l.row_count].span == span) l.row_count++;
    l.count = l.row_count * l.head_count;

    l.span = &task.spans[span];
    int format = l.span->kv_format;
    l.keys = l.span->keys + kv_head * kv_head_bytes(format, task.key_width);
    l.values = l.span->values + kv_head * kv_head_bytes(format, task.value_width);
    l.key_part = kv_part{ task.key_width, task.key_width, !task.latent && format != KV_F32 };
    l.value_part = kv_part{ task.value_width, task.value_width, false };
    if (task.latent) {
        l.values = l.keys;
        l.value_part.width = task.key_width;
    }
    uint32_t position = task.rows[row].position;
    uint32_t last = task.rows[row + l.row_count - 1].position;
    l.tiles = first_seen(task.window, position) / TILE;
    l.tiles_end = last / TILE + 1;
    l.all_see = first_seen(task.window, last);
    l.all_see_end = position + 1;
    return l;
}

__device__ static size_t lane_row(const attend_lanes &l, uint32_t lane)
{
    return l.first_row + lane / l.head_count;
}

__device__ static size_t lane_head(const attend_lanes &l, uint32_t lane)
{
    return l.first_head + lane % l.head_count;
}

__device__ static void begin_lanes(const attend_task &task, const attend_room &room,
                                   const attend_lanes &l)
{
    uint32_t key_width = padded(task.key_width), value_width = padded(task.value_width);
    for (uint32_t i = threadIdx.x; i < l.count * key_width; i += THREADS) {
        uint32_t lane = i / key_width, c = i % key_width;
        const float *q = task.queries + lane_row(l, lane) * task.query_row +
                         lane_head(l, lane) * task.query_head;
        room.queries[i] = c < task.key_width ? q[c] : 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < l.count * value_width; i += THREADS) room.sums[i] = 0.0f;
    for (uint32_t lane = threadIdx.x; lane < l.count; lane += THREADS) {
        uint32_t position = task.rows[lane_row(l, lane)].position;
        room.greatest[lane] = -CUDART_INF_F;
        room.weight_sums[lane] = 0.0f;
        room.first[lane] = first_seen(task.window, position);
        room.end[lane] = position + 1;
    }
}

/* A sink is joined as a tile without values would be. */
__device__ static void end_lanes(const attend_task &task, const attend_room &room,
                                 const attend_lanes &l)
{
    uint32_t stride = padded(task.value_width);
    for (uint32_t i = threadIdx.x; i < l.count * task.value_width; i += THREADS) {
        uint32_t lane = i / task.value_width, c = i % task.value_width;
        size_t head = lane_head(l, lane);
        float sum = room.sums[lane * stride + c], weight_sum = room.weight_sums[lane];
        if (task.sinks) {
            float sink = task.sinks[head], greatest = fmaxf(room.greatest[lane], sink);
            float keep = expf(room.greatest[lane] - greatest);
            sum *= keep;
            weight_sum = fmaf(weight_sum, keep, expf(sink - greatest));
        }
        task.out[lane_row(l, lane) * task.out_row + head * task.out_head + c] = sum / weight_sum;
    }
}

/* ------------------------------------------------------------------------------------ chunks */

/* Steps of a tile: the chunks of keys, then those of values. */
template <int FORMAT>
__device__ static kv_fragment fetch_step(const attend_lanes &l, uint32_t tile, uint32_t step)
{
    uint32_t key_steps = padded(l.key_part.used) / KV_CHUNK;
    uint8_t *page = l.span->pages[tile];
    if (step < key_steps) return kv_fetch<FORMAT>(page + l.keys, l.key_part, step * KV_CHUNK);
    return kv_fetch<FORMAT>(page + l.values, l.value_part, (step - key_steps) * KV_CHUNK);
}

template <int FORMAT>
__device__ static void put_fragment(float *chunk, const kv_fragment &f, bool keys, bool by_channel)
{
    uint32_t channel = fragment_channel(by_channel), position = fragment_position(by_channel);
#pragma unroll
    for (int i = 0; i < KV_FRAGMENT; i++) {
        uint32_t c = by_channel ? channel : channel + i, p = by_channel ? position + i : position;
        uint32_t at = keys ? c * KEY_STRIDE + p : p * VALUE_STRIDE + c;
        chunk[at] = fragment_number<FORMAT>(f, i, by_channel);
    }
}

/* A thread has one position and every SCORE_GROUPS-th lane; `queries` begin at the chunk. */
template <int SCORES>
__device__ static void add_scores(float (&scores)[SCORES], const float *keys, const float *queries,
                                  uint32_t stride, uint32_t lane_count)
{
    const float *k = keys + threadIdx.x % TILE;
    uint32_t first = threadIdx.x / TILE;
#pragma unroll
    for (int c = 0; c < KV_CHUNK; c += 4) {
        float k0 = k[c * KEY_STRIDE], k1 = k[(c + 1) * KEY_STRIDE];
        float k2 = k[(c + 2) * KEY_STRIDE], k3 = k[(c + 3) * KEY_STRIDE];
#pragma unroll
        for (int i = 0; i < SCORES; i++) {
            uint32_t lane = first + i * SCORE_GROUPS;
            if (lane >= lane_count) continue;
            float4 q = *(const float4 *)(queries + lane * stride + c);
            scores[i] = fmaf(q.x, k0, scores[i]);
            scores[i] = fmaf(q.y, k1, scores[i]);
            scores[i] = fmaf(q.z, k2, scores[i]);
            scores[i] = fmaf(q.w, k3, scores[i]);
        }
    }
}

/* Writes a tile's scores to shared memory and clears them.  Positions that a lane does not see may
 * hold anything. */
template <int SCORES>
__device__ static void write_scores(float (&scores)[SCORES], const attend_room &room,
                                    uint32_t lane_count, uint32_t tile, float scale)
{
    uint32_t at = threadIdx.x % TILE, position = tile * TILE + at;
#pragma unroll
    for (int i = 0; i < SCORES; i++) {
        uint32_t lane = threadIdx.x / TILE + i * SCORE_GROUPS;
        if (lane < lane_count) {
            bool seen = position >= room.first[lane] && position < room.end[lane];
            room.scores[lane * TILE + at] = seen ? scores[i] * scale : -CUDART_INF_F;
        }
        scores[i] = 0.0f;
    }
}

/* Turns a tile's scores into weights; a warp has every WARPS-th lane. */
__device__ static void weigh(const attend_room &room, uint32_t lane_count)
{
    uint32_t thread = threadIdx.x % WARP;
    for (uint32_t lane = threadIdx.x / WARP; lane < lane_count; lane += WARPS) {
        float *scores = room.scores + lane * TILE + thread;
        float low = scores[0], high = scores[WARP], old = room.greatest[lane];
        float greatest = fmaxf(low, high);
        for (uint32_t distance = WARP / 2; distance > 0; distance /= 2)
            greatest = fmaxf(greatest, __shfl_xor_sync(ALL_LANES, greatest, distance));
        greatest = fmaxf(greatest, old);
        /* Nothing has been seen yet: any other number keeps the differences from being NaN. */
        float shift = greatest == -CUDART_INF_F ? 0.0f : greatest;
        low = expf(low - shift);
        high = expf(high - shift);
        float sum = warp_sum(low + high);
        scores[0] = low;
        scores[WARP] = high;
        __syncwarp();
        if (thread > 0) continue;
        float keep = expf(old - shift);
        room.keep[lane] = keep;
        room.greatest[lane] = greatest;
        room.weight_sums[lane] = fmaf(room.weight_sums[lane], keep, sum);
    }
}

/* A warp has every WARPS-th lane, a thread one channel of the chunk; all lanes see the whole tile.
 * `sums` begin at the chunk. */
template <int SUMS>
__device__ static void add_values(const attend_room &room, float *sums, uint32_t stride,
                                  uint32_t lane_count)
{
    uint32_t channel = threadIdx.x % WARP, first = threadIdx.x / WARP;
    const float *v = room.chunk + channel;
    float own[SUMS];
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        uint32_t lane = first + i * WARPS;
        own[i] = lane < lane_count ? sums[lane * stride + channel] * room.keep[lane] : 0.0f;
    }
#pragma unroll 2
    for (uint32_t p = 0; p < TILE; p += 4) {
        float v0 = v[p * VALUE_STRIDE], v1 = v[(p + 1) * VALUE_STRIDE];
        float v2 = v[(p + 2) * VALUE_STRIDE], v3 = v[(p + 3) * VALUE_STRIDE];
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            uint32_t lane = first + i * WARPS;
            if (lane >= lane_count) continue;
            float4 w = *(const float4 *)(room.scores + lane * TILE + p);
            own[i] = fmaf(w.x, v0, own[i]);
            own[i] = fmaf(w.y, v1, own[i]);
            own[i] = fmaf(w.z, v2, own[i]);
            own[i] = fmaf(w.w, v3, own[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        uint32_t lane = first + i * WARPS;
        if (lane < lane_count) sums[lane * stride + channel] = own[i];
    }
}

/* The same for a tile of which lanes see some positions.  A weight of 0 would not do: the page may
 * hold stale data, or a later row's, that is not finite. */
__device__ static void add_some_values(const attend_room &room, float *sums, uint32_t stride,
                                       uint32_t lane_count, uint32_t tile)
{
    uint32_t channel = threadIdx.x % WARP, start = tile * TILE;
    for (uint32_t lane = threadIdx.x / WARP; lane < lane_count; lane += WARPS) {
        uint32_t from = max(room.first[lane], start), to = min(room.end[lane], start + TILE);
        float own = sums[lane * stride + channel] * room.keep[lane];
        for (uint32_t p = from; p < to; p++)
            own = fmaf(room.scores[lane * TILE + p - start],
                       room.chunk[(p - start) * VALUE_STRIDE + channel], own);
        sums[lane * stride + channel] = own;
    }
}

/* ------------------------------------------------------------------------------------- tiles */

template <int LANES, int FORMAT>
__device__ static void attend_tiles(const attend_task &task, const attend_room &room,
                                    const attend_lanes &l)
{
    uint32_t key_width = padded(task.key_width), value_width = padded(task.value_width);
    uint32_t key_steps = key_width / KV_CHUNK, steps = key_steps + value_width / KV_CHUNK;
    float scores[LANES / SCORE_GROUPS] = {};
    kv_fragment next = fetch_step<FORMAT>(l, l.tiles, 0);
    for (uint32_t tile = l.tiles; tile < l.tiles_end; tile++) {
        bool all_see = tile * TILE >= l.all_see && tile * TILE + TILE <= l.all_see_end;
        for (uint32_t step = 0; step < steps; step++) {
            bool keys = step < key_steps;
            __syncthreads(); /* the chunk before has been read, and weights are complete */
            put_fragment<FORMAT>(room.chunk, next, keys, keys && l.key_part.by_channel);
            if (step + 1 < steps)
                next = fetch_step<FORMAT>(l, tile, step + 1);
            else if (tile + 1 < l.tiles_end)
                next = fetch_step<FORMAT>(l, tile + 1, 0);
            __syncthreads();
            if (!keys) {
                float *sums = room.sums + (step - key_steps) * KV_CHUNK;
                if (all_see)
                    add_values<LANES / WARPS>(room, sums, value_width, l.count);
                else
                    add_some_values(room, sums, value_width, l.count, tile);
                continue;
            }
            add_scores(scores, room.chunk, room.queries + step * KV_CHUNK, key_width, l.count);
            if (step + 1 < key_steps) continue;
            write_scores(scores, room, l.count, tile, task.scale);
            __syncthreads();
            weigh(room, l.count);
        }
    }
}

template <int LANES>
__global__ static void __launch_bounds__(THREADS) attend_kernel(attend_grid grid)
{
    float4 *const memory = block_memory<float4>();
    attend_room room = make_room((float *)memory, grid);
    uint32_t row = blockIdx.x % grid.row_blocks * grid.rows_per_block;
    uint32_t row_end = min(row + grid.rows_per_block, grid.task.row_count);
    while (row < row_end) {
        attend_lanes lanes = find_lanes(grid, row, row_end);
        begin_lanes(grid.task, room, lanes);
        if (lanes.span->kv_format == KV_F32)
            attend_tiles<LANES, KV_F32>(grid.task, room, lanes);
        else if (lanes.span->kv_format == KV_F16)
            attend_tiles<LANES, KV_F16>(grid.task, room, lanes);
        else
            attend_tiles<LANES, KV_Q8>(grid.task, room, lanes);
        __syncthreads();
        end_lanes(grid.task, room, lanes);
        __syncthreads();
        row += lanes.row_count;
    }
}

/* ------------------------------------------------------------------------------------ launch */

static struct attend_grid make_grid(const struct attend_task *task, uint32_t span_count)
{
    struct attend_grid grid = {};
    uint32_t fit = LANES_MAX;
    grid.task = *task;
    while (fit > 1 && room_bytes(task, fit) > ROOM_BYTES) fit--;
    grid.group_blocks = blocks_for(task->group, fit);
    grid.heads_per_block = blocks_for(task->group, grid.group_blocks);
    bool shared = task->row_count / SHARED_ROWS >= span_count;
    grid.rows_per_block = shared ? fit / grid.heads_per_block : 1;
    grid.row_blocks = blocks_for(task->row_count, grid.rows_per_block);
    grid.lanes = grid.heads_per_block * grid.rows_per_block;
    return grid;
}

/* A head too wide for the device's shared memory is an error of the launch. */
template <int LANES> static void launch(cuda_stream stream, const struct attend_grid *grid)
{
    size_t bytes = room_bytes(&grid->task, grid->lanes);
    if (bytes > ROOM_BYTES_PLAIN)
        cudaFuncSetAttribute(attend_kernel<LANES>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)bytes);
    uint32_t blocks = grid->row_blocks * grid->group_blocks * grid->task.kv_heads;
    start_kernel(attend_kernel<LANES>, blocks, THREADS, bytes, stream, *grid);
}

void attend_launch(cuda_stream stream, const struct attend_task *task, uint32_t span_count)
{
    if (task->row_count == 0) return;
    struct attend_grid grid = make_grid(task, span_count);
    if (grid.lanes <= 8)
        launch<8>(stream, &grid);
    else if (grid.lanes <= 16)
        launch<16>(stream, &grid);
    else
        launch<32>(stream, &grid);
}
