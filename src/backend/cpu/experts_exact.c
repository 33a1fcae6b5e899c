/* experts_exact.c: experts in the reference's arithmetic. */
#include "backend/cpu/cpu.h"

static size_t blocks_of(const struct weight *weight)
{
    return (weight->rows + MATRIX_ROWS - 1) / MATRIX_ROWS;
}

static struct matrix_block block_at(const struct weight *weight, size_t index)
{
    uint64_t first = index * MATRIX_ROWS;
    return (struct matrix_block){ .weight = weight,
                                  .first = first,
                                  .count = min_size(MATRIX_ROWS, weight->rows - first) };
}

/* MATRIX_ROWS channels of act(gate·x) ⊙ (up·x), for all of the expert's pairs. */
static void hidden_block(const struct expert_job *job, const struct expert_work *work, size_t index)
{
    const struct expert_batch *batch = job->batch;
    size_t cols = work->view->gate.cols, hidden_width = work->view->gate.rows;
    struct matrix_block gate = block_at(&work->view->gate, index);
    struct matrix_block up = block_at(&work->view->up, index);
    cpu_load_block(&gate, job->kernels, job->scratch);
    cpu_load_block(&up, job->kernels, job->scratch + MATRIX_ROWS * cols);
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        const float *x[ACTIVATION_ROWS];
        float gates[ACTIVATION_ROWS][MATRIX_ROWS], ups[ACTIVATION_ROWS][MATRIX_ROWS];
        size_t rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        for (size_t j = 0; j < rows; j++)
            x[j] = batch->routed + work->pairs[p + j] / batch->per_row * cols;
        cpu_multiply_block(gates, &gate, job->kernels, x, rows);
        cpu_multiply_block(ups, &up, job->kernels, x, rows);
        for (size_t j = 0; j < rows; j++) {
            float *out = batch->hidden + work->pairs[p + j] * hidden_width + gate.first;
            cpu_add_addends(gates[j], &work->view->gate_addends, gate.first, gate.count);
            cpu_add_addends(ups[j], &work->view->up_addends, up.first, up.count);
            job->kernels->gate_multiply[batch->activation](out, gates[j], ups[j], gate.count);
        }
    }
}

/* MATRIX_ROWS channels of down·hidden, for all of the expert's pairs. */
static void answer_block(const struct expert_job *job, const struct expert_work *work, size_t index)
{
    const struct expert_batch *batch = job->batch;
    const struct weight *weight = &work->view->down;
    struct matrix_block down = block_at(weight, index);
    cpu_load_block(&down, job->kernels, job->scratch);
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        const float *x[ACTIVATION_ROWS];
        float results[ACTIVATION_ROWS][MATRIX_ROWS];
        size_t rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        for (size_t j = 0; j < rows; j++) x[j] = batch->hidden + work->pairs[p + j] * weight->cols;
        cpu_multiply_block(results, &down, job->kernels, x, rows);
        for (size_t j = 0; j < rows; j++) {
            cpu_add_addends(results[j], &work->view->down_addends, down.first, down.count);
            memcpy(batch->answers + work->pairs[p + j] * weight->rows + down.first, results[j],
                   down.count * sizeof(float));
        }
    }
}

/* All experts of a batch are cut into blocks of rows, and the blocks shared out:
 * with few rows and many experts, or the reverse, workers finish together. */
void cpu_experts_exact(const struct expert_job *job)
{
    const struct expert_batch *batch = job->batch;
    size_t blocks = blocks_of(&batch->works[0].view->gate);
    struct share share = worker_share(job->worker, batch->work_count * blocks, 1);
    for (size_t i = share.begin; i < share.end; i++)
        hidden_block(job, &batch->works[i / blocks], i % blocks);
    cpu_expert_meet(job, "gate and up", batch->work_count);

    blocks = blocks_of(&batch->works[0].view->down);
    share = worker_share(job->worker, batch->work_count * blocks, 1);
    for (size_t i = share.begin; i < share.end; i++)
        answer_block(job, &batch->works[i / blocks], i % blocks);
    cpu_expert_done(job, "down", batch->work_count);
}
