/* ops_matrix.c: embedding rows and products with resident matrices. */
#include "backend/cpu/cpu.h"

void cpu_embed(const struct cpu_job *job)
{
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++)
        kernels_dequantise(job->kernels, job_row(job, job->op->out, r),
                           job_weight(job, job->op->weight), (uint64_t)job->frame->tokens[r]);
}

/* Consecutive rows in the same arithmetic.  Rows without a sequence (of logits) are decoded. */
struct run {
    size_t first, count;
    bool decode;
};

static bool row_decodes(const struct cpu_job *job, size_t row)
{
    const struct frame *frame = job->frame;
    return !frame->rows || cpu_decodes(job->kernels, frame->spans, &frame->rows[row]);
}

static bool next_run(struct run *run, const struct cpu_job *job)
{
    run->first += run->count;
    if (run->first == job->frame->row_count) return false;
    run->decode = row_decodes(job, run->first);
    run->count = 1;
    while (run->first + run->count < job->frame->row_count &&
           row_decodes(job, run->first + run->count) == run->decode)
        run->count++;
    return true;
}

/* A small error here changes a choice or a gate for all channels: always f32. */
static bool is_sensitive(enum weight_id id)
{
    return id == WEIGHT_ROUTER || id == WEIGHT_SHARED_SCALE || id == WEIGHT_DELTA_A ||
           id == WEIGHT_DELTA_B;
}

typedef void (*product_way)(const struct product *product);

static product_way choose_way(const struct cpu_job *job, enum weight_id id, bool decode)
{
    if (job->exact || is_sensitive(id)) return cpu_multiply_exact;
    if (!decode) return job->kernels->matrix ? cpu_multiply_matrix : cpu_multiply_exact;
    const struct weight *weight = job_weight(job, id);
    if (kernels_have_integers(job->kernels, weight)) return cpu_multiply_integers;
    return kernels_have_floats(job->kernels, weight) ? cpu_multiply_floats : cpu_multiply_exact;
}

/* Has the operation before this one left the same rows in `shared`, as this way wants them? */
static bool is_prepared(const struct cpu_job *job, const struct run *run, product_way way)
{
    const struct op *op = job->op;
    if (op == job->graph->ops || run->count != job->frame->row_count) return false;
    const struct op *before = op - 1;
    if (before->kind != OP_PROJECT || before->a.id != op->a.id ||
        choose_way(job, before->weight, run->decode) != way)
        return false;
    const struct kernels *k = job->kernels;
    const struct weight *last = job_weight(job, before->weight), *now = job_weight(job, op->weight);
    return last->cols == now->cols && kernels_matrix(k, last) == kernels_matrix(k, now) &&
           (way != cpu_multiply_integers ||
            kernels_unit_order(k, last) == kernels_unit_order(k, now));
}

static void project(const struct cpu_job *job, bool add)
{
    const struct op *op = job->op;
    struct run run = { 0 };
    while (next_run(&run, job)) {
        if (run.first > 0) worker_barrier(job->worker); /* `shared` is used again */
        product_way way = choose_way(job, op->weight, run.decode);
        way(&(struct product){ .kernels = job->kernels,
                               .worker = job->worker,
                               .scratch = job->scratch,
                               .shared = job->shared,
                               .weight = job_weight(job, op->weight),
                               .x = job_row(job, op->a, run.first),
                               .out = job_row(job, op->out, run.first),
                               .x_rows = run.count,
                               .x_stride = job_width(job, op->a),
                               .out_stride = job_width(job, op->out),
                               .prepared = is_prepared(job, &run, way),
                               .add = add });
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
