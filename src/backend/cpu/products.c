/* products.c: a matrix with rows of activations, in each arithmetic. */
#include "backend/cpu/cpu.h"

/* Rows of activations whose addresses are collected at a time. */
enum { X_ROWS = 64, MATRIX_X_ROWS = 256 };

/* Rows of a matrix that the matrix unit takes at once. */
enum { MATRIX_BLOCK = 32 };

/* Rows of a matrix that are worth asking for: as many as a kernel needs for long streams, but
 * some times less than each worker's share, so that all finish together. */
enum { HANDED_ROWS_MIN = 32, HANDED_ROWS_MAX = 128, HANDED_PARTS = 8 };

static const float *x_row(const struct product *p, size_t row)
{
    return p->x + row * p->x_stride;
}

static float *out_row(const struct product *p, size_t row)
{
    return p->out + row * p->out_stride;
}

static size_t handed_rows(const struct product *p)
{
    size_t rows = p->weight->rows / (HANDED_PARTS * p->worker.count);
    rows = rows / HANDED_ROWS_MIN * HANDED_ROWS_MIN;
    return max_size(HANDED_ROWS_MIN, min_size(HANDED_ROWS_MAX, rows));
}

/* ------------------------------------------------------------------- exact */

static bool is_in_place(const struct weight *w)
{
    return w->format == FORMAT_F32 && (uintptr_t)w->values % sizeof(float) == 0;
}

void cpu_load_block(struct matrix_block *block, const struct kernels *kernels, float *scratch)
{
    const struct weight *w = block->weight;
    if (is_in_place(w)) {
        block->dequantised = (const float *)(const void *)(w->values + block->first * w->row_bytes);
        return;
    }
    for (size_t i = 0; i < block->count; i++)
        kernels_dequantise(kernels, scratch + i * w->cols, w, block->first + i);
    block->dequantised = scratch;
}

void cpu_multiply_block(float results[ACTIVATION_ROWS][MATRIX_ROWS],
                        const struct matrix_block *block, const struct kernels *kernels,
                        const float *const *x, size_t x_rows)
{
    float *out[ACTIVATION_ROWS];
    for (size_t j = 0; j < x_rows; j++) out[j] = results[j];
    kernels->dot_block(&(struct dot_block){ .w = block->dequantised,
                                            .x = x,
                                            .out = out,
                                            .w_rows = block->count,
                                            .x_rows = x_rows,
                                            .n = block->weight->cols });
}

/* Rows `part` of the matrix with rows of activations from `begin` to `end`. */
static void multiply_part(const struct product *p, struct share part, size_t begin, size_t end)
{
    struct matrix_block block = { .weight = p->weight,
                                  .first = part.begin,
                                  .count = part.end - part.begin };
    cpu_load_block(&block, p->kernels, p->scratch);
    for (size_t r = begin; r < end; r += ACTIVATION_ROWS) {
        const float *x[ACTIVATION_ROWS];
        float results[ACTIVATION_ROWS][MATRIX_ROWS];
        size_t rows = min_size(ACTIVATION_ROWS, end - r);
        for (size_t j = 0; j < rows; j++) x[j] = x_row(p, r + j);
        cpu_multiply_block(results, &block, p->kernels, x, rows);
        for (size_t j = 0; j < rows; j++) {
            float *out = out_row(p, r + j) + block.first;
            for (size_t i = 0; i < block.count; i++)
                out[i] = p->add ? out[i] + results[j][i] : results[j][i];
        }
    }
}

/* Each worker has some rows of the matrix, dequantises them once and multiplies them with all rows
 * of activations; or with some after the other, which then stay in a near cache, where there is
 * nothing to dequantise. */
static void multiply_exact(const struct product *p)
{
    struct share share = worker_share(p->worker, p->weight->rows, MATRIX_ROWS);
    size_t step = is_in_place(p->weight) ? ACTIVATION_ROWS : p->x_rows;
    for (size_t r = 0; r < p->x_rows; r += step)
        for (size_t i = share.begin; i < share.end; i += MATRIX_ROWS)
            multiply_part(p, (struct share){ i, min_size(i + MATRIX_ROWS, share.end) }, r,
                          min_size(r + step, p->x_rows));
}

static size_t nothing(const struct product *p)
{
    (void)p;
    return 0;
}

const struct product_way cpu_exact_way = { .prepared_floats = nothing, .multiply = multiply_exact };

/* ---------------------------------------------------------------- integers */

void cpu_make_units(struct integer_unit *units, const struct units_wanted *wanted,
                    struct worker worker, const float *x)
{
    struct share share = worker_share(worker, wanted->n, UNIT);
    if (share.begin < share.end)
        wanted->kernels->make_units(units + share.begin / UNIT, x + share.begin,
                                    share.end - share.begin, wanted->order);
}

/* Rows `part` of the matrix with all rows of activations. */
static void multiply_units(const struct product *p, const struct integer_unit *units,
                           struct share part)
{
    size_t per_row = units_of(p->weight->cols);
    for (size_t r = 0; r < p->x_rows; r += X_ROWS) {
        const struct integer_unit *x[X_ROWS];
        float *out[X_ROWS];
        size_t rows = min_size(X_ROWS, p->x_rows - r);
        for (size_t j = 0; j < rows; j++) {
            x[j] = units + (r + j) * per_row;
            out[j] = out_row(p, r + j) + part.begin;
        }
        p->kernels->integer_dot[p->weight->format](
            &(struct integer_block){ .weight = p->weight,
                                     .first = part.begin,
                                     .count = part.end - part.begin,
                                     .x = x,
                                     .out = out,
                                     .x_rows = rows,
                                     .add = p->add });
    }
}

static size_t units_floats(const struct product *p)
{
    return p->x_rows * units_of(p->weight->cols) * sizeof(struct integer_unit) / sizeof(float);
}

static void prepare_units(const struct product *p)
{
    struct integer_unit *units = (struct integer_unit *)(void *)p->prepared;
    struct units_wanted wanted = { p->kernels, p->weight->cols,
                                   kernels_unit_order(p->kernels, p->weight) };
    for (size_t r = 0; r < p->x_rows; r++)
        cpu_make_units(units + r * units_of(p->weight->cols), &wanted, p->worker, x_row(p, r));
}

static void multiply_integers(const struct product *p)
{
    const struct integer_unit *units = (const struct integer_unit *)(const void *)p->prepared;
    struct handout rows = handout_begin(p->worker, p->weight->rows, handed_rows(p));
    for (struct share part; handout_next(&rows, &part);) multiply_units(p, units, part);
}

const struct product_way cpu_integer_way = { units_floats, prepare_units, multiply_integers, true };

/* ------------------------------------------------------------------ floats */

/* Rows `part` of the matrix with all rows of activations. */
static void multiply_rows(const struct product *p, struct share part)
{
    for (size_t r = 0; r < p->x_rows; r += X_ROWS) {
        const float *x[X_ROWS];
        float *out[X_ROWS];
        size_t rows = min_size(X_ROWS, p->x_rows - r);
        for (size_t j = 0; j < rows; j++) {
            x[j] = x_row(p, r + j);
            out[j] = out_row(p, r + j) + part.begin;
        }
        p->kernels->float_dot[p->weight->format](
            &(struct float_block){ .weight = p->weight,
                                   .first = part.begin,
                                   .count = part.end - part.begin,
                                   .x = x,
                                   .out = out,
                                   .x_rows = rows,
                                   .add = p->add });
    }
}

static void multiply_floats(const struct product *p)
{
    struct handout rows = handout_begin(p->worker, p->weight->rows, handed_rows(p));
    for (struct share part; handout_next(&rows, &part);) multiply_rows(p, part);
}

const struct product_way cpu_float_way = { .prepared_floats = nothing,
                                           .multiply = multiply_floats,
                                           .handed_out = true };

/* ------------------------------------------------------------- matrix unit */

void cpu_make_pack(uint16_t *pack, const struct matrix_unit *matrix, struct worker worker,
                   const float *const *x, size_t x_rows, size_t n)
{
    const float *part[PACK_ROWS];
    struct share share = worker_share(worker, n, 32);
    for (size_t j = 0; j < x_rows; j++) part[j] = x[j] + share.begin;
    if (share.begin < share.end)
        matrix->make_pack(pack + matrix_cols(share.begin) * matrix->words * PACK_ROWS, part, x_rows,
                          share.end - share.begin);
}

static size_t packs_floats(const struct product *p)
{
    return align_up(p->x_rows, PACK_ROWS) * kernels_pack_words(p->kernels, p->weight->cols) *
           sizeof(uint16_t) / sizeof(float);
}

static void prepare_packs(const struct product *p)
{
    const struct matrix_unit *matrix = kernels_matrix(p->kernels, p->weight);
    uint16_t *packs = (uint16_t *)(void *)p->prepared;
    for (size_t r = 0; r < p->x_rows; r += PACK_ROWS) {
        const float *x[PACK_ROWS];
        size_t rows = min_size(PACK_ROWS, p->x_rows - r);
        for (size_t j = 0; j < rows; j++) x[j] = x_row(p, r + j);
        cpu_make_pack(packs + r * kernels_pack_words(p->kernels, p->weight->cols), matrix,
                      p->worker, x, rows, p->weight->cols);
    }
}

static void multiply_packs(const struct product *p)
{
    const struct matrix_unit *matrix = kernels_matrix(p->kernels, p->weight);
    size_t words = kernels_pack_words(p->kernels, p->weight->cols);
    const uint16_t *packs = (const uint16_t *)(const void *)p->prepared;
    struct share share = worker_share(p->worker, p->weight->rows, MATRIX_BLOCK);
    if (share.begin == share.end) return;
    struct matrix_product product = {
        .from = { { p->weight, share.begin, share.end, MATRIX_BLOCK },
                  { p->weight, share.begin + MATRIX_BLOCK / 2, share.end, MATRIX_BLOCK } },
        .rows = share.end - share.begin,
        .add = p->add,
        .room = p->scratch,
    };
    matrix->begin();
    for (size_t r = 0; r < p->x_rows; r += MATRIX_X_ROWS) {
        float *out[MATRIX_X_ROWS];
        product.packs = packs + r * words;
        product.x_rows = min_size(MATRIX_X_ROWS, p->x_rows - r);
        product.out = out;
        for (size_t j = 0; j < product.x_rows; j++) out[j] = out_row(p, r + j) + share.begin;
        matrix->multiply(&product);
    }
    matrix->end();
}

const struct product_way cpu_matrix_way = { packs_floats, prepare_packs, multiply_packs, false };

/* ------------------------------------------------------------------ memory */

size_t cpu_product_scratch(const struct backend_sizes *sizes)
{
    size_t cols = max_size(sizes->matrix_cols, max_size(sizes->width, sizes->expert_width));
    return matrix_room(cols) / sizeof(float);
}

size_t cpu_product_shared(const struct backend_sizes *sizes, const struct kernels *kernels)
{
    size_t units = sizes->row_count * units_of(sizes->matrix_cols);
    size_t packs =
        align_up(sizes->row_count, PACK_ROWS) * kernels_pack_words(kernels, sizes->matrix_cols);
    return max_size(units * sizeof(struct integer_unit), packs * sizeof(uint16_t)) / sizeof(float);
}
