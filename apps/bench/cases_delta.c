/* cases_delta.c: the gated delta rule and what goes with it (kernels/delta/delta.h).
 *
 * n are the keys, m the values of a head.  The plain step gives the same bits everywhere;
 * the others are f32 in an order of their own: within 1e-5 of the largest result. */
#include "bench/cases.h"

#include <float.h>
#include <math.h>

static const double bound_f32 = 1e-5, bound_least = 1e-3;

/* ------------------------------------------------------------- one position */

/* in: state [m][n], q [n], k [n], v [m]; out: state, then the m answers */
static void measure_delta(struct case_sizes *out, const struct kernel_case *what)
{
    size_t n = what->n, m = what->m;
    *out = (struct case_sizes){ .in = { m * n, n, n, m },
                                .out = m * n + m,
                                .flops = 7.0 * (double)(m * n) };
}

static const float decay = 0.9f, strength = 0.7f;

static struct delta_step step_of(const struct case_task *t)
{
    size_t n = t->what.n, m = t->what.m;
    return (struct delta_step){ .out = t->out + m * n,
                                .state_out = t->out,
                                .state_in = t->in[0],
                                .q = t->in[1],
                                .k = t->in[2],
                                .v = t->in[3],
                                .decay = decay,
                                .strength = strength,
                                .keys = n,
                                .values = m };
}

static void run_delta(const struct kernels *k, const struct case_task *t)
{
    struct delta_step step = step_of(t);
    k->delta_step(&step);
}

static void run_delta_tuned(const struct kernels *k, const struct case_task *t)
{
    struct delta_step step = step_of(t);
    k->delta->step(&step);
}

static void double_delta(const struct case_task *t)
{
    size_t n = t->what.n, m = t->what.m;
    double terms = (double)n / 16 + 12;
    for (size_t i = 0; i < m; i++) {
        const float *row = t->in[0] + i * n, *q = t->in[1], *k = t->in[2];
        double remembered = 0, size = 0, answer = 0, answer_bound = 0;
        for (size_t j = 0; j < n; j++) {
            double s = (double)row[j] * (double)decay;
            remembered += s * (double)k[j];
            size += fabs(s * (double)k[j]);
        }
        double change = (double)strength * ((double)t->in[3][i] - remembered);
        double change_bound = CASE_ROUNDOFF * terms * (size + fabs((double)t->in[3][i]));
        for (size_t j = 0; j < n; j++) {
            double *s = &t->expected[i * n + j], *bound = &t->bound[i * n + j];
            double kept = (double)row[j] * (double)decay, moved = change * (double)k[j];
            *s = kept + moved;
            *bound = 4 * CASE_ROUNDOFF * (fabs(kept) + fabs(moved)) +
                     change_bound * fabs((double)k[j]) + 4 * (double)FLT_TRUE_MIN;
            answer += *s * (double)q[j];
            answer_bound += (CASE_ROUNDOFF * terms * fabs(*s) + *bound) * fabs((double)q[j]);
        }
        t->expected[m * n + i] = answer;
        t->bound[m * n + i] = answer_bound + 1e-44;
    }
}

/* The answer is made of two parts that may cancel: keys and queries have a length of about
 * three times the root of n, and what is remembered is multiplied with both. */
static void double_delta_tuned(const struct case_task *t)
{
    size_t n = t->what.n, m = t->what.m;
    double_delta(t);
    double lengths = 0;
    for (size_t i = 0; i < n; i++) lengths += fabs((double)t->in[1][i]) * fabs((double)t->in[2][i]);
    case_bound_by_largest(t, 0, m * n, bound_f32, bound_least);
    for (size_t i = 0; i < m; i++) {
        double state = 0;
        for (size_t j = 0; j < n; j++) state = fmax(state, fabs(t->expected[i * n + j]));
        t->bound[m * n + i] += bound_f32 * (state * lengths + bound_least);
    }
}

/* -------------------------------------------------------------------- chunks */

/* Everything that the kernels of a prompt read and write, for one head. */
struct chunk_scratch {
    size_t padded;
    float *k, *q;            /* [rows][n], keys of a length of about 1 */
    float *v, *u, *out;      /* [rows][padded] */
    float *decay, *strength; /* [rows] */
    float *transposed;       /* [n][16] */
    float *kk, *qk;          /* [16][16] */
    float *state;            /* [n][padded] */
    float *more;             /* [2][16][padded] */
    float *stored;           /* [m][n] */
};

static struct chunk_scratch cut_chunk(struct case_cutter *cutter, const struct kernel_case *what)
{
    size_t rows = align_up(what->x_rows, DELTA_CHUNK), n = what->n;
    struct chunk_scratch s = { .padded = delta_padded(what->m) };
    float **pieces[] = { &s.k,          &s.q,  &s.v,  &s.u,     &s.out,  &s.decay, &s.strength,
                         &s.transposed, &s.kk, &s.qk, &s.state, &s.more, &s.stored };
    size_t counts[] = { rows * n,
                        rows * n,
                        rows * s.padded,
                        rows * s.padded,
                        rows * s.padded,
                        rows,
                        rows,
                        n * DELTA_CHUNK,
                        DELTA_CHUNK * DELTA_CHUNK,
                        DELTA_CHUNK * DELTA_CHUNK,
                        n * s.padded,
                        2 * DELTA_CHUNK * s.padded,
                        what->m * n };
    _Static_assert(COUNT_OF(pieces) == COUNT_OF(counts), "a size for every piece");
    for (size_t i = 0; i < COUNT_OF(pieces); i++)
        *pieces[i] = case_cut(cutter, counts[i] * sizeof(float));
    return s;
}

static struct chunk_scratch scratch_of(const struct case_task *t)
{
    return cut_chunk(&(struct case_cutter){ t->scratch, 0 }, &t->what);
}

/* in: state [m][n], q and k [rows][n], v [rows][m]; out: [rows][m], then the state */
static void measure_chunk(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    size_t n = what->n, m = what->m, rows = what->x_rows;
    cut_chunk(&cutter, what);
    *out = (struct case_sizes){ .in = { m * n, rows * n, rows * n, rows * m },
                                .out = rows * m + m * n,
                                .scratch_bytes = cutter.bytes,
                                .flops = 7.0 * (double)(rows * m * n) };
}

/* Decays and strengths as models have them, and now and then one that forgets everything. */
static void prepare_chunk(const struct kernels *k, const struct case_task *t)
{
    struct chunk_scratch s = scratch_of(t);
    size_t n = t->what.n, m = t->what.m;
    float unit = (float)(0.5 / sqrt((double)n));
    (void)k;
    if (t->x_first > 0) return; /* it goes on */
    memset(t->scratch, 0xff, t->sizes.scratch_bytes);
    for (size_t r = 0; r < t->what.x_rows; r++) {
        for (size_t i = 0; i < n; i++) {
            s.q[r * n + i] = t->in[1][r * n + i] * unit;
            s.k[r * n + i] = t->in[2][r * n + i] * unit;
        }
        for (size_t i = 0; i < s.padded; i++)
            s.v[r * s.padded + i] = i < m ? t->in[3][r * m + i] : 0.0f;
        s.decay[r] = r % 5 == 3 ? 1e-4f : 0.75f + t->in[3][r * m] / 12;
        s.strength[r] = 0.5f + t->in[3][r * m] / 6;
    }
}

/* Rows of one chunk, from `first` on; returns the row behind them. */
static size_t run_rows(const struct kernels *k, const struct case_task *t,
                       const struct chunk_scratch *s, size_t first)
{
    size_t begin = first / DELTA_CHUNK * DELTA_CHUNK, n = t->what.n;
    struct delta_keys keys = { .k = s->k + begin * n,
                               .q = s->q + begin * n,
                               .keys = n,
                               .first = first - begin,
                               .end = min_size(t->x_end - begin, DELTA_CHUNK),
                               .transposed = s->transposed,
                               .kk = s->kk,
                               .qk = s->qk };
    struct delta_chunk chunk = { .keys = &keys,
                                 .padded = s->padded,
                                 .decay = s->decay + begin,
                                 .strength = s->strength + begin,
                                 .v = s->v + begin * s->padded,
                                 .u = s->u + begin * s->padded,
                                 .out = s->out + begin * s->padded,
                                 .state = s->state,
                                 .scratch = s->more };
    k->delta->multiply_keys(&keys);
    k->delta->rows(&chunk);
    size_t end = begin + keys.end;
    if (keys.end == DELTA_CHUNK || end == t->what.x_rows) k->delta->close(&chunk);
    return end;
}

static void run_chunk(const struct kernels *k, const struct case_task *t)
{
    struct chunk_scratch s = scratch_of(t);
    size_t n = t->what.n, m = t->what.m;
    if (t->x_first == 0) k->delta->load_state(s.state, t->in[0], n, m);
    for (size_t at = t->x_first; at < t->x_end;) at = run_rows(k, t, &s, at);
    if (t->x_end == t->what.x_rows) k->delta->store_state(s.stored, s.state, n, m);
}

static void collect_chunk(const struct case_task *t)
{
    struct chunk_scratch s = scratch_of(t);
    size_t n = t->what.n, m = t->what.m, rows = t->what.x_rows;
    for (size_t i = t->x_first * m; i < t->x_end * m; i++)
        t->out[i] = s.out[i / m * s.padded + i % m];
    if (t->x_end == rows) memcpy(t->out + rows * m, s.stored, m * n * sizeof(float));
}

/* S ← γS; S ← S + β(v - S·k) kᵀ; out = S·q */
static void double_chunk(const struct case_task *t)
{
    struct chunk_scratch s = scratch_of(t);
    size_t n = t->what.n, m = t->what.m, rows = t->what.x_rows;
    double *state = t->expected + rows * m;
    for (size_t i = 0; i < m * n; i++) state[i] = (double)t->in[0][i];
    for (size_t r = 0; r < rows; r++) {
        const float *k = s.k + r * n, *q = s.q + r * n;
        for (size_t i = 0; i < m; i++) {
            double *row = state + i * n, recalled = 0, answer = 0;
            for (size_t c = 0; c < n; c++) {
                row[c] *= (double)s.decay[r];
                recalled += row[c] * (double)k[c];
            }
            double v = (double)s.v[r * s.padded + i];
            double change = (double)s.strength[r] * (v - recalled);
            for (size_t c = 0; c < n; c++) {
                row[c] += change * (double)k[c];
                answer += row[c] * (double)q[c];
            }
            t->expected[r * m + i] = answer;
        }
        case_bound_by_largest(t, r * m, m, bound_f32, bound_least);
    }
    case_bound_by_largest(t, rows * m, m * n, bound_f32, bound_least);
}

/* --------------------------------------------------------------- convolution */

/* n channels, m taps; the first channels belong to other rows. */
static size_t first_channel(const struct kernel_case *what)
{
    return what->n > 20 ? 3 : 0;
}

struct conv_scratch {
    float **out;     /* [rows] */
    const float **x; /* [rows + taps - 1] */
};

static struct conv_scratch cut_conv(struct case_cutter *cutter, const struct kernel_case *what)
{
    struct conv_scratch s;
    s.out = case_cut(cutter, what->x_rows * sizeof *s.out);
    s.x = case_cut(cutter, (what->x_rows + what->m - 1) * sizeof *s.x);
    return s;
}

static void measure_conv(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    size_t n = what->n, rows = what->x_rows;
    cut_conv(&cutter, what);
    *out = (struct case_sizes){ .in = { (rows + what->m - 1) * n, n * what->m },
                                .out = rows * n,
                                .scratch_bytes = cutter.bytes,
                                .flops = 2.0 * (double)(rows * n * what->m) };
}

static void prepare_conv(const struct kernels *k, const struct case_task *t)
{
    struct conv_scratch s = cut_conv(&(struct case_cutter){ t->scratch, 0 }, &t->what);
    size_t n = t->what.n;
    (void)k;
    for (size_t r = 0; r < t->what.x_rows; r++) {
        s.out[r] = t->out + r * n;
        for (size_t c = 0; c < first_channel(&t->what); c++) s.out[r][c] = -7.0f;
    }
    for (size_t r = 0; r < t->what.x_rows + t->what.m - 1; r++) s.x[r] = t->in[0] + r * n;
}

static void run_conv(const struct kernels *k, const struct case_task *t)
{
    struct conv_scratch s = cut_conv(&(struct case_cutter){ t->scratch, 0 }, &t->what);
    k->delta->conv(&(struct delta_conv){ s.out + t->x_first, s.x + t->x_first, t->in[1],
                                         t->x_end - t->x_first, t->what.m, first_channel(&t->what),
                                         t->what.n });
}

static void double_conv(const struct case_task *t)
{
    size_t n = t->what.n, taps = t->what.m, first = first_channel(&t->what);
    for (size_t i = 0; i < t->sizes.out; i++) {
        size_t row = i / n, c = i % n;
        double sum = 0;
        for (size_t j = 0; j < taps; j++)
            sum += (double)t->in[1][c * taps + j] * (double)t->in[0][(row + j) * n + c];
        t->expected[i] = c < first ? -7.0 : sum / (1.0 + exp(-sum));
    }
    for (size_t r = 0; r < t->what.x_rows; r++) {
        case_bound_by_largest(t, r * n + first, n - first, bound_f32, bound_least);
        for (size_t c = 0; c < first; c++) t->bound[r * n + c] = 0;
    }
}

/* --------------------------------------------------------------------- gates */

/* in: a, b, log_decay, bias; out: decays, then strengths */
static void measure_gates(struct case_sizes *out, const struct kernel_case *what)
{
    size_t n = what->n;
    *out = (struct case_sizes){ .in = { n, n, n, n },
                                .out = 2 * n,
                                .scratch_bytes = 4 * n * sizeof(float) };
}

/* Inputs from -80 to 80, decays that forget slowly and quickly. */
static void prepare_gates(const struct kernels *k, const struct case_task *t)
{
    float *a = t->scratch;
    size_t n = t->what.n;
    (void)k;
    for (size_t i = 0; i < n; i++) {
        a[i] = t->in[0][i] * (i % 2 ? 26.0f : 2.7f);
        a[n + i] = t->in[1][i] * (i % 2 ? 33.0f : 2.7f);
        a[2 * n + i] = i % 3 ? -1.0f - fabsf(t->in[2][i]) / 3 : -5.3f * (3.0f + t->in[2][i]);
        a[3 * n + i] = t->in[3][i];
    }
}

static void run_gates(const struct kernels *k, const struct case_task *t)
{
    const float *a = t->scratch;
    size_t n = t->what.n;
    k->delta->gates(&(struct delta_gates){ t->out, t->out + n, a, a + n, a + 2 * n, a + 3 * n, n });
}

/* Relative to each number: decays near 1 and near 0 both matter.  What is rounded in the
 * exponent is a relative error behind it; below e^-20 a decay is as good as none. */
static void double_gates(const struct case_task *t)
{
    const float *a = t->scratch;
    size_t n = t->what.n;
    for (size_t i = 0; i < n; i++) {
        double x = (double)(a[i] + a[3 * n + i]);
        double exponent = (double)a[2 * n + i] * (x > 30 ? x : log1p(exp(x)));
        t->expected[i] = exp(exponent);
        t->expected[n + i] = 1.0 / (1.0 + exp(-(double)a[n + i]));
        t->bound[i] = exponent > -20 ? (1e-6 + 1.2e-7 * fabs(exponent)) * t->expected[i] : 1e-8;
        t->bound[n + i] =
            (1e-6 + 1.2e-7 * fabs(log(t->expected[n + i]))) * t->expected[n + i] + 1e-37;
    }
}

/* --------------------------------------------------------------- the table */

/* m, n, rows */
static const struct case_shape chunks[] = {
    { 128, 128, 16, 0, 0 }, { 128, 128, 50, 0, 0 }, { 32, 32, 11, 0, 0 }, { 128, 64, 6, 0, 0 },
    { 7, 9, 16, 0, 0 },     { 7, 9, 33, 0, 0 },     { 1, 1, 1, 0, 0 },    { 33, 17, 16, 0, 0 },
    { 33, 17, 21, 0, 0 },   { 48, 256, 16, 0, 0 },  { 48, 256, 1, 0, 0 }, { 0 },
};
static const struct case_shape steps[] = {
    { 128, 128, 1, 0, 0 }, { 32, 32, 1, 0, 0 }, { 128, 64, 1, 0, 0 }, { 7, 9, 1, 0, 0 },
    { 1, 1, 1, 0, 0 },     { 33, 17, 1, 0, 0 }, { 48, 256, 1, 0, 0 }, { 0 },
};
static const struct case_shape convolutions[] = {
    { 1, 1, 1, 0, 0 },
    { 4, 1, 9, 0, 0 },
    { 3, 16, 2, 0, 0 },
    { 4, 16, 9, 0, 0 },
    { 1, 64, 9, 0, 0 },
    { 4, 64, 1, 0, 0 },
    { 4, 64, 2, 0, 0 },
    { 3, 131, 9, 0, 0 },
    { 4, 131, 9, 0, 0 },
    { 4, 131, 1, 0, 0 },
    { 0 },
};

const struct case_op case_delta_ops[] = {
    { .name = "delta_step",
      .has_rows = true,
      .fills = FILLS_FINITE & ~FILL_BIT(FILL_WIDE), /* a product of three */
      .measure = measure_delta,
      .run = run_delta,
      .in_double = double_delta,
      .timed = { { 128, 128, 1, 0, 0 } } },
    { .name = "delta_step_tuned",
      .rule = CASE_NEAR,
      .has_rows = true,
      .fills = FILL_BIT(FILL_USUAL) | FILL_BIT(FILL_ZERO),
      .tried = steps,
      .measure = measure_delta,
      .run = run_delta_tuned,
      .in_double = double_delta_tuned,
      .timed = { { 128, 128, 1, 0, 0 } } },
    { .name = "delta_chunk",
      .rule = CASE_NEAR,
      .has_rows = true,
      .in_parts = true,
      .fills = FILL_BIT(FILL_USUAL) | FILL_BIT(FILL_ZERO),
      .tried = chunks,
      .measure = measure_chunk,
      .prepare = prepare_chunk,
      .run = run_chunk,
      .collect = collect_chunk,
      .in_double = double_chunk,
      .timed = { { 128, 128, 64, 0, 0 } } },
    { .name = "delta_conv",
      .rule = CASE_NEAR,
      .has_rows = true,
      .in_parts = true,
      .fills = FILL_BIT(FILL_USUAL) | FILL_BIT(FILL_ZERO),
      .tried = convolutions,
      .measure = measure_conv,
      .prepare = prepare_conv,
      .run = run_conv,
      .in_double = double_conv,
      .timed = { { 4, 2048, 1, 0, 0 }, { 4, 2048, 16, 0, 0 } } },
    { .name = "delta_gates",
      .rule = CASE_NEAR,
      .fills = FILL_BIT(FILL_USUAL) | FILL_BIT(FILL_ZERO),
      .measure = measure_gates,
      .prepare = prepare_gates,
      .run = run_gates,
      .in_double = double_gates,
      .timed = { { 1, 32, 1, 0, 0 } } },
    { .name = NULL },
};
