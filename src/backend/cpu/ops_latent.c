/* ops_latent.c: multi-head latent attention.
 *
 * The cache holds one latent l and one rotated key k_r per position.  A head's keys
 * and values are products of the latent, k = Wk·l and v = Wv·l, and there are two
 * ways to a score q_n·k + q_r·k_r:
 *
 *     expanded   k and v of 64 positions at a time, for all rows of a prompt
 *     absorbed   (Wkᵀ·q_n)·l, and Wv once at the end: for single rows, whose cost
 *                would else be that of expanding the whole context
 *
 * A worker has whole heads; it dequantises a head's Wk and Wv once per step.
 * Wk is stored by key channel [nope][latent] (kv_b) or by latent channel
 * [latent][nope] (split files): applying it or its transpose is then either a
 * product with each row or a sum of rows. */
#include "backend/cpu/latent.h"

#include "model/weights.h"

#include <math.h>

void cpu_latent_append(const struct cpu_job *job)
{
    const struct op *op = job->op;
    size_t stored = job_width(job, op->a), latent = stored - op->rope.width;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++) {
        const struct row *row = &job->frame->rows[r];
        struct kv_head page =
            cpu_latent_head(&job->frame->spans[row->span].kv, row->position, stored);
        float *to = job->scratch;
        const float *from = job_row(job, op->a, r);
        job->kernels->rms_norm(to, from, weight_vector(job_weight(job, op->weight)), op->epsilon,
                               latent);
        memcpy(to + latent, from + latent, op->rope.width * sizeof(float));
        cpu_rotate(to + latent, job_row(job, op->b, r), &op->rope);
        cpu_kv_store(job->kernels, &page, row->position % KV_PAGE_TOKENS, to);
    }
}

const uint16_t *cpu_latent_page(const struct cpu_job *job, const struct kv_view *kv,
                                size_t position, uint16_t *memory)
{
    size_t stored = (size_t)job->op->latent.latent_width + job->op->latent.rope_width;
    struct kv_head page = cpu_latent_head(kv, position, stored);
    return cpu_kv_tile(job->kernels, &page, memory);
}

struct latent_weights cpu_latent_weights(const struct cpu_job *job, uint32_t head)
{
    const struct latent_shape *shape = &job->op->latent;
    const struct weight *both = job_weight(job, WEIGHT_KV_B);
    uint64_t rows = (uint64_t)shape->nope_width + shape->value_width;
    if (both->values)
        return (struct latent_weights){ .keys = both,
                                        .values = both,
                                        .first_key = head * rows,
                                        .first_value = head * rows + shape->nope_width };
    return (struct latent_weights){ .keys = job_weight(job, WEIGHT_K_B),
                                    .values = job_weight(job, WEIGHT_V_B),
                                    .first_key = (uint64_t)head * shape->latent_width,
                                    .first_value = (uint64_t)head * shape->value_width,
                                    .by_latent = true };
}

/* One head on one worker: matrices and scratch. */
struct latent_head {
    const struct cpu_job *job;
    const struct latent_shape *shape;
    uint32_t index;
    const float *keys;   /* by_latent ? [latent][nope] : [nope][latent] */
    const float *values; /* [value][latent] */
    bool by_latent;
    float *row;     /* [latent | rope] of a position */
    float *scratch; /* behind the matrices and the row */
};

static void load_rows(const struct cpu_job *job, float *out, const struct weight *weight,
                      uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        kernels_dequantise(job->kernels, out + i * weight->cols, weight, first + i);
}

static struct latent_head load_head(const struct cpu_job *job, uint32_t index)
{
    const struct latent_shape *shape = &job->op->latent;
    struct latent_weights w = cpu_latent_weights(job, index);
    uint64_t nope = shape->nope_width, values = shape->value_width;
    size_t stored = (size_t)shape->latent_width + shape->rope_width;
    float *keys = job->scratch, *value_rows = keys + nope * shape->latent_width;
    float *row = value_rows + values * shape->latent_width;
    load_rows(job, keys, w.keys, w.first_key, w.by_latent ? shape->latent_width : nope);
    load_rows(job, value_rows, w.values, w.first_value, values);
    return (struct latent_head){ .job = job,
                                 .shape = shape,
                                 .index = index,
                                 .keys = keys,
                                 .values = value_rows,
                                 .by_latent = w.by_latent,
                                 .row = row,
                                 .scratch = row + stored };
}

/* out[rows] = matrix [rows][cols] · x */
static void apply(const struct kernels *kernels, float *out, const float *matrix, size_t rows,
                  size_t cols, const float *x)
{
    for (size_t i = 0; i < rows; i++) out[i] = kernels->dot(matrix + i * cols, x, cols);
}

/* out[cols] = x · matrix [rows][cols] */
static void apply_transposed(const struct kernels *kernels, float *out, const float *matrix,
                             size_t rows, size_t cols, const float *x)
{
    memset(out, 0, cols * sizeof *out);
    for (size_t i = 0; i < rows; i++) kernels->add_scaled(out, matrix + i * cols, x[i], cols);
}

/* Cached [latent | rope] of a position, until the next call. */
static const float *cached(const struct latent_head *head, const struct kv_view *kv,
                           size_t position)
{
    size_t stored = (size_t)head->shape->latent_width + head->shape->rope_width;
    struct kv_head page = cpu_latent_head(kv, position, stored);
    return cpu_kv_row(&page, position % KV_PAGE_TOKENS, head->row);
}

static const float *query(const struct latent_head *head, size_t row)
{
    size_t width = head->shape->nope_width + head->shape->rope_width;
    return job_row(head->job, head->job->op->a, row) + head->index * width;
}

/* ---------------------------------------------------------------- absorbed */

static void attend_absorbed(const struct latent_head *head, size_t row, const struct kv_view *kv)
{
    const struct latent_shape *shape = head->shape;
    const struct kernels *kernels = head->job->kernels;
    size_t latent = shape->latent_width, nope = shape->nope_width;
    size_t count = (size_t)head->job->frame->rows[row].position + 1;
    float *q_latent = head->scratch, *context = q_latent + latent, *scores = context + latent;
    const float *q = query(head, row);
    if (head->by_latent)
        apply(kernels, q_latent, head->keys, latent, nope, q);
    else
        apply_transposed(kernels, q_latent, head->keys, nope, latent, q);

    for (size_t p = 0; p < count; p++) {
        const float *key = cached(head, kv, p);
        float score = kernels->dot(q_latent, key, latent) +
                      kernels->dot(q + nope, key + latent, shape->rope_width);
        scores[p] = score * shape->scale;
    }
    kernels->softmax(scores, count);
    memset(context, 0, latent * sizeof *context);
    for (size_t p = 0; p < count; p++)
        kernels->add_scaled(context, cached(head, kv, p), scores[p], latent);
    float *out = job_row(head->job, head->job->op->out, row) + head->index * shape->value_width;
    apply(kernels, out, head->values, shape->value_width, latent, context);
}

/* ---------------------------------------------------------------- expanded */

/* A row's running softmax: the greatest score so far, the sum of weights, and the sum
 * of weighted values in the row's place of the output. */
struct running {
    float greatest, sum;
};

/* Keys and values of up to 64 positions, expanded from their latents. */
struct tile {
    float *keys;   /* [64][nope] */
    float *values; /* [64][value] */
    size_t first, count;
};

static void expand_tile(const struct latent_head *head, struct tile *tile, const struct kv_view *kv)
{
    const struct latent_shape *shape = head->shape;
    const struct kernels *kernels = head->job->kernels;
    size_t nope = shape->nope_width, latent = shape->latent_width, values = shape->value_width;
    for (size_t i = 0; i < tile->count; i++) {
        const float *l = cached(head, kv, tile->first + i);
        if (head->by_latent)
            apply_transposed(kernels, tile->keys + i * nope, head->keys, latent, nope, l);
        else
            apply(kernels, tile->keys + i * nope, head->keys, nope, latent, l);
        apply(kernels, tile->values + i * values, head->values, values, latent, l);
    }
}

/* Adds a tile's positions, as far as the row may see them, to its running softmax. */
static void attend_tile(const struct latent_head *head, size_t row, const struct tile *tile,
                        const struct kv_view *kv, struct running *running)
{
    const struct latent_shape *shape = head->shape;
    const struct kernels *kernels = head->job->kernels;
    size_t nope = shape->nope_width, values = shape->value_width, latent = shape->latent_width;
    size_t position = head->job->frame->rows[row].position;
    if (position < tile->first) return;
    size_t count = min_size(tile->count, position - tile->first + 1);
    const float *q = query(head, row);
    float *out = job_row(head->job, head->job->op->out, row) + head->index * values;
    float scores[KV_PAGE_TOKENS + 1], greatest = running->greatest;
    for (size_t i = 0; i < count; i++) {
        const float *key = cached(head, kv, tile->first + i);
        scores[i] = (kernels->dot(q, tile->keys + i * nope, nope) +
                     kernels->dot(q + nope, key + latent, shape->rope_width)) *
                    shape->scale;
        if (scores[i] > greatest) greatest = scores[i];
    }
    scores[count] = running->greatest; /* its weight rescales what has been summed */
    kernels->exp_shifted(scores, greatest, count + 1);
    float keep = scores[count];
    for (size_t c = 0; c < values; c++) out[c] *= keep;
    running->sum *= keep;
    for (size_t i = 0; i < count; i++) {
        kernels->add_scaled(out, tile->values + i * values, scores[i], values);
        running->sum += scores[i];
    }
    running->greatest = greatest;
}

static void attend_expanded(const struct latent_head *head, const struct span *span)
{
    const struct latent_shape *shape = head->shape;
    size_t values = shape->value_width, end = (size_t)span->position + span->row_count;
    struct tile tile = { .keys = head->scratch };
    tile.values = tile.keys + (size_t)KV_PAGE_TOKENS * shape->nope_width;
    struct running *running = (struct running *)(void *)(tile.values + KV_PAGE_TOKENS * values);
    buffer out = head->job->op->out;

    for (size_t t = 0; t < span->row_count; t++) {
        running[t] = (struct running){ .greatest = -INFINITY };
        memset(job_row(head->job, out, span->first_row + t) + head->index * values, 0,
               values * sizeof(float));
    }
    for (tile.first = 0; tile.first < end; tile.first += KV_PAGE_TOKENS) {
        tile.count = min_size(KV_PAGE_TOKENS, end - tile.first);
        expand_tile(head, &tile, &span->kv);
        for (size_t t = 0; t < span->row_count; t++)
            attend_tile(head, span->first_row + t, &tile, &span->kv, &running[t]);
    }
    for (size_t t = 0; t < span->row_count; t++) {
        float *row = job_row(head->job, out, span->first_row + t) + head->index * values;
        for (size_t c = 0; c < values; c++) row[c] /= running[t].sum;
    }
}

static void attend_plainly(const struct cpu_job *job)
{
    struct share heads = worker_share(job->worker, job->op->latent.heads, 1);
    for (size_t h = heads.begin; h < heads.end; h++) {
        struct latent_head head = load_head(job, (uint32_t)h);
        for (size_t s = 0; s < job->frame->span_count; s++) {
            const struct span *span = &job->frame->spans[s];
            if (!span->decode) {
                attend_expanded(&head, span);
                continue;
            }
            for (size_t t = 0; t < span->row_count; t++)
                attend_absorbed(&head, span->first_row + t, &span->kv);
        }
    }
}

void cpu_latent_attend(const struct cpu_job *job)
{
    if (job->exact) {
        attend_plainly(job);
        return;
    }
    cpu_latent_absorb(job);
    for (size_t s = 0; s < job->frame->span_count; s++)
        if (!job->frame->spans[s].decode) cpu_latent_expand(job, &job->frame->spans[s]);
}

size_t cpu_latent_scratch(const struct backend_sizes *sizes)
{
    size_t rows = sizes->latent.nope + sizes->latent.values;
    if (!sizes->latent.heads) return 0;
    size_t absorbed = 2 * sizes->latent.latent + sizes->context;
    /* Keys and values of 64 positions, and each row's running softmax. */
    size_t expanded = KV_PAGE_TOKENS * rows + 2 * sizes->row_count;
    size_t stored = sizes->latent.latent + sizes->latent.rope;
    return rows * sizes->latent.latent + stored + max_size(absorbed, expanded);
}

size_t cpu_latent_tuned_scratch(const struct backend_sizes *sizes)
{
    if (!sizes->latent.heads) return 0;
    return max_size(cpu_expand_scratch(sizes), cpu_absorb_scratch(sizes));
}

size_t cpu_latent_tuned_shared(const struct backend_sizes *sizes, const struct kernels *kernels)
{
    if (!sizes->latent.heads) return 0;
    return max_size(cpu_expand_shared(sizes, kernels), cpu_absorb_shared(sizes));
}
