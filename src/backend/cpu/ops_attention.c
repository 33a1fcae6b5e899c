/* ops_attention.c: rotary positions, the key/value cache, attention over it. */
#include "backend/cpu/cpu.h"

#include "kernels/scalar_math.h"
#include "model/weights.h"

void cpu_split_gate(const struct cpu_job *job)
{
    const struct op *op = job->op;
    size_t width = op->attention.head_width, heads = op->attention.heads;
    struct share share = worker_share(job->worker, job->frame->row_count * heads, 1);
    for (size_t i = share.begin; i < share.end; i++) {
        size_t row = i / heads, head = i % heads;
        const float *both = job_row(job, op->a, row) + head * 2 * width;
        memcpy(job_row(job, op->out, row) + head * width, both, width * sizeof(float));
        memcpy(job_row(job, op->b, row) + head * width, both + width, width * sizeof(float));
    }
}

void cpu_rope_angles(const struct cpu_job *job)
{
    const struct rope_shape *shape = &job->op->rope;
    size_t half = shape->width / 2;
    struct share rows = worker_share(job->worker, job->frame->row_count, 1);
    for (size_t r = rows.begin; r < rows.end; r++) {
        float *cosines = job_row(job, job->op->out, r), *sines = cosines + half;
        for (size_t i = 0; i < half; i++) {
            double sine, cosine;
            scalar_sincos(&sine, &cosine, job->frame->rows[r].position * shape->frequencies[i]);
            cosines[i] = (float)(cosine * shape->multiplier);
            sines[i] = (float)(sine * shape->multiplier);
        }
    }
}

void cpu_rotate(float *channels, const float *angles, const struct rope_shape *shape)
{
    size_t half = shape->width / 2;
    size_t first = shape->interleaved ? 2 : 1, second = shape->interleaved ? 1 : half;
    for (size_t i = 0; i < half; i++) {
        float *u = channels + first * i, *v = u + second;
        float cosine = angles[i], sine = angles[half + i], old_u = *u;
        *u = old_u * cosine - *v * sine;
        *v = old_u * sine + *v * cosine;
    }
}

void cpu_rope(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share share = worker_share(job->worker, job->frame->row_count * op->heads, 1);
    for (size_t i = share.begin; i < share.end; i++) {
        size_t row = i / op->heads, head = i % op->heads;
        cpu_rotate(job_row(job, op->a, row) + head * op->head_width + op->rope.offset,
                   job_row(job, op->b, row), &op->rope);
    }
}

/* ------------------------------------------------------------------ the cache */

/* Stores the key or value of one head of row r in the cache. */
static void append(const struct cpu_job *job, size_t r, uint32_t head, bool key)
{
    const struct attention_shape *shape = &job->op->attention;
    const struct row *row = &job->frame->rows[r];
    struct kv_head to =
        cpu_kv_head(&job->frame->spans[row->span].kv, key, row->position, head, shape->head_width);
    cpu_kv_store(job->kernels, &to, row->position % KV_PAGE_TOKENS,
                 job_row(job, key ? job->op->a : job->op->b, r) + head * to.width);
}

/* A worker has whole heads, so that no two write to one cache line. */
void cpu_kv_append(const struct cpu_job *job)
{
    uint32_t heads = job->op->attention.kv_heads;
    struct share share = worker_share(job->worker, 2 * (size_t)heads, 1);
    for (size_t i = share.begin; i < share.end; i++)
        for (size_t r = 0; r < job->frame->row_count; r++)
            append(job, r, (uint32_t)(i % heads), i < heads);
}

/* ------------------------------------------------------- attention, as defined */

/* One head of one row over the positions that it sees. */
static void attend_head(const struct cpu_job *job, size_t r, uint32_t head)
{
    const struct op *op = job->op;
    const struct attention_shape *shape = &op->attention;
    const struct row *row = &job->frame->rows[r];
    const struct kv_view *kv = &job->frame->spans[row->span].kv;
    uint32_t kv_head = head / (shape->heads / shape->kv_heads);
    size_t width = shape->head_width, first = attention_first(shape, row->position);
    size_t count = (size_t)row->position + 1 - first;
    const float *q = job_row(job, op->a, r) + head * width;
    float *out = job_row(job, op->out, r) + head * width;
    float *scores = job->scratch, *memory = scores + count + 1;

    for (size_t p = 0; p < count; p++) {
        struct kv_head keys = cpu_kv_head(kv, true, first + p, kv_head, width);
        const float *k = cpu_kv_row(&keys, (first + p) % KV_PAGE_TOKENS, memory);
        scores[p] = job->kernels->dot(q, k, width) * shape->scale;
    }
    if (shape->sinks) scores[count] = weight_vector(job_weight(job, op->weight))[head];
    job->kernels->softmax(scores, shape->sinks ? count + 1 : count);
    memset(out, 0, width * sizeof(float));
    for (size_t p = 0; p < count; p++) {
        struct kv_head values = cpu_kv_head(kv, false, first + p, kv_head, width);
        const float *v = cpu_kv_row(&values, (first + p) % KV_PAGE_TOKENS, memory);
        job->kernels->add_scaled(out, v, scores[p], width);
    }
}

/* Later rows see more positions: heads are assigned round-robin, so that workers finish together. */
static void attend_plainly(const struct cpu_job *job)
{
    uint32_t heads = job->op->attention.heads;
    size_t count = job->frame->row_count * heads;
    for (size_t i = job->worker.index; i < count; i += job->worker.count)
        attend_head(job, i / heads, (uint32_t)(i % heads));
}

void cpu_attend(const struct cpu_job *job)
{
    if (job->exact)
        attend_plainly(job);
    else
        cpu_attend_tuned(job);
}
