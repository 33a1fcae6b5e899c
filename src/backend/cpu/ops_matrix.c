/* ops_matrix.c: embedding rows and products with resident matrices. */
#include "backend/cpu/cpu.h"

void cpu_embed(const struct cpu_job *job)
{
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        kernels_dequantise(job->kernels, job_row(job, job->op->out, r),
                           job_weight(job, job->op->weight), (uint64_t)job->frame->tokens[r]);
}

void cpu_load_block(struct matrix_block *block, const struct kernels *kernels, float *scratch)
{
    const struct weight *w = block->weight;
    if (w->format == FORMAT_F32 && (uintptr_t)w->values % sizeof(float) == 0) {
        block->dequantised = (const float *)(const void *)(w->values + block->first * w->row_bytes);
        return;
    }
    for (size_t i = 0; i < block->count; i++)
        kernels_dequantise(kernels, scratch + i * w->cols, w, block->first + i);
    block->dequantised = scratch;
}

void cpu_multiply_block(float results[ACTIVATION_ROWS][MATRIX_ROWS],
                        const struct matrix_block *block, const struct kernels *kernels,
                        const float *const *x, size_t x_rows)
{
    float *out[ACTIVATION_ROWS];
    for (size_t j = 0; j < x_rows; j++) out[j] = results[j];
    kernels->dot_block(&(struct dot_block){ .w = block->dequantised,
                                            .x = x,
                                            .out = out,
                                            .w_rows = block->count,
                                            .x_rows = x_rows,
                                            .n = block->weight->cols });
}

/* Each worker has some rows of the matrix, dequantises them once and multiplies
 * them with all rows of activations. */
static void project(const struct cpu_job *job, bool add)
{
    const struct op *op = job->op;
    struct matrix_block block = { .weight = job_weight(job, op->weight) };
    struct share share = worker_share(job->worker, block.weight->rows, MATRIX_ROWS);
    for (block.first = share.begin; block.first < share.end; block.first += MATRIX_ROWS) {
        block.count = min_size(MATRIX_ROWS, share.end - block.first);
        cpu_load_block(&block, job->kernels, job->scratch);
        for (size_t r = 0; r < job->frame->row_count; r += ACTIVATION_ROWS) {
            const float *x[ACTIVATION_ROWS];
            float results[ACTIVATION_ROWS][MATRIX_ROWS];
            size_t rows = min_size(ACTIVATION_ROWS, job->frame->row_count - r);
            for (size_t j = 0; j < rows; j++) x[j] = job_row(job, op->a, r + j);
            cpu_multiply_block(results, &block, job->kernels, x, rows);
            for (size_t j = 0; j < rows; j++) {
                float *out = job_row(job, op->out, r + j) + block.first;
                for (size_t i = 0; i < block.count; i++)
                    out[i] = add ? out[i] + results[j][i] : results[j][i];
            }
        }
    }
}

void cpu_project(const struct cpu_job *job)
{
    project(job, false);
}

void cpu_add_project(const struct cpu_job *job)
{
    project(job, true);
}
