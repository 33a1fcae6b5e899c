/* ops_delta.c: the gated delta net: a recurrent state instead of a cache.  Plain arithmetic; ops_chunk.c
 * has the tuned forms.
 *
 * Positions of a sequence are processed in order; workers divide channels and heads, which are
 * independent. */
#include "backend/cpu/cpu.h"

#include "kernels/scalar_math.h"
#include "model/weights.h"

/* The raw input `back` positions before row `t` of the span: from the state where
 * that lies before the span. */
static const float *conv_input(const struct cpu_job *job, const struct span *span, size_t t,
                               size_t back)
{
    size_t channels = job_width(job, job->op->a), kept = job->op->delta.taps - 1;
    if (back <= t) return job_row(job, job->op->a, span->first_row + t - back);
    return span->recurrent.conv_in + (kept + t - back) * channels;
}

static void conv_rows(const struct cpu_job *job, const struct span *span, struct share channels)
{
    size_t taps = job->op->delta.taps;
    const float *w = weight_vector(job_weight(job, job->op->weight)); /* [channels][taps] */
    for (size_t t = 0; t < span->row_count; t++) {
        float *out = job_row(job, job->op->out, span->first_row + t);
        for (size_t c = channels.begin; c < channels.end; c++) out[c] = 0.0f;
        for (size_t j = 0; j < taps; j++) {
            const float *u = conv_input(job, span, t, taps - 1 - j);
            for (size_t c = channels.begin; c < channels.end; c++) out[c] += w[c * taps + j] * u[c];
        }
        job->kernels->silu(out + channels.begin, channels.end - channels.begin);
    }
}

/* The last taps - 1 inputs become the state.  Ascending order: where the state is
 * updated in place, an entry is read before it is overwritten. */
static void conv_keep(const struct cpu_job *job, const struct span *span, struct share channels)
{
    size_t kept = job->op->delta.taps - 1, width = job_width(job, job->op->a);
    for (size_t j = 0; j < kept; j++) {
        const float *from = conv_input(job, span, span->row_count, kept - j);
        float *to = span->recurrent.conv_out + j * width;
        memmove(to + channels.begin, from + channels.begin,
                (channels.end - channels.begin) * sizeof(float));
    }
}

void cpu_conv(const struct cpu_job *job)
{
    struct share channels = worker_share(job->worker, job_width(job, job->op->a), 16);
    for (size_t s = 0; s < job->frame->span_count; s++) {
        const struct span *span = &job->frame->spans[s];
        if (!cpu_conv_tuned(job, span, channels)) conv_rows(job, span, channels);
        conv_keep(job, span, channels);
    }
}

/* Queries (scaled by 1/√width), then keys, at the front of every row. */
void cpu_unit_norm(const struct cpu_job *job)
{
    const struct delta_shape *shape = &job->op->delta;
    size_t heads = 2 * (size_t)shape->key_heads, width = shape->key_width;
    float query_scale = (float)(1.0 / __builtin_sqrt((double)width));
    struct share share = worker_share(job->worker, job->frame->row_count * heads, 1);
    for (size_t i = share.begin; i < share.end; i++) {
        size_t head = i % heads;
        job->kernels->unit_norm(job_row(job, job->op->a, i / heads) + head * width,
                                head < shape->key_heads ? query_scale : 1.0f, job->op->epsilon,
                                width);
    }
}

static void delta_head(const struct cpu_job *job, const struct span *span, size_t head)
{
    const struct op *op = job->op;
    const struct delta_shape *shape = &op->delta;
    const float *log_decay = weight_vector(job_weight(job, op->weight)); /* negative */
    const float *dt_bias = weight_vector(job_weight(job, op->weight2));
    size_t keys = shape->key_width, values = shape->value_width;
    size_t key_head =
        shape->tiled ? head % shape->key_heads : head / (shape->value_heads / shape->key_heads);
    size_t all_keys = shape->key_heads * keys, state = head * keys * values;

    struct delta_step step = { .state_out = span->recurrent.delta_out + state,
                               .state_in = span->recurrent.delta_in + state,
                               .keys = keys,
                               .values = values };
    for (size_t t = 0; t < span->row_count; t++) {
        size_t r = span->first_row + t;
        const float *mixed = job_row(job, op->a, r);
        double dt = scalar_softplus((double)job_row(job, op->c, r)[head] + (double)dt_bias[head]);
        step.decay = (float)scalar_exp((double)log_decay[head] * dt);
        step.strength = (float)scalar_sigmoid((double)job_row(job, op->b, r)[head]);
        step.q = mixed + key_head * keys;
        step.k = mixed + all_keys + key_head * keys;
        step.v = mixed + 2 * all_keys + head * values;
        step.out = job_row(job, op->out, r) + head * values;
        job->kernels->delta_step(&step);
        step.state_in = step.state_out; /* from the second row on, in place */
    }
}

void cpu_delta(const struct cpu_job *job)
{
    if (!job->exact) {
        cpu_delta_tuned(job);
        return;
    }
    size_t heads = job->op->delta.value_heads;
    struct share share = worker_share(job->worker, job->frame->span_count * heads, 1);
    for (size_t i = share.begin; i < share.end; i++)
        delta_head(job, &job->frame->spans[i / heads], i % heads);
}

void cpu_gated_norm(const struct cpu_job *job)
{
    const struct op *op = job->op;
    struct share share = worker_share(job->worker, job->frame->row_count * op->heads, 1);
    for (size_t i = share.begin; i < share.end; i++) {
        size_t row = i / op->heads, channel = i % op->heads * op->head_width;
        float *out = job_row(job, op->out, row) + channel;
        job->kernels->rms_norm(out, job_row(job, op->a, row) + channel,
                               weight_vector(job_weight(job, op->weight)), op->epsilon,
                               op->head_width);
        job->kernels->gate_multiply[ACTIVATION_SILU](out, job_row(job, op->b, row) + channel, out,
                                                     op->head_width);
    }
}
