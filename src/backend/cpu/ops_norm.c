/* ops_norm.c: norms, biases and gates, row by row. */
#include "backend/cpu/cpu.h"

#include "model/weights.h"

#include <math.h>

void cpu_rms_norm(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        job->kernels->rms_norm(job_row(job, op->out, r), job_row(job, op->a, r),
                               weight_vector(job_weight(job, op->weight)), op->epsilon,
                               job_width(job, op->a));
}

void cpu_add_rms_norm(const struct cpu_job *job)
{
    const struct op *op = job->op;
    size_t width = job_width(job, op->a);
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++) {
        job->kernels->rms_norm(job->scratch, job_row(job, op->a, r),
                               weight_vector(job_weight(job, op->weight)), op->epsilon, width);
        job->kernels->add_scaled(job_row(job, op->out, r), job->scratch, 1.0f, width);
    }
}

void cpu_copy(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        memcpy(job_row(job, op->out, r), job_row(job, op->a, r),
               job_width(job, op->a) * sizeof(float));
}

void cpu_scale(const struct cpu_job *job)
{
    const struct op *op = job->op;
    float factor = weight_vector(job_weight(job, op->weight))[0];
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++) {
        float *x = job_row(job, op->a, r);
        for (size_t i = 0; i < job_width(job, op->a); i++) x[i] *= factor;
    }
}

/* Workers share the numbers of a row, because rows of logits are few and long. */
void cpu_soft_cap(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share part = worker_share(job->worker, job_width(job, op->a), 16);
    for (size_t r = 0; r < job->frame->row_count; r++)
        job->kernels->soft_cap(job_row(job, op->a, r) + part.begin, op->factor,
                               part.end - part.begin);
}

void cpu_head_norm(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share heads = worker_share(job->worker, job->frame->row_count * op->heads, 1);
    for (size_t i = heads.begin; i < heads.end; i++) {
        float *head = job_row(job, op->a, i / op->heads) + i % op->heads * op->head_width;
        if (op->weight == NO_WEIGHT)
            job->kernels->unit_norm(head, sqrtf((float)op->head_width),
                                    op->epsilon * (float)op->head_width, op->head_width);
        else
            job->kernels->rms_norm(head, head, weight_vector(job_weight(job, op->weight)),
                                   op->epsilon, op->head_width);
    }
}

void cpu_add_bias(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        job->kernels->add_scaled(job_row(job, op->a, r), weight_vector(job_weight(job, op->weight)),
                                 1.0f, job_width(job, op->a));
}

void cpu_sigmoid_multiply(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        job->kernels->sigmoid_multiply(job_row(job, op->out, r), job_row(job, op->a, r),
                                       job_row(job, op->b, r), job_width(job, op->a));
}

void cpu_activate(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        job->kernels->gate_multiply[op->activation](job_row(job, op->out, r),
                                                    job_row(job, op->a, r), job_row(job, op->b, r),
                                                    job_width(job, op->a));
}
