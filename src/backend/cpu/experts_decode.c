/* experts_integers.c: experts for generated tokens, in integers.
 *
 *     routed rows ─ units ─▶ gate, up ─ silu ─▶ hidden rows ─ units ─▶ down ─▶ answers
 *
 * The workers share out units and rows of the matrices, and meet at each arrow. */
#include "backend/cpu/cpu.h"

/* Rows of a matrix that one worker takes at a time: a kernel reads longer streams faster. */
enum { BLOCK_ROWS = 128 };

struct integer_experts {
    const struct expert_job *job;
    struct integer_unit *rows;   /* [row_count][units of width] */
    struct integer_unit *hidden; /* [pairs][units of expert width] */
    size_t row_units, hidden_units;
};

static void multiply(const struct integer_experts *e, const struct integer_block *block)
{
    e->job->kernels->integer_dot[block->weight->format](block);
}

/* BLOCK_ROWS channels of silu(gate·x) ⊙ (up·x), for all of the expert's pairs. */
static void hidden_block(const struct integer_experts *e, const struct expert_work *work,
                         uint64_t first)
{
    const struct expert_batch *batch = e->job->batch;
    size_t width = work->view.gate.rows, count = min_size(BLOCK_ROWS, width - first);
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        const struct integer_unit *x[ACTIVATION_ROWS];
        float gates[ACTIVATION_ROWS][BLOCK_ROWS], ups[ACTIVATION_ROWS][BLOCK_ROWS];
        float *gate_rows[ACTIVATION_ROWS], *up_rows[ACTIVATION_ROWS];
        size_t rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        for (size_t j = 0; j < rows; j++) {
            x[j] = e->rows + work->pairs[p + j] / batch->per_row * e->row_units;
            gate_rows[j] = gates[j];
            up_rows[j] = ups[j];
        }
        struct integer_block block = { .weight = &work->view.gate,
                                       .first = first,
                                       .count = count,
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
static void answer_block(const struct integer_experts *e, const struct expert_work *work,
                         uint64_t first)
{
    const struct weight *down = &work->view.down;
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        const struct integer_unit *x[ACTIVATION_ROWS];
        float *out[ACTIVATION_ROWS];
        size_t rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        for (size_t j = 0; j < rows; j++) {
            x[j] = e->hidden + work->pairs[p + j] * e->hidden_units;
            out[j] = e->job->batch->answers + work->pairs[p + j] * down->rows + first;
        }
        multiply(e, &(struct integer_block){ .weight = down,
                                             .first = first,
                                             .count = min_size(BLOCK_ROWS, down->rows - first),
                                             .x = x,
                                             .out = out,
                                             .x_rows = rows });
    }
}

static void make_row_units(const struct integer_experts *e)
{
    const struct expert_batch *batch = e->job->batch;
    size_t width = batch->works[0].view.gate.cols;
    for (size_t r = 0; r < batch->row_count; r++) {
        if (!batch->spans[batch->rows[r].span].decode) continue;
        cpu_make_units(e->rows + r * e->row_units, e->job->kernels, e->job->worker,
                       batch->routed + r * width, width);
    }
}

/* Each worker the units of some pairs, every pair of the batch being in one work. */
static void make_hidden_units(const struct integer_experts *e)
{
    const struct expert_batch *batch = e->job->batch;
    size_t width = batch->works[0].view.down.cols, turn = 0;
    for (size_t i = 0; i < batch->work_count; i++) {
        for (size_t p = 0; p < batch->works[i].pair_count; p++, turn++) {
            if (turn % e->job->worker.count != e->job->worker.index) continue;
            uint32_t pair = batch->works[i].pairs[p];
            e->job->kernels->make_units(e->hidden + pair * e->hidden_units,
                                        batch->hidden + pair * width, width);
        }
    }
}

typedef void (*block_function)(const struct integer_experts *e, const struct expert_work *work,
                               uint64_t first);

/* All experts' blocks of rows, shared out. */
static void run_blocks(const struct integer_experts *e, uint64_t rows, block_function run)
{
    const struct expert_batch *batch = e->job->batch;
    size_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    struct handout handout = handout_begin(e->job->worker, batch->work_count * blocks, 1);
    for (struct share part; handout_next(&handout, &part);)
        for (size_t i = part.begin; i < part.end; i++)
            run(e, &batch->works[i / blocks], i % blocks * BLOCK_ROWS);
}

void cpu_experts_integers(const struct expert_job *job)
{
    const struct expert_view *view = &job->batch->works[0].view;
    struct integer_experts e = { .job = job,
                                 .rows = (struct integer_unit *)(void *)job->shared,
                                 .row_units = units_of(view->gate.cols),
                                 .hidden_units = units_of(view->down.cols) };
    e.hidden = e.rows + job->batch->row_count * e.row_units;
    size_t experts = job->batch->work_count;
    make_row_units(&e);
    cpu_expert_meet(job, "rows to integers", experts);
    run_blocks(&e, view->gate.rows, hidden_block);
    cpu_expert_meet(job, "gate and up", experts);
    make_hidden_units(&e);
    cpu_expert_meet(job, "hidden to integers", experts);
    run_blocks(&e, view->down.rows, answer_block);
    cpu_expert_done(job, "down", experts);
}
