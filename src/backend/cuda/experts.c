/* experts.c: the experts of a batch, generated rows and prompt rows apart. */
#include "backend/cuda/device.h"

#include "model/weights.h"

/* The works whose experts are on the device together, for one launch. */
struct gathered {
    const struct expert_work *works[512];
    const struct cuda_expert *experts[512];
    size_t count, pairs;
};

static bool decodes(const struct expert_batch *batch, uint32_t pair)
{
    return batch->spans[batch->rows[pair / batch->per_row].span].decode;
}

/* The pairs of one phase, in their order. */
static uint32_t take_pairs(uint32_t *out, const struct expert_batch *batch,
                           const struct expert_work *work, bool decode)
{
    uint32_t count = 0;
    for (size_t i = 0; i < work->pair_count; i++)
        if (decodes(batch, work->pairs[i]) == decode) out[count++] = work->pairs[i];
    return count;
}

/* A format that all have, or -1. */
static int common_format(int before, int format, bool first)
{
    return first || before == format ? format : -1;
}

static void launch_phase(struct cuda_backend *b, const struct expert_batch *batch,
                         const struct gathered *gathered, bool decode)
{
    size_t table_bytes = gathered->count * sizeof(struct cuda_expert);
    struct staged *staged = cuda_stage(b, table_bytes + gathered->pairs * sizeof(uint32_t), 2);
    void *device_table, *device_pairs;
    if (!staged) return;
    struct cuda_expert *table = staged_room(staged, table_bytes, &device_table);
    uint32_t *pairs = staged_room(staged, gathered->pairs * sizeof *pairs, &device_pairs);
    const struct expert_view *shape = batch->works[0].view;
    struct cuda_experts out = { .experts = device_table,
                                .per_row = batch->per_row,
                                .activation = (int)batch->activation,
                                .width = (uint32_t)shape->down.rows,
                                .expert_width = (uint32_t)shape->down.cols,
                                .decode = decode,
                                .routed = batch->routed,
                                .hidden = batch->hidden,
                                .answers = batch->answers };
    size_t used = 0;
    for (size_t i = 0; i < gathered->count; i++) {
        uint32_t count = take_pairs(pairs + used, batch, gathered->works[i], decode);
        if (count == 0) continue;
        struct cuda_expert *expert = &table[out.expert_count];
        bool first = out.expert_count == 0;
        *expert = *gathered->experts[i];
        expert->pairs = (const uint32_t *)device_pairs + used;
        expert->pair_count = count;
        out.gate_format = common_format(out.gate_format, expert->gate.format, first);
        out.up_format = common_format(out.up_format, expert->up.format, first);
        out.down_format = common_format(out.down_format, expert->down.format, first);
        if (count > out.most_pairs) out.most_pairs = count;
        out.expert_count++;
        used += count;
    }
    cuda_send(b, staged);
    if (out.expert_count > 0 && (decode || b->exact))
        cuda_run_experts(b->stream, &out);
    else if (out.expert_count > 0)
        cuda_run_experts_matrix(b->stream, &out);
    cuda_note(b, cudaEventRecord(staged->sent, b->stream));
}

static mf_status launch(struct cuda_backend *b, const struct expert_batch *batch,
                        struct gathered *gathered, mf_error *why)
{
    if (gathered->count > 0) {
        launch_phase(b, batch, gathered, true);
        launch_phase(b, batch, gathered, false);
    }
    gathered->count = gathered->pairs = 0;
    b->launch++;
    return cuda_check(b, why);
}

mf_status cuda_run_held_experts(struct backend *backend, const struct expert_batch *batch,
                                mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    uint32_t total;
    const struct cuda_expert *table = cuda_held_experts(b, batch->layer, &total);
    size_t pairs = batch->row_count * batch->per_row, slots = min_size(pairs, total);
    size_t slot_bytes = align_up(slots * sizeof *table, CACHE_LINE);
    const struct expert_matrix *matrices = batch->layer->experts;
    if (!table || pairs != b->route_pairs)
        return fail(why, MF_ERR_ARGUMENT,
                    "the device holds no experts, or no routes, of this step");
    size_t bytes = slot_bytes + pairs * sizeof(uint32_t);
    if (!cuda_grow(b, &b->buckets, &b->buckets_bytes, bytes))
        return cuda_fail_memory(why, b, bytes);
    struct cuda_expert *experts = b->buckets;
    cuda_bucket(b->stream, experts, (uint32_t)slots,
                (uint32_t *)((uint8_t *)b->buckets + slot_bytes), table, total, b->routes,
                (uint32_t)batch->row_count, batch->per_row);
    struct cuda_experts out = { .experts = experts,
                                .expert_count = (uint32_t)slots,
                                .most_pairs = (uint32_t)batch->row_count,
                                .per_row = batch->per_row,
                                .activation = (int)batch->activation,
                                .width = (uint32_t)matrices[EXPERT_DOWN].shape.rows,
                                .expert_width = (uint32_t)matrices[EXPERT_DOWN].shape.cols,
                                .gate_format = (int)matrices[EXPERT_GATE].shape.format,
                                .up_format = (int)matrices[EXPERT_UP].shape.format,
                                .down_format = (int)matrices[EXPERT_DOWN].shape.format,
                                .decode = true,
                                .routed = batch->routed,
                                .hidden = batch->hidden,
                                .answers = batch->answers };
    cuda_run_experts(b->stream, &out);
    return cuda_check(b, why);
}

mf_status cuda_run_expert_batch(struct backend *backend, const struct expert_batch *batch,
                                mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    struct gathered gathered = { .count = 0 };
    mf_status status = MF_OK;
    b->launch++;
    for (size_t i = 0; i < batch->work_count && status == MF_OK; i++) {
        const struct expert_work *work = &batch->works[i];
        const struct cuda_expert *expert;
        status = cuda_expert_on_device(&expert, b, batch->layer, work, why);
        if (status == MF_OK && !expert) {
            status = launch(b, batch, &gathered, why);
            if (status == MF_OK)
                status = cuda_expert_on_device(&expert, b, batch->layer, work, why);
        }
        if (status != MF_OK) break;
        gathered.works[gathered.count] = work;
        gathered.experts[gathered.count++] = expert;
        gathered.pairs += work->pair_count;
        if (gathered.count == COUNT_OF(gathered.works)) status = launch(b, batch, &gathered, why);
    }
    if (status == MF_OK) status = launch(b, batch, &gathered, why);
    cuda_wait_for_copies(b);
    return status;
}
