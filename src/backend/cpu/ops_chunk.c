/* ops_chunk.c: the gated delta net, tuned (kernels/delta/delta.h).
 *
 * A worker computes whole key heads with the value heads that read them.  For a prompt their states
 * are transposed in its scratch while the rows are processed chunk by chunk; generated rows update
 * the state in place, one by one. */
#include "backend/cpu/cpu.h"

#include "model/weights.h"

/* ---------------------------------------------------------------- convolution */

enum { CONV_ROWS = 16, TAPS_MAX = 16 };

/* The raw input of the span's row t, which is negative for rows before the span. */
static const float *conv_input(const struct cpu_job *job, const struct span *span, long t)
{
    size_t channels = job_width(job, job->op->a), kept = job->op->delta.taps - 1;
    if (t >= 0) return job_row(job, job->op->a, span->first_row + (size_t)t);
    return span->recurrent.conv_in + (size_t)((long)kept + t) * channels;
}

bool cpu_conv_tuned(const struct cpu_job *job, const struct span *span, struct share channels)
{
    size_t taps = job->op->delta.taps;
    if (job->exact || taps > TAPS_MAX) return false;
    const float *x[CONV_ROWS + TAPS_MAX];
    float *out[CONV_ROWS];
    struct delta_conv conv = { .out = out,
                               .x = x,
                               .w = weight_vector(job_weight(job, job->op->weight)),
                               .taps = taps,
                               .begin = channels.begin,
                               .end = channels.end };
    for (size_t t = 0; t < span->row_count; t += CONV_ROWS) {
        conv.rows = min_size(CONV_ROWS, span->row_count - t);
        for (size_t i = 0; i < conv.rows; i++)
            out[i] = job_row(job, job->op->out, span->first_row + t + i);
        for (size_t i = 0; i < conv.rows + taps - 1; i++)
            x[i] = conv_input(job, span, (long)(t + i) - (long)(taps - 1));
        job->kernels->delta->conv(&conv);
    }
    return true;
}

/* --------------------------------------------------------------------- heads */

static size_t key_head_of(const struct delta_shape *shape, size_t value_head)
{
    return shape->tiled ? value_head % shape->key_heads
                        : value_head / (shape->value_heads / shape->key_heads);
}

/* Value head number `i` of those that read a key head. */
static size_t value_head_of(const struct delta_shape *shape, size_t key_head, size_t i)
{
    return shape->tiled ? i * shape->key_heads + key_head
                        : key_head * (shape->value_heads / shape->key_heads) + i;
}

/* Rows of the chunk that the span begins in, before the span. */
static size_t open_rows(const struct span *span)
{
    return delta_open_rows(span->position, span->run_start);
}

/* Where a key head's or a value head's part of the open rows begins. */
static size_t open_keys(const struct delta_shape *shape, size_t key_head)
{
    return key_head * DELTA_CHUNK * shape->key_width;
}

static size_t open_changes(const struct delta_shape *shape, size_t value_head)
{
    return open_keys(shape, shape->key_heads) +
           value_head * DELTA_CHUNK * delta_padded(shape->value_width);
}

static size_t open_decays(const struct delta_shape *shape, size_t value_head)
{
    return open_changes(shape, shape->value_heads) + value_head * DELTA_CHUNK;
}

/* One value head of a prompt; all pointers are into the worker's scratch. */
struct head_work {
    size_t value_head;
    float *state;    /* [keys][padded] */
    float *u;        /* [16][padded] */
    float *decay;    /* [16] */
    float *strength; /* [16] */
};

/* A key head and its value heads. */
struct key_work {
    const struct cpu_job *job;
    const struct span *span;
    const struct delta_shape *shape;
    size_t key_head, ratio, padded;
    struct delta_keys keys;
    float *k, *q;   /* [16][keys] */
    float *v, *out; /* [16][padded] */
    float *scratch; /* [2][16][padded] */
    float *inputs;  /* [4][16] of the gates */
    float *heads;   /* memory of head_work: ratio times */
};

static size_t head_floats(size_t keys, size_t padded)
{
    return keys * padded + DELTA_CHUNK * padded + 2 * DELTA_CHUNK;
}

static size_t key_floats(size_t keys, size_t padded, size_t ratio)
{
    return 3 * DELTA_CHUNK * keys + 4 * DELTA_CHUNK * padded + 2 * DELTA_CHUNK * DELTA_CHUNK +
           4 * DELTA_CHUNK + ratio * head_floats(keys, padded);
}

static struct head_work head_at(const struct key_work *w, size_t i)
{
    size_t keys = w->shape->key_width;
    struct head_work head = { .value_head = value_head_of(w->shape, w->key_head, i),
                              .state = w->heads + i * head_floats(keys, w->padded) };
    head.u = head.state + keys * w->padded;
    head.decay = head.u + DELTA_CHUNK * w->padded;
    head.strength = head.decay + DELTA_CHUNK;
    return head;
}

static struct key_work key_work(const struct cpu_job *job, const struct span *span, size_t key_head)
{
    const struct delta_shape *shape = &job->op->delta;
    size_t keys = shape->key_width, padded = delta_padded(shape->value_width);
    struct key_work w = { .job = job,
                          .span = span,
                          .shape = shape,
                          .key_head = key_head,
                          .ratio = shape->value_heads / shape->key_heads,
                          .padded = padded };
    w.k = job->scratch;
    w.q = w.k + DELTA_CHUNK * keys;
    w.v = w.q + DELTA_CHUNK * keys;
    w.out = w.v + DELTA_CHUNK * padded;
    w.scratch = w.out + DELTA_CHUNK * padded;
    w.keys = (struct delta_keys){
        .k = w.k, .q = w.q, .keys = keys, .transposed = w.scratch + 2 * DELTA_CHUNK * padded
    };
    w.keys.kk = w.keys.transposed + DELTA_CHUNK * keys;
    w.keys.qk = w.keys.kk + DELTA_CHUNK * DELTA_CHUNK;
    w.inputs = w.keys.qk + DELTA_CHUNK * DELTA_CHUNK;
    w.heads = w.inputs + 4 * DELTA_CHUNK;
    return w;
}

/* --------------------------------------------------------------- state and rows */

static size_t state_offset(const struct key_work *w, size_t value_head)
{
    return value_head * w->shape->key_width * w->shape->value_width;
}

/* Loads the states and the rows of an incomplete chunk. */
static void load_heads(struct key_work *w)
{
    const struct recurrent_view *r = &w->span->recurrent;
    size_t rows = open_rows(w->span), keys = w->shape->key_width;
    if (rows > 0)
        memcpy(w->k, r->open_in + open_keys(w->shape, w->key_head), rows * keys * sizeof(float));
    for (size_t i = 0; i < w->ratio; i++) {
        struct head_work h = head_at(w, i);
        w->job->kernels->delta->load_state(h.state, r->delta_in + state_offset(w, h.value_head),
                                           keys, w->shape->value_width);
        if (rows == 0) continue;
        memcpy(h.u, r->open_in + open_changes(w->shape, h.value_head),
               rows * w->padded * sizeof(float));
        memcpy(h.decay, r->open_in + open_decays(w->shape, h.value_head), rows * sizeof(float));
    }
}

static void store_heads(const struct key_work *w, size_t rows)
{
    const struct recurrent_view *r = &w->span->recurrent;
    size_t keys = w->shape->key_width;
    if (rows > 0)
        memcpy(r->open_out + open_keys(w->shape, w->key_head), w->k, rows * keys * sizeof(float));
    for (size_t i = 0; i < w->ratio; i++) {
        struct head_work h = head_at(w, i);
        w->job->kernels->delta->store_state(r->delta_out + state_offset(w, h.value_head), h.state,
                                            keys, w->shape->value_width);
        if (rows == 0) continue;
        memcpy(r->open_out + open_changes(w->shape, h.value_head), h.u,
               rows * w->padded * sizeof(float));
        memcpy(r->open_out + open_decays(w->shape, h.value_head), h.decay, rows * sizeof(float));
    }
}

static struct delta_chunk chunk_of(const struct key_work *w, const struct head_work *h)
{
    return (struct delta_chunk){ .keys = &w->keys,
                                 .padded = w->padded,
                                 .decay = h->decay,
                                 .strength = h->strength,
                                 .v = w->v,
                                 .u = h->u,
                                 .out = w->out,
                                 .state = h->state,
                                 .scratch = w->scratch };
}

/* Updates the states to those after the rows of the chunk so far. */
static void close_chunk(const struct key_work *w)
{
    for (size_t i = 0; i < w->ratio; i++) {
        struct head_work h = head_at(w, i);
        struct delta_chunk chunk = chunk_of(w, &h);
        w->job->kernels->delta->close(&chunk);
    }
}

/* ------------------------------------------------------------------- a prompt */

/* γ and β of the chunk's new rows, whose first is row `row` of the frame. */
static void gate_rows(const struct key_work *w, const struct head_work *h, size_t row)
{
    const struct op *op = w->job->op;
    size_t first = w->keys.first, count = w->keys.end - first;
    float *a = w->inputs, *b = a + DELTA_CHUNK, *log_decay = b + DELTA_CHUNK;
    float *bias = log_decay + DELTA_CHUNK;
    for (size_t i = 0; i < count; i++) {
        a[i] = job_row(w->job, op->c, row + i)[h->value_head];
        b[i] = job_row(w->job, op->b, row + i)[h->value_head];
        log_decay[i] = weight_vector(job_weight(w->job, op->weight))[h->value_head];
        bias[i] = weight_vector(job_weight(w->job, op->weight2))[h->value_head];
    }
    w->job->kernels->delta->gates(&(struct delta_gates){ .decay = h->decay + first,
                                                         .strength = h->strength + first,
                                                         .a = a,
                                                         .b = b,
                                                         .log_decay = log_decay,
                                                         .bias = bias,
                                                         .n = count });
}

static void attend_head(const struct key_work *w, size_t i, size_t row)
{
    const struct op *op = w->job->op;
    struct head_work h = head_at(w, i);
    struct delta_chunk chunk = chunk_of(w, &h);
    size_t values = w->shape->value_width, all_keys = w->shape->key_heads * w->keys.keys;
    size_t channel = h.value_head * values;
    gate_rows(w, &h, row);
    for (size_t t = w->keys.first; t < w->keys.end; t++) {
        float *v = w->v + t * w->padded;
        const float *mixed = job_row(w->job, op->a, row + t - w->keys.first);
        memcpy(v, mixed + 2 * all_keys + channel, values * sizeof(float));
        memset(v + values, 0, (w->padded - values) * sizeof(float));
    }
    w->job->kernels->delta->rows(&chunk);
    for (size_t t = w->keys.first; t < w->keys.end; t++)
        memcpy(job_row(w->job, op->out, row + t - w->keys.first) + channel, w->out + t * w->padded,
               values * sizeof(float));
}

/* Rows [first, end) of a chunk, from row `row` of the frame on. */
static void run_rows(struct key_work *w, size_t first, size_t end, size_t row)
{
    size_t keys = w->keys.keys, all_keys = w->shape->key_heads * keys;
    w->keys.first = first;
    w->keys.end = end;
    for (size_t t = first; t < end; t++) {
        const float *mixed = job_row(w->job, w->job->op->a, row + t - first) + w->key_head * keys;
        memcpy(w->q + t * keys, mixed, keys * sizeof(float));
        memcpy(w->k + t * keys, mixed + all_keys, keys * sizeof(float));
    }
    w->job->kernels->delta->multiply_keys(&w->keys);
    for (size_t i = 0; i < w->ratio; i++) attend_head(w, i, row);
}

static void prompt_head(const struct cpu_job *job, const struct span *span, size_t key_head)
{
    struct key_work w = key_work(job, span, key_head);
    size_t rows = open_rows(span);
    load_heads(&w);
    for (size_t t = 0; t < span->row_count;) {
        size_t room = DELTA_CHUNK - (span->position + t) % DELTA_CHUNK;
        size_t count = min_size(room, span->row_count - t);
        run_rows(&w, rows, rows + count, span->first_row + t);
        rows += count;
        t += count;
        if (count < room) break;
        close_chunk(&w);
        rows = 0;
    }
    store_heads(&w, rows);
}

/* -------------------------------------------------------------- generated rows */

/* Applies the rows of an incomplete chunk to the state before generated rows use it. */
static const float *settle_head(const struct cpu_job *job, const struct span *span,
                                size_t value_head)
{
    const struct delta_shape *shape = &job->op->delta;
    size_t rows = span->recurrent.open_in ? open_rows(span) : 0;
    size_t keys = shape->key_width, offset = value_head * keys * shape->value_width;
    if (rows == 0) return span->recurrent.delta_in + offset;
    struct key_work w = key_work(job, span, key_head_of(shape, value_head));
    struct head_work h = head_at(&w, 0);
    const struct recurrent_view *r = &span->recurrent;
    struct delta_chunk chunk = chunk_of(&w, &h);
    w.keys.end = rows;
    w.keys.k = r->open_in + open_keys(shape, w.key_head);
    memcpy(h.u, r->open_in + open_changes(shape, value_head), rows * w.padded * sizeof(float));
    chunk.decay = r->open_in + open_decays(shape, value_head);
    job->kernels->delta->load_state(h.state, r->delta_in + offset, keys, shape->value_width);
    job->kernels->delta->close(&chunk);
    job->kernels->delta->store_state(r->delta_out + offset, h.state, keys, shape->value_width);
    return r->delta_out + offset;
}

static void decode_head(const struct cpu_job *job, const struct span *span, size_t head)
{
    const struct op *op = job->op;
    const struct delta_shape *shape = &op->delta;
    size_t keys = shape->key_width, values = shape->value_width;
    size_t all_keys = shape->key_heads * keys, key_head = key_head_of(shape, head);
    struct delta_step step = { .state_in = settle_head(job, span, head),
                               .state_out = span->recurrent.delta_out + head * keys * values,
                               .keys = keys,
                               .values = values };
    for (size_t t = 0; t < span->row_count; t++) {
        size_t r = span->first_row + t;
        const float *mixed = job_row(job, op->a, r);
        struct delta_gates gates = { .decay = &step.decay,
                                     .strength = &step.strength,
                                     .a = job_row(job, op->c, r) + head,
                                     .b = job_row(job, op->b, r) + head,
                                     .log_decay = weight_vector(job_weight(job, op->weight)) + head,
                                     .bias = weight_vector(job_weight(job, op->weight2)) + head,
                                     .n = 1 };
        job->kernels->delta->gates(&gates);
        step.q = mixed + key_head * keys;
        step.k = mixed + all_keys + key_head * keys;
        step.v = mixed + 2 * all_keys + head * values;
        step.out = job_row(job, op->out, r) + head * values;
        job->kernels->delta->step(&step);
        step.state_in = step.state_out; /* from the second row on, in place */
    }
}

void cpu_delta_tuned(const struct cpu_job *job)
{
    const struct delta_shape *shape = &job->op->delta;
    unsigned turn = 0;
    for (size_t s = 0; s < job->frame->span_count; s++) {
        const struct span *span = &job->frame->spans[s];
        bool prompt = !span->decode && span->recurrent.open_out;
        size_t heads = prompt ? shape->key_heads : shape->value_heads;
        for (size_t h = 0; h < heads; h++, turn++) {
            if (turn % job->worker.count != job->worker.index) continue;
            if (prompt)
                prompt_head(job, span, h);
            else
                decode_head(job, span, h);
        }
    }
}

size_t cpu_delta_scratch(const struct backend_sizes *sizes)
{
    if (!sizes->delta_key_heads) return 0;
    return key_floats(sizes->delta_keys, delta_padded(sizes->delta_values),
                      sizes->delta_value_heads / sizes->delta_key_heads);
}
