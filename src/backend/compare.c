#include "backend/compare.h"

#include "base/status.h"

#include <math.h>

/* The buffers that an operation may write. */
enum { WRITTEN_MAX = 3, COMPARE_SPANS_MAX = 8 };

struct written {
    float *address;
    size_t count;
};

static size_t written_buffers(struct written out[WRITTEN_MAX], const struct op *op,
                              const struct graph *graph, const struct frame *frame)
{
    buffer candidates[WRITTEN_MAX] = { op->out, op->a, op->b };
    size_t count = 0;
    for (size_t i = 0; i < WRITTEN_MAX; i++) {
        uint16_t id = candidates[i].id;
        if (id == NO_BUFFER.id) continue;
        out[count].address = frame->buffers[id];
        out[count++].count = frame->row_count * graph->buffers[id].width;
    }
    return count;
}

static void note_difference(struct comparison *kind, const float *expected, const float *found,
                            size_t count)
{
    double largest = 0, difference = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(expected[i]) || !isfinite(found[i])) {
            kind->not_finite = true;
            continue;
        }
        largest = fmax(largest, fabs((double)expected[i]));
        difference = fmax(difference, fabs((double)expected[i] - (double)found[i]));
    }
    double error = difference > 0 ? difference / fmax(largest, 1e-30) : 0;
    if (error > kind->largest_error) kind->largest_error = error;
}

static void copy_all(float *to, const struct written *buffers, size_t count)
{
    for (size_t i = 0; i < count; to += buffers[i++].count)
        memcpy(to, buffers[i].address, buffers[i].count * sizeof *to);
}

static void restore_all(const float *from, const struct written *buffers, size_t count)
{
    for (size_t i = 0; i < count; from += buffers[i++].count)
        memcpy(buffers[i].address, from, buffers[i].count * sizeof *from);
}

static mf_status check_room(const struct compare_backend *c, const struct written *buffers,
                            size_t count, mf_error *why)
{
    size_t floats = 0;
    for (size_t i = 0; i < count; i++) floats += buffers[i].count;
    if (floats <= c->copy_floats) return MF_OK;
    return fail(why, MF_ERR_BUFFER_SIZE, "an operation touches %zu numbers, there is room for %zu",
                floats, c->copy_floats);
}

static void compare_routes(struct compare_backend *c, const uint32_t *expected,
                           const struct frame *frame)
{
    size_t per_row = frame->routes->per_row;
    for (size_t r = 0; r < frame->row_count; r++) {
        c->routes_compared++;
        c->routes_different += memcmp(expected + r * per_row, frame->routes->experts + r * per_row,
                                      per_row * sizeof *expected) != 0;
    }
}

/* The recurrent states that the operation reads and writes in one place, one for each span. */
static size_t states_in_place(struct written out[COMPARE_SPANS_MAX], const struct op *op,
                              const struct frame *frame)
{
    const struct delta_shape *d = &op->delta;
    size_t count = 0, values = (size_t)d->value_heads * d->value_width;
    size_t channels = values + 2 * (size_t)d->key_heads * d->key_width;
    for (size_t i = 0; i < frame->span_count; i++) {
        const struct recurrent_view *r = &frame->spans[i].recurrent;
        if (op->kind == OP_CONV && r->conv_in == r->conv_out)
            out[count++] = (struct written){ r->conv_out, (d->taps - 1) * channels };
        if (op->kind == OP_DELTA && r->delta_in == r->delta_out)
            out[count++] = (struct written){ r->delta_out, values * d->key_width };
    }
    return count;
}

/* The state is the reference's, which leaves no chunk half done: the tested one begins its
 * own where each span begins. */
static mf_status run_tested(struct compare_backend *c, const struct graph *single,
                            const struct frame *frame, mf_error *why)
{
    struct span spans[COMPARE_SPANS_MAX];
    struct frame copy = *frame;
    if (frame->span_count > COMPARE_SPANS_MAX)
        return fail(why, MF_ERR_ARGUMENT, "a step of %zu sequences, %d can be compared",
                    frame->span_count, COMPARE_SPANS_MAX);
    for (size_t i = 0; i < frame->span_count; i++) {
        spans[i] = frame->spans[i];
        spans[i].run_start = spans[i].position;
    }
    copy.spans = spans;
    struct written states[COMPARE_SPANS_MAX];
    size_t bytes = 0, count = states_in_place(states, &single->ops[0], frame);
    for (size_t i = 0; i < count; i++) bytes += states[i].count * sizeof(float);
    float *saved = bytes ? c->allocator->allocate(c->allocator->user, bytes, CACHE_LINE) : NULL;
    if (bytes && !saved) return fail_memory(why, bytes);
    if (saved) copy_all(saved, states, count);
    mf_status status = c->tested->functions->execute(c->tested, single, &copy, why);
    if (saved) restore_all(saved, states, count);
    if (saved) c->allocator->release(c->allocator->user, saved, bytes);
    return status;
}

static mf_status compare_op(struct compare_backend *c, const struct graph *single,
                            const struct frame *frame, mf_error *why)
{
    const struct op *op = &single->ops[0];
    struct written buffers[WRITTEN_MAX];
    size_t count = written_buffers(buffers, op, single, frame);
    mf_status status = check_room(c, buffers, count, why);
    if (status != MF_OK) return status;
    copy_all(c->before, buffers, count);
    status = run_tested(c, single, frame, why);
    if (status != MF_OK) return status;
    copy_all(c->expected, buffers, count);            /* of the tested one, for now */
    uint32_t *routes = (uint32_t *)(void *)c->before; /* free once restored */
    restore_all(c->before, buffers, count);
    size_t route_count = op->kind == OP_ROUTE ? frame->row_count * frame->routes->per_row : 0;
    if (route_count > c->copy_floats) route_count = 0;
    if (route_count) memcpy(routes, frame->routes->experts, route_count * sizeof *routes);
    status = c->reference->functions->execute(c->reference, single, frame, why);
    if (status != MF_OK) return status;

    const float *found = c->expected;
    c->kinds[op->kind].runs++;
    for (size_t i = 0; i < count; found += buffers[i++].count)
        note_difference(&c->kinds[op->kind], buffers[i].address, found, buffers[i].count);
    if (route_count) compare_routes(c, routes, frame);
    return MF_OK;
}

static mf_status execute(struct backend *backend, const struct graph *graph,
                         const struct frame *frame, mf_error *why)
{
    struct compare_backend *c = (struct compare_backend *)backend;
    struct graph single = *graph;
    single.op_count = 1;
    mf_status status = MF_OK;
    for (size_t i = 0; i < graph->op_count && status == MF_OK; i++) {
        single.ops[0] = graph->ops[i];
        status = compare_op(c, &single, frame, why);
    }
    return status;
}

static mf_status run_experts(struct backend *backend, const struct expert_batch *batch,
                             mf_error *why)
{
    struct compare_backend *c = (struct compare_backend *)backend;
    mf_status status = c->tested->functions->run_experts(c->tested, batch, why);
    for (size_t w = 0; w < batch->work_count && status == MF_OK; w++) {
        struct expert_work work = batch->works[w];
        size_t width = work.view->down.rows;
        size_t pairs = min_size(work.pair_count, c->copy_floats / width);
        work.pair_count = pairs;
        for (size_t p = 0; p < pairs; p++)
            memcpy(c->before + p * width, batch->answers + work.pairs[p] * width,
                   width * sizeof(float));
        struct expert_batch one = *batch;
        one.works = &work;
        one.work_count = 1;
        status = c->reference->functions->run_experts(c->reference, &one, why);
        c->kinds[COMPARE_EXPERTS].runs++;
        for (size_t p = 0; p < pairs && status == MF_OK; p++)
            note_difference(&c->kinds[COMPARE_EXPERTS], batch->answers + work.pairs[p] * width,
                            c->before + p * width, width);
    }
    return status;
}

static size_t reserve_bytes(const struct backend *backend, const struct backend_sizes *sizes)
{
    const struct compare_backend *c = (const struct compare_backend *)backend;
    return c->reference->functions->reserve_bytes(c->reference, sizes) +
           c->tested->functions->reserve_bytes(c->tested, sizes);
}

static mf_status reserve(struct backend *backend, const struct backend_sizes *sizes, mf_error *why)
{
    struct compare_backend *c = (struct compare_backend *)backend;
    mf_status status = c->reference->functions->reserve(c->reference, sizes, why);
    return status == MF_OK ? c->tested->functions->reserve(c->tested, sizes, why) : status;
}

static const struct backend_functions compare_functions = {
    .name = "compare",
    .reserve_bytes = reserve_bytes,
    .reserve = reserve,
    .execute = execute,
    .run_experts = run_experts,
};

mf_status compare_backend_init(struct compare_backend *compare, const mf_allocator *allocator,
                               struct backend *reference, struct backend *tested,
                               size_t copy_floats, mf_error *why)
{
    *compare =
        (struct compare_backend){ .base = { .functions = &compare_functions, .kv_format = KV_F32 },
                                  .allocator = allocator,
                                  .reference = reference,
                                  .tested = tested,
                                  .copy_floats = copy_floats };
    size_t bytes = copy_floats * sizeof(float);
    compare->before = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    compare->expected = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (compare->before && compare->expected) return MF_OK;
    compare_backend_free(compare);
    return fail_memory(why, 2 * bytes);
}

void compare_backend_free(struct compare_backend *compare)
{
    const mf_allocator *allocator = compare->allocator;
    size_t bytes = compare->copy_floats * sizeof(float);
    if (compare->before) allocator->release(allocator->user, compare->before, bytes);
    if (compare->expected) allocator->release(allocator->user, compare->expected, bytes);
    compare->before = compare->expected = NULL;
}

const char *compare_kind_name(size_t kind)
{
    return kind == COMPARE_EXPERTS ? "experts" : op_name((enum op_kind)kind);
}
