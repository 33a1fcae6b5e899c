/* kernels: the arithmetic, one table of cases: operation × shape × kernel set.
 *
 *     conformance_kernels           every set gives the bits of "generic", and generic is
 *                                   within a stated bound of the same thing in double
 *     conformance_kernels --perf    the same table, timed: GB/s read and written
 *
 * Dequantising is tried for every format that has a reference function, with odd
 * bytes: any bits are a legal weight.  NaNs are equal whatever their payload. */
#include "support/test.h"

#include "base/clock.h"
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct machine machine;
static const struct kernels *generic;

/* ------------------------------------------------------------------ numbers */

struct source {
    uint64_t state;
};

static uint64_t next_bits(struct source *s)
{
    uint64_t z = (s->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double next_unit(struct source *s)
{
    return (double)(next_bits(s) >> 11) * 0x1p-52 - 1.0;
}

/* What rows are filled with. */
enum fill {
    FILL_USUAL,  /* between -3 and 3 */
    FILL_ZERO,   /* zeroes */
    FILL_EQUAL,  /* one number */
    FILL_WIDE,   /* every magnitude from 1e-12 to 1e12 */
    FILL_TINY,   /* around 1e-25: squares vanish */
    FILL_HUGE,   /* around 1e25: squares overflow */
    FILL_GATES,  /* between -110 and 110: the whole range of exp and beyond */
    FILL_SPICED, /* usual, with infinities, NaN and -0 among them */
    FILL_COUNT
};

static const char *const fill_names[FILL_COUNT] = { "usual", "zero", "equal", "wide",
                                                    "tiny",  "huge", "gates", "spiced" };

static float number(struct source *s, enum fill fill)
{
    double unit = next_unit(s);
    switch (fill) {
    case FILL_ZERO:
        return 0.0f;
    case FILL_EQUAL:
        return 1.37f;
    case FILL_WIDE:
        return (float)(copysign(pow(10.0, 12.0 * next_unit(s)), unit));
    case FILL_TINY:
        return (float)(unit * 1e-25);
    case FILL_HUGE:
        return (float)(unit * 1e25);
    case FILL_GATES:
        return (float)(unit * 110.0);
    case FILL_SPICED: {
        static const float spices[] = { INFINITY, -INFINITY, NAN, -0.0f };
        uint64_t bits = next_bits(s);
        return bits % 11 == 0 ? spices[bits / 11 % 4] : (float)(3.0 * unit);
    }
    default:
        return (float)(3.0 * unit);
    }
}

/* A row at an address that is aligned to nothing but floats. */
static float *row_new(struct source *s, size_t n, enum fill fill)
{
    float *memory = malloc((n + 2) * sizeof *memory);
    assert_non_null(memory);
    memory[0] = 0;
    for (size_t i = 0; i <= n; i++) memory[1 + i] = number(s, fill);
    return memory + 1;
}

static void row_free(float *row)
{
    free(row - 1);
}

static void check_bits(const char *what, const char *set, const float *found, const float *expected,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memcmp(&found[i], &expected[i], sizeof(float)) == 0) continue;
        if (isnan(found[i]) && isnan(expected[i])) continue;
        fail_msg("%s: %s gives %a for number %zu of %zu, generic %a", what, set, (double)found[i],
                 i, n, (double)expected[i]);
    }
}

/* ---------------------------------------------------------------- operations */

/* One case: inputs made once, a run that writes `results`, and the same in double. */
struct task {
    size_t n, m;      /* sizes; what they mean is the operation's business */
    float *in[4];     /* never written */
    float *out;       /* results of the kernel: result_count floats, freshly prepared */
    double *expected; /* [result_count] */
    double *bound;    /* [result_count] allowed distance between the two */
    size_t result_count;
};

struct operation {
    const char *name;
    /* How many numbers in[i] and out hold for sizes n, m. */
    void (*measure)(size_t in_counts[4], size_t *out_count, size_t n, size_t m);
    /* `out` begins as a copy of in[0], for operations in place. */
    void (*run)(const struct kernels *k, const struct task *t);
    void (*in_double)(const struct task *t);
    bool has_m;     /* a second size */
    unsigned fills; /* bit set of enum fill that the double version covers */
};

#define FILL_BIT(fill) (1u << (fill))
#define FINITE                                                                                     \
    (FILL_BIT(FILL_USUAL) | FILL_BIT(FILL_ZERO) | FILL_BIT(FILL_EQUAL) | FILL_BIT(FILL_WIDE) |     \
     FILL_BIT(FILL_TINY))
#define FINITE_AND_GATES (FINITE | FILL_BIT(FILL_GATES))

static const float epsilon = 1e-6f;
/* The unit roundoff, and one unit in the last place of a number. */
static const double roundoff = 0x1p-24;

/* dot: each of the sums has n / 16 + 4 additions, and a product rounds once. */
static double dot_bound(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += fabs((double)a[i] * (double)b[i]);
    return roundoff * ((double)n / 16 + 7) * sum + (double)FLT_TRUE_MIN * (double)(n + 1);
}

static double dot_double(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static void measure_dot(size_t in[4], size_t *out, size_t n, size_t m)
{
    (void)m;
    in[0] = in[1] = n;
    *out = 1;
}

static void run_dot(const struct kernels *k, const struct task *t)
{
    t->out[0] = k->dot(t->in[0], t->in[1], t->n);
}

static void double_dot(const struct task *t)
{
    t->expected[0] = dot_double(t->in[0], t->in[1], t->n);
    t->bound[0] = dot_bound(t->in[0], t->in[1], t->n);
}

/* in[0]: m weight rows; in[1]: 1 + m % 7 rows of activations */
static size_t block_rows(size_t m)
{
    return 1 + m % 7;
}

static void measure_block(size_t in[4], size_t *out, size_t n, size_t m)
{
    in[0] = m * n;
    in[1] = block_rows(m) * n;
    *out = block_rows(m) * m;
}

static void run_block(const struct kernels *k, const struct task *t)
{
    const float *x[7];
    float *out[7];
    for (size_t j = 0; j < block_rows(t->m); j++) {
        x[j] = t->in[1] + j * t->n;
        out[j] = t->out + j * t->m;
    }
    k->dot_block(&(struct dot_block){
        .w = t->in[0], .x = x, .out = out, .w_rows = t->m, .x_rows = block_rows(t->m), .n = t->n });
}

static void double_block(const struct task *t)
{
    for (size_t i = 0; i < t->result_count; i++) {
        const float *w = t->in[0] + i % t->m * t->n, *x = t->in[1] + i / t->m * t->n;
        t->expected[i] = dot_double(w, x, t->n);
        t->bound[i] = dot_bound(w, x, t->n);
    }
}

static void measure_three(size_t in[4], size_t *out, size_t n, size_t m)
{
    (void)m;
    in[0] = in[1] = in[2] = *out = n;
}

static void run_add_scaled(const struct kernels *k, const struct task *t)
{
    k->add_scaled(t->out, t->in[1], 0.3f, t->n);
}

static void double_add_scaled(const struct task *t)
{
    for (size_t i = 0; i < t->n; i++) {
        double product = (double)t->in[1][i] * (double)0.3f;
        t->expected[i] = (double)t->in[0][i] + product;
        t->bound[i] = roundoff * (fabs(product) + fabs(t->expected[i])) + (double)FLT_TRUE_MIN;
    }
}

/* Relative to each number: the sum's error is halved by the root; then four roundings. */
static double norm_bound(size_t n, double value)
{
    return roundoff * ((double)n / 32 + 12) * fabs(value) + (double)FLT_MIN;
}

static void run_rms_norm(const struct kernels *k, const struct task *t)
{
    k->rms_norm(t->out, t->in[0], t->in[1], epsilon, t->n);
}

static void double_rms_norm(const struct task *t)
{
    double scale =
        1.0 / sqrt(dot_double(t->in[0], t->in[0], t->n) / (double)t->n + (double)epsilon);
    for (size_t i = 0; i < t->n; i++) {
        t->expected[i] = (double)t->in[0][i] * scale * (double)t->in[1][i];
        t->bound[i] = norm_bound(t->n, t->expected[i]);
    }
}

static void run_unit_norm(const struct kernels *k, const struct task *t)
{
    k->unit_norm(t->out, 0.25f, epsilon, t->n);
}

static void double_unit_norm(const struct task *t)
{
    double scale = 0.25 / sqrt(dot_double(t->in[0], t->in[0], t->n) + (double)epsilon);
    for (size_t i = 0; i < t->n; i++) {
        t->expected[i] = (double)t->in[0][i] * scale;
        t->bound[i] = norm_bound(t->n, t->expected[i]);
    }
}

static void run_softmax(const struct kernels *k, const struct task *t)
{
    k->softmax(t->out, t->n);
}

/* x - max rounds once, which exp turns into a relative error of |x - max| units. */
static void double_softmax(const struct task *t)
{
    double most = -INFINITY, sum = 0, worst = 0;
    for (size_t i = 0; i < t->n; i++) most = fmax(most, (double)t->in[0][i]);
    for (size_t i = 0; i < t->n; i++) {
        double distance = (double)t->in[0][i] - most;
        sum += t->expected[i] = exp(distance);
        if (distance > -88.0) worst = fmax(worst, fabs(distance) * t->expected[i]);
    }
    for (size_t i = 0; i < t->n; i++) {
        double distance = fmin(fabs((double)t->in[0][i] - most), 88.0);
        t->expected[i] /= sum;
        t->bound[i] = roundoff * (distance + worst + (double)t->n / 16 + 12) * t->expected[i] +
                      2 * (double)FLT_MIN; /* below exp(-87.3) it is 0 */
    }
}

static void run_exp_shifted(const struct kernels *k, const struct task *t)
{
    k->exp_shifted(t->out, 2.5f, t->n);
}

static void double_exp_shifted(const struct task *t)
{
    for (size_t i = 0; i < t->n; i++) {
        double x = (double)t->in[0][i] - 2.5;
        t->expected[i] = exp(x) > (double)FLT_MAX ? HUGE_VAL : exp(x);
        /* x rounds, which exp makes relative; below exp(-87.3) the result is 0 */
        t->bound[i] =
            roundoff * (fmin(fabs(x), 89.0) + 3) * exp(fmin(x, 89.0)) + 2 * (double)FLT_MIN;
    }
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

/* sigmoid: exp within 2 units (below), one addition, one division. */
static double gate_bound(double value)
{
    return 10 * roundoff * fabs(value) + 128 * (double)FLT_MIN;
}

static void run_silu_multiply(const struct kernels *k, const struct task *t)
{
    k->silu_multiply(t->out, t->in[0], t->in[1], t->n);
}

static void double_silu_multiply(const struct task *t)
{
    for (size_t i = 0; i < t->n; i++) {
        t->expected[i] = silu((double)t->in[0][i]) * (double)t->in[1][i];
        t->bound[i] = gate_bound(t->expected[i]) +
                      128 * (double)FLT_MIN * fmax(1.0, fabs((double)t->in[1][i]));
    }
}

static void run_sigmoid_multiply(const struct kernels *k, const struct task *t)
{
    k->sigmoid_multiply(t->out, t->in[0], t->in[1], t->n);
}

static void double_sigmoid_multiply(const struct task *t)
{
    for (size_t i = 0; i < t->n; i++) {
        t->expected[i] = (double)t->in[0][i] / (1.0 + exp(-(double)t->in[1][i]));
        t->bound[i] =
            gate_bound(t->expected[i]) + 2 * (double)FLT_MIN * fmax(1.0, fabs((double)t->in[0][i]));
    }
}

static void run_silu(const struct kernels *k, const struct task *t)
{
    k->silu(t->out, t->n);
}

static void double_silu(const struct task *t)
{
    for (size_t i = 0; i < t->n; i++) {
        t->expected[i] = silu((double)t->in[0][i]);
        t->bound[i] = gate_bound(t->expected[i]);
    }
}

/* in: state [m][n], q [n], k [n], v [m]; out: state, then the m answers */
static void measure_delta(size_t in[4], size_t *out, size_t n, size_t m)
{
    in[0] = m * n;
    in[1] = in[2] = n;
    in[3] = m;
    *out = m * n + m;
}

static const float decay = 0.9f, strength = 0.7f;

static void run_delta(const struct kernels *k, const struct task *t)
{
    k->delta_step(&(struct delta_step){ .out = t->out + t->m * t->n,
                                        .state_out = t->out,
                                        .state_in = t->in[0],
                                        .q = t->in[1],
                                        .k = t->in[2],
                                        .v = t->in[3],
                                        .decay = decay,
                                        .strength = strength,
                                        .keys = t->n,
                                        .values = t->m });
}

static void double_delta(const struct task *t)
{
    double terms = (double)t->n / 16 + 12;
    for (size_t i = 0; i < t->m; i++) {
        const float *row = t->in[0] + i * t->n, *q = t->in[1], *k = t->in[2];
        double remembered = 0, size = 0, answer = 0, answer_bound = 0;
        for (size_t j = 0; j < t->n; j++) {
            double s = (double)row[j] * (double)decay;
            remembered += s * (double)k[j];
            size += fabs(s * (double)k[j]);
        }
        double change = (double)strength * ((double)t->in[3][i] - remembered);
        double change_bound = roundoff * terms * (size + fabs((double)t->in[3][i]));
        for (size_t j = 0; j < t->n; j++) {
            double *s = &t->expected[i * t->n + j], *bound = &t->bound[i * t->n + j];
            double kept = (double)row[j] * (double)decay, moved = change * (double)k[j];
            *s = kept + moved;
            *bound = 4 * roundoff * (fabs(kept) + fabs(moved)) + change_bound * fabs((double)k[j]) +
                     4 * (double)FLT_TRUE_MIN;
            answer += *s * (double)q[j];
            answer_bound += (roundoff * terms * fabs(*s) + *bound) * fabs((double)q[j]);
        }
        t->expected[t->m * t->n + i] = answer;
        t->bound[t->m * t->n + i] = answer_bound + 1e-44;
    }
}

static const struct operation operations[] = {
    { "dot", measure_dot, run_dot, double_dot, false, FINITE },
    { "dot_block", measure_block, run_block, double_block, true, FINITE },
    { "add_scaled", measure_three, run_add_scaled, double_add_scaled, false, FINITE },
    { "rms_norm", measure_three, run_rms_norm, double_rms_norm, false, FINITE },
    { "unit_norm", measure_three, run_unit_norm, double_unit_norm, false, FINITE },
    { "softmax", measure_three, run_softmax, double_softmax, false, FINITE_AND_GATES },
    { "exp_shifted", measure_three, run_exp_shifted, double_exp_shifted, false, FINITE_AND_GATES },
    { "silu_multiply", measure_three, run_silu_multiply, double_silu_multiply, false,
      FINITE_AND_GATES },
    { "sigmoid_multiply", measure_three, run_sigmoid_multiply, double_sigmoid_multiply, false,
      FINITE_AND_GATES },
    { "silu", measure_three, run_silu, double_silu, false, FINITE_AND_GATES },
    { "delta_step", measure_delta, run_delta, double_delta, true,
      FINITE & ~FILL_BIT(FILL_WIDE) }, /* a product of three */
};

/* ------------------------------------------------------------------- the table */

static void task_make(struct task *t, const struct operation *op, size_t n, size_t m,
                      enum fill fill)
{
    struct source source = { n * 1000 + m * 10 + fill };
    size_t counts[4] = { 0 };
    *t = (struct task){ .n = n, .m = m };
    op->measure(counts, &t->result_count, n, m);
    for (size_t i = 0; i < 4; i++) t->in[i] = row_new(&source, counts[i], fill);
    t->out = row_new(&source, t->result_count, FILL_ZERO);
    t->expected = malloc(t->result_count * sizeof(double));
    t->bound = malloc(t->result_count * sizeof(double));
    assert_true(t->expected && t->bound);
}

static void task_free(struct task *t)
{
    for (size_t i = 0; i < 4; i++) row_free(t->in[i]);
    row_free(t->out);
    free(t->expected);
    free(t->bound);
}

/* Operations in place work on a copy of the first input. */
static void task_run(const struct task *t, const struct operation *op, const struct kernels *k)
{
    if (op->measure == measure_three) memcpy(t->out, t->in[0], t->n * sizeof(float));
    op->run(k, t);
}

static const size_t lengths[] = { 1,  2,  3,  5,  7,  8,  9,  15, 16, 17,  23,  31,  32,  33,
                                  40, 47, 48, 49, 63, 64, 65, 70, 96, 100, 127, 128, 255, 1000 };
static const size_t widths[] = { 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 31, 70 };

typedef void (*case_function)(const struct operation *op, size_t n, size_t m, enum fill fill);

static void for_each_case(case_function check)
{
    for (size_t o = 0; o < COUNT_OF(operations); o++) {
        const struct operation *op = &operations[o];
        size_t width_count = op->has_m ? COUNT_OF(widths) : 1;
        for (size_t i = 0; i < COUNT_OF(lengths); i++)
            for (size_t j = 0; j < width_count; j++)
                for (enum fill fill = 0; fill < FILL_COUNT; fill++)
                    check(op, lengths[i], widths[j], fill);
    }
}

static void same_bits(const struct operation *op, size_t n, size_t m, enum fill fill)
{
    struct task t;
    char what[96];
    task_make(&t, op, n, m, fill);
    float *expected = malloc(t.result_count * sizeof *expected);
    assert_non_null(expected);
    task_run(&t, op, generic);
    memcpy(expected, t.out, t.result_count * sizeof *expected);
    snprintf(what, sizeof what, "%s of %zu x %zu %s numbers", op->name, m, n, fill_names[fill]);
    for (size_t i = 0; kernels_at(&machine, i); i++) {
        const struct kernels *k = kernels_at(&machine, i);
        memset(t.out, 0xa5, t.result_count * sizeof *t.out);
        t.out[t.result_count] = 1.5f;
        task_run(&t, op, k);
        check_bits(what, k->name, t.out, expected, t.result_count);
        assert_true(t.out[t.result_count] == 1.5f); /* behind the result nothing is written */
    }
    free(expected);
    task_free(&t);
}

static void every_set_gives_the_bits_of_generic(void **state)
{
    (void)state;
    for_each_case(same_bits);
}

static void near_double(const struct operation *op, size_t n, size_t m, enum fill fill)
{
    if (!(op->fills & FILL_BIT(fill))) return;
    struct task t;
    task_make(&t, op, n, m, fill);
    task_run(&t, op, generic);
    op->in_double(&t);
    for (size_t i = 0; i < t.result_count; i++) {
        double error = fabs((double)t.out[i] - t.expected[i]);
        if ((double)t.out[i] == t.expected[i]) continue; /* infinities */
        if (!(error <= t.bound[i]))
            fail_msg("%s of %zu x %zu %s numbers: number %zu is %.9g, %.9g was expected, off by %g "
                     "where %g is allowed",
                     op->name, m, n, fill_names[fill], i, (double)t.out[i], t.expected[i], error,
                     t.bound[i]);
    }
    task_free(&t);
}

static void generic_is_near_double(void **state)
{
    (void)state;
    for_each_case(near_double);
}

/* ------------------------------------------------------------- dequantising */

/* A weight of random bytes.  Scales that are f16 or bf16 may be anything, too. */
struct packed {
    struct weight weight;
    uint8_t *memory;
};

static void fill_bytes(struct source *s, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)next_bits(s);
}

static bool is_affine(enum format format)
{
    return format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8;
}

static bool is_f8(enum format format)
{
    return format == FORMAT_F8_E4M3 || format == FORMAT_F8_E5M2;
}

static bool packed_make(struct packed *p, enum format format, size_t cols, uint32_t group,
                        enum format scale_format)
{
    enum { ROWS = 5 };
    struct source source = { cols * 100 + group + (uint64_t)format };
    uint64_t row_bytes;
    if (!format_row_bytes(&row_bytes, format, cols)) return false;
    bool scaled = is_affine(format) || is_f8(format);
    if (is_affine(format) && cols % group != 0) return false;
    uint32_t group_rows = is_f8(format) ? 2 : 1;
    size_t groups = (cols + group - 1) / group;
    size_t scale_bytes = groups * format_info(scale_format)->block_bytes;
    p->memory = malloc(1 + ROWS * (row_bytes + 2 * scale_bytes));
    assert_non_null(p->memory);
    uint8_t *at = p->memory + 1; /* no alignment */
    p->weight = (struct weight){
        .format = format, .rows = ROWS, .cols = cols, .values = at, .row_bytes = row_bytes
    };
    fill_bytes(&source, at, ROWS * row_bytes);
    if (!scaled) return true;
    p->weight.scale_format = scale_format;
    p->weight.group_rows = group_rows;
    p->weight.group_cols = group;
    p->weight.scale_row_bytes = scale_bytes;
    p->weight.scales = at + ROWS * row_bytes;
    if (is_affine(format)) p->weight.biases = at + ROWS * (row_bytes + scale_bytes);
    fill_bytes(&source, at + ROWS * row_bytes, 2 * ROWS * scale_bytes);
    return true;
}

static unsigned check_dequantise(enum format format, size_t cols, uint32_t group,
                                 enum format scale_format)
{
    struct packed p;
    if (!packed_make(&p, format, cols, group, scale_format)) return 0;
    float *expected = malloc((cols + 1) * sizeof(float)),
          *found = malloc((cols + 1) * sizeof(float));
    char what[96];
    assert_true(expected && found);
    snprintf(what, sizeof what, "%s of %zu in groups of %u", format_info(format)->name, cols,
             group);
    for (uint64_t row = 0; row < p.weight.rows; row++) {
        weight_dequantise_row(expected, &p.weight, row);
        for (size_t i = 0; kernels_at(&machine, i); i++) {
            const struct kernels *k = kernels_at(&machine, i);
            found[cols] = 1.5f; /* behind the row nothing is written */
            kernels_dequantise(k, found, &p.weight, row);
            check_bits(what, k->name, found, expected, cols);
            assert_true(found[cols] == 1.5f);
        }
    }
    free(expected);
    free(found);
    free(p.memory);
    return 1;
}

static void every_set_dequantises_as_the_format_says(void **state)
{
    (void)state;
    static const enum format scale_formats[] = { FORMAT_BF16, FORMAT_F16, FORMAT_F32 };
    static const uint32_t groups[] = { 8, 16, 24, 32, 40, 64, 128 };
    static const size_t more[] = { 256, 512, 768, 1024, 2816 };
    for (enum format format = 0; format < FORMAT_COUNT; format++) {
        if (!format_info(format)->dequantise) continue;
        unsigned cases = 0;
        bool scaled = is_affine(format) || is_f8(format);
        for (size_t c = 1; c <= 130 + COUNT_OF(more); c++) {
            size_t cols = c <= 130 ? c : more[c - 131];
            for (size_t g = 0; g < (scaled ? COUNT_OF(groups) : 1); g++)
                for (size_t s = 0; s < (scaled ? COUNT_OF(scale_formats) : 1); s++)
                    cases += check_dequantise(format, cols, groups[g], scale_formats[s]);
        }
        if (cases == 0) fail_msg("%s was not tried", format_info(format)->name);
    }
}

/* -------------------------------------------------------------------- --perf */

static void time_case(const struct operation *op, const struct kernels *k, size_t n, size_t m)
{
    struct task t;
    size_t counts[4] = { 0 }, results;
    task_make(&t, op, n, m, FILL_USUAL);
    op->measure(counts, &results, n, m);
    double bytes = (double)(counts[0] + counts[1] + counts[2] + counts[3] + results) * 4,
           best = 1e9;
    size_t repeats = 1 + (size_t)(2e6 / bytes);
    for (int attempt = 0; attempt < 5; attempt++) {
        double begin = clock_seconds();
        for (size_t i = 0; i < repeats; i++) task_run(&t, op, k);
        best = fmin(best, (clock_seconds() - begin) / (double)repeats);
    }
    printf("%-18s %-8s %6zu x %-6zu %8.2f GB/s\n", op->name, k->name, m, n, bytes / best * 1e-9);
    task_free(&t);
}

static void time_dequantise(enum format format, const struct kernels *k)
{
    struct packed p;
    float row[2048];
    if (!packed_make(&p, format, COUNT_OF(row), 64, FORMAT_BF16)) return;
    double best = 1e9;
    enum { REPEATS = 400 };
    for (int attempt = 0; attempt < 5; attempt++) {
        double begin = clock_seconds();
        for (size_t i = 0; i < REPEATS; i++)
            kernels_dequantise(k, row, &p.weight, i % p.weight.rows);
        best = fmin(best, (clock_seconds() - begin) / REPEATS);
    }
    printf("dequantise %-14s %-8s %8.2f GB/s written\n", format_info(format)->name, k->name,
           sizeof row / best * 1e-9);
    free(p.memory);
}

static int time_all(void)
{
    for (size_t o = 0; o < COUNT_OF(operations); o++)
        for (size_t i = 0; kernels_at(&machine, i); i++)
            for (size_t n = 64; n <= 4096; n *= 8)
                time_case(&operations[o], kernels_at(&machine, i), n, operations[o].has_m ? 32 : 1);
    for (enum format format = 0; format < FORMAT_COUNT; format++)
        for (size_t i = 0; format_info(format)->dequantise && kernels_at(&machine, i); i++)
            time_dequantise(format, kernels_at(&machine, i));
    return 0;
}

int main(int count, char **arguments)
{
    machine_probe(&machine);
    generic = kernels_select(&machine, "generic");
    if (count == 2 && strcmp(arguments[1], "--perf") == 0) return time_all();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_gives_the_bits_of_generic),
        cmocka_unit_test(generic_is_near_double),
        cmocka_unit_test(every_set_dequantises_as_the_format_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
