#include "tools/rates.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/status.h"

#include <sys/mman.h>

/* Wide experts are those of qwen3-30b-a3b; a narrow row is one block of the largest ones. */
enum { WIDTH = MF_RATE_WIDTH, HIDDEN = MF_RATE_HIDDEN, NARROW = MF_RATE_NARROW };
enum { GROUP = 64, TILE = 128 };

/* A prompt's row goes to 2 of 32 experts: a 16th, as with 8 of 128. */
enum { PROMPT_EXPERTS = 32, PROMPT_CHOICES = 2, DECODE_CHOICES = 8 };

enum { MOST_EXPERTS = 1024 };

/* The best attempt within a time counts: at least one, at most 200. */
enum { MOST_ATTEMPTS = 200 };
#define ATTEMPTS_SECONDS 0.06

static bool try_again(int attempts, double begin)
{
    if (attempts == 0) return true;
    return attempts < MOST_ATTEMPTS && clock_seconds() - begin < ATTEMPTS_SECONDS;
}

/* Rows of the prompts: 1, 4, 32 and 128 for an expert. */
static const size_t prompt_rows[MF_RATE_POINTS] = { 16, 64, 512, 2048 };
enum { MOST_ROWS = 2048 };

/* ----------------------------------------------------------------- experts */

static bool is_affine(enum format format)
{
    return format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8;
}

bool rates_have(enum format format)
{
    return format < FORMAT_COUNT && format_info(format)->dequantise;
}

/* The shape of a matrix; its numbers are set later. */
static struct weight shape_of(enum format format, uint64_t rows, uint64_t cols)
{
    struct weight out = { .format = format, .rows = rows, .cols = cols };
    uint64_t row_bytes = 0;
    format_row_bytes(&row_bytes, format, cols); /* the widths fill blocks of every format */
    out.row_bytes = row_bytes;
    if (is_affine(format)) {
        out.scale_format = FORMAT_BF16;
        out.group_rows = 1;
        out.group_cols = GROUP;
        out.scale_row_bytes = cols / GROUP * 2;
    } else if (format == FORMAT_F8_E4M3 || format == FORMAT_F8_E5M2) {
        out.scale_format = FORMAT_F32;
        out.group_rows = out.group_cols = TILE;
        out.scale_row_bytes = cols / TILE * 4;
    }
    return out;
}

static uint64_t value_bytes(const struct weight *weight)
{
    return weight->rows * weight->row_bytes;
}

static uint64_t scale_bytes(const struct weight *weight)
{
    if (!weight->scale_row_bytes) return 0;
    return (weight->rows + weight->group_rows - 1) / weight->group_rows * weight->scale_row_bytes;
}

static uint64_t matrix_bytes(const struct weight *weight)
{
    return value_bytes(weight) + scale_bytes(weight) * (is_affine(weight->format) ? 2 : 1);
}

static const uint8_t *place_matrix(struct weight *weight, const uint8_t *at)
{
    weight->values = at;
    at += value_bytes(weight);
    if (weight->scale_row_bytes) weight->scales = at;
    at += scale_bytes(weight);
    if (!is_affine(weight->format)) return at;
    weight->biases = at;
    return at + scale_bytes(weight);
}

static struct expert_view expert_shape(enum format format, uint64_t width, uint64_t hidden)
{
    return (struct expert_view){ .gate = shape_of(format, hidden, width),
                                 .up = shape_of(format, hidden, width),
                                 .down = shape_of(format, width, hidden) };
}

static uint64_t view_bytes(const struct expert_view *view)
{
    uint64_t bytes =
        matrix_bytes(&view->gate) + matrix_bytes(&view->up) + matrix_bytes(&view->down);
    return align_up(bytes, CACHE_LINE);
}

/* 0x3c in every byte is a number near 1, or far from the smallest ones, in all formats but one,
 * whose blocks begin with a power of two. */
static void fill(uint8_t *memory, size_t bytes, enum format format)
{
    memset(memory, 0x3c, bytes);
    size_t block = format_info(format)->block_bytes;
    if (format != FORMAT_MXFP4) return;
    for (size_t at = 0; at < bytes; at += block) memory[at] = 0x7f;
}

/* -------------------------------------------------------------------- bench */

/* Everything a measurement uses.  [MOST_ROWS] and [MOST_EXPERTS] arrays are the arena's. */
struct bench {
    struct backend *backend;
    uint8_t *memory; /* the experts, one after the other */
    size_t memory_bytes, expert_bytes, expert_count;
    struct expert_view shape;
    float *routed, *hidden, *answers;
    struct row *rows;
    uint32_t *pairs;
    struct expert_work *works;
    struct expert_view *views; /* of the works */
};

static struct expert_view view_at(const struct bench *b, size_t expert)
{
    struct expert_view view = b->shape;
    const uint8_t *at = b->memory + expert % b->expert_count * b->expert_bytes;
    at = place_matrix(&view.gate, at);
    at = place_matrix(&view.up, at);
    place_matrix(&view.down, at);
    return view;
}

/* Row r goes to choices x r … x r + choices - 1, counted around the works. */
static void lay_out(struct bench *b, struct expert_batch *batch, size_t first_expert)
{
    size_t pairs = batch->row_count * batch->per_row, next = 0;
    for (size_t r = 0; r < batch->row_count; r++)
        b->rows[r] = (struct row){ .position = (uint32_t)r };
    for (size_t w = 0; w < batch->work_count; w++) {
        struct expert_work *work = &b->works[w];
        b->views[w] = view_at(b, first_expert + w);
        *work = (struct expert_work){ .view = &b->views[w], .pairs = b->pairs + next };
        for (size_t p = w; p < pairs; p += batch->work_count) b->pairs[next++] = (uint32_t)p;
        work->pair_count = (size_t)(b->pairs + next - work->pairs);
    }
}

static struct expert_batch batch_of(const struct bench *b, const struct span *span, size_t works,
                                    uint32_t choices)
{
    return (struct expert_batch){ .works = b->works,
                                  .work_count = works,
                                  .row_count = span->row_count,
                                  .rows = b->rows,
                                  .spans = span,
                                  .per_row = choices,
                                  .routed = b->routed,
                                  .hidden = b->hidden,
                                  .answers = b->answers };
}

/* Seconds of one row through all experts, some at a time. */
static mf_status read_experts(double *seconds, struct bench *b, mf_error *why)
{
    struct span span = { .row_count = 1, .decode = true };
    struct expert_batch batch = batch_of(b, &span, DECODE_CHOICES, DECODE_CHOICES);
    mf_status status = MF_OK;
    double begin = clock_seconds();
    for (size_t e = 0; e + DECODE_CHOICES <= b->expert_count && status == MF_OK;
         e += DECODE_CHOICES) {
        lay_out(b, &batch, e);
        status = b->backend->functions->run_experts(b->backend, &batch, why);
    }
    *seconds = clock_seconds() - begin;
    return status;
}

static mf_status run_prompt(double *seconds, struct bench *b, size_t rows, mf_error *why)
{
    struct span span = { .row_count = (uint32_t)rows };
    struct expert_batch batch = batch_of(b, &span, PROMPT_EXPERTS, PROMPT_CHOICES);
    lay_out(b, &batch, 0);
    double begin = clock_seconds();
    mf_status status = b->backend->functions->run_experts(b->backend, &batch, why);
    *seconds = clock_seconds() - begin;
    return status;
}

static void raise_to(double *best, double found)
{
    if (found > *best) *best = found;
}

/* prompt_flops: [MF_RATE_POINTS]. */
static mf_status measure_shape(double *decode_bytes, double *prompt_flops, struct bench *b,
                               mf_error *why)
{
    const struct weight *gate = &b->shape.gate;
    const double pair_ops = 2.0 * 3 * (double)gate->rows * (double)gate->cols;
    double whole = (double)(b->expert_count / DECODE_CHOICES * DECODE_CHOICES * b->expert_bytes);
    double seconds = 0;
    mf_status status = read_experts(&seconds, b, why); /* touches all */
    double begin = clock_seconds();
    for (int i = 0; try_again(i, begin) && status == MF_OK; i++) {
        status = read_experts(&seconds, b, why);
        if (status == MF_OK) raise_to(decode_bytes, whole / seconds);
    }
    for (size_t p = 0; p < MF_RATE_POINTS; p++) {
        double pairs = (double)prompt_rows[p] * PROMPT_CHOICES;
        begin = clock_seconds();
        for (int i = 0; try_again(i, begin) && status == MF_OK; i++) {
            status = run_prompt(&seconds, b, prompt_rows[p], why);
            if (status == MF_OK) raise_to(&prompt_flops[p], pairs * pair_ops / seconds);
        }
    }
    return status;
}

/* A quarter of a GiB, which no cache holds; at most an eighth of what is free. */
static size_t count_experts(uint64_t expert_bytes, const struct machine *machine)
{
    uint64_t wanted = min_size((size_t)256 << 20, machine->available_bytes / 8);
    size_t count = min_size(wanted / expert_bytes, MOST_EXPERTS);
    return max_size(count, PROMPT_EXPERTS);
}

static void set_shape(struct bench *b, const struct machine *machine, enum format format,
                      uint64_t width, uint64_t hidden)
{
    b->shape = expert_shape(format, width, hidden);
    b->expert_bytes = view_bytes(&b->shape);
    b->expert_count = count_experts(b->expert_bytes, machine);
}

static mf_status measure_all(mf_format_rates *out, struct bench *b, const struct machine *machine,
                             enum format format, mf_error *why)
{
    for (size_t p = 0; p < MF_RATE_POINTS; p++)
        out->prompt_rows[p] = (double)prompt_rows[p] * PROMPT_CHOICES / PROMPT_EXPERTS;
    mf_status status = measure_shape(&out->decode_bytes, out->prompt_flops, b, why);
    if (status != MF_OK) return status;
    set_shape(b, machine, format, NARROW, NARROW); /* fewer bytes: the memory is there */
    return measure_shape(&out->narrow_decode_bytes, out->narrow_prompt_flops, b, why);
}

static mf_status take_memory(struct bench *b, struct arena *arena, enum format format,
                             mf_error *why)
{
    size_t pairs = (size_t)MOST_ROWS * PROMPT_CHOICES;
    b->memory_bytes = b->expert_count * b->expert_bytes;
    void *memory =
        mmap(NULL, b->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail_memory(why, b->memory_bytes);
    madvise(memory, b->memory_bytes, MADV_HUGEPAGE); /* as the experts' slots */
    b->memory = memory;
    b->routed = ARENA_NEW(arena, float, (size_t)MOST_ROWS *WIDTH);
    b->hidden = ARENA_NEW(arena, float, pairs *HIDDEN);
    b->answers = ARENA_NEW(arena, float, pairs *WIDTH);
    b->rows = ARENA_NEW(arena, struct row, MOST_ROWS);
    b->pairs = ARENA_NEW(arena, uint32_t, pairs);
    b->works = ARENA_NEW(arena, struct expert_work, PROMPT_EXPERTS);
    b->views = ARENA_NEW(arena, struct expert_view, PROMPT_EXPERTS);
    if (!b->routed || !b->hidden || !b->answers || !b->rows || !b->pairs || !b->works || !b->views)
        return fail_memory(why, b->memory_bytes);
    fill(b->memory, b->memory_bytes, format);
    for (size_t i = 0; i < (size_t)MOST_ROWS * WIDTH; i++) b->routed[i] = (float)(i % 17) - 8;
    return MF_OK;
}

mf_status rates_measure(mf_format_rates *rates, struct backend *backend,
                        const mf_allocator *allocator, const struct machine *machine,
                        enum format format, mf_error *why)
{
    if (!rates_have(format))
        return fail(why, MF_ERR_ARGUMENT, "nothing computes with %s", format_info(format)->name);
    struct bench bench = { .backend = backend };
    set_shape(&bench, machine, format, WIDTH, HIDDEN);
    struct backend_sizes sizes = { .row_count = MOST_ROWS,
                                   .matrix_cols = WIDTH,
                                   .context = MOST_ROWS,
                                   .experts = PROMPT_EXPERTS,
                                   .experts_per_row = DECODE_CHOICES,
                                   .width = WIDTH,
                                   .expert_width = HIDDEN };
    struct arena arena;
    arena_init(&arena, allocator);
    mf_status status = take_memory(&bench, &arena, format, why);
    if (status == MF_OK) status = backend->functions->reserve(backend, &sizes, why);
    if (status == MF_OK) status = measure_all(rates, &bench, machine, format, why);
    if (bench.memory) munmap(bench.memory, bench.memory_bytes);
    arena_free(&arena);
    return status;
}

/* -------------------------------------------------------------------- layer */

/* About as many operations as a layer of full attention has, on rows of 64 numbers, in as many
 * runs of the threads: before routing, experts, after. */
enum { LAYER_OPS = 8, LAYER_RUNS = 3, LAYER_WIDTH = 64, LAYERS = 8 };

mf_status rates_measure_layer(double *seconds, struct backend *backend, mf_error *why)
{
    static const float ones[LAYER_WIDTH] = { 1 };
    struct weight weights[WEIGHT_COUNT] = { 0 };
    const uint32_t widths[SHARED_COUNT] = {
        [SHARED_X] = LAYER_WIDTH, [SHARED_ROUTED] = LAYER_WIDTH
    };
    float x[LAYER_WIDTH] = { 1 }, routed[LAYER_WIDTH];
    float *buffers[GRAPH_BUFFERS_MAX] = { [SHARED_X] = x, [SHARED_ROUTED] = routed };
    struct frame frame = { .row_count = 1, .weights = weights, .buffers = buffers };
    struct backend_sizes sizes = { .row_count = 1, .matrix_cols = LAYER_WIDTH, .context = 1 };
    struct graph graph;
    graph_begin(&graph, "layer", widths);
    for (int i = 0; i < LAYER_OPS; i++)
        op_rms_norm_into(&graph, graph_shared(SHARED_ROUTED), graph_shared(SHARED_X),
                         WEIGHT_FFN_NORM, 1e-6f);
    weights[WEIGHT_FFN_NORM] = (struct weight){ .format = FORMAT_F32,
                                                .rows = 1,
                                                .cols = LAYER_WIDTH,
                                                .values = (const uint8_t *)ones,
                                                .row_bytes = sizeof ones };
    mf_status status = backend->functions->reserve(backend, &sizes, why);
    double start = clock_seconds(), best = 0;
    for (int i = 0; try_again(i, start) && status == MF_OK; i++) {
        double begin = clock_seconds();
        for (int r = 0; r < LAYERS * LAYER_RUNS && status == MF_OK; r++)
            status = backend->functions->execute(backend, &graph, &frame, why);
        double found = (clock_seconds() - begin) / LAYERS;
        if (best == 0 || found < best) best = found;
    }
    if (status == MF_OK) *seconds = best;
    return status;
}
