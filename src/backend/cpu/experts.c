/* experts.c: a batch of experts, each row in its own arithmetic. */
#include "backend/cpu/cpu.h"

typedef void (*expert_way)(const struct expert_job *job);

struct expert_run {
    struct cpu_backend *cpu;
    const struct expert_batch *batch;
    expert_way way;
};

static void run_worker(void *argument, struct worker worker)
{
    const struct expert_run *run = argument;
    struct cpu_backend *cpu = run->cpu;
    struct trace_walk walk = trace_walk_begin(cpu->base.tracer, worker.index);
    run->way(&(struct expert_job){ .batch = run->batch,
                                   .kernels = cpu->kernels,
                                   .worker = worker,
                                   .scratch = cpu->scratch + worker.index * cpu->scratch_floats,
                                   .shared = cpu->scratch + worker.count * cpu->scratch_floats,
                                   .walk = &walk });
}

/* The pairs of `batch` whose rows decode, or do not, as a batch of their own. */
static struct expert_batch select_phase(struct cpu_backend *cpu, const struct expert_batch *batch,
                                        bool decode)
{
    struct expert_batch part = *batch;
    uint32_t *pairs = cpu->phase_pairs;
    part.works = cpu->phase_works;
    part.work_count = 0;
    for (size_t i = 0; i < batch->work_count; i++) {
        const struct expert_work *from = &batch->works[i];
        struct expert_work *to = &cpu->phase_works[part.work_count];
        *to = (struct expert_work){ .view = from->view, .pairs = pairs };
        for (size_t p = 0; p < from->pair_count; p++) {
            uint32_t pair = from->pairs[p];
            const struct row *row = &batch->rows[pair / batch->per_row];
            if (cpu_decodes(cpu->kernels, batch->spans, row) != decode) continue;
            *pairs++ = pair;
            to->pair_count++;
        }
        if (to->pair_count > 0) part.work_count++;
    }
    return part;
}

/* All experts of a layer have the same shapes and formats, or nearly: a file may mix two
 * formats of integers. */
static bool all_have(const struct cpu_backend *cpu, const struct expert_batch *batch,
                     bool (*have)(const struct kernels *, const struct weight *))
{
    for (size_t i = 0; i < batch->work_count; i++) {
        const struct expert_view *view = &batch->works[i].view;
        if (!have(cpu->kernels, &view->gate) || !have(cpu->kernels, &view->up) ||
            !have(cpu->kernels, &view->down))
            return false;
    }
    return true;
}

static expert_way choose_way(const struct cpu_backend *cpu, const struct expert_batch *batch,
                             bool decode)
{
    if (!decode) return cpu->kernels->matrix ? cpu_experts_matrix : cpu_experts_exact;
    if (all_have(cpu, batch, kernels_have_integers)) return cpu_experts_integers;
    if (all_have(cpu, batch, kernels_have_floats)) return cpu_experts_floats;
    return cpu_experts_exact;
}

static void run_phase(struct cpu_backend *cpu, const struct expert_batch *batch, bool decode)
{
    struct expert_batch part = select_phase(cpu, batch, decode);
    if (part.work_count == 0) return;
    struct expert_run run = { cpu, &part, choose_way(cpu, &part, decode) };
    thread_pool_run(cpu->pool, run_worker, &run);
}

mf_status cpu_run_experts(struct backend *backend, const struct expert_batch *batch, mf_error *why)
{
    (void)why;
    struct cpu_backend *cpu = (struct cpu_backend *)backend;
    if (cpu->exact) {
        struct expert_run run = { cpu, batch, cpu_experts_exact };
        if (batch->work_count > 0) thread_pool_run(cpu->pool, run_worker, &run);
        return MF_OK;
    }
    run_phase(cpu, batch, true);
    run_phase(cpu, batch, false);
    return MF_OK;
}

/* Units for rows, in all orders that experts may want, and hidden rows when decoding; packs for
 * prompts. */
size_t cpu_expert_shared(const struct backend_sizes *sizes, const struct kernels *kernels,
                         unsigned workers)
{
    size_t pairs = sizes->row_count * sizes->experts_per_row;
    size_t units = UNIT_ORDER_COUNT * sizes->row_count * units_of(sizes->width) +
                   pairs * units_of(sizes->expert_width);
    return max_size(units * sizeof(struct integer_unit) / sizeof(float),
                    cpu_experts_matrix_shared(sizes, kernels, workers));
}
