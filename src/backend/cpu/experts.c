/* experts.c: a batch of experts, each row in its own arithmetic. */
#include "backend/cpu/cpu.h"

typedef void (*expert_way)(const struct expert_job *job);

/* Loops over what files have: BF16 or F32, side by side or every other number. */
void cpu_load_addends(float *out, const struct weight *addends, uint64_t first, size_t count)
{
    const uint8_t *at = addends->values + first * addends->row_bytes;
    size_t step = addends->row_bytes;
    if (addends->format == FORMAT_F32 && step == sizeof(float))
        memcpy(out, at, count * sizeof *out);
    else if (addends->format == FORMAT_BF16)
        for (size_t i = 0; i < count; i++) out[i] = f32_from_bf16(load_u16(at + i * step));
    else
        for (size_t i = 0; i < count; i++) out[i] = format_load(addends->format, at + i * step, 0);
}

void cpu_add_addends(float *out, const struct weight *addends, uint64_t first, size_t count)
{
    enum { AT_ONCE = 128 };
    float numbers[AT_ONCE];
    if (!addends->values) return;
    for (size_t i = 0, next; i < count; i = next) {
        next = min_size(i + AT_ONCE, count);
        cpu_load_addends(numbers, addends, first + i, next - i);
        for (size_t j = i; j < next; j++) out[j] += numbers[j - i];
    }
}

struct expert_run {
    struct cpu_backend *cpu;
    const struct expert_batch *batch, *decoded;
    expert_way way;
};

static void run_worker(void *argument, struct worker worker)
{
    const struct expert_run *run = argument;
    struct cpu_backend *cpu = run->cpu;
    struct trace_walk walk = trace_walk_begin(cpu->base.tracer, worker.index);
    run->way(&(struct expert_job){ .batch = run->batch,
                                   .decoded = run->decoded,
                                   .kernels = cpu->kernels,
                                   .worker = worker,
                                   .scratch = cpu->scratch + worker.index * cpu->scratch_floats,
                                   .shared = cpu->scratch + worker.count * cpu->scratch_floats,
                                   .walk = &walk });
}

/* A batch's pairs by the arithmetic of their rows: as many works as it has, some without pairs. */
struct phases {
    struct expert_batch decoded, prompt;
};

static size_t select_pairs(uint32_t *out, const struct expert_batch *batch,
                           const struct expert_work *work, size_t start_rows, bool decode)
{
    size_t count = 0;
    for (size_t p = 0; p < work->pair_count; p++) {
        const struct row *row = &batch->rows[work->pairs[p] / batch->per_row];
        if (cpu_decodes(batch->spans, row, start_rows) == decode) out[count++] = work->pairs[p];
    }
    return count;
}

static struct phases split_phases(struct cpu_backend *cpu, const struct expert_batch *batch)
{
    struct expert_work *decoded = cpu->phase_works, *prompt = decoded + batch->work_count;
    struct phases phases = { *batch, *batch };
    phases.decoded.works = decoded;
    phases.prompt.works = prompt;
    uint32_t *pairs = cpu->phase_pairs;
    size_t start_rows = cpu_expert_start_rows(cpu->kernels, batch);
    for (size_t i = 0; i < batch->work_count; i++) {
        const struct expert_work *from = &batch->works[i];
        decoded[i] = prompt[i] = (struct expert_work){ .view = from->view, .pairs = pairs };
        decoded[i].pair_count = select_pairs(pairs, batch, from, start_rows, true);
        prompt[i].pairs = pairs += decoded[i].pair_count;
        prompt[i].pair_count = select_pairs(pairs, batch, from, start_rows, false);
        pairs += prompt[i].pair_count;
    }
    return phases;
}

/* The works that have pairs; they are in `works`. */
static void drop_empty_works(struct expert_batch *batch, struct expert_work *works)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->work_count; i++)
        if (works[i].pair_count > 0) works[count++] = works[i];
    batch->work_count = count;
}

/* All experts of a layer have the same shapes and formats, or nearly: a file may mix two
 * formats of integers. */
static bool all_have(const struct cpu_backend *cpu, const struct expert_batch *batch,
                     bool (*have)(const struct kernels *, const struct weight *))
{
    for (size_t i = 0; i < batch->work_count; i++) {
        const struct expert_view *view = batch->works[i].view;
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
    if (batch->work_count == 0) return;
    struct expert_run run = { cpu, batch, NULL, choose_way(cpu, batch, decode) };
    thread_pool_run(cpu->pool, run_worker, &run);
}

/* Floats for units of rows in `orders` orders, and of hidden rows. */
static size_t decode_shared(const struct backend_sizes *sizes, size_t orders)
{
    size_t pairs = sizes->row_count * sizes->experts_per_row;
    size_t units =
        orders * sizes->row_count * units_of(sizes->width) + pairs * units_of(sizes->expert_width);
    return units * sizeof(struct integer_unit) / sizeof(float);
}

/* Units in one order, and packs behind them. */
static size_t mixed_shared(const struct backend_sizes *sizes, const struct kernels *kernels,
                           size_t workers)
{
    return decode_shared(sizes, 1) + cpu_experts_matrix_shared(sizes, kernels, workers);
}

/* Whether a batch's rows in both arithmetics can be multiplied in one walk over its experts. */
static bool can_mix(const struct cpu_backend *cpu, const struct expert_batch *batch)
{
    size_t workers = thread_pool_size(cpu->pool);
    if (!cpu->kernels->matrix || !cpu_experts_alone(batch, workers) ||
        !all_have(cpu, batch, kernels_have_integers))
        return false;
    const struct expert_view *first = batch->works[0].view;
    enum unit_order order = kernels_unit_order(cpu->kernels, &first->gate);
    for (size_t i = 0; i < batch->work_count; i++)
        if (kernels_unit_order(cpu->kernels, &batch->works[i].view->gate) != order ||
            kernels_unit_order(cpu->kernels, &batch->works[i].view->up) != order)
            return false;
    struct backend_sizes sizes = { .row_count = batch->row_count,
                                   .experts_per_row = batch->per_row,
                                   .width = first->gate.cols,
                                   .expert_width = first->down.cols };
    return mixed_shared(&sizes, cpu->kernels, workers) <= cpu->shared_floats;
}

static bool has_pairs(const struct expert_batch *batch)
{
    for (size_t i = 0; i < batch->work_count; i++)
        if (batch->works[i].pair_count > 0) return true;
    return false;
}

static void run_phases(struct cpu_backend *cpu, struct phases *phases)
{
    struct expert_work *decoded = cpu->phase_works, *prompt = decoded + phases->decoded.work_count;
    if (has_pairs(&phases->decoded) && has_pairs(&phases->prompt) &&
        can_mix(cpu, &phases->prompt)) {
        struct expert_run run = { cpu, &phases->prompt, &phases->decoded, cpu_experts_matrix };
        thread_pool_run(cpu->pool, run_worker, &run);
        return;
    }
    drop_empty_works(&phases->decoded, decoded);
    drop_empty_works(&phases->prompt, prompt);
    run_phase(cpu, &phases->decoded, true);
    run_phase(cpu, &phases->prompt, false);
}

mf_status cpu_run_experts(struct backend *backend, const struct expert_batch *batch, mf_error *why)
{
    (void)why;
    struct cpu_backend *cpu = (struct cpu_backend *)backend;
    if (batch->work_count == 0) return MF_OK;
    if (cpu->exact) {
        struct expert_run run = { cpu, batch, NULL, cpu_experts_exact };
        thread_pool_run(cpu->pool, run_worker, &run);
        return MF_OK;
    }
    struct phases phases = split_phases(cpu, batch);
    run_phases(cpu, &phases);
    return MF_OK;
}

/* Units for rows, in all orders that experts may want, and hidden rows when decoding; packs for
 * prompts. */
size_t cpu_expert_shared(const struct backend_sizes *sizes, const struct kernels *kernels,
                         unsigned workers)
{
    return max_size(decode_shared(sizes, UNIT_ORDER_COUNT),
                    max_size(cpu_experts_matrix_shared(sizes, kernels, workers),
                             mixed_shared(sizes, kernels, workers)));
}
