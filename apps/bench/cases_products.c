/* cases_products.c: products with quantised rows, in integers and on a matrix unit, and what
 * goes into them.
 *
 * Products in integers have the same bits in every set.  Their distance from double
 * arithmetic is that of the activations, which keep 15 bits of the largest of 32. */
#include "bench/cases.h"

#include "kernels/unit_formats.h"

#include <math.h>

static float greatest_of(const float *x, size_t n)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* Of 32 numbers the largest becomes 16256. */
static double step_of(const float *x, size_t i, size_t n)
{
    size_t first = i / 32 * 32;
    return (double)greatest_of(x + first, min_size(32, n - first)) / 16256;
}

/* How far a number may be from its integer; f32 adds some thousandths before it is rounded. */
static double half_step(const float *x, size_t i, size_t n)
{
    return 0.505 * step_of(x, i, n);
}

/* -------------------------------------------------------- activations as units */

/* out: the numbers as the integers say, then of every unit its scales and sums */
enum { UNIT_FLOATS = UNIT + UNIT / 32 * 2 + UNIT / 16 };

static void measure_units(struct case_sizes *out, const struct kernel_case *what)
{
    size_t units = units_of(what->n);
    *out = (struct case_sizes){ .in = { what->n },
                                .out = units * UNIT_FLOATS,
                                .scratch_bytes = units * sizeof(struct integer_unit),
                                .bytes =
                                    what->n * sizeof(float) + units * sizeof(struct integer_unit) };
}

static void run_units(const struct kernels *k, const struct case_task *t)
{
    k->make_units(t->scratch, t->in[0], t->what.n, UNIT_ORDER_ROW);
}

static void collect_units(const struct case_task *t)
{
    const struct integer_unit *unit = t->scratch;
    float *out = t->out;
    for (size_t u = 0; u < units_of(t->what.n); u++, unit++) {
        for (size_t i = 0; i < UNIT; i++)
            *out++ = (float)(128 * unit->high[i] + unit->low[i]) * unit->scales[i / 32];
        for (size_t i = 0; i < UNIT / 32; i++) *out++ = unit->scales[i];
        for (size_t i = 0; i < UNIT / 32; i++) *out++ = unit->sums[i];
        for (size_t i = 0; i < UNIT / 16; i++) *out++ = unit->sums_16[i];
    }
}

/* Σ of `count` numbers from `first` on, and its bound. */
static void double_sum(const struct case_task *t, size_t at, size_t first, size_t count)
{
    double sum = 0, bound = 0;
    for (size_t i = first; i < first + count && i < t->what.n; i++) {
        sum += (double)t->in[0][i];
        bound += half_step(t->in[0], i, t->what.n) * 1.01;
    }
    t->expected[at] = sum;
    t->bound[at] = bound;
}

static void double_units(const struct case_task *t)
{
    const float *x = t->in[0];
    size_t n = t->what.n, at = 0;
    for (size_t u = 0; u < units_of(n); u++) {
        size_t first = u * UNIT;
        for (size_t i = first; i < first + UNIT; i++, at++) {
            t->expected[at] = i < n ? (double)x[i] : 0;
            t->bound[at] = i < n ? half_step(x, i, n) : 0;
        }
        for (size_t i = first; i < first + UNIT; i += 32, at++) {
            t->expected[at] = i < n ? step_of(x, i, n) : 0;
            t->bound[at] = CASE_ROUNDOFF * t->expected[at];
        }
        for (size_t i = first; i < first + UNIT; i += 32) double_sum(t, at++, i, 32);
        for (size_t i = first; i < first + UNIT; i += 16) double_sum(t, at++, i, 16);
    }
}

/* --------------------------------------------------------- products in integers */

static bool takes_integers(const struct kernel_case *what)
{
    static const bool integers[FORMAT_COUNT] = {
#define IS_INTEGER(id, name, wide, group, bytes) [FORMAT_##id] = true,
        UNIT_FORMATS(IS_INTEGER)
#undef IS_INTEGER
    };
    return integers[what->format] && what->n % 64 == 0 && what->group % 32 == 0;
}

struct integer_scratch {
    struct integer_unit *units; /* [x_rows][units_of(n)] */
    const struct integer_unit **x;
    float **out;
};

static struct integer_scratch cut_integers(struct case_cutter *cutter,
                                           const struct kernel_case *what)
{
    struct integer_scratch s;
    s.units = case_cut(cutter, what->x_rows * units_of(what->n) * sizeof *s.units);
    s.x = case_cut(cutter, what->x_rows * sizeof *s.x);
    s.out = case_cut(cutter, what->x_rows * sizeof *s.out);
    return s;
}

/* in[0]: what is added to, where that is so; in[1]: rows of activations */
static void measure_integers(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    size_t results = what->x_rows * what->m;
    cut_integers(&cutter, what);
    *out = (struct case_sizes){ .in = { what->op->in_place ? results : 0, what->x_rows * what->n },
                                .out = results,
                                .scratch_bytes = cutter.bytes,
                                .flops = 2.0 * (double)(results * what->n) };
}

static void prepare_integers(const struct kernels *k, const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct integer_scratch s = cut_integers(&cutter, &t->what);
    size_t n = t->what.n, units = units_of(n);
    if (t->x_first > 0) return; /* it is */
    for (size_t j = 0; j < t->what.x_rows; j++) {
        k->make_units(s.units + j * units, t->in[1] + j * n, n, kernels_unit_order(k, &t->weight));
        s.x[j] = s.units + j * units;
        s.out[j] = t->out + j * t->what.m;
    }
}

static void run_integers(const struct kernels *k, const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct integer_scratch s = cut_integers(&cutter, &t->what);
    k->integer_dot[t->what.format](&(struct integer_block){ .weight = &t->weight,
                                                            .count = t->what.m,
                                                            .x = s.x + t->x_first,
                                                            .out = s.out + t->x_first,
                                                            .x_rows = t->x_end - t->x_first,
                                                            .add = t->what.op->in_place });
}

enum { COLS_MAX = 4096 }; /* of rows that are computed in double */

/* Half a step of every activation.  Sums are of q·scale and of min, which are within four
 * times the row's largest number together. */
static void double_integers(const struct case_task *t)
{
    float row[COLS_MAX];
    size_t n = t->what.n, m = t->what.m;
    for (size_t r = 0; r < m && n <= COLS_MAX; r++) {
        weight_dequantise_row(row, &t->weight, r);
        double largest = (double)greatest_of(row, n);
        for (size_t j = 0; j < t->what.x_rows; j++) {
            const float *x = t->in[1] + j * n;
            double bound = 0, sizes = 0;
            for (size_t i = 0; i < n; i += 32) {
                double weights = 0;
                for (size_t c = i; c < i + 32; c++) {
                    weights += fabs((double)row[c]);
                    sizes += fabs((double)x[c]);
                }
                bound += weights * half_step(x, i, n);
            }
            bound += CASE_ROUNDOFF * ((double)n / 16 + 16) * 4 * largest * sizes;
            double before = t->what.op->in_place ? (double)t->in[0][j * m + r] : 0;
            t->expected[j * m + r] = before + case_dot_double(row, x, n);
            t->bound[j * m + r] = bound + CASE_ROUNDOFF * fabs(t->expected[j * m + r]);
        }
    }
}

/* ------------------------------------------------------------------- floats */

static bool takes_floats(const struct kernel_case *what)
{
    static const bool floats[FORMAT_COUNT] = { [FORMAT_F32] = true,
                                               [FORMAT_F16] = true,
                                               [FORMAT_BF16] = true,
                                               [FORMAT_F8_E4M3] = true,
                                               [FORMAT_F8_E5M2] = true };
    return floats[what->format];
}

struct float_scratch {
    const float **x;
    float **out;
};

static struct float_scratch cut_floats(struct case_cutter *cutter, const struct kernel_case *what)
{
    struct float_scratch s;
    s.x = case_cut(cutter, what->x_rows * sizeof *s.x);
    s.out = case_cut(cutter, what->x_rows * sizeof *s.out);
    return s;
}

static void measure_floats(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    size_t results = what->x_rows * what->m;
    cut_floats(&cutter, what);
    *out = (struct case_sizes){ .in = { what->op->in_place ? results : 0, what->x_rows * what->n },
                                .out = results,
                                .scratch_bytes = cutter.bytes,
                                .flops = 2.0 * (double)(results * what->n) };
}

static void run_floats(const struct kernels *k, const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct float_scratch s = cut_floats(&cutter, &t->what);
    for (size_t j = t->x_first; j < t->x_end; j++) {
        s.x[j] = t->in[1] + j * t->what.n;
        s.out[j] = t->out + j * t->what.m;
    }
    k->float_dot[t->what.format](&(struct float_block){ .weight = &t->weight,
                                                        .count = t->what.m,
                                                        .x = s.x + t->x_first,
                                                        .out = s.out + t->x_first,
                                                        .x_rows = t->x_end - t->x_first,
                                                        .add = t->what.op->in_place });
}

/* Each product is rounded, then lies in a sum of a lane, which is scaled and folded. */
static void double_floats(const struct case_task *t)
{
    float row[COLS_MAX];
    size_t n = t->what.n, m = t->what.m;
    for (size_t r = 0; r < m && n <= COLS_MAX; r++) {
        weight_dequantise_row(row, &t->weight, r);
        for (size_t j = 0; j < t->what.x_rows; j++) {
            const float *x = t->in[1] + j * n;
            size_t at = j * m + r;
            double size = 0, before = t->what.op->in_place ? (double)t->in[0][at] : 0;
            for (size_t i = 0; i < n; i++) size += fabs((double)row[i] * (double)x[i]);
            t->expected[at] = before + case_dot_double(row, x, n);
            t->bound[at] = CASE_ROUNDOFF * (((double)n / 16 + 16) * size + fabs(t->expected[at]));
        }
    }
}

/* -------------------------------------------------------------- matrix unit */

static bool has_matrix(const struct kernels *k)
{
    return k->matrix;
}

struct matrix_scratch {
    size_t cols, stride;
    uint16_t *panel; /* [m + 2][stride] */
    void *room;
    uint16_t *packs; /* [x_rows / 16, rounded up][cols / 2][16][2] */
    uint16_t *gated; /* the same with GATED_COLS */
    float *numbers;  /* of these, row by row */
    float **out;
    const float **x;
};

enum { GATED_COLS = 32, GATED_FIRST = 16 };

static struct matrix_scratch cut_matrix(struct case_cutter *cutter, const struct kernel_case *what)
{
    size_t packed = align_up(what->x_rows, PACK_ROWS);
    struct matrix_scratch s = { .cols = matrix_cols(what->n) };
    s.stride = s.cols + 32;
    s.panel = case_cut(cutter, (what->m + 2) * s.stride * sizeof *s.panel);
    s.room = case_cut(cutter, matrix_room(what->n));
    s.packs = case_cut(cutter, packed * s.cols * sizeof(float));
    s.gated = case_cut(cutter, packed * GATED_COLS * sizeof(float));
    s.numbers = case_cut(cutter, packed * GATED_COLS * sizeof *s.numbers);
    s.out = case_cut(cutter, what->x_rows * sizeof *s.out);
    s.x = case_cut(cutter, what->x_rows * sizeof *s.x);
    return s;
}

static struct matrix_scratch scratch_of(const struct case_task *t)
{
    return cut_matrix(&(struct case_cutter){ t->scratch, 0 }, &t->what);
}

/* Rows x_first to x_end in packs of their own. */
static void prepare_matrix(const struct kernels *k, const struct case_task *t)
{
    struct matrix_scratch s = scratch_of(t);
    size_t rows = t->x_end - t->x_first;
    for (size_t j = 0; j < rows; j++) {
        s.x[j] = t->in[1] + (t->x_first + j) * t->what.n;
        s.out[j] = t->out + (t->x_first + j) * t->what.m;
    }
    const struct matrix_unit *matrix = kernels_matrix(k, &t->weight);
    matrix->begin();
    for (size_t j = 0; j < rows; j += PACK_ROWS)
        matrix->make_pack(s.packs + j * kernels_pack_words(k, t->what.n), s.x + j,
                          min_size(PACK_ROWS, rows - j), t->what.n);
    matrix->end();
    memset(s.gated, 0, align_up(rows, PACK_ROWS) * GATED_COLS * sizeof(float));
}

/* Rows 16 at a time: from[1]'s follow from[0]'s, if there are any. */
static struct matrix_product product_of(const struct case_task *t, const struct matrix_scratch *s)
{
    size_t m = t->what.m, next = 2 * PACK_ROWS;
    return (struct matrix_product){ .from = { { &t->weight, 0, m, next },
                                              { &t->weight, PACK_ROWS, m, next } },
                                    .rows = m,
                                    .packs = s->packs,
                                    .x_rows = t->x_end - t->x_first,
                                    .out = s->out,
                                    .add = t->what.op->in_place,
                                    .room = s->room };
}

/* ---- panels */

static void measure_panel(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    struct matrix_scratch s = cut_matrix(&cutter, what);
    uint64_t row_bytes;
    format_row_bytes(&row_bytes, what->format, what->n);
    *out = (struct case_sizes){ .out = what->m * s.cols,
                                .scratch_bytes = cutter.bytes,
                                .bytes = what->m * (row_bytes + s.cols * sizeof *s.panel) };
}

static void run_panel(const struct kernels *k, const struct case_task *t)
{
    struct matrix_scratch s = scratch_of(t);
    k->matrix->make_panel(s.panel, s.stride, &t->weight, 0, t->what.m);
}

static void collect_panel(const struct case_task *t)
{
    struct matrix_scratch s = scratch_of(t);
    for (size_t i = 0; i < t->sizes.out; i++)
        t->out[i] = f32_from_bf16(s.panel[i / s.cols * s.stride + i % s.cols]);
}

/* One rounding to 8 bits, and one of q·scale + min, which may cancel. */
static void double_panel(const struct case_task *t)
{
    float row[COLS_MAX];
    size_t n = t->what.n, cols = matrix_cols(n);
    for (size_t r = 0; r < t->what.m && n <= COLS_MAX; r++) {
        weight_dequantise_row(row, &t->weight, r);
        double largest = (double)greatest_of(row, n);
        for (size_t i = 0; i < cols; i++) {
            t->expected[r * cols + i] = i < n ? (double)row[i] : 0;
            t->bound[r * cols + i] =
                i < n ? 0x1.01p-8 * fabs((double)row[i]) + 0x1p-22 * largest : 0;
        }
    }
}

/* ---- products */

static void measure_matrix(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    size_t results = what->x_rows * what->m;
    cut_matrix(&cutter, what);
    *out = (struct case_sizes){ .in = { what->op->in_place ? results : 0, what->x_rows * what->n },
                                .out = results,
                                .scratch_bytes = cutter.bytes,
                                .flops = 2.0 * (double)(results * what->n) };
}

static void run_matrix(const struct kernels *k, const struct case_task *t)
{
    struct matrix_scratch s = scratch_of(t);
    struct matrix_product product = product_of(t, &s);
    const struct matrix_unit *matrix = kernels_matrix(k, &t->weight);
    matrix->begin();
    matrix->multiply(&product);
    matrix->end();
}

/* A product of rows r and j, and its bound: activations round to 8 bits, and so do weights that
 * are not bf16 already. */
static double double_product(const struct case_task *t, const float *row, size_t j, double *bound)
{
    size_t n = t->what.n;
    const float *x = t->in[1] + j * n;
    double size = 0;
    for (size_t i = 0; i < n; i++) size += fabs((double)row[i] * (double)x[i]);
    double roundings = t->what.format == FORMAT_BF16 ? 0x1.01p-8 : 0x1.02p-7;
    *bound = (roundings + CASE_ROUNDOFF * (double)(n + 4)) * size;
    return case_dot_double(row, x, n);
}

static void double_matrix(const struct case_task *t)
{
    float row[COLS_MAX];
    size_t m = t->what.m;
    for (size_t r = 0; r < m && t->what.n <= COLS_MAX; r++) {
        weight_dequantise_row(row, &t->weight, r);
        for (size_t j = 0; j < t->what.x_rows; j++) {
            size_t at = j * m + r;
            t->expected[at] = double_product(t, row, j, &t->bound[at]);
            if (!t->what.op->in_place) continue;
            t->expected[at] += (double)t->in[0][at];
            t->bound[at] += CASE_ROUNDOFF * fabs(t->expected[at]);
        }
    }
}

/* ---- gated products: 16 rows of gate, 16 of up */

static void measure_gated(struct case_sizes *out, const struct kernel_case *what)
{
    measure_matrix(out, what);
    out->out = what->x_rows * GATED_COLS;
}

static void measure_gated_gelu(struct case_sizes *out, const struct kernel_case *what)
{
    measure_gated(out, what);
}

/* Number c of a row in packs. */
static float gated_number(const struct kernels *k, const uint16_t *packs, size_t row, size_t c)
{
    const uint16_t *pack = packs + row / PACK_ROWS * PACK_ROWS * kernels_pack_words(k, GATED_COLS);
    float number;
    if (kernels_have_panels(k))
        return f32_from_bf16(pack[c / 2 * 2 * PACK_ROWS + row % PACK_ROWS * 2 + c % 2]);
    memcpy(&number, pack + 2 * (c * PACK_ROWS + row % PACK_ROWS), sizeof number);
    return number;
}

static void run_gated_with(const struct kernels *k, const struct case_task *t,
                           enum activation activation)
{
    struct matrix_scratch s = scratch_of(t);
    struct matrix_product product = product_of(t, &s);
    product.activation = activation;
    const struct matrix_unit *matrix = kernels_matrix(k, &t->weight);
    matrix->begin();
    matrix->multiply_gated(&product, s.gated, GATED_FIRST, GATED_COLS);
    matrix->end();
    for (size_t i = 0; i < product.x_rows * GATED_COLS; i++)
        s.numbers[i] = gated_number(k, s.gated, i / GATED_COLS, i % GATED_COLS);
}

static void run_gated(const struct kernels *k, const struct case_task *t)
{
    run_gated_with(k, t, ACTIVATION_SILU);
}

static void run_gated_gelu(const struct kernels *k, const struct case_task *t)
{
    run_gated_with(k, t, ACTIVATION_GELU);
}

static void collect_gated(const struct case_task *t)
{
    struct matrix_scratch s = scratch_of(t);
    memcpy(t->out + t->x_first * GATED_COLS, s.numbers,
           (t->x_end - t->x_first) * GATED_COLS * sizeof *s.numbers);
}

static double activate_in_double(enum activation activation, double x)
{
    double cubed = x + 0.044715 * x * x * x;
    double u = activation == ACTIVATION_GELU ? 2 * sqrt(2 / 3.14159265358979323846) * cubed : x;
    return x / (1.0 + exp(-u));
}

/* silu and gelu grow by at most 1.13 of what their argument does; the result is rounded to 8
 * bits. */
static void double_gated_with(const struct case_task *t, enum activation activation)
{
    float gates[COLS_MAX], ups[COLS_MAX];
    for (size_t r = 0; r < GATED_FIRST && t->what.n <= COLS_MAX; r++) {
        weight_dequantise_row(gates, &t->weight, r);
        weight_dequantise_row(ups, &t->weight, GATED_FIRST + r);
        for (size_t j = 0; j < t->what.x_rows; j++) {
            size_t at = j * GATED_COLS + GATED_FIRST + r;
            double gate_bound, up_bound, gate = double_product(t, gates, j, &gate_bound);
            double up = double_product(t, ups, j, &up_bound);
            double act = activate_in_double(activation, gate);
            t->expected[at] = act * up;
            t->bound[at] = 1.13 * gate_bound * (fabs(up) + up_bound) + fabs(act) * up_bound;
            t->bound[at] += 0x1.01p-8 * (fabs(t->expected[at]) + t->bound[at]) + 1e-37;
        }
    }
}

static void double_gated(const struct case_task *t)
{
    double_gated_with(t, ACTIVATION_SILU);
}

static void double_gated_gelu(const struct case_task *t)
{
    double_gated_with(t, ACTIVATION_GELU);
}

/* --------------------------------------------------------------- the table */

#define PRODUCT_OP(title, kind, place, tried_m, tried_x)                                           \
    .name = title, .has_rows = true, .has_weight = true, .in_place = place, .in_parts = true,      \
    .fills = FILL_BIT(FILL_USUAL),                                                                 \
    .tried = &(struct case_shape){ .m = tried_m, .x_rows = tried_x }, .measure = measure_##kind,   \
    .run = run_##kind, .in_double = double_##kind

const struct case_op case_product_ops[] = {
    { .name = "make_units",
      .fills = FILLS_FINITE,
      .measure = measure_units,
      .run = run_units,
      .collect = collect_units,
      .in_double = double_units,
      .timed = { { 1, 2048, 1, 0, 0 } } },
    { PRODUCT_OP("integer_dot", integers, false, 5, 6), .takes = takes_integers,
      .prepare = prepare_integers,
      .timed = { { CASE_MANY, 2048, 1, 0, 0 },
                 { 64, 2048, 1, 0, 0 },
                 { 64, 2048, 4, 0, 0 },
                 { 64, 2048, 16, 0, 0 } } },
    { PRODUCT_OP("integer_dot_add", integers, true, 5, 5), .takes = takes_integers,
      .prepare = prepare_integers },
    { PRODUCT_OP("float_dot", floats, false, 5, 6), .takes = takes_floats,
      .timed = { { CASE_MANY, 2048, 1, 0, 0 }, { 64, 2048, 1, 0, 0 }, { 64, 2048, 4, 0, 0 } } },
    { PRODUCT_OP("float_dot_add", floats, true, 5, 5), .takes = takes_floats },
    { .name = "make_panel",
      .rule = CASE_NEAR,
      .has_rows = true,
      .has_weight = true,
      .fills = FILL_BIT(FILL_USUAL),
      .tried = &(struct case_shape){ .m = 5, .x_rows = 1 },
      .exists = kernels_have_panels,
      .measure = measure_panel,
      .run = run_panel,
      .collect = collect_panel,
      .in_double = double_panel,
      .timed = { { 64, 2048, 1, 0, 0 } } },
    { PRODUCT_OP("matrix_multiply", matrix, false, 70, 123), .rule = CASE_NEAR, .on_matrix = true,
      .exists = has_matrix, .prepare = prepare_matrix,
      .timed = { { 64, 2048, 16, 0, 0 },
                 { 64, 2048, 32, 0, 0 },
                 { 64, 2048, 128, 0, 0 },
                 { 64, 2048, 512, 0, 0 } } },
    { PRODUCT_OP("matrix_multiply_few", matrix, false, 70, 44), .rule = CASE_NEAR,
      .on_matrix = true, .exists = has_matrix, .prepare = prepare_matrix },
    { PRODUCT_OP("matrix_multiply_add", matrix, true, 37, 37), .rule = CASE_NEAR, .on_matrix = true,
      .exists = has_matrix, .prepare = prepare_matrix },
    { PRODUCT_OP("matrix_gated", gated, false, 32, 37), .rule = CASE_NEAR, .on_matrix = true,
      .exists = has_matrix, .prepare = prepare_matrix, .collect = collect_gated,
      .timed = { { 32, 2048, 64, 0, 0 } } },
    { PRODUCT_OP("matrix_gated_gelu", gated_gelu, false, 32, 37), .rule = CASE_NEAR,
      .on_matrix = true, .exists = has_matrix, .prepare = prepare_matrix,
      .collect = collect_gated },
    { .name = NULL },
};
