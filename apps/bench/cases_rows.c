/* cases_rows.c: operations on rows of floats. */
#include "bench/cases.h"

#include <float.h>
#include <math.h>

static const float epsilon = 1e-6f;

/* ---------------------------------------------------------------- products */

static void measure_dot(struct case_sizes *out, const struct kernel_case *what)
{
    *out =
        (struct case_sizes){ .in = { what->n, what->n }, .out = 1, .flops = 2.0 * (double)what->n };
}

static void run_dot(const struct kernels *k, const struct case_task *t)
{
    t->out[0] = k->dot(t->in[0], t->in[1], t->what.n);
}

static void double_dot(const struct case_task *t)
{
    t->expected[0] = case_dot_double(t->in[0], t->in[1], t->what.n);
    t->bound[0] = case_dot_bound(t->in[0], t->in[1], t->what.n);
}

/* in[0]: m weight rows; in[1]: rows of activations */
static void measure_block(struct case_sizes *out, const struct kernel_case *what)
{
    *out = (struct case_sizes){ .in = { what->m * what->n, what->x_rows * what->n },
                                .out = what->x_rows * what->m,
                                .flops = 2.0 * (double)(what->m * what->n * what->x_rows) };
}

static void run_block(const struct kernels *k, const struct case_task *t)
{
    enum { ROWS_MAX = 16 };
    const float *x[ROWS_MAX];
    float *out[ROWS_MAX];
    size_t n = t->what.n, m = t->what.m, rows = min_size(t->x_end - t->x_first, ROWS_MAX);
    for (size_t j = 0; j < rows; j++) {
        x[j] = t->in[1] + (t->x_first + j) * n;
        out[j] = t->out + (t->x_first + j) * m;
    }
    k->dot_block(&(struct dot_block){
        .w = t->in[0], .x = x, .out = out, .w_rows = m, .x_rows = rows, .n = n });
}

static void double_block(const struct case_task *t)
{
    size_t n = t->what.n, m = t->what.m;
    for (size_t i = 0; i < t->sizes.out; i++) {
        const float *w = t->in[0] + i % m * n, *x = t->in[1] + i / m * n;
        t->expected[i] = case_dot_double(w, x, n);
        t->bound[i] = case_dot_bound(w, x, n);
    }
}

/* ------------------------------------------------------------- one row each */

static void measure_one(struct case_sizes *out, const struct kernel_case *what)
{
    *out = (struct case_sizes){ .in = { what->n }, .out = what->n };
}

static void measure_two(struct case_sizes *out, const struct kernel_case *what)
{
    *out = (struct case_sizes){ .in = { what->n, what->n }, .out = what->n };
}

static void run_add_scaled(const struct kernels *k, const struct case_task *t)
{
    k->add_scaled(t->out, t->in[1], 0.3f, t->what.n);
}

static void double_add_scaled(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        double product = (double)t->in[1][i] * (double)0.3f;
        t->expected[i] = (double)t->in[0][i] + product;
        t->bound[i] = CASE_ROUNDOFF * (fabs(product) + fabs(t->expected[i])) + (double)FLT_TRUE_MIN;
    }
}

/* Relative to each number: the sum's error is halved by the root; then four roundings. */
static double norm_bound(size_t n, double value)
{
    return CASE_ROUNDOFF * ((double)n / 32 + 12) * fabs(value) + (double)FLT_MIN;
}

static void run_rms_norm(const struct kernels *k, const struct case_task *t)
{
    k->rms_norm(t->out, t->in[0], t->in[1], epsilon, t->what.n);
}

static void double_rms_norm(const struct case_task *t)
{
    size_t n = t->what.n;
    double scale = 1.0 / sqrt(case_dot_double(t->in[0], t->in[0], n) / (double)n + (double)epsilon);
    for (size_t i = 0; i < n; i++) {
        t->expected[i] = (double)t->in[0][i] * scale * (double)t->in[1][i];
        t->bound[i] = norm_bound(n, t->expected[i]);
    }
}

static void run_unit_norm(const struct kernels *k, const struct case_task *t)
{
    k->unit_norm(t->out, 0.25f, epsilon, t->what.n);
}

static void double_unit_norm(const struct case_task *t)
{
    size_t n = t->what.n;
    double scale = 0.25 / sqrt(case_dot_double(t->in[0], t->in[0], n) + (double)epsilon);
    for (size_t i = 0; i < n; i++) {
        t->expected[i] = (double)t->in[0][i] * scale;
        t->bound[i] = norm_bound(n, t->expected[i]);
    }
}

static void run_softmax(const struct kernels *k, const struct case_task *t)
{
    k->softmax(t->out, t->what.n);
}

/* x - max rounds once, which exp turns into a relative error of |x - max| units. */
static void double_softmax(const struct case_task *t)
{
    size_t n = t->what.n;
    double most = -INFINITY, sum = 0, worst = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, (double)t->in[0][i]);
    for (size_t i = 0; i < n; i++) {
        double distance = (double)t->in[0][i] - most;
        sum += t->expected[i] = exp(distance);
        if (distance > -88.0) worst = fmax(worst, fabs(distance) * t->expected[i]);
    }
    for (size_t i = 0; i < n; i++) {
        double distance = fmin(fabs((double)t->in[0][i] - most), 88.0);
        t->expected[i] /= sum;
        t->bound[i] = CASE_ROUNDOFF * (distance + worst + (double)n / 16 + 12) * t->expected[i] +
                      2 * (double)FLT_MIN; /* below exp(-87.3) it is 0 */
    }
}

static void run_exp_shifted(const struct kernels *k, const struct case_task *t)
{
    k->exp_shifted(t->out, 2.5f, t->what.n);
}

static void double_exp_shifted(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        double x = (double)t->in[0][i] - 2.5;
        t->expected[i] = exp(x) > (double)FLT_MAX ? HUGE_VAL : exp(x);
        /* x rounds, which exp makes relative; below exp(-87.3) the result is 0 */
        t->bound[i] =
            CASE_ROUNDOFF * (fmin(fabs(x), 89.0) + 3) * exp(fmin(x, 89.0)) + 2 * (double)FLT_MIN;
    }
}

/* ------------------------------------------------------------------- gates */

static double silu_of(double x)
{
    return x / (1.0 + exp(-x));
}

/* sigmoid: exp within 2 units, one addition, one division. */
static double gate_bound(double value)
{
    return 10 * CASE_ROUNDOFF * fabs(value) + 128 * (double)FLT_MIN;
}

static void run_silu_multiply(const struct kernels *k, const struct case_task *t)
{
    k->gate_multiply[ACTIVATION_SILU](t->out, t->in[0], t->in[1], t->what.n);
}

static void double_silu_multiply(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        t->expected[i] = silu_of((double)t->in[0][i]) * (double)t->in[1][i];
        t->bound[i] = gate_bound(t->expected[i]) +
                      128 * (double)FLT_MIN * fmax(1.0, fabs((double)t->in[1][i]));
    }
}

static void run_gelu_multiply(const struct kernels *k, const struct case_task *t)
{
    k->gate_multiply[ACTIVATION_GELU](t->out, t->in[0], t->in[1], t->what.n);
}

/* Its sigmoid's argument rounds a few times, which exp makes relative; from -88 on it is 0. */
static void double_gelu_multiply(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        double x = (double)t->in[0][i], up = (double)t->in[1][i];
        double u = 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
        t->expected[i] = x / (1.0 + exp(-u)) * up;
        t->bound[i] = gate_bound(t->expected[i]) +
                      4 * CASE_ROUNDOFF * fmin(fabs(u), 89.0) * fabs(t->expected[i]) +
                      128 * (double)FLT_MIN * fmax(1.0, fabs(up)) * fmax(1.0, fabs(x));
    }
}

enum { CAP = 30 };

static void run_soft_cap(const struct kernels *k, const struct case_task *t)
{
    k->soft_cap(t->out, CAP, t->what.n);
}

/* x / cap rounds; 1 - 2 / (1 + e^2x) rounds to units of 1 where tanh is a quarter or more. */
static void double_soft_cap(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        t->expected[i] = CAP * tanh((double)t->in[0][i] / CAP);
        t->bound[i] = 32 * CASE_ROUNDOFF * fabs(t->expected[i]) + 128 * (double)FLT_MIN;
    }
}

static void run_clamped_multiply(const struct kernels *k, const struct case_task *t)
{
    k->gate_multiply[ACTIVATION_CLAMPED](t->out, t->in[0], t->in[1], t->what.n);
}

/* The exponential multiplies what its argument was rounded by, twice. */
static void double_clamped_multiply(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        double g = fmin((double)t->in[0][i], 7.0), x = 1.702 * g;
        double u = fmax(fmin((double)t->in[1][i], 7.0), -7.0), part = g / (1.0 + exp(-x));
        t->expected[i] = part * (u + 1.0);
        t->bound[i] = gate_bound(t->expected[i]) + CASE_ROUNDOFF * fabs(part) +
                      3 * CASE_ROUNDOFF * fmin(fabs(x), 90.0) * fabs(t->expected[i]) +
                      1024 * (double)FLT_MIN;
    }
}

static void run_sigmoid_multiply(const struct kernels *k, const struct case_task *t)
{
    k->sigmoid_multiply(t->out, t->in[0], t->in[1], t->what.n);
}

static void double_sigmoid_multiply(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        t->expected[i] = (double)t->in[0][i] / (1.0 + exp(-(double)t->in[1][i]));
        t->bound[i] =
            gate_bound(t->expected[i]) + 2 * (double)FLT_MIN * fmax(1.0, fabs((double)t->in[0][i]));
    }
}

static void run_silu(const struct kernels *k, const struct case_task *t)
{
    k->silu(t->out, t->what.n);
}

static void double_silu(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++) {
        t->expected[i] = silu_of((double)t->in[0][i]);
        t->bound[i] = gate_bound(t->expected[i]);
    }
}

/* --------------------------------------------------------------- the table */

#define WITH_GATES (FILLS_FINITE | FILL_BIT(FILL_GATES))
#define ONE_ROW                                                                                    \
    {                                                                                              \
        {                                                                                          \
            1, 2048, 1, 0, 0                                                                       \
        }                                                                                          \
    }

/* name, function of kernels and of this file, inputs, is in place, fills */
#define ROW_OP(op, inputs, place, covered)                                                         \
    {                                                                                              \
        .name = #op, .in_place = place, .fills = covered, .measure = measure_##inputs,             \
        .run = run_##op, .in_double = double_##op, .timed = ONE_ROW                                \
    }

const struct case_op case_row_ops[] = {
    ROW_OP(dot, dot, false, FILLS_FINITE),
    { .name = "dot_block",
      .has_rows = true,
      .in_parts = true,
      .fills = FILLS_FINITE,
      .measure = measure_block,
      .run = run_block,
      .in_double = double_block,
      .timed = { { 64, 2048, 1, 0, 0 }, { 64, 2048, 16, 0, 0 } } },
    ROW_OP(add_scaled, two, true, FILLS_FINITE),
    ROW_OP(rms_norm, two, false, FILLS_FINITE),
    ROW_OP(unit_norm, one, true, FILLS_FINITE),
    ROW_OP(softmax, one, true, WITH_GATES),
    ROW_OP(exp_shifted, one, true, WITH_GATES),
    ROW_OP(silu_multiply, two, false, WITH_GATES),
    ROW_OP(gelu_multiply, two, false, WITH_GATES),
    ROW_OP(clamped_multiply, two, false, WITH_GATES),
    ROW_OP(sigmoid_multiply, two, false, WITH_GATES),
    ROW_OP(soft_cap, one, true, WITH_GATES),
    ROW_OP(silu, one, true, WITH_GATES),
    { .name = NULL },
};
