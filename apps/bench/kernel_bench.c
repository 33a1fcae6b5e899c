#include "bench/kernel_bench.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernels/select.h"

#include <stdlib.h>

/* ----------------------------------------------------------------- running */

struct bencher {
    const struct kernel_bench_wishes *wishes;
    struct thread_pool *pool;
    struct case_task *tasks; /* [threads] */
    const struct kernels *kernels;
    const struct kernel_case *what;
    size_t repeats;
    mf_status *statuses; /* [threads] of making the tasks */
    mf_error *errors;    /* [threads] */
    mf_status status;    /* the first failure stays */
    mf_error *why;
    kernel_figure_function each;
    void *user;
};

static void make_tasks(void *argument, struct worker worker)
{
    struct bencher *b = argument;
    unsigned i = worker.index;
    b->statuses[i] = case_task_make(&b->tasks[i], b->what, &b->errors[i]);
    if (b->statuses[i] == MF_OK) case_task_prepare(&b->tasks[i], b->kernels);
}

static void free_tasks(struct bencher *b)
{
    for (unsigned i = 0; i < b->wishes->threads; i++) case_task_free(&b->tasks[i]);
}

static void run_tasks(void *argument, struct worker worker)
{
    struct bencher *b = argument;
    for (size_t i = 0; i < b->repeats; i++) case_task_run(&b->tasks[worker.index], b->kernels);
}

static double time_tasks(struct bencher *b)
{
    double begin = clock_seconds();
    thread_pool_run(b->pool, run_tasks, b);
    return clock_seconds() - begin;
}

/* Seconds of one run: the best of some attempts of 5 ms, or of one run where that is longer;
 * what takes long is run once. */
static double best_seconds(struct bencher *b)
{
    double seconds = 0, best = 1e9, begin = clock_seconds();
    for (b->repeats = 1;; b->repeats *= 2) {
        seconds = time_tasks(b);
        if (seconds > 0.0025) break;
    }
    if (seconds > 1.0) return seconds / (double)b->repeats;
    b->repeats = (size_t)((double)b->repeats * 0.005 / seconds) + 1;
    for (int i = 0; i < 7 && (i < 2 || clock_seconds() - begin < 0.15); i++) {
        seconds = time_tasks(b) / (double)b->repeats;
        if (seconds < best) best = seconds;
    }
    return best;
}

static bool is_wanted(const struct kernel_bench_wishes *wishes, const struct kernel_case *what)
{
    if (!wishes->only) return true;
    if (strstr(what->op->name, wishes->only)) return true;
    return what->op->has_weight && strstr(format_info(what->format)->name, wishes->only);
}

static void bench_case(void *user, const struct kernel_case *what)
{
    struct bencher *b = user;
    if (b->status != MF_OK || !is_wanted(b->wishes, what) || !case_exists(b->kernels, what)) return;
    b->what = what;
    thread_pool_run(b->pool, make_tasks, b);
    for (unsigned i = 0; i < b->wishes->threads && b->status == MF_OK; i++) {
        b->status = b->statuses[i];
        if (b->status != MF_OK && b->why) *b->why = b->errors[i];
    }
    if (b->status == MF_OK) {
        double seconds = best_seconds(b), threads = b->wishes->threads;
        struct kernel_figure figure = {
            .what = *what,
            .set = b->kernels->name,
            .on_matrix = what->op->on_matrix && kernels_have_panels(b->kernels),
            .bytes_per_second = threads * case_task_bytes(&b->tasks[0]) / seconds,
            .flops = threads * b->tasks[0].sizes.flops / seconds,
        };
        b->each(b->user, &figure);
    }
    free_tasks(b);
}

static void bench_sets(struct bencher *b)
{
    const struct machine *machine = b->wishes->machine;
    const struct kernels *one = b->kernels;
    for (size_t o = 0; case_op_at(o); o++)
        for (size_t s = 0; (b->kernels = kernels_at(machine, s)); s++)
            if (b->kernels == one || b->wishes->all_sets)
                case_for_each_timed(case_op_at(o), bench_case, b);
}

mf_status kernel_bench_run(const struct kernel_bench_wishes *wishes, kernel_figure_function each,
                           void *user, mf_error *why)
{
    struct bencher b = { .wishes = wishes, .why = why, .each = each, .user = user };
    size_t bytes = wishes->threads * sizeof *b.tasks;
    mf_status status = kernels_choose(&b.kernels, wishes->machine, wishes->set, why);
    if (status == MF_OK) status = thread_pool_new(&b.pool, &allocator_heap, wishes->threads, why);
    if (status != MF_OK) return status;
    b.tasks = calloc(wishes->threads, sizeof *b.tasks);
    b.statuses = calloc(wishes->threads, sizeof *b.statuses);
    b.errors = calloc(wishes->threads, sizeof *b.errors);
    if (b.tasks && b.statuses && b.errors)
        bench_sets(&b);
    else
        b.status = fail_memory(why, bytes);
    free(b.tasks);
    free(b.statuses);
    free(b.errors);
    thread_pool_free(b.pool);
    return b.status;
}

/* --------------------------------------------------------------- reporting */

/* 0: not a question that this case answers. */
static double memory_share(const struct kernel_figure *figure, const struct ceilings *c)
{
    bool asked = case_is_large(&figure->what) && c->memory_bytes > 0;
    return asked ? figure->bytes_per_second / c->memory_bytes : 0;
}

/* Of the matrix unit where the operation uses it, else of multiply-adds in f32. */
static double peak_share(const struct kernel_figure *figure, const struct ceilings *c)
{
    double peak = figure->on_matrix ? ceilings_matrix_flops(c) : c->f32_flops;
    return peak > 0 ? figure->flops / peak : 0;
}

static const char *peak_name(const struct kernel_figure *figure)
{
    return figure->on_matrix ? "bf16" : "f32";
}

static void print_number(FILE *out, double value, int width, int digits)
{
    if (value > 0)
        fprintf(out, " %*.*f", width, digits, value);
    else
        fprintf(out, " %*s", width, "");
}

/* "4096 x 2048 for 16", "128, 8 heads at 8192" */
static void describe_shape(char *out, size_t capacity, const struct kernel_case *what)
{
    if (what->depth > 0 && what->x_rows > what->heads)
        snprintf(out, capacity, "%zu, %zu rows at %zu", what->n, what->x_rows, what->depth);
    else if (what->depth > 0)
        snprintf(out, capacity, "%zu, %zu heads at %zu", what->n, what->heads, what->depth);
    else if (what->x_rows > 1)
        snprintf(out, capacity, "%zu x %zu for %zu", what->m, what->n, what->x_rows);
    else
        snprintf(out, capacity, "%zu x %zu", what->m, what->n);
}

static const char *format_name(const struct kernel_case *what)
{
    if (what->depth > 0) return "F16";
    return what->op->has_weight ? format_info(what->format)->name : "F32";
}

void kernel_figure_print(const struct kernel_figure *figure, const struct ceilings *c, FILE *out)
{
    char shape[64];
    if (!figure) {
        fprintf(out, "%-18s %-13s %-22s %-11s %8s %9s %9s %11s\n", "operation", "format", "shape",
                "set", "GB/s", "of memory", "GFLOP/s", "of peak");
        return;
    }
    describe_shape(shape, sizeof shape, &figure->what);
    fprintf(out, "%-18s %-13s %-22s %-11s", figure->what.op->name, format_name(&figure->what),
            shape, figure->set);
    print_number(out, figure->bytes_per_second * 1e-9, 8, 2);
    print_number(out, 100 * memory_share(figure, c), 7, 1);
    fputs(memory_share(figure, c) > 0 ? " %" : "  ", out);
    print_number(out, figure->flops * 1e-9, 9, 2);
    if (peak_share(figure, c) > 0) {
        print_number(out, 100 * peak_share(figure, c), 5, 1);
        fprintf(out, " %% %s", peak_name(figure));
    }
    fputc('\n', out);
}

json_t *kernel_figure_json_new(const struct kernel_figure *figure, const struct ceilings *c)
{
    const struct kernel_case *what = &figure->what;
    json_t *out = json_pack("{s:s,s:s,s:I,s:I,s:I,s:s,s:f}", "operation", what->op->name, "format",
                            format_name(what), "rows", (json_int_t)what->m, "cols",
                            (json_int_t)what->n, "activations", (json_int_t)what->x_rows, "set",
                            figure->set, "bytes_per_second", figure->bytes_per_second);
    if (what->depth > 0) {
        json_object_set_new(out, "heads", json_integer((json_int_t)what->heads));
        json_object_set_new(out, "depth", json_integer((json_int_t)what->depth));
    }
    if (figure->flops > 0) json_object_set_new(out, "flops", json_real(figure->flops));
    if (memory_share(figure, c) > 0)
        json_object_set_new(out, "share_of_memory", json_real(memory_share(figure, c)));
    if (peak_share(figure, c) > 0) {
        json_object_set_new(out, "share_of_peak", json_real(peak_share(figure, c)));
        json_object_set_new(out, "peak", json_string(peak_name(figure)));
    }
    return out;
}
