/* kernel_bench.c: times the cases of cases.h.  It reaches inside the library because a kernel is
 * no part of its interface. */
#include "bench/kernel_bench.h"

#include "bench/cases.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/select.h"

#include <stdlib.h>

/* ----------------------------------------------------------------- running */

struct bencher {
    const struct kernel_bench_wishes *wishes;
    struct machine machine;
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

static const char *format_name(const struct kernel_case *what)
{
    if (what->depth > 0) return "F16";
    return what->op->has_weight ? format_info(what->format)->name : "F32";
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
            .operation = what->op->name,
            .format = format_name(what),
            .rows = what->m,
            .cols = what->n,
            .activations = what->x_rows,
            .heads = what->depth > 0 ? what->heads : 0,
            .depth = what->depth,
            .large = case_is_large(what),
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
    const struct machine *machine = &b->machine;
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
    machine_probe(&b.machine);
    mf_status status = kernels_choose(&b.kernels, &b.machine, wishes->set, why);
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
