/* cpu.h: declarations shared by the files of the CPU backend.
 *
 * All workers execute a graph together, op by op.  An op divides its work so that the result of an
 * item does not depend on the worker that computes it or on the number of workers. */
#ifndef BACKEND_CPU_CPU_H
#define BACKEND_CPU_CPU_H

#include "backend/backend.h"

/* Block sizes: matrix rows that are dequantised together, and activation rows that are multiplied
 * with them before the next matrix rows are loaded. */
enum { MATRIX_ROWS = 8, ACTIVATION_ROWS = 32 };

struct cpu_backend {
    struct backend base;
    const mf_allocator *allocator;
    struct thread_pool *pool;
    const struct kernels *kernels;
    bool exact;     /* the reference's arithmetic */
    float *scratch; /* [workers][scratch_floats], then [shared_floats] */
    size_t scratch_floats, shared_floats;
    /* The works of a batch by the arithmetic of their rows, behind the scratch. */
    size_t work_count, pair_count;
    struct expert_work *phase_works; /* [2][work_count] */
    uint32_t *phase_pairs;           /* [pair_count] */
};

/* One operation on one worker. */
struct cpu_job {
    const struct op *op;
    const struct frame *frame;
    const struct kernels *kernels;
    bool exact; /* the reference's arithmetic */
    struct worker worker;
    float *scratch; /* this worker's */
    float *shared;  /* of all: what an op prepares for itself, between its barriers, and for the
                       product that follows a product */
    size_t shared_floats;
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

static inline const struct weight *job_weight(const struct cpu_job *job, enum weight_id id)
{
    return &job->frame->weights[id];
}

/* Whether products of a row use decode arithmetic: it is a generated token, or among the first
 * `start_rows` of a run of prompt rows.  This depends only on its position and the phases of the
 * rows before it, so that a prompt may be cut anywhere. */
static inline bool cpu_decodes(const struct span *spans, const struct row *row, size_t start_rows)
{
    const struct span *span = &spans[row->span];
    return span->decode || row->position - span->run_start < start_rows;
}

/* ops_matrix.c */
void cpu_embed(const struct cpu_job *job);
void cpu_project(const struct cpu_job *job);
void cpu_add_project(const struct cpu_job *job);

/* products.c: products of a matrix with rows of activations, in each arithmetic.  Every worker calls
 * them with the same arguments. */
struct product {
    const struct kernels *kernels;
    struct worker worker;
    float *scratch;
    float *prepared; /* x as the arithmetic wants it, where the product's way prepares it */
    const struct weight *weight;
    const float *x; /* [x_rows][x_stride], of which weight->cols count */
    float *out;     /* [x_rows][out_stride], of which weight->rows are written */
    size_t x_rows, x_stride, out_stride;
    bool add; /* to what is there */
};

/* A barrier is needed between prepare and multiply, and between two products that use a handout
 * (thread_pool.h). */
struct product_way {
    size_t (*prepared_floats)(const struct product *product); /* 0: nothing is prepared */
    void (*prepare)(const struct product *product);
    void (*multiply)(const struct product *product);
    bool handed_out;
};
extern const struct product_way cpu_exact_way, cpu_integer_way, cpu_float_way, cpu_matrix_way;
size_t cpu_product_scratch(const struct backend_sizes *sizes); /* floats per worker */
size_t cpu_product_shared(const struct backend_sizes *sizes,
                          const struct kernels *kernels); /* floats of all */

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

/* A row of n floats as units in some order, or up to 16 of them as a pack; the workers share the
 * numbers out.  A barrier must follow. */
struct units_wanted {
    const struct kernels *kernels;
    size_t n;
    enum unit_order order;
};
void cpu_make_units(struct integer_unit *units, const struct units_wanted *wanted,
                    struct worker worker, const float *x);
void cpu_make_pack(uint16_t *pack, const struct matrix_unit *matrix, struct worker worker,
                   const float *const *x, size_t x_rows, size_t n);

/* Numbers between two rows of a panel: not a multiple of 4096 bytes, because the rows of a tile
 * would then map to the same cache sets. */
static inline size_t cpu_panel_stride(size_t cols)
{
    return matrix_cols(cols) + 32;
}

/* ops_norm.c */
void cpu_rms_norm(const struct cpu_job *job);
void cpu_add_rms_norm(const struct cpu_job *job);
void cpu_head_norm(const struct cpu_job *job);
void cpu_copy(const struct cpu_job *job);
void cpu_scale(const struct cpu_job *job);
void cpu_soft_cap(const struct cpu_job *job);
void cpu_add_bias(const struct cpu_job *job);
void cpu_sigmoid_multiply(const struct cpu_job *job);
void cpu_activate(const struct cpu_job *job);

/* kv_pages.c: 64 positions of one head of keys or values. */
struct kv_head {
    void *page; /* where they begin */
    enum kv_format format;
    size_t width;
    bool by_channel; /* f16 and q8: [width][64], else [64][width] */
};

/* Head `head` of the keys, or values, in the page that holds `position`. */
static inline struct kv_head cpu_kv_head(const struct kv_view *kv, bool keys, size_t position,
                                         uint32_t head, size_t width)
{
    uint8_t *page = kv_page(kv, keys ? kv->keys : kv->values, position);
    return (struct kv_head){ page + head * kv_head_bytes(kv->format, width), kv->format, width,
                             keys };
}

/* The same of latent attention: [latent | rope] of each position. */
static inline struct kv_head cpu_latent_head(const struct kv_view *kv, size_t position,
                                             size_t stored)
{
    return (struct kv_head){ kv_page(kv, kv->keys, position), kv->format, stored, false };
}

/* Position `index` of the page becomes x. */
void cpu_kv_store(const struct kernels *kernels, const struct kv_head *head, size_t index,
                  const float *x);
/* Position `index` in f32: in the page, or in `memory`. */
const float *cpu_kv_row(const struct kv_head *head, size_t index, float *memory);
/* All positions in f16, as attention kernels read them: in the page, or in `memory`. */
const uint16_t *cpu_kv_tile(const struct kernels *kernels, const struct kv_head *head,
                            uint16_t *memory);

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
size_t cpu_latent_tuned_scratch(const struct backend_sizes *sizes);
size_t cpu_latent_tuned_shared(const struct backend_sizes *sizes, const struct kernels *kernels);

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
void cpu_sum_experts(const struct cpu_job *job);
void cpu_combine(const struct cpu_job *job);

/* experts.c; a batch in one arithmetic: experts_exact.c, experts_decode.c, experts_matrix.c */
struct expert_job {
    const struct expert_batch *batch;
    const struct expert_batch *decoded; /* rows of the same experts in the decode arithmetic, to be
                                           multiplied in the same walk; NULL: none */
    const struct kernels *kernels;
    struct worker worker;
    float *scratch, *shared;
    struct trace_walk *walk;
};

/* Rows at the start of a run that the experts of a batch, which are of one shape, decode. */
static inline size_t cpu_expert_start_rows(const struct kernels *kernels,
                                           const struct expert_batch *batch)
{
    const struct expert_view *view = batch->works[0].view;
    return kernels_expert_start_rows(kernels, &view->gate, &view->down);
}

/* Records a part of the work in the trace: rows of one expert, or experts. */
static inline void cpu_expert_done(const struct expert_job *job, const char *part, size_t count)
{
    trace_walk_done(job->walk);
    trace_walk_part(job->walk, (struct trace_part){ part, MF_STAGE_EXPERTS, (uint32_t)count });
}

/* The same, followed by a barrier. */
static inline void cpu_expert_meet(const struct expert_job *job, const char *part, size_t count)
{
    trace_walk_done(job->walk);
    worker_barrier(job->worker);
    trace_walk_part(job->walk, (struct trace_part){ part, MF_STAGE_EXPERTS, (uint32_t)count });
}
/* Rows [first, first + count) of a column of addends: added to `out`, or written as f32. */
void cpu_add_addends(float *out, const struct weight *addends, uint64_t first, size_t count);
void cpu_load_addends(float *out, const struct weight *addends, uint64_t first, size_t count);

mf_status cpu_run_experts(struct backend *backend, const struct expert_batch *batch, mf_error *why);
void cpu_experts_exact(const struct expert_job *job);
void cpu_experts_integers(const struct expert_job *job);
void cpu_experts_floats(const struct expert_job *job);
void cpu_experts_matrix(const struct expert_job *job);
bool cpu_experts_alone(const struct expert_batch *batch,
                       size_t workers);                               /* one worker, one expert */
size_t cpu_experts_matrix_scratch(const struct backend_sizes *sizes); /* floats per worker */
size_t cpu_experts_matrix_shared(const struct backend_sizes *sizes, const struct kernels *kernels,
                                 size_t workers);

/* experts_decode.c: a batch's experts one by one.  All workers begin together, with a barrier
 * inside; `units` are in shared, from its beginning up to `end`. */
struct activations {
    const float *floats; /* [rows][width]: routed rows, or a hidden one of each pair */
    size_t width;
    struct integer_unit *units[UNIT_ORDER_COUNT]; /* the same in integers; NULL: not wanted */
};
struct decode_experts {
    const struct expert_job *job;
    bool integers;
    struct activations rows, hidden;
    struct integer_unit *end;
};
void cpu_decode_begin(struct decode_experts *e, const struct expert_job *job, bool integers);
void cpu_decode_expert(const struct decode_experts *e, const struct expert_work *work);
size_t cpu_expert_shared(const struct backend_sizes *sizes, const struct kernels *kernels,
                         unsigned workers); /* floats of all */

#endif
