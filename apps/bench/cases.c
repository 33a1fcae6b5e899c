#include "bench/cases.h"

#include "base/status.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ----------------------------------------------------------------- numbers */

uint64_t case_next_bits(struct case_random *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double next_unit(struct case_random *random)
{
    return (double)(case_next_bits(random) >> 11) * 0x1p-52 - 1.0;
}

const char *case_fill_name(enum case_fill fill)
{
    static const char *const names[FILL_COUNT] = { "usual", "zero", "equal", "wide",
                                                   "tiny",  "huge", "gates", "spiced" };
    return names[fill];
}

float case_next_number(struct case_random *random, enum case_fill fill)
{
    double unit = next_unit(random);
    switch (fill) {
    case FILL_ZERO:
        return 0.0f;
    case FILL_EQUAL:
        return 1.37f;
    case FILL_WIDE:
        return (float)(copysign(pow(10.0, 12.0 * next_unit(random)), unit));
    case FILL_TINY:
        return (float)(unit * 1e-25);
    case FILL_HUGE:
        return (float)(unit * 1e25);
    case FILL_GATES:
        return (float)(unit * 110.0);
    case FILL_SPICED: {
        static const float spices[] = { INFINITY, -INFINITY, NAN, -0.0f };
        uint64_t bits = case_next_bits(random);
        return bits % 11 == 0 ? spices[bits / 11 % 4] : (float)(3.0 * unit);
    }
    default:
        return (float)(3.0 * unit);
    }
}

double case_dot_bound(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs((double)a[i] * (double)b[i]);
    return CASE_ROUNDOFF * ((double)n / 16 + 7) * sum + (double)FLT_TRUE_MIN * (double)(n + 1);
}

double case_dot_double(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ------------------------------------------------------------------- tasks */

const struct case_op *case_op_at(size_t index)
{
    const struct case_op *parts[] = { case_row_ops, case_weight_ops, case_product_ops,
                                      case_attend_ops, case_delta_ops };
    for (size_t p = 0; p < COUNT_OF(parts); p++)
        for (const struct case_op *op = parts[p]; op->name; op++)
            if (index-- == 0) return op;
    return NULL;
}

bool case_exists(const struct kernels *kernels, const struct kernel_case *what)
{
    if (what->op->has_weight && !case_weight_exists(what)) return false;
    return !what->op->exists || what->op->exists(kernels);
}

const char *case_describe(const struct kernel_case *what, char *out, size_t capacity)
{
    char weight[64] = "";
    if (what->op->has_weight && what->group > 0)
        snprintf(weight, sizeof weight, "%s by %u with %s ", format_info(what->format)->name,
                 what->group, format_info(what->scale_format)->name);
    else if (what->op->has_weight)
        snprintf(weight, sizeof weight, "%s ", format_info(what->format)->name);
    if (what->depth > 0)
        snprintf(out, capacity, "widths %zu and %zu, %zu rows, %zu heads, depth %zu", what->n,
                 what->m, what->x_rows, what->heads, what->depth);
    else
        snprintf(out, capacity, "%s%zu x %zu for %zu, %s numbers", weight, what->m, what->n,
                 what->x_rows, case_fill_name(what->fill));
    return out;
}

/* A row at an address that is aligned to nothing but floats, with one more behind it. */
static float *row_new(struct case_random *random, size_t n, enum case_fill fill)
{
    float *memory = malloc((n + 2) * sizeof *memory);
    if (!memory) return NULL;
    memory[0] = 0;
    for (size_t i = 0; i <= n; i++) memory[1 + i] = case_next_number(random, fill);
    return memory + 1;
}

static void row_free(float *row)
{
    if (row) free(row - 1);
}

static size_t sum_of_sizes(const struct case_sizes *sizes)
{
    size_t sum = sizes->out + sizes->scratch_bytes / sizeof(float);
    for (size_t i = 0; i < CASE_INPUTS; i++) sum += sizes->in[i];
    return sum;
}

static mf_status take_memory(struct case_task *task, mf_error *why)
{
    const struct kernel_case *what = &task->what;
    struct case_random random = { what->n * 1000 + what->m * 10 + what->fill };
    bool complete = true;
    for (size_t i = 0; i < CASE_INPUTS; i++) {
        task->in[i] = row_new(&random, task->sizes.in[i], what->fill);
        complete = complete && task->in[i];
    }
    task->out = row_new(&random, task->sizes.out, FILL_ZERO);
    task->expected = calloc(task->sizes.out + 1, sizeof(double));
    task->bound = calloc(task->sizes.out + 1, sizeof(double));
    task->scratch = aligned_alloc(CACHE_LINE, align_up(task->sizes.scratch_bytes + 1, CACHE_LINE));
    complete = complete && task->out && task->expected && task->bound && task->scratch;
    return complete ? MF_OK : fail_memory(why, sum_of_sizes(&task->sizes) * sizeof(float));
}

mf_status case_task_make(struct case_task *out, const struct kernel_case *what, mf_error *why)
{
    *out = (struct case_task){ .what = *what, .x_end = what->x_rows };
    what->op->measure(&out->sizes, what);
    mf_status status = take_memory(out, why);
    if (status == MF_OK && what->op->has_weight)
        status = case_weight_make(&out->weight, &out->weight_memory, what, why);
    if (status != MF_OK) case_task_free(out);
    return status;
}

void case_task_free(struct case_task *task)
{
    for (size_t i = 0; i < CASE_INPUTS; i++) row_free(task->in[i]);
    row_free(task->out);
    free(task->weight_memory);
    free(task->scratch);
    free(task->expected);
    free(task->bound);
    *task = (struct case_task){ 0 };
}

void case_task_prepare(const struct case_task *task, const struct kernels *kernels)
{
    if (task->what.op->prepare) task->what.op->prepare(kernels, task);
}

void case_task_collect(const struct case_task *task)
{
    if (task->what.op->collect) task->what.op->collect(task);
}

void case_task_run(const struct case_task *task, const struct kernels *kernels)
{
    if (task->what.op->in_place && task->x_first == 0)
        memcpy(task->out, task->in[0], task->sizes.out * sizeof(float));
    task->what.op->run(kernels, task);
}

void case_task_compute(const struct case_task *task)
{
    task->what.op->in_double(task);
}

double case_task_bytes(const struct case_task *task)
{
    double floats = (double)task->sizes.out;
    if (task->sizes.bytes > 0) return (double)task->sizes.bytes;
    for (size_t i = 0; i < CASE_INPUTS; i++) floats += (double)task->sizes.in[i];
    return floats * sizeof(float) +
           (task->what.op->has_weight ? case_weight_bytes(&task->weight) : 0);
}

void *case_cut(struct case_cutter *cutter, size_t bytes)
{
    void *piece = cutter->memory ? cutter->memory + cutter->bytes : NULL;
    cutter->bytes += align_up(bytes, CACHE_LINE);
    return piece;
}

void case_bound_by_largest(const struct case_task *task, size_t first, size_t count,
                           double relative, double least)
{
    double most = least;
    for (size_t i = first; i < first + count; i++) most = fmax(most, fabs(task->expected[i]));
    for (size_t i = first; i < first + count; i++) task->bound[i] = relative * most;
}

/* ------------------------------------------------------------------- lists */

static const size_t lengths[] = { 1,  2,  3,  5,  7,  8,  9,  15, 16, 17,  23,  31,  32,  33,
                                  40, 47, 48, 49, 63, 64, 65, 70, 96, 100, 127, 128, 255, 1000 };
static const size_t widths[] = { 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 31, 70 };

static void each_row_case(const struct case_op *op, case_function each, void *user)
{
    size_t width_count = op->has_rows ? COUNT_OF(widths) : 1;
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (size_t j = 0; j < width_count; j++)
            for (enum case_fill fill = 0; fill < FILL_COUNT; fill++)
                each(user, &(struct kernel_case){ .op = op,
                                                  .n = lengths[i],
                                                  .m = widths[j],
                                                  .x_rows = 1 + widths[j] % 7,
                                                  .format = FORMAT_COUNT,
                                                  .fill = fill });
}

/* An operation's own shapes. */
static void each_shape(const struct case_op *op, case_function each, void *user)
{
    for (const struct case_shape *shape = op->tried; shape->n > 0; shape++)
        for (enum case_fill fill = 0; fill < FILL_COUNT; fill++)
            if (op->fills & FILL_BIT(fill) || op->rule == CASE_SAME_BITS)
                each(user, &(struct kernel_case){ .op = op,
                                                  .n = shape->n,
                                                  .m = shape->m,
                                                  .x_rows = shape->x_rows,
                                                  .heads = shape->heads,
                                                  .depth = shape->depth,
                                                  .format = FORMAT_COUNT,
                                                  .fill = fill });
}

static bool has_groups(enum format format)
{
    return (format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8) || format == FORMAT_F8_E4M3 ||
           format == FORMAT_F8_E5M2;
}

/* Every length up to 130 and some more, those that the format has. */
static void each_weight_case(const struct case_op *op, enum format format, case_function each,
                             void *user)
{
    static const enum format scale_formats[] = { FORMAT_BF16, FORMAT_F16, FORMAT_F32 };
    static const uint32_t groups[] = { 8, 16, 24, 32, 40, 64, 128 };
    static const size_t more[] = { 192, 256, 320, 512, 768, 1024, 2816 };
    static const enum case_fill fills[] = { FILL_USUAL, FILL_SPICED };
    struct kernel_case what = {
        .op = op, .m = op->tried->m, .x_rows = op->tried->x_rows, .format = format
    };
    bool grouped = has_groups(format);
    /* Any length has tiles of any width: dequantising tries them all, a matrix in turn. */
    bool in_turn = op->on_matrix && (format == FORMAT_F8_E4M3 || format == FORMAT_F8_E5M2);
    for (size_t c = 1; c <= 130 + COUNT_OF(more); c++) {
        what.n = c <= 130 ? c : more[c - 131];
        for (size_t g = 0; g < (grouped ? COUNT_OF(groups) : 1); g++)
            for (size_t s = 0; s < (grouped ? COUNT_OF(scale_formats) : 1); s++)
                for (size_t f = 0; f < COUNT_OF(fills); f++) {
                    if (in_turn && (g != c % COUNT_OF(groups) || s != c % COUNT_OF(scale_formats)))
                        continue;
                    what.group = grouped ? groups[g] : 0;
                    what.scale_format = scale_formats[s];
                    what.fill = fills[f];
                    if (op->rule == CASE_NEAR && !(op->fills & FILL_BIT(what.fill))) continue;
                    if (case_weight_exists(&what)) each(user, &what);
                }
    }
}

void case_for_each(const struct case_op *op, case_function each, void *user)
{
    if (!op->has_weight && op->tried) {
        each_shape(op, each, user);
        return;
    }
    if (!op->has_weight) {
        each_row_case(op, each, user);
        return;
    }
    for (enum format format = 0; format < FORMAT_COUNT; format++)
        if (format_info(format)->dequantise) each_weight_case(op, format, each, user);
}

enum { LARGE_BYTES = 256 << 20 };

static size_t rows_of_large(enum format format, size_t cols)
{
    uint64_t row_bytes;
    format_row_bytes(&row_bytes, format, cols);
    return LARGE_BYTES / row_bytes / 64 * 64;
}

bool case_is_large(const struct kernel_case *what)
{
    uint64_t row_bytes;
    return what->op->has_weight && format_row_bytes(&row_bytes, what->format, what->n) &&
           what->m * row_bytes >= LARGE_BYTES / 2;
}

static void each_timed_format(struct kernel_case what, case_function each, void *user)
{
    bool many = what.m == CASE_MANY;
    for (what.format = 0; what.format < FORMAT_COUNT; what.format++) {
        if (!format_info(what.format)->dequantise) continue;
        what.group = has_groups(what.format) ? 64 : 0;
        what.scale_format = FORMAT_BF16;
        if (many) what.m = rows_of_large(what.format, what.n);
        if (case_weight_exists(&what)) each(user, &what);
    }
}

void case_for_each_timed(const struct case_op *op, case_function each, void *user)
{
    for (size_t i = 0; i < CASE_TIMED_MAX && op->timed[i].n > 0; i++) {
        const struct case_shape *shape = &op->timed[i];
        struct kernel_case what = { .op = op,
                                    .n = shape->n,
                                    .m = shape->m,
                                    .x_rows = shape->x_rows,
                                    .heads = shape->heads,
                                    .depth = shape->depth,
                                    .format = FORMAT_COUNT };
        if (op->has_weight)
            each_timed_format(what, each, user);
        else
            each(user, &what);
    }
}
