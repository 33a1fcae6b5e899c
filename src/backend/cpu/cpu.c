#include "backend/cpu/cpu.h"

#include "base/status.h"

static const cpu_op functions[OP_KINDS] = {
    [OP_EMBED] = cpu_embed,
    [OP_ROPE_ANGLES] = cpu_rope_angles,
    [OP_RMS_NORM] = cpu_rms_norm,
    [OP_ADD_RMS_NORM] = cpu_add_rms_norm,
    [OP_HEAD_NORM] = cpu_head_norm,
    [OP_COPY] = cpu_copy,
    [OP_SCALE] = cpu_scale,
    [OP_SOFT_CAP] = cpu_soft_cap,
    [OP_PROJECT] = cpu_project,
    [OP_ADD_PROJECT] = cpu_add_project,
    [OP_ADD_BIAS] = cpu_add_bias,
    [OP_SPLIT_GATE] = cpu_split_gate,
    [OP_ROPE] = cpu_rope,
    [OP_KV_APPEND] = cpu_kv_append,
    [OP_ATTEND] = cpu_attend,
    [OP_LATENT_APPEND] = cpu_latent_append,
    [OP_LATENT_ATTEND] = cpu_latent_attend,
    [OP_SIGMOID_MULTIPLY] = cpu_sigmoid_multiply,
    [OP_ACTIVATE] = cpu_activate,
    [OP_CONV] = cpu_conv,
    [OP_UNIT_NORM] = cpu_unit_norm,
    [OP_DELTA] = cpu_delta,
    [OP_GATED_NORM] = cpu_gated_norm,
    [OP_ROUTE] = cpu_route,
    [OP_SUM_EXPERTS] = cpu_sum_experts,
    [OP_COMBINE] = cpu_combine,
};

struct run {
    struct cpu_backend *cpu;
    const struct graph *graph;
    const struct frame *frame;
};

static void run_graph(void *argument, struct worker worker)
{
    const struct run *run = argument;
    struct cpu_job job = { .frame = run->frame,
                           .kernels = run->cpu->kernels,
                           .exact = run->cpu->exact,
                           .worker = worker,
                           .scratch = run->cpu->scratch + worker.index * run->cpu->scratch_floats,
                           .shared = run->cpu->scratch + worker.count * run->cpu->scratch_floats,
                           .shared_floats = run->cpu->shared_floats,
                           .graph = run->graph };
    struct trace_walk walk = trace_walk_begin(run->cpu->base.tracer, worker.index);
    for (size_t i = 0; i < run->graph->op_count; i++) {
        job.op = &run->graph->ops[i];
        functions[job.op->kind](&job);
        trace_walk_done(&walk);
        worker_barrier(worker);
        trace_walk_next(&walk, op_label(job.op), job.op->stage);
    }
}

static mf_status execute(struct backend *backend, const struct graph *graph,
                         const struct frame *frame, mf_error *why)
{
    (void)why;
    struct run run = { (struct cpu_backend *)backend, graph, frame };
    if (frame->row_count > 0) thread_pool_run(run.cpu->pool, run_graph, &run);
    return MF_OK;
}

static size_t scratch_bytes(const struct cpu_backend *cpu)
{
    size_t floats = thread_pool_size(cpu->pool) * cpu->scratch_floats + cpu->shared_floats;
    return floats * sizeof(float) + 2 * cpu->work_count * sizeof *cpu->phase_works +
           cpu->pair_count * sizeof *cpu->phase_pairs;
}

static void release_scratch(struct cpu_backend *cpu)
{
    if (cpu->scratch)
        cpu->allocator->release(cpu->allocator->user, cpu->scratch, scratch_bytes(cpu));
    cpu->scratch = NULL;
}

/* The sizes that `cpu` would have with room for `sizes`. */
static struct cpu_backend enlarged(const struct cpu_backend *cpu, const struct backend_sizes *sizes)
{
    /* Two blocks of a matrix (an expert's gate and up), a row of attention scores with a sink
     * beside one of keys or values, a row of router scores, a head of latent attention. */
    size_t floats =
        max_size(2 * MATRIX_ROWS * sizes->matrix_cols, sizes->context + 1 + sizes->head_width);
    floats = max_size(floats, sizes->experts);
    floats = max_size(floats, cpu_latent_scratch(sizes));
    size_t shared = 0;
    if (!cpu->exact) {
        floats = max_size(floats, max_size(cpu_attend_scratch(sizes), cpu_product_scratch(sizes)));
        floats = max_size(floats, cpu_experts_matrix_scratch(sizes));
        floats = max_size(floats, cpu_delta_scratch(sizes));
        floats = max_size(floats, cpu_latent_tuned_scratch(sizes));
        shared = max_size(cpu_attend_shared(sizes), cpu_product_shared(sizes, cpu->kernels));
        shared = max_size(shared, cpu_latent_tuned_shared(sizes, cpu->kernels));
        shared =
            max_size(shared, cpu_expert_shared(sizes, cpu->kernels, thread_pool_size(cpu->pool)));
    }
    struct cpu_backend larger = *cpu;
    size_t line = CACHE_LINE / sizeof(float);
    larger.scratch_floats = max_size(align_up(floats, line), cpu->scratch_floats);
    larger.shared_floats = max_size(align_up(shared, line), cpu->shared_floats);
    larger.work_count = max_size(sizes->experts, cpu->work_count);
    larger.pair_count = max_size(sizes->row_count * sizes->experts_per_row, cpu->pair_count);
    return larger;
}

static size_t reserve_bytes(const struct backend *backend, const struct backend_sizes *sizes)
{
    struct cpu_backend empty = *(const struct cpu_backend *)backend;
    empty.scratch_floats = empty.shared_floats = empty.work_count = empty.pair_count = 0;
    empty = enlarged(&empty, sizes);
    return scratch_bytes(&empty);
}

/* Grows only, and never during a step. */
static mf_status reserve(struct backend *backend, const struct backend_sizes *sizes, mf_error *why)
{
    struct cpu_backend *cpu = (struct cpu_backend *)backend;
    struct cpu_backend larger = enlarged(cpu, sizes);
    if (scratch_bytes(&larger) == scratch_bytes(cpu)) return MF_OK;
    size_t bytes = scratch_bytes(&larger);
    larger.scratch = cpu->allocator->allocate(cpu->allocator->user, bytes, CACHE_LINE);
    if (!larger.scratch) return fail_memory(why, bytes);
    release_scratch(cpu);
    *cpu = larger;
    float *end = cpu->scratch + thread_pool_size(cpu->pool) * cpu->scratch_floats;
    cpu->phase_works = (struct expert_work *)(void *)(end + cpu->shared_floats);
    cpu->phase_pairs = (uint32_t *)(void *)(cpu->phase_works + 2 * cpu->work_count);
    return MF_OK;
}

static void cpu_free(struct backend *backend)
{
    struct cpu_backend *cpu = (struct cpu_backend *)backend;
    release_scratch(cpu);
    cpu->allocator->release(cpu->allocator->user, cpu, sizeof *cpu);
}

static const struct backend_functions cpu_functions = {
    .name = "cpu",
    .free = cpu_free,
    .reserve_bytes = reserve_bytes,
    .reserve = reserve,
    .execute = execute,
    .run_experts = cpu_run_experts,
};

mf_status backend_cpu_new(struct backend **out, const mf_allocator *allocator,
                          struct thread_pool *pool, const struct kernels *kernels, bool exact,
                          mf_error *why)
{
    *out = NULL;
    struct cpu_backend *cpu = allocator->allocate(allocator->user, sizeof *cpu, CACHE_LINE);
    if (!cpu) return fail_memory(why, sizeof *cpu);
    *cpu = (struct cpu_backend){ .base = { .functions = &cpu_functions,
                                           .kv_format = exact ? KV_F32 : KV_F16,
                                           .has_open_rows = !exact },
                                 .allocator = allocator,
                                 .pool = pool,
                                 .kernels = kernels,
                                 .exact = exact };
    *out = &cpu->base;
    return MF_OK;
}
