/* experts_matrix.c: experts for prompts, on the matrix unit.
 *
 * One expert after the other, all workers on each: its rows are packed, the workers
 * share out gate and up, whose products become the packs of hidden rows, then down. */
#include "backend/cpu/cpu.h"

/* Rows of gate, and as many of up, in one panel. */
enum { GATED_ROWS = 16 };

struct packed_expert {
    const struct expert_job *job;
    const struct expert_work *work;
    uint16_t *packs;  /* of the expert's rows */
    uint16_t *hidden; /* of its hidden rows */
};

static void pack_rows(const struct packed_expert *e)
{
    const struct expert_batch *batch = e->job->batch;
    size_t cols = e->work->view.gate.cols;
    for (size_t p = 0; p < e->work->pair_count; p += PACK_ROWS) {
        const float *x[PACK_ROWS];
        size_t rows = min_size(PACK_ROWS, e->work->pair_count - p);
        for (size_t j = 0; j < rows; j++)
            x[j] = batch->routed + e->work->pairs[p + j] / batch->per_row * cols;
        cpu_make_pack(e->packs + p * matrix_cols(cols), e->job->kernels, e->job->worker, x, rows,
                      cols);
    }
}

/* Rows that the matrix does not have give hidden numbers that must be zero.  Afterwards:
 * making a panel may leave anything in the row behind its last one. */
static void clear_rows(uint16_t *panel, size_t stride, size_t count)
{
    memset(panel + count * stride, 0, (GATED_ROWS - count) * stride * sizeof *panel);
}

static void make_hidden(const struct packed_expert *e)
{
    const struct matrix_unit *matrix = e->job->kernels->matrix;
    const struct weight *gate = &e->work->view.gate, *up = &e->work->view.up;
    size_t stride = cpu_panel_stride(gate->cols), hidden_cols = matrix_cols(gate->rows);
    uint16_t *panel = (uint16_t *)(void *)e->job->scratch;
    struct share share = worker_share(e->job->worker, hidden_cols, GATED_ROWS);
    for (size_t first = share.begin; first < share.end; first += GATED_ROWS) {
        size_t count = first < gate->rows ? min_size(GATED_ROWS, gate->rows - first) : 0;
        uint16_t *second = panel + GATED_ROWS * stride;
        if (count > 0) {
            matrix->make_panel(panel, stride, gate, first, count);
            matrix->make_panel(second, stride, up, first, count);
        }
        clear_rows(panel, stride, count);
        clear_rows(second, stride, count);
        matrix->multiply_gated(&(struct matrix_product){ .panel = panel,
                                                         .stride = stride,
                                                         .rows = 2 * GATED_ROWS,
                                                         .packs = e->packs,
                                                         .x_rows = e->work->pair_count,
                                                         .cols = matrix_cols(gate->cols) },
                               e->hidden, first, hidden_cols);
    }
}

static void make_answers(const struct packed_expert *e)
{
    const struct matrix_unit *matrix = e->job->kernels->matrix;
    const struct expert_batch *batch = e->job->batch;
    const struct weight *down = &e->work->view.down;
    size_t stride = cpu_panel_stride(down->cols), cols = matrix_cols(down->cols);
    uint16_t *panel = (uint16_t *)(void *)e->job->scratch;
    enum { PANEL_ROWS = 32, X_ROWS = 64 };
    struct share share = worker_share(e->job->worker, down->rows, PANEL_ROWS);
    for (size_t first = share.begin; first < share.end; first += PANEL_ROWS) {
        size_t count = min_size(PANEL_ROWS, share.end - first);
        matrix->make_panel(panel, stride, down, first, count);
        for (size_t p = 0; p < e->work->pair_count; p += X_ROWS) {
            float *out[X_ROWS];
            size_t rows = min_size(X_ROWS, e->work->pair_count - p);
            for (size_t j = 0; j < rows; j++)
                out[j] = batch->answers + e->work->pairs[p + j] * down->rows + first;
            matrix->multiply(&(struct matrix_product){ .panel = panel,
                                                       .stride = stride,
                                                       .rows = count,
                                                       .packs = e->hidden + p * cols,
                                                       .x_rows = rows,
                                                       .cols = cols,
                                                       .out = out });
        }
    }
}

void cpu_experts_matrix(const struct expert_job *job)
{
    const struct expert_batch *batch = job->batch;
    size_t packed_rows = align_up(batch->row_count, PACK_ROWS);
    struct packed_expert e = { .job = job, .packs = (uint16_t *)(void *)job->shared };
    e.hidden = e.packs + packed_rows * matrix_cols(batch->works[0].view.gate.cols);
    job->kernels->matrix->begin();
    for (size_t i = 0; i < batch->work_count; i++) {
        e.work = &batch->works[i];
        pack_rows(&e);
        cpu_expert_meet(job, "pack rows", e.work->pair_count);
        make_hidden(&e);
        cpu_expert_meet(job, "gate and up", e.work->pair_count);
        make_answers(&e); /* packs of the next expert overwrite nothing that is read here */
        cpu_expert_done(job, "down", e.work->pair_count);
    }
    job->kernels->matrix->end();
}
