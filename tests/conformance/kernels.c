/* kernels: the arithmetic, one table of cases (apps/bench/cases.h): operation x format x shape
 * x kernel set.  Every set gives the bits of "generic", or is within a stated bound of the same
 * thing in double; generic always is.  NaNs are equal whatever their payload.
 *
 * `moeflux bench --kernels` times the same table. */
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

static void run_guarded(const struct case_task *task, const struct kernels *k)
{
    memset(task->out, 0xa5, task->sizes.out * sizeof(float));
    task->out[task->sizes.out] = guard;
    case_task_run(task, k);
    assert_true(task->out[task->sizes.out] == guard);
}

static void make_task(struct case_task *out, const struct kernel_case *what)
{
    mf_error why;
    if (case_task_make(out, what, &why) != MF_OK) fail_msg("%s", why.text);
}

/* ------------------------------------------------------------------- bits */

static void same_bits(void *cases, const struct kernel_case *what)
{
    struct case_task task;
    if (what->op->rule != CASE_SAME_BITS || !case_exists(generic, what)) return;
    make_task(&task, what);
    float *expected = malloc(task.sizes.out * sizeof *expected);
    assert_non_null(expected);
    run_guarded(&task, generic);
    memcpy(expected, task.out, task.sizes.out * sizeof *expected);
    for (size_t s = 0; kernels_at(&machine, s) != generic; s++) {
        const struct kernels *k = kernels_at(&machine, s);
        if (!case_exists(k, what)) continue;
        run_guarded(&task, k);
        for (size_t i = 0; i < task.sizes.out; i++) {
            if (memcmp(&task.out[i], &expected[i], sizeof(float)) == 0) continue;
            if (isnan(task.out[i]) && isnan(expected[i])) continue;
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

/* ----------------------------------------------------------------- double */

static void near_double(void *cases, const struct kernel_case *what)
{
    const struct case_op *op = what->op;
    struct case_task task;
    if (op->rule == CASE_ELSEWHERE || !(op->fills & FILL_BIT(what->fill))) return;
    make_task(&task, what);
    case_task_compute(&task);
    for (size_t s = 0; kernels_at(&machine, s); s++) {
        const struct kernels *k = kernels_at(&machine, s);
        if (op->rule == CASE_SAME_BITS && k != generic) continue;
        if (!case_exists(k, what)) continue;
        run_guarded(&task, k);
        ++*(size_t *)cases;
        for (size_t i = 0; i < task.sizes.out; i++) {
            double found = (double)task.out[i], expected = task.expected[i];
            if (found == expected || (isnan(found) && isnan(expected))) continue; /* infinities */
            if (!(fabs(found - expected) <= task.bound[i]))
                fail_case(what, k, i, found, expected, task.bound[i]);
        }
    }
    case_task_free(&task);
}

static void generic_is_near_double(void **state)
{
    (void)state;
    for (size_t o = 0; case_op_at(o); o++) {
        size_t cases = 0;
        case_for_each(case_op_at(o), near_double, &cases);
        if (cases == 0 && case_op_at(o)->rule == CASE_SAME_BITS)
            fail_msg("%s was not tried", case_op_at(o)->name);
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

/* Every format that can be a weight is tried, and is timed. */
static void no_format_is_left_out(void **state)
{
    (void)state;
    for (size_t o = 0; case_op_at(o); o++) {
        struct formats_seen tried = { 0 }, timed = { 0 };
        if (!case_op_at(o)->has_weight) continue;
        case_for_each(case_op_at(o), see_format, &tried);
        case_for_each_timed(case_op_at(o), see_format, &timed);
        for (enum format format = 0; format < FORMAT_COUNT; format++) {
            bool wanted = format_info(format)->dequantise;
            if (tried.seen[format] != wanted || timed.seen[format] != wanted)
                fail_msg("%s of %s", case_op_at(o)->name, format_info(format)->name);
        }
    }
}

int main(void)
{
    machine_probe(&machine);
    generic = kernels_select(&machine, "generic");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_gives_the_bits_of_generic),
        cmocka_unit_test(generic_is_near_double),
        cmocka_unit_test(no_format_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
