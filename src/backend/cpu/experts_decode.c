/* experts_decode.c: experts for generated tokens, in integers or, where weights are floats, in
 * floats.
 *
 *     routed rows ─ units ─▶ gate, up ─ silu ─▶ hidden rows ─ units ─▶ down ─▶ answers
 *
 * The workers share out units and rows of the matrices, and meet at each arrow.  Floats have no
 * units. */
#include "backend/cpu/cpu.h"

/* Rows of a matrix that one worker takes at a time: a kernel reads longer streams faster. */
enum { BLOCK_ROWS = 128 };

/* Rows of activations: routed ones, or a hidden one of each pair. */
struct activations {
    const float *floats; /* [rows][width] */
    size_t width;
    struct integer_unit *units; /* the same in integers; NULL: not wanted */
};

struct decode_experts {
    const struct expert_job *job;
    struct activations rows, hidden;
};

/* Some rows of a matrix with some of activations. */
struct decode_block {
    const struct weight *weight;
    uint64_t first;
    size_t count;
    const struct activations *from;
    const size_t *x;   /* x_rows numbers of rows */
    float *const *out; /* x_rows pointers to `count` floats */
    size_t x_rows;
};

static void multiply_integers(const struct kernels *kernels, const struct decode_block *b)
{
    const struct integer_unit *x[ACTIVATION_ROWS];
    for (size_t j = 0; j < b->x_rows; j++)
        x[j] = b->from->units + b->x[j] * units_of(b->from->width);
    kernels->integer_dot[b->weight->format](&(struct integer_block){ .weight = b->weight,
                                                                     .first = b->first,
                                                                     .count = b->count,
                                                                     .x = x,
                                                                     .out = b->out,
                                                                     .x_rows = b->x_rows });
}

static void multiply_floats(const struct kernels *kernels, const struct decode_block *b)
{
    const float *x[ACTIVATION_ROWS];
    for (size_t j = 0; j < b->x_rows; j++) x[j] = b->from->floats + b->x[j] * b->from->width;
    kernels->float_dot[b->weight->format](&(struct float_block){ .weight = b->weight,
                                                                 .first = b->first,
                                                                 .count = b->count,
                                                                 .x = x,
                                                                 .out = b->out,
                                                                 .x_rows = b->x_rows });
}

static void multiply(const struct decode_experts *e, const struct decode_block *block)
{
    if (block->from->units)
        multiply_integers(e->job->kernels, block);
    else
        multiply_floats(e->job->kernels, block);
}

/* BLOCK_ROWS channels of silu(gate·x) ⊙ (up·x), for all of the expert's pairs. */
static void hidden_block(const struct decode_experts *e, const struct expert_work *work,
                         uint64_t first)
{
    const struct expert_batch *batch = e->job->batch;
    size_t width = work->view.gate.rows, count = min_size(BLOCK_ROWS, width - first);
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        size_t x[ACTIVATION_ROWS];
        float gates[ACTIVATION_ROWS][BLOCK_ROWS], ups[ACTIVATION_ROWS][BLOCK_ROWS];
        float *gate_rows[ACTIVATION_ROWS], *up_rows[ACTIVATION_ROWS];
        size_t rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        for (size_t j = 0; j < rows; j++) {
            x[j] = work->pairs[p + j] / batch->per_row;
            gate_rows[j] = gates[j];
            up_rows[j] = ups[j];
        }
        struct decode_block block = { .weight = &work->view.gate,
                                      .first = first,
                                      .count = count,
                                      .from = &e->rows,
                                      .x = x,
                                      .out = gate_rows,
                                      .x_rows = rows };
        multiply(e, &block);
        block.weight = &work->view.up;
        block.out = up_rows;
        multiply(e, &block);
        for (size_t j = 0; j < rows; j++)
            e->job->kernels->silu_multiply(batch->hidden + work->pairs[p + j] * width + first,
                                           gates[j], ups[j], count);
    }
}

/* BLOCK_ROWS channels of down·hidden, for all of the expert's pairs. */
static void answer_block(const struct decode_experts *e, const struct expert_work *work,
                         uint64_t first)
{
    const struct weight *down = &work->view.down;
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        size_t x[ACTIVATION_ROWS];
        float *out[ACTIVATION_ROWS];
        size_t rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        for (size_t j = 0; j < rows; j++) {
            x[j] = work->pairs[p + j];
            out[j] = e->job->batch->answers + work->pairs[p + j] * down->rows + first;
        }
        multiply(e, &(struct decode_block){ .weight = down,
                                            .first = first,
                                            .count = min_size(BLOCK_ROWS, down->rows - first),
                                            .from = &e->hidden,
                                            .x = x,
                                            .out = out,
                                            .x_rows = rows });
    }
}

static void make_row_units(const struct decode_experts *e)
{
    const struct expert_batch *batch = e->job->batch;
    const struct activations *a = &e->rows;
    for (size_t r = 0; r < batch->row_count; r++) {
        if (!batch->spans[batch->rows[r].span].decode) continue;
        cpu_make_units(a->units + r * units_of(a->width), e->job->kernels, e->job->worker,
                       a->floats + r * a->width, a->width);
    }
    cpu_expert_meet(e->job, "rows to integers", batch->work_count);
}

/* Each worker the units of some pairs, every pair of the batch being in one work. */
static void make_hidden_units(const struct decode_experts *e)
{
    const struct expert_batch *batch = e->job->batch;
    const struct activations *a = &e->hidden;
    size_t turn = 0;
    for (size_t i = 0; i < batch->work_count; i++) {
        for (size_t p = 0; p < batch->works[i].pair_count; p++, turn++) {
            if (turn % e->job->worker.count != e->job->worker.index) continue;
            uint32_t pair = batch->works[i].pairs[p];
            e->job->kernels->make_units(a->units + pair * units_of(a->width),
                                        a->floats + pair * a->width, a->width);
        }
    }
    cpu_expert_meet(e->job, "hidden to integers", batch->work_count);
}

typedef void (*block_function)(const struct decode_experts *e, const struct expert_work *work,
                               uint64_t first);

/* All experts' blocks of rows, shared out. */
static void run_blocks(const struct decode_experts *e, uint64_t rows, block_function run)
{
    const struct expert_batch *batch = e->job->batch;
    size_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    struct handout handout = handout_begin(e->job->worker, batch->work_count * blocks, 1);
    for (struct share part; handout_next(&handout, &part);)
        for (size_t i = part.begin; i < part.end; i++)
            run(e, &batch->works[i / blocks], i % blocks * BLOCK_ROWS);
}

static void run_experts(const struct expert_job *job, bool integers)
{
    const struct expert_batch *batch = job->batch;
    const struct expert_view *view = &batch->works[0].view;
    struct decode_experts e = { .job = job,
                                .rows = { batch->routed, view->gate.cols, NULL },
                                .hidden = { batch->hidden, view->down.cols, NULL } };
    if (integers) {
        e.rows.units = (struct integer_unit *)(void *)job->shared;
        e.hidden.units = e.rows.units + batch->row_count * units_of(e.rows.width);
        make_row_units(&e);
    }
    run_blocks(&e, view->gate.rows, hidden_block);
    cpu_expert_meet(job, "gate and up", batch->work_count);
    if (integers) make_hidden_units(&e);
    run_blocks(&e, view->down.rows, answer_block);
    cpu_expert_done(job, "down", batch->work_count);
}

void cpu_experts_integers(const struct expert_job *job)
{
    run_experts(job, true);
}

void cpu_experts_floats(const struct expert_job *job)
{
    run_experts(job, false);
}
