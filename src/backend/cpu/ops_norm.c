/* ops_norm.c: norms and gates, row by row. */
#include "backend/cpu/cpu.h"

#include "model/weights.h"

void cpu_rms_norm(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        job->kernels->rms_norm(job_row(job, op->out, r), job_row(job, op->a, r),
                               weight_vector(job_weight(job, op->weight)), op->epsilon,
                               job_width(job, op->a));
}

void cpu_head_norm(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share heads = worker_share(job->worker, job->frame->row_count * op->heads, 1);
    for (size_t i = heads.begin; i < heads.end; i++) {
        float *head = job_row(job, op->a, i / op->heads) + i % op->heads * op->head_width;
        job->kernels->rms_norm(head, head, weight_vector(job_weight(job, op->weight)), op->epsilon,
                               op->head_width);
    }
}

void cpu_sigmoid_multiply(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        job->kernels->sigmoid_multiply(job_row(job, op->out, r), job_row(job, op->a, r),
                                       job_row(job, op->b, r), job_width(job, op->a));
}

void cpu_silu_multiply(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        job->kernels->silu_multiply(job_row(job, op->out, r), job_row(job, op->a, r),
                                    job_row(job, op->b, r), job_width(job, op->a));
}
