/* route.cu: the router's choice of experts, their pairs, and the weighted sum of their outputs.
 *
 * One warp chooses for one row.  A lane owns experts that are next to each other, so the first of
 * the lanes with the best expert has the lowest id among equals, and the chosen ones, lane by lane,
 * are in ascending order. */
#include "backend/cuda/common.cuh"

#include <stddef.h>

/* ----------------------------------------------------------------------------- router */

/* Shared memory of a block: 48 KiB at most without asking for more, some 4,000 experts. */
struct route_room {
    float *scores;    /* [experts] the weights before they are scaled */
    float *choice;    /* [experts] what experts are chosen by */
    float *groups;    /* [groups] the scores of groups */
    uint32_t *keys;   /* [experts] the choice as integers */
    uint32_t *chosen; /* [per_row] ascending */
};

static size_t route_room_bytes(uint32_t expert_count, uint32_t groups, uint32_t per_row)
{
    return ((size_t)3 * expert_count + groups + per_row) * sizeof(float);
}

static __device__ struct route_room route_room_at(float *memory, uint32_t expert_count,
                                                  uint32_t groups)
{
    struct route_room room;
    room.scores = memory;
    room.choice = room.scores + expert_count;
    room.groups = room.choice + expert_count;
    room.keys = reinterpret_cast<uint32_t *>(room.groups + groups);
    room.chosen = room.keys + expert_count;
    return room;
}

/* scores ← e^(score - max) / Σ.  Sixteen running sums, in the order of the CPU's kernels. */
static __device__ void softmax_scores(float *scores, uint32_t total)
{
    const uint32_t lane = threadIdx.x, sums = 16;
    float most = -INFINITY, sum = 0.0f;
    for (uint32_t i = lane; i < total; i += WARP) most = fmaxf(most, scores[i]);
    for (uint32_t distance = WARP / 2; distance > 0; distance /= 2)
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, distance));
    for (uint32_t i = lane; i < total; i += WARP) scores[i] = expf(scores[i] - most);
    __syncwarp();
    for (uint32_t i = lane % sums; i < total; i += sums) sum += scores[i];
    const float scale = 1.0f / lane_sum<sums>(sum);
    __syncwarp(); /* both halves of the warp have read the scores */
    for (uint32_t i = lane; i < total; i += WARP) scores[i] *= scale;
}

/* A group's score: its best expert, or with a bias the sum of its two best. */
static __device__ float score_group(const float *choice, uint32_t count, bool two)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        if (choice[i] > best) {
            second = best;
            best = choice[i];
        } else if (choice[i] > second) {
            second = choice[i];
        }
    }
    return two ? best + second : best;
}

/* Sets the choice of all experts outside the best groups to -INFINITY.  All lanes find the same
 * worst group. */
static __device__ void keep_best_groups(const struct route_room *room, uint32_t total,
                                        const struct cuda_router *router)
{
    const uint32_t size = total / router->groups;
    float *choice = room->choice, *scores = room->groups;
    for (uint32_t g = threadIdx.x; g < router->groups; g += WARP)
        scores[g] = score_group(choice + g * size, size, router->sigmoid);
    __syncwarp();
    for (uint32_t dropped = router->groups - router->top_groups; dropped > 0; dropped--) {
        uint32_t worst = router->groups;
        float worst_score = 0.0f;
        for (uint32_t g = 0; g < router->groups; g++) {
            if (choice[g * size] == -INFINITY) continue; /* dropped already */
            if (worst == router->groups || scores[g] <= worst_score) {
                worst = g; /* of equal groups the later one is dropped */
                worst_score = scores[g];
            }
        }
        __syncwarp(); /* all lanes have read the choice */
        if (worst == router->groups) return;
        for (uint32_t i = threadIdx.x; i < size; i += WARP) choice[worst * size + i] = -INFINITY;
        __syncwarp();
    }
}

/* An integer that is larger for a better expert: NaN is below every number, equal numbers are
 * equal integers.  0 is below all of them: an expert that has been chosen. */
static __device__ uint32_t choice_key(float x)
{
    const uint32_t bits = __float_as_uint(x), sign = 0x80000000u;
    if (x != x) return 1;
    if (x == 0.0f) return sign; /* of either sign */
    return bits & sign ? ~bits : bits | sign;
}

/* The best of the experts first … end - 1; of equal ones the lowest id. */
static __device__ uint32_t best_of(const uint32_t *keys, uint32_t first, uint32_t end,
                                   uint32_t *key)
{
    uint32_t best = first;
    *key = 0;
    for (uint32_t i = first; i < end; i++) {
        if (keys[i] > *key) {
            *key = keys[i];
            best = i;
        }
    }
    return best;
}

/* Takes the best expert `per_row` times, then lists those taken in ascending order. */
static __device__ void choose_best(const struct route_room *room, uint32_t per_row, uint32_t total)
{
    const uint32_t lane = threadIdx.x, share = (total + WARP - 1) / WARP;
    const uint32_t first = min(lane * share, total), end = min(first + share, total);
    for (uint32_t i = first; i < end; i++) room->keys[i] = choice_key(room->choice[i]);

    uint32_t key, best = best_of(room->keys, first, end, &key), taken = 0;
    for (uint32_t i = 0; i < per_row; i++) {
        uint32_t most = key;
        for (uint32_t distance = WARP / 2; distance > 0; distance /= 2)
            most = max(most, __shfl_xor_sync(ALL_LANES, most, distance));
        const uint32_t equal = __ballot_sync(ALL_LANES, key == most);
        if (lane == (uint32_t)__ffs((int)equal) - 1 && most > 0) {
            room->keys[best] = 0;
            taken++;
            best = best_of(room->keys, first, end, &key);
        }
    }

    uint32_t at = taken; /* how many the lanes up to this one have taken */
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const uint32_t before = __shfl_up_sync(ALL_LANES, at, distance);
        if (lane >= distance) at += before;
    }
    at -= taken;
    for (uint32_t i = first; i < end && taken > 0; i++)
        if (room->keys[i] == 0) room->chosen[at++] = i;
    __syncwarp();
}

/* The routes may be in the host's memory: every number is written once. */
static __device__ void write_routes(uint32_t *experts, float *weights, uint32_t per_row,
                                    const struct route_room *room, const struct cuda_router *router)
{
    float sum = 0.0f; /* in ascending order, as on the CPU; the same in all lanes */
    for (uint32_t i = 0; i < per_row; i++) sum += room->scores[room->chosen[i]];
    if (router->sigmoid) sum += 1e-20f; /* all scores may be 0 */
    for (uint32_t i = threadIdx.x; i < per_row; i += WARP) {
        const uint32_t id = room->chosen[i];
        float weight = room->scores[id];
        if (router->renormalise) weight /= sum;
        weight *= router->scale;
        if (router->scales) weight *= router->scales[id];
        experts[i] = id;
        weights[i] = weight;
    }
}

static __global__ void route_kernel(uint32_t *experts, float *weights, uint32_t per_row,
                                    const float *logits, uint32_t total, struct cuda_router router)
{
    float *const memory = block_memory<float>();
    const struct route_room room = route_room_at(memory, total, router.groups);
    const size_t row = blockIdx.x;
    for (uint32_t i = threadIdx.x; i < total; i += WARP) {
        const float logit = logits[row * total + i];
        room.scores[i] = router.sigmoid ? sigmoid_of_one(logit) : logit;
    }
    __syncwarp();
    if (!router.sigmoid) softmax_scores(room.scores, total);
    for (uint32_t i = threadIdx.x; i < total; i += WARP)
        room.choice[i] = room.scores[i] + (router.sigmoid ? router.bias[i] : 0.0f);
    __syncwarp();
    if (router.groups > 1) keep_best_groups(&room, total, &router);
    choose_best(&room, per_row, total);
    write_routes(experts + row * per_row, weights + row * per_row, per_row, &room, &router);
}

void cuda_route(cuda_stream stream, uint32_t *experts, float *weights, uint32_t per_row,
                float *logits, uint32_t row_count, uint32_t expert_count,
                const struct cuda_router *router)
{
    if (row_count == 0) return;
    const size_t bytes = route_room_bytes(expert_count, router->groups, per_row);
    start_kernel(route_kernel, row_count, WARP, bytes, stream, experts, weights, per_row, logits,
                 expert_count, *router);
}

/* ----------------------------------------------------------------------------- buckets */

constexpr uint32_t BUCKET_THREADS = 1024, ONE_ROW_THREADS = 256;

struct bucket_arguments {
    struct cuda_expert *out; /* [slots] */
    uint32_t *pairs;         /* [row_count][per_row] */
    const struct cuda_expert *table;
    const uint32_t *experts; /* [row_count][per_row], those of a row differ */
    uint32_t slots, expert_count, row_count, per_row;
};

/* Shared memory of the block, for every expert: */
struct bucket_room {
    unsigned long long *rows; /* of 64 rows, those that chose it */
    uint32_t *ids;            /* [used experts] their ids, in the same memory before `rows` */
    uint32_t *next;           /* where its next pair goes; at first the number of its pairs */
};

/* The sums over the threads before this one of x and of y. */
static __device__ void sums_before(uint32_t *x, uint32_t *y)
{
    __shared__ uint32_t sums[2][WARP]; /* of warps */
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t up_to[2] = { *x, *y };
#pragma unroll
    for (int k = 0; k < 2; k++) {
        for (uint32_t distance = 1; distance < WARP; distance *= 2) {
            const uint32_t before = __shfl_up_sync(ALL_LANES, up_to[k], distance);
            if (lane >= distance) up_to[k] += before;
        }
        if (lane == WARP - 1) sums[k][warp] = up_to[k];
    }
    __syncthreads();
    *x = up_to[0] - *x;
    *y = up_to[1] - *y;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        uint32_t before = lane < warp ? sums[k][lane] : 0;
        for (uint32_t distance = WARP / 2; distance > 0; distance /= 2)
            before += __shfl_xor_sync(ALL_LANES, before, distance);
        *(k == 0 ? x : y) += before;
    }
}

/* Counts every expert's pairs, gives it room for them and lists the experts that have some. */
static __device__ void count_pairs(const struct bucket_arguments *p, const struct bucket_room *room)
{
    const uint32_t pair_count = p->row_count * p->per_row, total = p->expert_count;
    const uint32_t share = (total + BUCKET_THREADS - 1) / BUCKET_THREADS;
    const uint32_t first = min(threadIdx.x * share, total), end = min(first + share, total);
    for (uint32_t i = threadIdx.x; i < total; i += BUCKET_THREADS) room->next[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pair_count; i += BUCKET_THREADS)
        atomicAdd(&room->next[p->experts[i]], 1);
    __syncthreads();

    uint32_t pairs = 0, used = 0;
    for (uint32_t id = first; id < end; id++) {
        pairs += room->next[id];
        used += room->next[id] > 0;
    }
    sums_before(&pairs, &used);
    for (uint32_t id = first; id < end; id++) {
        const uint32_t count = room->next[id];
        room->next[id] = pairs;
        if (count == 0) continue;
        p->out[used].pairs = p->pairs + pairs;
        p->out[used].pair_count = count;
        room->ids[used++] = id;
        pairs += count;
    }
    /* The last thread has counted all of them. */
    if (threadIdx.x == BUCKET_THREADS - 1) room->next[total] = used;
    __syncthreads();
}

/* Copies the weights of the experts `ids` to the first slots. */
static __device__ void copy_weights(const struct bucket_arguments *p, const uint32_t *ids,
                                    uint32_t count)
{
    constexpr uint32_t WORDS = offsetof(struct cuda_expert, pairs) / sizeof(uint64_t);
    for (uint32_t i = threadIdx.x; i < count * WORDS; i += blockDim.x) {
        const uint32_t slot = i / WORDS, word = i % WORDS;
        const struct cuda_expert *from = &p->table[ids[slot]];
        reinterpret_cast<uint64_t *>(&p->out[slot])[word] =
            reinterpret_cast<const uint64_t *>(from)[word];
    }
}

/* The experts of one row differ and ascend: they are the slots, with a pair each. */
static __device__ void fill_one_row(const struct bucket_arguments *p)
{
    copy_weights(p, p->experts, p->per_row);
    for (uint32_t i = threadIdx.x; i < p->per_row; i += blockDim.x) {
        p->pairs[i] = i;
        p->out[i].pairs = p->pairs + i;
        p->out[i].pair_count = 1;
    }
}

/* The used experts; slots behind them become empty. */
static __device__ void fill_slots(const struct bucket_arguments *p, const struct bucket_room *room)
{
    const uint32_t used = room->next[p->expert_count];
    copy_weights(p, room->ids, used);
    for (uint32_t slot = used + threadIdx.x; slot < p->slots; slot += BUCKET_THREADS) {
        p->out[slot].pairs = p->pairs;
        p->out[slot].pair_count = 0;
    }
    __syncthreads();
}

/* A pair's place among its expert's is the number of earlier rows that chose the expert, which one
 * row does once: bits of a mask, 64 rows at a time. */
static __device__ void fill_pairs(const struct bucket_arguments *p, const struct bucket_room *room)
{
    for (uint32_t row = 0; row < p->row_count; row += 64) {
        const uint32_t first = row * p->per_row, rows = min(p->row_count - row, 64u);
        const uint32_t end = first + rows * p->per_row;
        for (uint32_t i = threadIdx.x; i < p->expert_count; i += BUCKET_THREADS) room->rows[i] = 0;
        __syncthreads();
        for (uint32_t i = first + threadIdx.x; i < end; i += BUCKET_THREADS)
            atomicOr(&room->rows[p->experts[i]], 1ull << (i / p->per_row - row));
        __syncthreads();
        for (uint32_t i = first + threadIdx.x; i < end; i += BUCKET_THREADS) {
            const uint32_t id = p->experts[i];
            const unsigned long long earlier = (1ull << (i / p->per_row - row)) - 1;
            p->pairs[room->next[id] + (uint32_t)__popcll(room->rows[id] & earlier)] = i;
        }
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < p->expert_count; i += BUCKET_THREADS)
            room->next[i] += (uint32_t)__popcll(room->rows[i]);
    }
}

static __global__ void __launch_bounds__(BUCKET_THREADS) bucket_kernel(struct bucket_arguments p)
{
    unsigned long long *const bucket_memory = block_memory<unsigned long long>();
    struct bucket_room room;
    if (p.row_count == 1) {
        fill_one_row(&p);
        return;
    }
    room.rows = bucket_memory;
    room.ids = reinterpret_cast<uint32_t *>(bucket_memory);
    room.next = reinterpret_cast<uint32_t *>(bucket_memory + p.expert_count);
    count_pairs(&p, &room);
    fill_slots(&p, &room);
    fill_pairs(&p, &room);
}

void cuda_bucket(cuda_stream stream, struct cuda_expert *out, uint32_t slots, uint32_t *pairs,
                 const struct cuda_expert *table, uint32_t expert_count, const uint32_t *experts,
                 uint32_t row_count, uint32_t per_row)
{
    if (slots == 0) return;
    const struct bucket_arguments p = { out,   pairs,        table,     experts,
                                        slots, expert_count, row_count, per_row };
    /* 48 KiB at most for CUDA_EXPERTS_MAX experts. */
    const size_t bytes = expert_count * (sizeof(uint64_t) + sizeof(uint32_t)) + sizeof(uint32_t);
    start_kernel(bucket_kernel, 1, row_count == 1 ? ONE_ROW_THREADS : BUCKET_THREADS, bytes, stream,
                 p);
}

/* ------------------------------------------------------------------------------- sums */

constexpr uint32_t COMBINE_THREADS = 256;

struct combine_arguments {
    float *out;           /* [rows][width] */
    const float *answers; /* [rows][per_row][width] */
    const float *weights; /* [rows][per_row] */
    const float *shared;  /* [rows][width] or NULL */
    const float *scale;   /* [rows][1] or NULL */
    uint32_t per_row, width;
    bool add;
};

/* Blocks: (rows, columns).  The weights, which may be in the host's memory, are read once. */
static __global__ void combine_kernel(struct combine_arguments p)
{
    float *const memory = block_memory<float>(); /* [per_row] weights, then the shared expert's */
    const size_t row = blockIdx.x;
    const uint32_t column = blockIdx.y * COMBINE_THREADS + threadIdx.x;
    for (uint32_t i = threadIdx.x; i < p.per_row; i += COMBINE_THREADS)
        memory[i] = p.weights[row * p.per_row + i];
    if (threadIdx.x == 0) memory[p.per_row] = p.scale ? sigmoid_of_one(p.scale[row]) : 1.0f;
    __syncthreads();
    if (column >= p.width) return;

    const size_t at = row * p.width + column;
    const float *answer = p.answers + row * p.per_row * p.width + column;
    float sum = p.add ? p.out[at] : 0.0f;
#pragma unroll 4
    for (uint32_t i = 0; i < p.per_row; i++)
        sum = fmaf(memory[i], answer[(size_t)i * p.width], sum);
    if (p.shared) sum = fmaf(memory[p.per_row], p.shared[at], sum);
    p.out[at] = sum;
}

void cuda_combine(cuda_stream stream, float *out, const float *answers, const float *weights,
                  uint32_t per_row, const float *shared, const float *scale, uint32_t row_count,
                  uint32_t width, bool add)
{
    if (row_count == 0 || width == 0) return;
    const struct combine_arguments p = {
        out, answers, weights, shared, scale, per_row, width, add
    };
    const dim3 grid(row_count, blocks_for(width, COMBINE_THREADS));
    start_kernel(combine_kernel, grid, COMBINE_THREADS, (per_row + 1) * sizeof(float), stream, p);
}
