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

static void make_hidden(const struct packed_expert *e)
{
    const struct weight *gate = &e->work->view.gate, *up = &e->work->view.up;
    size_t hidden_cols = matrix_cols(gate->rows);
    struct share share = worker_share(e->job->worker, hidden_cols, GATED_ROWS);
    if (share.begin == share.end) return;
    struct matrix_product product = {
        .from = { { gate, share.begin, min_size(share.end, gate->rows), GATED_ROWS },
                  { up, share.begin, min_size(share.end, up->rows), GATED_ROWS } },
        .rows = 2 * (share.end - share.begin),
        .packs = e->packs,
        .x_rows = e->work->pair_count,
        .room = e->job->scratch,
    };
    e->job->kernels->matrix->multiply_gated(&product, e->hidden, share.begin, hidden_cols);
}

static void make_answers(const struct packed_expert *e)
{
    const struct expert_batch *batch = e->job->batch;
    const struct weight *down = &e->work->view.down;
    enum { X_ROWS = 256 };
    struct share share = worker_share(e->job->worker, down->rows, 2 * GATED_ROWS);
    struct matrix_product product = {
        .from = { { down, share.begin, share.end, 2 * GATED_ROWS },
                  { down, share.begin + GATED_ROWS, share.end, 2 * GATED_ROWS } },
        .rows = share.end - share.begin,
        .room = e->job->scratch,
    };
    for (size_t p = 0; p < e->work->pair_count && product.rows > 0; p += X_ROWS) {
        float *out[X_ROWS];
        product.x_rows = min_size(X_ROWS, e->work->pair_count - p);
        product.packs = e->hidden + p * matrix_cols(down->cols);
        product.out = out;
        for (size_t j = 0; j < product.x_rows; j++)
            out[j] = batch->answers + e->work->pairs[p + j] * down->rows + share.begin;
        e->job->kernels->matrix->multiply(&product);
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
