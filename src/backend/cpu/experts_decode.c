/* experts_decode.c: experts for rows that are decoded, in integers or, where weights are floats, in
 * floats.
 *
 *     routed rows ─ units ─▶ gate, up ─ act ─▶ hidden rows ─ units ─▶ down ─▶ answers
 *
 * The workers divide units and rows of the matrices, with a barrier at each arrow.  Float formats
 * need no units. */
#include "backend/cpu/cpu.h"

/* Bytes of a matrix that are handed out at a time, at most, and results that are made at a time: a
 * kernel reads longer streams faster. */
enum { BLOCK_BYTES = 1 << 17, ROOM = 128 * ACTIVATION_ROWS };

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
    const struct integer_unit *units = b->from->units[kernels_unit_order(kernels, b->weight)];
    for (size_t j = 0; j < b->x_rows; j++) x[j] = units + b->x[j] * units_of(b->from->width);
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
    if (e->integers)
        multiply_integers(e->job->kernels, block);
    else
        multiply_floats(e->job->kernels, block);
}

/* Channels that are computed at a time, for this many pairs. */
static size_t channels_at_once(const struct expert_work *work)
{
    return ROOM / min_size(work->pair_count, ACTIVATION_ROWS);
}

/* Some channels of act(gate·x) ⊙ (up·x), for all of the expert's pairs. */
static void hidden_block(const struct decode_experts *e, const struct expert_work *work,
                         struct share rows)
{
    const struct expert_batch *batch = e->job->batch;
    size_t width = work->view->gate.rows, count = rows.end - rows.begin;
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        size_t x[ACTIVATION_ROWS], x_rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        float *gates[ACTIVATION_ROWS], *ups[ACTIVATION_ROWS], room[ROOM];
        for (size_t j = 0; j < x_rows; j++) {
            x[j] = work->pairs[p + j] / batch->per_row;
            gates[j] = batch->hidden + work->pairs[p + j] * width + rows.begin;
            ups[j] = room + j * count;
        }
        struct decode_block block = { .weight = &work->view->gate,
                                      .first = rows.begin,
                                      .count = count,
                                      .from = &e->rows,
                                      .x = x,
                                      .out = gates,
                                      .x_rows = x_rows };
        multiply(e, &block);
        block.weight = &work->view->up;
        block.out = ups;
        multiply(e, &block);
        for (size_t j = 0; j < x_rows; j++) {
            cpu_add_addends(gates[j], &work->view->gate_addends, rows.begin, count);
            cpu_add_addends(ups[j], &work->view->up_addends, rows.begin, count);
            e->job->kernels->gate_multiply[batch->activation](gates[j], gates[j], ups[j], count);
        }
    }
}

/* Some channels of down·hidden, for all of the expert's pairs. */
static void answer_block(const struct decode_experts *e, const struct expert_work *work,
                         struct share rows)
{
    const struct weight *down = &work->view->down;
    for (size_t p = 0; p < work->pair_count; p += ACTIVATION_ROWS) {
        size_t x[ACTIVATION_ROWS], x_rows = min_size(ACTIVATION_ROWS, work->pair_count - p);
        float *out[ACTIVATION_ROWS];
        for (size_t j = 0; j < x_rows; j++) {
            x[j] = work->pairs[p + j];
            out[j] = e->job->batch->answers + work->pairs[p + j] * down->rows + rows.begin;
        }
        multiply(e, &(struct decode_block){ .weight = down,
                                            .first = rows.begin,
                                            .count = rows.end - rows.begin,
                                            .from = &e->hidden,
                                            .x = x,
                                            .out = out,
                                            .x_rows = x_rows });
        for (size_t j = 0; j < x_rows; j++)
            cpu_add_addends(out[j], &work->view->down_addends, rows.begin, rows.end - rows.begin);
    }
}

static void make_row_units(const struct decode_experts *e)
{
    const struct expert_batch *batch = e->job->batch;
    const struct activations *a = &e->rows;
    size_t start_rows = cpu_expert_start_rows(e->job->kernels, batch);
    for (enum unit_order order = 0; order < UNIT_ORDER_COUNT; order++) {
        struct units_wanted wanted = { e->job->kernels, a->width, order };
        if (!a->units[order]) continue;
        for (size_t r = 0; r < batch->row_count; r++) {
            if (!cpu_decodes(batch->spans, &batch->rows[r], start_rows)) continue;
            cpu_make_units(a->units[order] + r * units_of(a->width), &wanted, e->job->worker,
                           a->floats + r * a->width);
        }
    }
    cpu_expert_meet(e->job, "rows to integers", batch->work_count);
}

/* The hidden row of the expert's pair `p`. */
static void make_hidden_row(const struct decode_experts *e, const struct expert_work *work,
                            size_t p)
{
    const struct activations *a = &e->hidden;
    enum unit_order order = kernels_unit_order(e->job->kernels, &work->view->down);
    e->job->kernels->make_units(a->units[order] + work->pairs[p] * units_of(a->width),
                                a->floats + work->pairs[p] * a->width, a->width, order);
}

/* Each worker the units of some pairs, every pair of the batch being in one work. */
static void make_hidden_units(const struct decode_experts *e)
{
    const struct expert_batch *batch = e->job->batch;
    size_t turn = 0;
    for (size_t i = 0; i < batch->work_count; i++)
        for (size_t p = 0; p < batch->works[i].pair_count; p++, turn++)
            if (turn % e->job->worker.count == e->job->worker.index)
                make_hidden_row(e, &batch->works[i], p);
    cpu_expert_meet(e->job, "hidden to integers", batch->work_count);
}

typedef void (*block_function)(const struct decode_experts *e, const struct expert_work *work,
                               struct share rows);

/* Rows [begin, end) of all experts' matrices, one behind the other. */
static void run_part(const struct decode_experts *e, size_t matrix_rows, struct share part,
                     block_function run)
{
    for (size_t at = part.begin, next; at < part.end; at = next) {
        const struct expert_work *work = &e->job->batch->works[at / matrix_rows];
        size_t first = at % matrix_rows;
        next = min_size(part.end, at + min_size(matrix_rows - first, channels_at_once(work)));
        run(e, work, (struct share){ first, first + (next - at) });
    }
}

/* Rows that are handed out at a time: fewer where workers would not finish together. */
static size_t handed_rows(const struct weight *matrix, size_t all, size_t workers)
{
    size_t rows = min_size(BLOCK_BYTES / matrix->row_bytes, all / (16 * workers));
    return max_size(align_up(rows, 64), 64);
}

/* The rows of all experts' matrices, of which this is one, shared out. */
static void run_rows(const struct decode_experts *e, const struct weight *matrix,
                     block_function run)
{
    size_t all = e->job->batch->work_count * matrix->rows;
    size_t unit = handed_rows(matrix, all, e->job->worker.count);
    struct handout rows = handout_begin(e->job->worker, all, unit);
    for (struct share part; handout_next(&rows, &part);) run_part(e, matrix->rows, part, run);
}

/* Rows in each order that an expert's gate or up wants: one, as a rule.  A hidden row is one
 * expert's, and is in the order of its down. */
static void place_units(struct decode_experts *e)
{
    const struct expert_batch *batch = e->job->batch;
    const struct kernels *kernels = e->job->kernels;
    struct integer_unit *units = (struct integer_unit *)(void *)e->job->shared;
    bool wanted[UNIT_ORDER_COUNT] = { false };
    for (size_t i = 0; i < batch->work_count; i++) {
        wanted[kernels_unit_order(kernels, &batch->works[i].view->gate)] = true;
        wanted[kernels_unit_order(kernels, &batch->works[i].view->up)] = true;
    }
    for (size_t order = 0; order < UNIT_ORDER_COUNT; order++) {
        if (!wanted[order]) continue;
        e->rows.units[order] = units;
        units += batch->row_count * units_of(e->rows.width);
    }
    for (size_t order = 0; order < UNIT_ORDER_COUNT; order++) e->hidden.units[order] = units;
    e->end = units + batch->row_count * batch->per_row * units_of(e->hidden.width);
}

void cpu_decode_begin(struct decode_experts *e, const struct expert_job *job, bool integers)
{
    const struct expert_batch *batch = job->batch;
    const struct expert_view *view = batch->works[0].view;
    *e = (struct decode_experts){ .job = job,
                                  .integers = integers,
                                  .rows = { .floats = batch->routed, .width = view->gate.cols },
                                  .hidden = { .floats = batch->hidden, .width = view->down.cols } };
    if (!integers) return;
    place_units(e);
    make_row_units(e);
}

/* All rows of one expert's matrix, of the channels that fit at a time. */
static void run_all(const struct decode_experts *e, const struct expert_work *work, size_t rows,
                    block_function run)
{
    for (size_t at = 0, next; at < rows; at = next) {
        next = min_size(rows, at + channels_at_once(work));
        run(e, work, (struct share){ at, next });
    }
}

void cpu_decode_expert(const struct decode_experts *e, const struct expert_work *work)
{
    if (work->pair_count == 0) return;
    run_all(e, work, work->view->gate.rows, hidden_block);
    for (size_t p = 0; e->integers && p < work->pair_count; p++) make_hidden_row(e, work, p);
    run_all(e, work, work->view->down.rows, answer_block);
}

static void run_experts(const struct expert_job *job, bool integers)
{
    const struct expert_batch *batch = job->batch;
    const struct expert_view *view = batch->works[0].view;
    struct decode_experts e;
    cpu_decode_begin(&e, job, integers);
    run_rows(&e, &view->gate, hidden_block);
    cpu_expert_meet(job, "gate and up", batch->work_count);
    if (integers) make_hidden_units(&e);
    run_rows(&e, &view->down, answer_block);
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
