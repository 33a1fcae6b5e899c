/* ops_matrix.c: embedding rows and products with resident matrices. */
#include "backend/cpu/cpu.h"

void cpu_embed(const struct cpu_job *job)
{
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++) {
        float *x = job_row(job, job->op->out, r);
        kernels_dequantise(job->kernels, x, job_weight(job, job->op->weight),
                           (uint64_t)job->frame->tokens[r]);
        for (size_t i = 0; job->op->factor != 1.0f && i < job_width(job, job->op->out); i++)
            x[i] *= job->op->factor;
    }
}

/* A small error here changes a choice or a gate for all channels: always f32. */
static bool is_sensitive(enum weight_id id)
{
    return id == WEIGHT_ROUTER || id == WEIGHT_SHARED_SCALE || id == WEIGHT_DELTA_A ||
           id == WEIGHT_DELTA_B;
}

static const struct product_way *choose_way(const struct cpu_job *job, enum weight_id id,
                                            bool decode)
{
    if (job->exact || is_sensitive(id)) return &cpu_exact_way;
    if (!decode) return job->kernels->matrix ? &cpu_matrix_way : &cpu_exact_way;
    const struct weight *weight = job_weight(job, id);
    if (kernels_have_integers(job->kernels, weight)) return &cpu_integer_way;
    return kernels_have_floats(job->kernels, weight) ? &cpu_float_way : &cpu_exact_way;
}

/* Consecutive rows in the same arithmetic.  Rows without a sequence (of logits) are decoded. */
struct run {
    size_t first, count;
    const struct product_way *way;
};

static bool row_decodes(const struct cpu_job *job, size_t row)
{
    const struct frame *frame = job->frame;
    size_t start_rows = kernels_start_rows(job->kernels, job_weight(job, job->op->weight));
    return !frame->rows || cpu_decodes(frame->spans, &frame->rows[row], start_rows);
}

static bool next_run(struct run *run, const struct cpu_job *job)
{
    run->first += run->count;
    if (run->first == job->frame->row_count) return false;
    bool decode = row_decodes(job, run->first);
    run->way = choose_way(job, job->op->weight, decode);
    run->count = 1;
    while (run->first + run->count < job->frame->row_count &&
           row_decodes(job, run->first + run->count) == decode)
        run->count++;
    return true;
}

static struct product product_of(const struct cpu_job *job, const struct run *run)
{
    const struct op *op = job->op;
    return (struct product){ .kernels = job->kernels,
                             .worker = job->worker,
                             .scratch = job->scratch,
                             .weight = job_weight(job, op->weight),
                             .x = job_row(job, op->a, run->first),
                             .out = job_row(job, op->out, run->first),
                             .x_rows = run->count,
                             .x_stride = job_width(job, op->a),
                             .out_stride = job_width(job, op->out),
                             .add = op->kind == OP_ADD_PROJECT };
}

/* Has the operation before this one left the same rows in `shared`, as this one wants them? */
static bool is_prepared(const struct cpu_job *job)
{
    const struct op *op = job->op, *before = op - 1;
    if (op == job->graph->ops || before->kind != OP_PROJECT || before->a.id != op->a.id ||
        choose_way(job, before->weight, true) != choose_way(job, op->weight, true) ||
        choose_way(job, before->weight, false) != choose_way(job, op->weight, false))
        return false;
    const struct kernels *k = job->kernels;
    const struct weight *last = job_weight(job, before->weight), *now = job_weight(job, op->weight);
    return last->cols == now->cols && kernels_matrix(k, last) == kernels_matrix(k, now) &&
           kernels_unit_order(k, last) == kernels_unit_order(k, now);
}

/* What is done with the runs of a wave: those that are multiplied after one barrier. */
enum wave_step { WAVE_COUNT, WAVE_PREPARE, WAVE_MULTIPLY };

struct wave {
    struct run last; /* before the first walk: the last run of the wave before */
    size_t floats;   /* that are prepared in `shared` */
    bool is_last;
};

/* As many runs as fit: what is prepared for them lies side by side in `shared`, and at most one of
 * them is handed out.  As a rule that are all runs of the step. */
static struct wave walk_wave(const struct cpu_job *job, struct run last, enum wave_step step)
{
    struct wave wave = { .last = last };
    bool handed_out = false;
    for (struct run run = last; next_run(&run, job); wave.last = run) {
        struct product product = product_of(job, &run);
        size_t floats = run.way->prepared_floats(&product);
        if (wave.floats + floats > job->shared_floats || (handed_out && run.way->handed_out))
            return wave;
        product.prepared = job->shared + wave.floats;
        if (step == WAVE_PREPARE && floats > 0) run.way->prepare(&product);
        if (step == WAVE_MULTIPLY) run.way->multiply(&product);
        wave.floats += floats;
        handed_out = handed_out || run.way->handed_out;
    }
    wave.is_last = true;
    return wave;
}

static void project(const struct cpu_job *job)
{
    struct run last = { 0 };
    bool prepared = is_prepared(job) && walk_wave(job, last, WAVE_COUNT).is_last;
    for (struct wave wave = { 0 }; !wave.is_last; last = wave.last) {
        if (last.count > 0) worker_barrier(job->worker); /* `shared` is used again */
        if (!prepared && walk_wave(job, last, WAVE_PREPARE).floats > 0) worker_barrier(job->worker);
        wave = walk_wave(job, last, WAVE_MULTIPLY);
    }
}

void cpu_project(const struct cpu_job *job)
{
    project(job);
}

void cpu_add_project(const struct cpu_job *job)
{
    project(job);
}
