/* kernels: the arithmetic, one table of cases (apps/bench/cases.h): operation x format x shape
 * x kernel set.  Every set gives the bits of "generic", or is within a stated bound of the same
 * thing in double; generic always is.  NaNs are equal whatever their payload.
 *
 * `moeflux bench --ops` times the same table. */
#include "support/test.h"

#include "bench/cases.h"

#include <math.h>
#include <stdlib.h>

static struct machine machine;
static const struct kernels *generic;

/* Behind the result nothing may be written. */
static const float guard = 1.5f;

static void fail_case(const struct kernel_case *what, const struct kernels *k, size_t i,
                      double found, double expected, double bound)
{
    char text[160];
    fail_msg("%s of %s: %s gives %.9g for number %zu, %.9g was expected, within %g", what->op->name,
             case_describe(what, text, sizeof text), k->name, found, i, expected, bound);
}

/* In parts of `part` rows of activations. */
static void run_in_parts(struct case_task *task, const struct kernels *k, size_t part)
{
    size_t rows = task->what.x_rows;
    memset(task->out, 0xa5, task->sizes.out * sizeof(float));
    task->out[task->sizes.out] = guard;
    for (task->x_first = 0; task->x_first < rows; task->x_first = task->x_end) {
        task->x_end = min_size(task->x_first + part, rows);
        case_task_prepare(task, k);
        case_task_run(task, k);
        case_task_collect(task);
    }
    task->x_first = 0;
    assert_true(task->out[task->sizes.out] == guard);
}

static void run_guarded(struct case_task *task, const struct kernels *k)
{
    run_in_parts(task, k, task->what.x_rows);
}

static void make_task(struct case_task *out, const struct kernel_case *what)
{
    mf_error why;
    if (case_task_make(out, what, &why) != MF_OK) fail_msg("%s", why.text);
}

static bool same_number(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static float *copy_results_new(const struct case_task *task)
{
    float *copy = malloc(task->sizes.out * sizeof *copy);
    assert_non_null(copy);
    return memcpy(copy, task->out, task->sizes.out * sizeof *copy);
}

/* ------------------------------------------------------------------- bits */

static void same_bits(void *cases, const struct kernel_case *what)
{
    struct case_task task;
    if (what->op->rule != CASE_SAME_BITS || !case_exists(generic, what)) return;
    make_task(&task, what);
    run_guarded(&task, generic);
    float *expected = copy_results_new(&task);
    for (size_t s = 0; kernels_at(&machine, s) != generic; s++) {
        const struct kernels *k = kernels_at(&machine, s);
        if (!case_exists(k, what)) continue;
        run_guarded(&task, k);
        for (size_t i = 0; i < task.sizes.out; i++) {
            if (!same_number(task.out[i], expected[i]))
                fail_case(what, k, i, (double)task.out[i], (double)expected[i], 0);
        }
    }
    free(expected);
    case_task_free(&task);
    ++*(size_t *)cases;
}

static void every_set_gives_the_bits_of_generic(void **state)
{
    (void)state;
    for (size_t o = 0; case_op_at(o); o++) {
        size_t cases = 0;
        case_for_each(case_op_at(o), same_bits, &cases);
        if (cases == 0 && case_op_at(o)->rule == CASE_SAME_BITS)
            fail_msg("%s was not tried", case_op_at(o)->name);
    }
}

/* ------------------------------------------------------------------ parts */

static void check_parts(struct case_task *task, const struct kernels *k)
{
    static const size_t parts[] = { 1, 3, 17, 50 };
    enum { CALLS_MAX = 16 }; /* what begins with a matrix does all of it in each */
    run_guarded(task, k);
    float *expected = copy_results_new(task);
    for (size_t p = 0; p < COUNT_OF(parts) && parts[p] < task->what.x_rows; p++) {
        if (task->what.x_rows / parts[p] > CALLS_MAX) continue;
        run_in_parts(task, k, parts[p]);
        for (size_t i = 0; i < task->sizes.out; i++)
            if (!same_number(task->out[i], expected[i]))
                fail_case(&task->what, k, i, (double)task->out[i], (double)expected[i], 0);
    }
    free(expected);
}

static void same_in_parts(void *cases, const struct kernel_case *what)
{
    struct case_task task;
    if (!what->op->in_parts || what->fill != FILL_USUAL || what->x_rows == 1) return;
    make_task(&task, what);
    for (size_t s = 0; kernels_at(&machine, s); s++) {
        if (!case_exists(kernels_at(&machine, s), what)) continue;
        check_parts(&task, kernels_at(&machine, s));
        ++*(size_t *)cases;
    }
    case_task_free(&task);
}

/* Is there a set here that has it? */
static bool is_here(const struct case_op *op)
{
    for (size_t s = 0; kernels_at(&machine, s); s++)
        if (!op->exists || op->exists(kernels_at(&machine, s))) return true;
    print_message("    no set of this machine has %s\n", op->name);
    return false;
}

/* The bits of a row depend neither on its neighbours nor on where a batch was cut. */
static void rows_are_independent(void **state)
{
    (void)state;
    for (size_t o = 0; case_op_at(o); o++) {
        size_t cases = 0;
        if (!case_op_at(o)->in_parts || !is_here(case_op_at(o))) continue;
        case_for_each(case_op_at(o), same_in_parts, &cases);
        if (cases == 0) fail_msg("%s was not tried", case_op_at(o)->name);
    }
}

/* ----------------------------------------------------------------- double */

static void check_near_double(const struct case_task *task, const struct kernels *k)
{
    const struct case_op *op = task->what.op;
    double wider = op->widen_bound ? op->widen_bound(k) : 1;
    for (size_t i = 0; i < task->sizes.out; i++) {
        double found = (double)task->out[i], expected = task->expected[i];
        double bound = wider * task->bound[i];
        if (found == expected || (isnan(found) && isnan(expected))) continue; /* infinities */
        if (!(fabs(found - expected) <= bound))
            fail_case(&task->what, k, i, found, expected, bound);
    }
}

static void near_double(void *cases, const struct kernel_case *what)
{
    const struct case_op *op = what->op;
    struct case_task task;
    if (!(op->fills & FILL_BIT(what->fill))) return;
    make_task(&task, what);
    bool computed = false;
    for (size_t s = 0; kernels_at(&machine, s); s++) {
        const struct kernels *k = kernels_at(&machine, s);
        if (op->rule == CASE_SAME_BITS && k != generic) continue;
        if (!case_exists(k, what)) continue;
        run_guarded(&task, k);
        if (!computed) case_task_compute(&task);
        computed = true;
        check_near_double(&task, k);
        ++*(size_t *)cases;
    }
    case_task_free(&task);
}

/* Generic is; where sets may differ, all of them are. */
static void results_are_near_double(void **state)
{
    (void)state;
    for (size_t o = 0; case_op_at(o); o++) {
        size_t cases = 0;
        case_for_each(case_op_at(o), near_double, &cases);
        if (cases == 0 && is_here(case_op_at(o))) fail_msg("%s was not tried", case_op_at(o)->name);
    }
}

/* ---------------------------------------------------------------- the table */

struct formats_seen {
    bool seen[FORMAT_COUNT];
};

static void see_format(void *user, const struct kernel_case *what)
{
    ((struct formats_seen *)user)->seen[what->format] = true;
}

/* All that can be weights; integers or floats where kernels make products of them; one alone. */
static bool is_wanted(const struct case_op *op, enum format format)
{
    if (format_by_row(format) != FORMAT_COUNT)
        return false; /* only dequantised, by the reference */
    if (!op->takes) return format_info(format)->dequantise;
    if (strncmp(op->name, "integer", strlen("integer")) == 0) return generic->integer_dot[format];
    if (strncmp(op->name, "float", strlen("float")) == 0) return generic->float_dot[format];
    return format == FORMAT_BF16;
}

/* Every format that an operation has is tried, and is timed. */
static void every_format_has_a_case(void **state)
{
    (void)state;
    for (size_t o = 0; case_op_at(o); o++) {
        const struct case_op *op = case_op_at(o);
        struct formats_seen tried = { 0 }, timed = { 0 };
        if (!op->has_weight) continue;
        case_for_each(op, see_format, &tried);
        case_for_each_timed(op, see_format, &timed);
        for (enum format format = 0; format < FORMAT_COUNT; format++) {
            bool wanted = is_wanted(op, format);
            if (tried.seen[format] != wanted || (op->timed[0].n && timed.seen[format] != wanted))
                fail_msg("%s of %s", op->name, format_info(format)->name);
        }
    }
}

int main(void)
{
    machine_probe(&machine);
    generic = kernels_select(&machine, "generic");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_gives_the_bits_of_generic),
        cmocka_unit_test(results_are_near_double),
        cmocka_unit_test(rows_are_independent),
        cmocka_unit_test(every_format_has_a_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
