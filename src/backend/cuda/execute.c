/* execute.c: a graph on the device: its frame is staged, then every op becomes a launch. */
#include "backend/cuda/job.h"

#include "model/weights.h"

/* -------------------------------------------------------------------------------------- operands */

struct cuda_weight job_weight(struct job *job, enum weight_id id)
{
    struct cuda_weight out = { .values = NULL };
    if (job->status == MF_OK)
        job->status = cuda_weight_on_device(&out, job->b, &job->frame->weights[id], job->why);
    return out;
}

const float *job_vector(struct job *job, enum weight_id id)
{
    if (id == NO_WEIGHT) return NULL;
    return (const float *)(const void *)job_weight(job, id).values;
}

struct cuda_rope job_rope(struct job *job, const struct rope_shape *shape)
{
    const void *frequencies = NULL;
    if (job->status == MF_OK && shape->frequencies)
        job->status = cuda_array_on_device(&frequencies, job->b, shape->frequencies,
                                           shape->width / 2 * sizeof(double), job->why);
    return (struct cuda_rope){ shape->offset, shape->width, shape->interleaved, frequencies,
                               shape->multiplier };
}

static struct cuda_delta delta(const struct job *job)
{
    const struct delta_shape *d = &job->op->delta;
    return (struct cuda_delta){ d->key_heads,   d->value_heads, d->key_width,
                                d->value_width, d->taps,        d->tiled };
}

/* ------------------------------------------------------------------------------------------- ops */

static void embed(struct job *job)
{
    struct cuda_weight w = job_weight(job, job->op->weight);
    if (job->status == MF_OK)
        cuda_embed(job->b->stream, job_rows(job, job->op->out), &w, job->rows.tokens,
                   job_row_count(job), job->op->factor);
}

/* A small error here changes a choice or a gate for all channels: always f32. */
static bool is_sensitive(enum weight_id id)
{
    return id == WEIGHT_ROUTER || id == WEIGHT_SHARED_SCALE || id == WEIGHT_DELTA_A ||
           id == WEIGHT_DELTA_B;
}

/* Neighbouring rows of one phase.  Begins as zeroes. */
struct stretch {
    uint32_t next_span; /* of the next stretch */
    uint32_t first, count;
    bool decode;
};

/* The frame's next rows of one phase; false: there are no more. */
static bool next_stretch(struct stretch *stretch, const struct frame *frame)
{
    if (stretch->next_span >= frame->span_count) return false;
    const struct span *spans = &frame->spans[stretch->next_span];
    size_t count = 0, rest = frame->span_count - stretch->next_span;
    *stretch = (struct stretch){ .next_span = stretch->next_span,
                                 .first = spans->first_row,
                                 .decode = spans->decode };
    while (count < rest && spans[count].decode == stretch->decode)
        stretch->count += spans[count++].row_count;
    stretch->next_span += (uint32_t)count;
    return true;
}

static void project_stretch(struct job *job, const struct cuda_weight *w,
                            const struct stretch *stretch)
{
    const struct op *op = job->op;
    size_t in = job_width(job, op->a), out = job_width(job, op->out);
    float *to = job_rows(job, op->out) + stretch->first * out;
    const float *from = job_rows(job, op->a) + stretch->first * in;
    bool add = op->kind == OP_ADD_PROJECT;
    if (stretch->decode || job->b->exact || is_sensitive(op->weight))
        cuda_project(job->b->stream, to, out, from, in, stretch->count, w, add, stretch->decode);
    else
        cuda_project_matrix(job->b->stream, to, out, from, in, stretch->count, w, add);
}

/* Rows without a sequence, those of logits, are decoded. */
static void project(struct job *job)
{
    struct stretch stretch = { .next_span = 0 };
    if (job->repeats && cuda_project_group(job)) return;
    struct cuda_weight w = job_weight(job, job->op->weight);
    if (job->status != MF_OK) return;
    if (!job->frame->rows) {
        stretch.count = job_row_count(job);
        stretch.decode = true;
        project_stretch(job, &w, &stretch);
        return;
    }
    while (next_stretch(&stretch, job->frame)) project_stretch(job, &w, &stretch);
}

static void norm(struct job *job)
{
    const struct op *op = job->op;
    if (job->repeats && cuda_norm_and_project(job)) return;
    const float *w = job_vector(job, op->weight);
    if (job->status != MF_OK) return;
    (op->kind == OP_RMS_NORM ? cuda_rms_norm : cuda_add_rms_norm)(
        job->b->stream, job_rows(job, op->out), job_rows(job, op->a), w, op->epsilon,
        job_row_count(job), job_width(job, op->a));
}

static void head_norm(struct job *job)
{
    const struct op *op = job->op;
    if (job->repeats && cuda_heads_group(job)) return;
    const float *w = job_vector(job, op->weight);
    if (job->status == MF_OK)
        cuda_head_norm(job->b->stream, job_rows(job, op->a), w, op->epsilon, job_row_count(job),
                       op->heads, op->head_width);
}

static void copy_rows(struct job *job)
{
    size_t bytes = job->frame->row_count * job_width(job, job->op->a) * sizeof(float);
    cuda_note(job->b, cudaMemcpyAsync(job_rows(job, job->op->out), job_rows(job, job->op->a), bytes,
                                      cudaMemcpyDefault, job->b->stream));
}

static void scale(struct job *job)
{
    const float *w = job_vector(job, job->op->weight);
    if (job->status == MF_OK)
        cuda_scale(job->b->stream, job_rows(job, job->op->a), w, job_row_count(job),
                   job_width(job, job->op->a));
}

static void soft_cap(struct job *job)
{
    cuda_soft_cap(job->b->stream, job_rows(job, job->op->a), job->op->factor, job_row_count(job),
                  job_width(job, job->op->a));
}

static void add_bias(struct job *job)
{
    const float *w = job_vector(job, job->op->weight);
    if (job->status == MF_OK)
        cuda_add_bias(job->b->stream, job_rows(job, job->op->a), w, job_row_count(job),
                      job_width(job, job->op->a));
}

static void sigmoid_multiply(struct job *job)
{
    const struct op *op = job->op;
    cuda_sigmoid_multiply(job->b->stream, job_rows(job, op->out), job_rows(job, op->a),
                          job_rows(job, op->b), job_row_count(job), job_width(job, op->a));
}

static void activate(struct job *job)
{
    const struct op *op = job->op;
    cuda_activate(job->b->stream, job_rows(job, op->out), job_rows(job, op->a),
                  job_rows(job, op->b), (int)op->activation, job_row_count(job),
                  job_width(job, op->a));
}

static void split_gate(struct job *job)
{
    const struct op *op = job->op;
    cuda_split_gate(job->b->stream, job_rows(job, op->out), job_rows(job, op->b),
                    job_rows(job, op->a), job_row_count(job), op->attention.heads,
                    op->attention.head_width);
}

static void rope_angles(struct job *job)
{
    struct cuda_rope shape = job_rope(job, &job->op->rope);
    if (job->status == MF_OK)
        cuda_rope_angles(job->b->stream, job_rows(job, job->op->out), &job->rows, &shape);
}

static void rotate(struct job *job)
{
    const struct op *op = job->op;
    if (job->repeats && cuda_heads_group(job)) return;
    struct cuda_rope shape = job_rope(job, &job->op->rope);
    if (job->status == MF_OK)
        cuda_rope(job->b->stream, job_rows(job, op->a), job_rows(job, op->b), job_row_count(job),
                  op->heads, op->head_width, &shape);
}

static void kv_append(struct job *job)
{
    const struct op *op = job->op;
    cuda_kv_append(job->b->stream, job_rows(job, op->a), job_rows(job, op->b), &job->rows,
                   op->attention.kv_heads, op->attention.head_width);
}

static void attend_generated(struct job *job, float *out, const float *queries,
                             const struct cuda_rows *rows, const struct cuda_attention *shape)
{
    struct cuda_backend *b = job->b;
    uint32_t context = job->frame->step->context;
    size_t before = b->attend_bytes;
    size_t bytes = cuda_attend_decode_scratch(shape, rows->row_count, context) * sizeof(float);
    void *scratch = b->attend_scratch;
    bool grown = cuda_grow(b, &scratch, &b->attend_bytes, bytes);
    b->attend_scratch = scratch;
    if (!grown) {
        job->status = cuda_fail_memory(job->why, b, bytes);
        return;
    }
    if (b->attend_bytes != before && !cuda_note(b, cudaMemsetAsync(scratch, 0, bytes, b->stream))) {
        cuda_give(b, scratch, bytes);
        b->attend_scratch = NULL;
        b->attend_bytes = 0;
        job->status = cuda_check(b, job->why);
        return;
    }
    cuda_attend_decode(b->stream, out, queries, rows, shape, context, b->attend_scratch);
}

static void attend(struct job *job)
{
    const struct op *op = job->op;
    const struct attention_shape *a = &op->attention;
    struct cuda_attention shape = { .heads = a->heads,
                                    .kv_heads = a->kv_heads,
                                    .head_width = a->head_width,
                                    .window = a->window,
                                    .sinks = a->sinks ? job_vector(job, op->weight) : NULL,
                                    .scale = a->scale };
    if (job->status != MF_OK) return;
    struct stretch stretch = { .next_span = 0 };
    size_t width = job_width(job, op->out);
    while (job->status == MF_OK && next_stretch(&stretch, job->frame)) {
        struct cuda_rows rows = job->rows;
        rows.rows += stretch.first;
        rows.row_count = stretch.count;
        float *out = job_rows(job, op->out) + stretch.first * width;
        const float *queries = job_rows(job, op->a) + stretch.first * width;
        if (stretch.decode)
            attend_generated(job, out, queries, &rows, &shape);
        else
            cuda_attend(job->b->stream, out, queries, &rows, &shape, job->last_position);
    }
}

static void latent_append(struct job *job)
{
    const struct op *op = job->op;
    struct cuda_rope shape = job_rope(job, &job->op->rope);
    const float *w = job_vector(job, op->weight);
    if (job->status == MF_OK)
        cuda_latent_append(job->b->stream, job_rows(job, op->a), job_rows(job, op->b), &job->rows,
                           w, op->epsilon, job_width(job, op->a) - op->rope.width, &shape);
}

static void latent_attend(struct job *job)
{
    const struct op *op = job->op;
    const struct latent_shape *l = &op->latent;
    struct cuda_latent shape = { .heads = l->heads,
                                 .latent_width = l->latent_width,
                                 .nope_width = l->nope_width,
                                 .rope_width = l->rope_width,
                                 .value_width = l->value_width,
                                 .scale = l->scale,
                                 .kv_b = job_weight(job, WEIGHT_KV_B),
                                 .k_b = job_weight(job, WEIGHT_K_B),
                                 .v_b = job_weight(job, WEIGHT_V_B) };
    if (job->status == MF_OK)
        cuda_latent_attend(job->b->stream, job_rows(job, op->out), job_rows(job, op->a), &job->rows,
                           &shape, job->last_position, job->b->scratch);
}

static void conv(struct job *job)
{
    struct cuda_delta shape = delta(job);
    struct cuda_weight w = job_weight(job, job->op->weight);
    if (job->status == MF_OK)
        cuda_conv(job->b->stream, job_rows(job, job->op->out), job_rows(job, job->op->a), &w,
                  &job->rows, &shape);
}

static void unit_norm(struct job *job)
{
    struct cuda_delta shape = delta(job);
    cuda_unit_norm(job->b->stream, job_rows(job, job->op->a), job->op->epsilon, job_row_count(job),
                   &shape);
}

static void delta_rule(struct job *job)
{
    const struct op *op = job->op;
    struct cuda_delta shape = delta(job);
    const float *decay = job_vector(job, op->weight), *dt_bias = job_vector(job, op->weight2);
    if (job->status == MF_OK)
        cuda_delta_rule(job->b->stream, job_rows(job, op->out), job_rows(job, op->a),
                        job_rows(job, op->b), job_rows(job, op->c), decay, dt_bias, &job->rows,
                        &shape);
}

static void gated_norm(struct job *job)
{
    const struct op *op = job->op;
    struct cuda_delta shape = { .value_heads = op->heads, .value_width = op->head_width };
    const float *w = job_vector(job, op->weight);
    if (job->status == MF_OK)
        cuda_gated_norm(job->b->stream, job_rows(job, op->out), job_rows(job, op->a),
                        job_rows(job, op->b), w, op->epsilon, job_row_count(job), &shape);
}

/* ----------------------------------------------------------------------------------------- routes */

/* Two arrays of as many numbers, on the device and in pinned memory. */
static bool reserve_routes(struct cuda_backend *b, size_t pairs)
{
    size_t bytes = pairs * (sizeof(uint32_t) + sizeof(float));
    if (b->routes_bytes >= bytes) return true;
    if (!cuda_grow(b, &b->routes, &b->routes_bytes, bytes)) return false;
    if (b->host_routes) cuda_note(b, cudaFreeHost(b->host_routes));
    b->host_routes = NULL;
    if (cuda_note(b, cudaHostAlloc(&b->host_routes, bytes, cudaHostAllocDefault))) return true;
    cuda_give(b, b->routes, b->routes_bytes);
    b->routes = NULL;
    b->routes_bytes = 0;
    return false;
}

static void route(struct job *job)
{
    const struct router_shape *r = &job->op->router;
    struct cuda_backend *b = job->b;
    const struct routes *routes = job->frame->routes;
    size_t pairs = job->frame->row_count * routes->per_row;
    struct cuda_router router = { .sigmoid = r->sigmoid,
                                  .renormalise = r->renormalise,
                                  .scale = r->scale,
                                  .bias = r->sigmoid ? job_vector(job, WEIGHT_ROUTER_BIAS) : NULL,
                                  .scales = r->scaled ? job_vector(job, WEIGHT_EXPERT_SCALE) : NULL,
                                  .groups = r->groups,
                                  .top_groups = r->top_groups };
    if (job->status != MF_OK) return;
    if (!reserve_routes(b, pairs)) {
        job->status = cuda_fail_memory(job->why, b, pairs * sizeof(float));
        return;
    }
    uint32_t *experts = b->routes;
    b->route_pairs = pairs;
    cuda_route(b->stream, experts, (float *)(void *)(experts + pairs), routes->per_row,
               job_rows(job, job->op->a), job_row_count(job), job_width(job, job->op->a), &router);
    if (job->repeats) return;
    cuda_note(b,
              cudaMemcpyAsync(b->host_routes, b->routes, pairs * (sizeof(uint32_t) + sizeof(float)),
                              cudaMemcpyDeviceToHost, b->stream));
    cuda_note(b, cudaStreamSynchronize(b->stream));
    memcpy(routes->experts, b->host_routes, pairs * sizeof(uint32_t));
    memcpy(routes->weights, (uint32_t *)b->host_routes + pairs, pairs * sizeof(float));
}

static void combine(struct job *job)
{
    const struct op *op = job->op;
    bool add = op->kind == OP_COMBINE;
    cuda_combine(job->b->stream, job_rows(job, op->out), job_rows(job, add ? op->c : op->a),
                 job->route_weights, job->frame->routes->per_row, add ? job_rows(job, op->a) : NULL,
                 add ? job_rows(job, op->b) : NULL, job_row_count(job), job_width(job, op->out),
                 add);
}

/* ------------------------------------------------------------------------------------------ graph */

static void (*const ops[OP_KINDS])(struct job *job) = {
    [OP_EMBED] = embed,
    [OP_ROPE_ANGLES] = rope_angles,
    [OP_RMS_NORM] = norm,
    [OP_ADD_RMS_NORM] = norm,
    [OP_HEAD_NORM] = head_norm,
    [OP_COPY] = copy_rows,
    [OP_SCALE] = scale,
    [OP_SOFT_CAP] = soft_cap,
    [OP_PROJECT] = project,
    [OP_ADD_PROJECT] = project,
    [OP_ADD_BIAS] = add_bias,
    [OP_SPLIT_GATE] = split_gate,
    [OP_ROPE] = rotate,
    [OP_KV_APPEND] = kv_append,
    [OP_ATTEND] = attend,
    [OP_LATENT_APPEND] = latent_append,
    [OP_LATENT_ATTEND] = latent_attend,
    [OP_SIGMOID_MULTIPLY] = sigmoid_multiply,
    [OP_ACTIVATE] = activate,
    [OP_CONV] = conv,
    [OP_UNIT_NORM] = unit_norm,
    [OP_DELTA] = delta_rule,
    [OP_GATED_NORM] = gated_norm,
    [OP_ROUTE] = route,
    [OP_SUM_EXPERTS] = combine,
    [OP_COMBINE] = combine,
};

static bool graph_has(const struct graph *graph, enum op_kind kind)
{
    for (size_t i = 0; i < graph->op_count; i++)
        if (graph->ops[i].kind == kind) return true;
    return false;
}

static size_t pages_of(const struct span *span)
{
    return ((size_t)span->position + span->row_count + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
}

/* Pages have addresses that are good on the device. */
static void stage_spans(struct job *job, struct staged *staged)
{
    const struct frame *frame = job->frame;
    void *device;
    struct cuda_span *spans = staged_room(staged, frame->span_count * sizeof *spans, &device);
    job->rows.spans = device;
    for (size_t s = 0; s < frame->span_count; s++) {
        const struct span *span = &frame->spans[s];
        const struct kv_view *kv = &span->kv;
        const struct recurrent_view *r = &span->recurrent;
        void *pages = NULL;
        if (kv->pages) pages = staged_add(staged, kv->pages, pages_of(span) * sizeof *kv->pages);
        spans[s] = (struct cuda_span){ .first_row = span->first_row,
                                       .row_count = span->row_count,
                                       .position = span->position,
                                       .decode = span->decode,
                                       .pages = pages,
                                       .keys = kv->keys,
                                       .values = kv->values,
                                       .kv_format = kv->format,
                                       .conv_in = r->conv_in,
                                       .delta_in = r->delta_in,
                                       .conv_out = r->conv_out,
                                       .delta_out = r->delta_out };
        uint32_t last = span->position + span->row_count - 1;
        if (span->row_count > 0 && last > job->last_position) job->last_position = last;
    }
}

/* What the ops read of the frame's own arrays.  The event of the block is recorded again by the
 * caller, behind the launches. */
static struct staged *stage_frame(struct job *job, bool combines)
{
    const struct frame *frame = job->frame;
    bool own_rows = frame->rows && !frame->step;
    size_t rows = frame->row_count, bytes = 0, count = 5 + frame->span_count;
    size_t pairs = combines ? rows * frame->routes->per_row : 0;
    bytes += rows * (sizeof(struct cuda_row) + sizeof(int32_t)) + pairs * sizeof(float);
    for (size_t s = 0; own_rows && s < frame->span_count; s++)
        bytes += sizeof(struct cuda_span) + pages_of(&frame->spans[s]) * sizeof(uint8_t *);
    struct staged *staged = cuda_stage(job->b, bytes, count);
    if (!staged) return NULL;
    if (combines)
        job->route_weights = staged_add(staged, frame->routes->weights, pairs * sizeof(float));
    if (own_rows) {
        _Static_assert(sizeof(struct cuda_row) == sizeof(struct row), "copied as they are");
        job->rows.row_count = (uint32_t)rows;
        job->rows.span_count = (uint32_t)frame->span_count;
        job->rows.rows = staged_add(staged, frame->rows, rows * sizeof(struct row));
        if (frame->tokens)
            job->rows.tokens = staged_add(staged, frame->tokens, rows * sizeof(int32_t));
        stage_spans(job, staged);
    }
    cuda_send(job->b, staged);
    return staged;
}

/* What the graph reads of the host's: of a step it is there, but for weights of routes that the host
 * may have changed. */
static struct staged *prepare(struct job *job)
{
    const struct frame *frame = job->frame;
    const struct cuda_backend *b = job->b;
    bool combines = graph_has(job->graph, OP_COMBINE) || graph_has(job->graph, OP_SUM_EXPERTS);
    if (frame->step) {
        job->repeats = frame->step->repeats;
        job->rows = cuda_step_rows(b, frame);
        job->last_position = b->steps[frame->step->nested].last_position;
    }
    if (job->repeats)
        job->route_weights = (const float *)(const void *)((uint32_t *)b->routes + b->route_pairs);
    if (job->repeats || (frame->step && !combines)) return NULL;
    return stage_frame(job, combines);
}

mf_status cuda_execute(struct backend *backend, const struct graph *graph,
                       const struct frame *frame, mf_error *why)
{
    struct cuda_backend *b = (struct cuda_backend *)backend;
    struct job job = { .b = b, .graph = graph, .frame = frame, .why = why };
    if (frame->row_count == 0) return MF_OK;
    struct staged *staged = prepare(&job);
    job.status = cuda_check(b, why);
    while (job.next < graph->op_count && job.status == MF_OK) {
        job.op = &graph->ops[job.next++];
        ops[job.op->kind](&job);
    }
    if (staged) cuda_note(b, cudaEventRecord(staged->sent, b->stream));
    return job.status == MF_OK ? cuda_check(b, why) : job.status;
}
