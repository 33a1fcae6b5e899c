/* experts_matrix.c: experts for prompts, on the matrix unit.
 *
 * An expert's rows are packed and multiplied with gate and up; the results are packed as hidden
 * rows and multiplied with down.  If there are enough experts for all workers, one worker runs the
 * whole expert: intermediates stay in its cache and no barrier is needed.  Otherwise, and for an
 * expert with very many rows, all workers divide each step. */
#include "backend/cpu/cpu.h"

enum {
    GATED_ROWS = 16,        /* of gate, and as many of up, in one block */
    ALONE_ROWS = 256,       /* that one worker takes at most */
    EXPERTS_PER_WORKER = 4, /* minimum, so that workers finish at about the same time */
};

struct packed_expert {
    const struct expert_job *job;
    const struct expert_work *work;
    const struct matrix_unit *matrix;
    uint16_t *packs;  /* of the expert's rows */
    uint16_t *hidden; /* of its hidden rows */
};

/* One for all three products: a hidden row is packed by the first two for the third. */
static const struct matrix_unit *choose_matrix(const struct kernels *kernels,
                                               const struct expert_view *view)
{
    const struct matrix_unit *matrix = kernels_matrix(kernels, &view->gate);
    bool same = kernels_matrix(kernels, &view->up) == matrix &&
                kernels_matrix(kernels, &view->down) == matrix;
    return same ? matrix : kernels->matrix;
}

static void pack_rows(const struct packed_expert *e)
{
    const struct expert_batch *batch = e->job->batch;
    size_t cols = e->work->view->gate.cols;
    for (size_t p = 0; p < e->work->pair_count; p += PACK_ROWS) {
        const float *x[PACK_ROWS];
        size_t rows = min_size(PACK_ROWS, e->work->pair_count - p);
        for (size_t j = 0; j < rows; j++)
            x[j] = batch->routed + e->work->pairs[p + j] / batch->per_row * cols;
        cpu_make_pack(e->packs + p * kernels_pack_words(e->job->kernels, cols), e->matrix,
                      e->job->worker, x, rows, cols);
    }
}

/* Some of a column's numbers at `room`, with zeroes up to whole blocks; NULL: the expert has none. */
static const float *load_addends(float *room, const struct weight *addends, struct share rows)
{
    if (!addends->values) return NULL;
    size_t end = min_size(rows.end, addends->rows);
    cpu_load_addends(room, addends, rows.begin, end - rows.begin);
    memset(room + (end - rows.begin), 0, (rows.end - end) * sizeof *room);
    return room;
}

static size_t addend_floats(size_t hidden_width, size_t width)
{
    return align_up(max_size(2 * matrix_cols(hidden_width), width), CACHE_LINE);
}

/* Behind the addends. */
static float *room_of(const struct packed_expert *e)
{
    const struct expert_view *view = e->work->view;
    return e->job->scratch + addend_floats(view->gate.rows, view->down.rows);
}

static void make_hidden(const struct packed_expert *e)
{
    const struct weight *gate = &e->work->view->gate, *up = &e->work->view->up;
    size_t hidden_cols = matrix_cols(gate->rows);
    struct share share = worker_share(e->job->worker, hidden_cols, GATED_ROWS);
    if (share.begin == share.end) return;
    struct matrix_product product = {
        .from = { { gate, share.begin, min_size(share.end, gate->rows), GATED_ROWS },
                  { up, share.begin, min_size(share.end, up->rows), GATED_ROWS } },
        .rows = 2 * (share.end - share.begin),
        .packs = e->packs,
        .x_rows = e->work->pair_count,
        .activation = e->job->batch->activation,
        .addends = { load_addends(e->job->scratch, &e->work->view->gate_addends, share),
                     load_addends(e->job->scratch + hidden_cols, &e->work->view->up_addends,
                                  share) },
        .room = room_of(e),
    };
    e->matrix->multiply_gated(&product, e->hidden, share.begin, hidden_cols);
}

/* Each worker some packs. */
static void close_hidden(const struct packed_expert *e)
{
    size_t cols = matrix_cols(e->work->view->gate.rows);
    size_t words = PACK_ROWS * kernels_pack_words(e->job->kernels, cols);
    size_t packs = (e->work->pair_count + PACK_ROWS - 1) / PACK_ROWS;
    struct share share = worker_share(e->job->worker, packs, 1);
    for (size_t i = share.begin; i < share.end; i++)
        e->matrix->close_pack(e->hidden + i * words, cols);
}

static void make_answers(const struct packed_expert *e)
{
    const struct expert_batch *batch = e->job->batch;
    const struct weight *down = &e->work->view->down;
    enum { X_ROWS = 256 };
    struct share share = worker_share(e->job->worker, down->rows, 2 * GATED_ROWS);
    if (share.begin == share.end) return;
    struct matrix_product product = {
        .from = { { down, share.begin, share.end, 2 * GATED_ROWS },
                  { down, share.begin + GATED_ROWS, share.end, 2 * GATED_ROWS } },
        .rows = share.end - share.begin,
        .addends = { load_addends(e->job->scratch, &e->work->view->down_addends, share) },
        .room = room_of(e),
    };
    for (size_t p = 0; p < e->work->pair_count; p += X_ROWS) {
        float *out[X_ROWS];
        product.x_rows = min_size(X_ROWS, e->work->pair_count - p);
        product.packs = e->hidden + p * kernels_pack_words(e->job->kernels, down->cols);
        product.out = out;
        for (size_t j = 0; j < product.x_rows; j++)
            out[j] = batch->answers + e->work->pairs[p + j] * down->rows + share.begin;
        e->matrix->multiply(&product);
    }
}

static void run_expert(const struct expert_job *job, const struct expert_work *work,
                       uint16_t *packs, size_t packed_rows)
{
    struct packed_expert e = {
        .job = job, .work = work, .matrix = choose_matrix(job->kernels, work->view), .packs = packs
    };
    e.hidden = packs + packed_rows * kernels_pack_words(job->kernels, work->view->gate.cols);
    pack_rows(&e);
    cpu_expert_meet(job, "pack rows", work->pair_count);
    make_hidden(&e);
    cpu_expert_meet(job, "gate and up", work->pair_count);
    if (e.matrix->close_pack) {
        close_hidden(&e);
        cpu_expert_meet(job, "hidden to integers", work->pair_count);
    }
    make_answers(&e); /* packs of the next expert overwrite nothing that is read here */
    cpu_expert_done(job, "down", work->pair_count);
}

static size_t packs_words(const struct kernels *kernels, size_t rows, size_t width,
                          size_t expert_width)
{
    return align_up(rows, PACK_ROWS) *
           (kernels_pack_words(kernels, width) + kernels_pack_words(kernels, expert_width));
}

/* Each worker takes some whole experts.  Rows in the decode arithmetic are multiplied when those
 * of the prompt have brought the expert's weights into a cache. */
static void run_alone(const struct expert_job *job)
{
    const struct expert_batch *batch = job->batch;
    const struct expert_view *view = batch->works[0].view;
    size_t rows = min_size(batch->row_count, ALONE_ROWS);
    size_t words = packs_words(job->kernels, rows, view->gate.cols, view->gate.rows);
    struct expert_job alone = *job, decoded = *job;
    struct decode_experts decode = { .end = (struct integer_unit *)(void *)job->shared };
    if (job->decoded) {
        decoded.batch = job->decoded;
        cpu_decode_begin(&decode, &decoded, true);
    }
    uint16_t *packs = (uint16_t *)(void *)decode.end + job->worker.index * words;
    alone.worker = decoded.worker = worker_alone(job->worker);
    struct handout experts = handout_begin(job->worker, batch->work_count, 1);
    for (struct share part; handout_next(&experts, &part);)
        for (size_t i = part.begin; i < part.end; i++) {
            size_t pairs = batch->works[i].pair_count;
            if (pairs > 0 && pairs <= ALONE_ROWS)
                run_expert(&alone, &batch->works[i], packs, align_up(rows, PACK_ROWS));
            if (!job->decoded) continue;
            cpu_decode_expert(&decode, &job->decoded->works[i]);
            cpu_expert_done(job, "decoded rows", job->decoded->works[i].pair_count);
        }
}

bool cpu_experts_alone(const struct expert_batch *batch, size_t workers)
{
    return batch->work_count >= EXPERTS_PER_WORKER * workers;
}

void cpu_experts_matrix(const struct expert_job *job)
{
    const struct expert_batch *batch = job->batch;
    bool alone = cpu_experts_alone(batch, job->worker.count);
    size_t least = alone ? ALONE_ROWS + 1 : 0;
    job->kernels->matrix->begin();
    if (alone) {
        run_alone(job);
        worker_barrier(job->worker); /* `shared` is used again */
    }
    for (size_t i = 0; i < batch->work_count; i++)
        if (batch->works[i].pair_count >= least)
            run_expert(job, &batch->works[i], (uint16_t *)(void *)job->shared,
                       align_up(batch->row_count, PACK_ROWS));
    job->kernels->matrix->end();
}

size_t cpu_experts_matrix_scratch(const struct backend_sizes *sizes)
{
    size_t cols = max_size(sizes->width, sizes->expert_width);
    return addend_floats(sizes->expert_width, sizes->width) + matrix_room(cols) / sizeof(float);
}

size_t cpu_experts_matrix_shared(const struct backend_sizes *sizes, const struct kernels *kernels,
                                 size_t workers)
{
    size_t alone = min_size(sizes->row_count, ALONE_ROWS);
    return max_size(packs_words(kernels, sizes->row_count, sizes->width, sizes->expert_width),
                    workers * packs_words(kernels, alone, sizes->width, sizes->expert_width)) *
           sizeof(uint16_t) / sizeof(float);
}
