/* cpu.h: inside the CPU backend.
 *
 * All workers walk a graph together.  An operation splits its work by worker,
 * never by time, so that the result does not depend on how many there are. */
#ifndef BACKEND_CPU_H
#define BACKEND_CPU_H

#include "backend/backend.h"

/* Rows of a matrix that are dequantised together, and rows of activations that
 * are multiplied with them before the next ones are fetched. */
enum { MATRIX_ROWS = 8, ACTIVATION_ROWS = 32 };

struct cpu_backend {
    struct backend base;
    const mf_allocator *allocator;
    struct thread_pool *pool;
    const struct kernels *kernels;
    bool exact;     /* the reference's arithmetic */
    float *scratch; /* [workers][scratch_floats], then [shared_floats] */
    size_t scratch_floats, shared_floats;
};

/* One operation on one worker. */
struct cpu_job {
    const struct op *op;
    const struct frame *frame;
    const struct kernels *kernels;
    bool exact; /* the reference's arithmetic */
    struct worker worker;
    float *scratch; /* this worker's */
    float *shared;  /* of all */
    const struct graph *graph;
};

typedef void (*cpu_op)(const struct cpu_job *job);

/* Row `row` of a buffer of the job's graph. */
static inline float *job_row(const struct cpu_job *job, buffer b, size_t row)
{
    return job->frame->buffers[b.id] + row * job->graph->buffers[b.id].width;
}

static inline uint32_t job_width(const struct cpu_job *job, buffer b)
{
    return job->graph->buffers[b.id].width;
}

static inline const struct weight *job_weight(const struct cpu_job *job, enum slot slot)
{
    return &job->frame->slots[slot];
}

/* ops_matrix.c */
void cpu_embed(const struct cpu_job *job);
void cpu_project(const struct cpu_job *job);
void cpu_add_project(const struct cpu_job *job);

/* Rows [first, first + count) of `weight` times some rows of activations:
 * results[j][i] = weight row first + i · x[j].  count ≤ MATRIX_ROWS, x_rows ≤ ACTIVATION_ROWS. */
struct matrix_block {
    const struct weight *weight;
    uint64_t first;
    size_t count;
    const float *dequantised; /* set by cpu_load_block */
};
void cpu_load_block(struct matrix_block *block, const struct kernels *kernels, float *scratch);
void cpu_multiply_block(float results[ACTIVATION_ROWS][MATRIX_ROWS],
                        const struct matrix_block *block, const struct kernels *kernels,
                        const float *const *x, size_t x_rows);

/* ops_norm.c */
void cpu_rms_norm(const struct cpu_job *job);
void cpu_head_norm(const struct cpu_job *job);
void cpu_sigmoid_multiply(const struct cpu_job *job);
void cpu_silu_multiply(const struct cpu_job *job);

/* ops_attention.c */
void cpu_split_gate(const struct cpu_job *job);
void cpu_rope_angles(const struct cpu_job *job);
void cpu_rope(const struct cpu_job *job);
void cpu_rotate(float *channels, const float *angles, const struct rope_shape *shape);
void cpu_kv_append(const struct cpu_job *job);
void cpu_attend(const struct cpu_job *job);

/* ops_attend.c; the sizes in floats, per worker and for all together */
void cpu_attend_tuned(const struct cpu_job *job);
size_t cpu_attend_scratch(const struct backend_sizes *sizes);
size_t cpu_attend_shared(const struct backend_sizes *sizes);

/* ops_latent.c */
void cpu_latent_append(const struct cpu_job *job);
void cpu_latent_attend(const struct cpu_job *job);
size_t cpu_latent_scratch(const struct backend_sizes *sizes); /* floats per worker */

/* ops_delta.c */
void cpu_conv(const struct cpu_job *job);
void cpu_unit_norm(const struct cpu_job *job);
void cpu_delta(const struct cpu_job *job);
void cpu_gated_norm(const struct cpu_job *job);

/* ops_chunk.c */
bool cpu_conv_tuned(const struct cpu_job *job, const struct span *span, struct share channels);
void cpu_delta_tuned(const struct cpu_job *job);
size_t cpu_delta_scratch(const struct backend_sizes *sizes); /* floats per worker */

/* ops_experts.c */
void cpu_route(const struct cpu_job *job);
void cpu_combine(const struct cpu_job *job);
mf_status cpu_run_experts(struct backend *backend, const struct expert_batch *batch, mf_error *why);

#endif
