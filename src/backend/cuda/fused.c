/* fused.c: ops of generated rows that are done in one launch, with the same bits. */
#include "backend/cuda/job.h"

/* ------------------------------------------------------------------------------------- products */

/* The next op, if it multiplies the rows `in`. */
static const struct op *next_product(const struct job *job, buffer in)
{
    const struct op *op = &job->graph->ops[job->next];
    bool follows = job->next < job->graph->op_count && op->kind == OP_PROJECT && op->a.id == in.id;
    return follows ? op : NULL;
}

static void add_product(struct cuda_products *products, struct job *job, const struct op *op)
{
    products->parts[products->count++] =
        (struct cuda_product){ .weight = job_weight(job, op->weight),
                               .out = job_rows(job, op->out),
                               .out_stride = job_width(job, op->out),
                               .add = op->kind == OP_ADD_PROJECT };
}

/* The products of `in` that follow. */
static void add_products(struct cuda_products *products, struct job *job, buffer in)
{
    const struct op *op;
    while (products->count < CUDA_PRODUCTS_MAX && (op = next_product(job, in))) {
        add_product(products, job, op);
        job->next++;
    }
}

bool cuda_project_group(struct job *job)
{
    const struct op *op = job->op;
    struct cuda_products products = { .x = job_rows(job, op->a),
                                      .x_stride = job_width(job, op->a),
                                      .row_count = job_row_count(job) };
    add_product(&products, job, op);
    if (op->kind == OP_PROJECT) add_products(&products, job, op->a);
    if (job->status == MF_OK) cuda_project_many(job->b->stream, &products);
    return true;
}

static bool share_memory(const struct job *job, buffer a, buffer b)
{
    size_t rows = job->frame->row_count;
    const float *first = job_rows(job, a), *second = job_rows(job, b);
    return first < second + rows * job_width(job, b) && second < first + rows * job_width(job, a);
}

/* Whether only the products behind a norm read it, and one launch has them all.  The norm's input is
 * not used behind it, so a product may have its memory: then blocks that are done would write what
 * others have yet to read. */
static bool is_read_by_products(const struct job *job)
{
    const struct op *ops = job->graph->ops;
    uint16_t id = job->op->out.id;
    int last = job->graph->buffers[id].last, next = (int)job->next;
    if (id < SHARED_COUNT || last < next || last >= next + CUDA_PRODUCTS_MAX) return false;
    for (int i = next; i <= last; i++)
        if (ops[i].kind != OP_PROJECT || ops[i].a.id != id || ops[i].out.id == id ||
            share_memory(job, ops[i].out, job->op->a))
            return false;
    return true;
}

bool cuda_norm_and_project(struct job *job)
{
    const struct op *op = job->op;
    if (op->kind != OP_RMS_NORM || !is_read_by_products(job)) return false;
    struct cuda_products products = { .x = job_rows(job, op->a),
                                      .x_stride = job_width(job, op->a),
                                      .norm = job_vector(job, op->weight),
                                      .epsilon = op->epsilon,
                                      .row_count = job_row_count(job) };
    add_products(&products, job, op->out);
    if (job->status == MF_OK) cuda_project_many(job->b->stream, &products);
    return true;
}

/* ---------------------------------------------------------------------------------------- heads */

/* [norm q, norm k] rotate q, rotate k, append k and v. */
struct heads_ops {
    const struct op *query_norm, *key_norm; /* both or none */
    const struct op *query_turn, *key_turn, *append;
    size_t end;
};

static bool find_heads(struct heads_ops *out, const struct job *job)
{
    const struct op *ops = job->graph->ops;
    size_t i = job->next - 1, count = job->graph->op_count;
    *out = (struct heads_ops){ .end = 0 };
    if (ops[i].kind == OP_HEAD_NORM) {
        if (i + 5 > count) return false;
        out->query_norm = &ops[i++];
        out->key_norm = &ops[i++];
    }
    if (i + 3 > count) return false;
    out->query_turn = &ops[i];
    out->key_turn = &ops[i + 1];
    out->append = &ops[i + 2];
    out->end = i + 3;
    return true;
}

static bool same_turn(const struct op *a, const struct op *b)
{
    return a->kind == OP_ROPE && b->kind == OP_ROPE && a->b.id == b->b.id &&
           a->head_width == b->head_width && a->rope.offset == b->rope.offset &&
           a->rope.width == b->rope.width && a->rope.interleaved == b->rope.interleaved;
}

static bool norms_of(const struct op *norm, const struct op *turn)
{
    return norm->kind == OP_HEAD_NORM && norm->weight != NO_WEIGHT && norm->a.id == turn->a.id &&
           norm->head_width == turn->head_width;
}

bool cuda_heads_group(struct job *job)
{
    struct heads_ops ops;
    if (!find_heads(&ops, job) || !same_turn(ops.query_turn, ops.key_turn) ||
        ops.append->kind != OP_KV_APPEND || ops.append->a.id != ops.key_turn->a.id)
        return false;
    bool normed = ops.query_norm != NULL;
    if (normed &&
        (!norms_of(ops.query_norm, ops.query_turn) || !norms_of(ops.key_norm, ops.key_turn) ||
         ops.query_norm->epsilon != ops.key_norm->epsilon))
        return false;
    struct cuda_heads heads = { .queries = job_rows(job, ops.query_turn->a),
                                .keys = job_rows(job, ops.key_turn->a),
                                .values = job_rows(job, ops.append->b),
                                .query_norm =
                                    normed ? job_vector(job, ops.query_norm->weight) : NULL,
                                .key_norm = normed ? job_vector(job, ops.key_norm->weight) : NULL,
                                .angles = job_rows(job, ops.query_turn->b),
                                .epsilon = normed ? ops.query_norm->epsilon : 0,
                                .heads = ops.query_turn->heads,
                                .kv_heads = ops.key_turn->heads,
                                .head_width = ops.query_turn->head_width,
                                .rope = job_rope(job, &ops.query_turn->rope) };
    job->next = ops.end;
    if (job->status == MF_OK) cuda_prepare_heads(job->b->stream, &job->rows, &heads);
    return true;
}
