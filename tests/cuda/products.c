/* products.c: the CUDA kernels' products with matrices and experts, for every weight format, against
 * the format's own function in double.
 *
 * Built twice: with kernels for a device (make cuda-test), and with those of the emulated one. */
#include "cuda/device_memory.h"

#include "backend/cuda/launch.h"
#include "base/status.h"
#include "bench/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS_MAX = 70, CHANNELS_MAX = 72, COLS_MAX = 512 };

/* A matrix on the host and on the device, where its arrays are one after the other. */
struct matrix {
    struct weight host;
    struct cuda_weight device;
    uint8_t *host_memory;
    void *device_memory;
    double *numbers; /* [rows][cols] */
};

static size_t arrays_bytes(const struct weight *w)
{
    size_t tiles = w->scales ? (w->rows + w->group_rows - 1) / w->group_rows : 0;
    return w->rows * w->row_bytes + tiles * w->scale_row_bytes * (w->biases ? 2 : 1);
}

static void matrix_make(struct matrix *m, const struct kernel_case *what, size_t offset)
{
    mf_error why = { 0 };
    float row[COLS_MAX];
    if (case_weight_make(&m->host, &m->host_memory, what, &why) != MF_OK) fail_msg("%s", why.text);
    const struct weight *w = &m->host;
    m->device_memory = device_new(w->values, arrays_bytes(w), offset);
    const uint8_t *values = (uint8_t *)m->device_memory + offset, *first = w->values;
    m->device = (struct cuda_weight){
        .format = (int)w->format,
        .scale_format = (int)w->scale_format,
        .group_rows = w->group_rows,
        .group_cols = w->group_cols,
        .rows = w->rows,
        .cols = w->cols,
        .values = values,
        .scales = w->scales ? values + ((const uint8_t *)w->scales - first) : NULL,
        .biases = w->biases ? values + ((const uint8_t *)w->biases - first) : NULL,
        .row_bytes = w->row_bytes,
        .scale_row_bytes = w->scale_row_bytes,
        .col_bytes = w->col_bytes,
    };
    m->numbers = calloc(w->rows * w->cols, sizeof *m->numbers);
    assert_non_null(m->numbers);
    for (size_t r = 0; r < w->rows; r++) {
        weight_dequantise_row(row, w, r);
        for (size_t i = 0; i < w->cols; i++) m->numbers[r * w->cols + i] = (double)row[i];
    }
}

static void matrix_free(struct matrix *m)
{
    free(m->numbers);
    free(m->host_memory);
    device_free(m->device_memory);
}

/* Σ w·x, and in *size Σ |w·x|. */
static double dot(const double *w, const float *x, size_t count, double *size)
{
    double sum = 0.0;
    *size = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += w[i] * (double)x[i];
        *size += fabs(w[i] * (double)x[i]);
    }
    return sum;
}

/* In f32 a sum of 512 rounds to less than this of its terms' sizes; bf16 has eight bits, and rounds
 * both factors. */
static const double f32_bound = 1e-5, bf16_bound = 1.0 / 128;

static void check_rows(const struct matrix *m, const float *out, const float *x, size_t row_count,
                       double bound, const char *what)
{
    size_t rows = m->host.rows, cols = m->host.cols;
    for (size_t r = 0; r < row_count; r++) {
        for (size_t i = 0; i < rows; i++) {
            double size, wanted = dot(m->numbers + i * cols, x + r * cols, cols, &size);
            double found = (double)out[r * rows + i];
            if (!(fabs(found - wanted) <= bound * size + 1e-30))
                fail_msg("%s of %s %zu x %zu: row %zu of %zu, channel %zu is %g instead of %g",
                         what, format_info(m->host.format)->name, rows, cols, r, row_count, i,
                         found, wanted);
        }
    }
}

/* ---------------------------------------------------------------------------------- one matrix */

enum way { DECODE, PROMPT_F32, PROMPT_BF16, WAYS };
static const char *const way_names[WAYS] = { "decode", "a prompt in f32", "a prompt in bf16" };

static void project(float *out, const struct matrix *m, const float *x, size_t row_count,
                    enum way way)
{
    size_t rows = m->host.rows, cols = m->host.cols;
    uint32_t count = (uint32_t)row_count;
    float *device_x = device_new(x, row_count * cols * sizeof *x, 0);
    float *device_out = device_new(NULL, row_count * rows * sizeof *out, 0);
    if (way == PROMPT_BF16)
        cuda_project_matrix(stream, device_out, rows, device_x, cols, count, &m->device, false);
    else
        cuda_project(stream, device_out, rows, device_x, cols, count, &m->device, false,
                     way == DECODE);
    copy_back(out, device_out, row_count * rows * sizeof *out);
    device_free(device_x);
    device_free(device_out);
}

/* The bits of a row are the same alone. */
static void check_alone(const struct matrix *m, const float *out, const float *x, size_t row,
                        enum way way)
{
    float alone[CHANNELS_MAX];
    size_t rows = m->host.rows;
    project(alone, m, x + row * m->host.cols, 1, way);
    if (memcmp(alone, out + row * rows, rows * sizeof *alone) != 0)
        fail_msg("%s of %s: row %zu has other bits alone", way_names[way],
                 format_info(m->host.format)->name, row);
}

static void check_matrix(const struct kernel_case *what, size_t offset)
{
    static float x[ROWS_MAX * COLS_MAX], out[ROWS_MAX * CHANNELS_MAX];
    static const size_t counts[WAYS][3] = { { 1, 3, 17 }, { 1, 7, 66 }, { 1, 9, 70 } };
    struct matrix m;
    matrix_make(&m, what, offset);
    fill(x, COUNT_OF(x), 7);
    for (int way = 0; way < WAYS; way++) {
        for (size_t i = 0; i < COUNT_OF(counts[way]); i++) {
            size_t count = counts[way][i];
            project(out, &m, x, count, (enum way)way);
            check_rows(&m, out, x, count, way == PROMPT_BF16 ? bf16_bound : f32_bound,
                       way_names[way]);
            check_alone(&m, out, x, count - 1, (enum way)way);
        }
    }
    matrix_free(&m);
}

/* Calls `check` for every format that a matrix may have, with rows of different lengths. */
static void for_every_format(void (*check)(const struct kernel_case *what, size_t offset))
{
    static const struct case_op any = { .name = "product" };
    static const size_t lengths[] = { 32, 48, 96, 512 };
    size_t formats = 0;
    for (int format = 0; format < FORMAT_COUNT; format++) {
        bool seen = false;
        if (!format_info((enum format)format)->dequantise) continue;
        for (size_t i = 0; i < COUNT_OF(lengths); i++) {
            struct kernel_case what = { .op = &any,
                                        .n = lengths[i],
                                        .m = i == 0 ? 5 : CHANNELS_MAX,
                                        .format = (enum format)format,
                                        .scale_format = i % 2 ? FORMAT_F16 : FORMAT_F32,
                                        .group = lengths[i] % 64 == 0 ? 64 : 16 };
            if (!case_weight_exists(&what)) continue;
            check(&what, i % 2 ? 0 : 3); /* aligned and not */
            seen = true;
        }
        formats += seen;
    }
    assert_true(formats >= 20);
}

static void products_are_near_double(void **state)
{
    (void)state;
    for_every_format(check_matrix);
}

/* ------------------------------------------------------------------------------------- experts */

enum { EXPERTS = 3, PER_ROW = 2, EXPERT_ROWS = 9, PAIRS = EXPERT_ROWS * PER_ROW, WIDTH = 512 };
enum { EXPERT_WIDTH = 256 };

struct expert_matrices {
    struct matrix gate, up, down;
};

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

/* An expert's answer to x in double. */
static void answer_in_double(double *out, double *size, const struct expert_matrices *e,
                             const float *x)
{
    float hidden[EXPERT_WIDTH];
    double unused;
    for (size_t i = 0; i < EXPERT_WIDTH; i++)
        hidden[i] = (float)(silu(dot(e->gate.numbers + i * WIDTH, x, WIDTH, &unused)) *
                            dot(e->up.numbers + i * WIDTH, x, WIDTH, &unused));
    for (size_t i = 0; i < WIDTH; i++)
        out[i] = dot(e->down.numbers + i * EXPERT_WIDTH, hidden, EXPERT_WIDTH, &size[i]);
}

static void check_answers(const struct expert_matrices *experts, const uint32_t *chosen,
                          const float *answers, const float *x, bool rounded)
{
    double wanted[WIDTH], size[WIDTH];
    for (size_t pair = 0; pair < PAIRS; pair++) {
        answer_in_double(wanted, size, &experts[chosen[pair]], x + pair / PER_ROW * WIDTH);
        for (size_t i = 0; i < WIDTH; i++) {
            double off = fabs((double)answers[pair * WIDTH + i] - wanted[i]);
            if (!(off <= (rounded ? 8 * bf16_bound : 20 * f32_bound) * size[i] + 1e-20))
                fail_msg("experts in %s: pair %zu, number %zu is %g instead of %g",
                         format_info(experts->gate.host.format)->name, pair, i,
                         (double)answers[pair * WIDTH + i], wanted[i]);
        }
    }
}

/* Row r is for experts r % 3 and the one behind it. */
static void choose(uint32_t *chosen, uint32_t (*pairs)[PAIRS], uint32_t *counts)
{
    memset(counts, 0, EXPERTS * sizeof *counts);
    for (uint32_t pair = 0; pair < PAIRS; pair++) {
        uint32_t e = (pair / PER_ROW + pair % PER_ROW) % EXPERTS;
        chosen[pair] = e;
        pairs[e][counts[e]++] = pair;
    }
}

static void check_experts(const struct kernel_case *what, size_t offset)
{
    static float x[EXPERT_ROWS * WIDTH], answers[PAIRS * WIDTH];
    static struct expert_matrices experts[EXPERTS];
    struct cuda_expert list[EXPERTS];
    uint32_t chosen[PAIRS], pairs[EXPERTS][PAIRS], counts[EXPERTS];
    struct kernel_case wide = *what, narrow = *what;
    if (what->n != WIDTH) return;
    wide.m = EXPERT_WIDTH;
    narrow.m = WIDTH;
    narrow.n = EXPERT_WIDTH;
    fill(x, COUNT_OF(x), 3);
    choose(chosen, pairs, counts);
    void *device_pairs = device_new(pairs, sizeof pairs, 0);
    for (size_t e = 0; e < EXPERTS; e++) {
        matrix_make(&experts[e].gate, &wide, offset);
        matrix_make(&experts[e].up, &wide, offset + e);
        matrix_make(&experts[e].down, &narrow, offset);
        list[e] = (struct cuda_expert){ .gate = experts[e].gate.device,
                                        .up = experts[e].up.device,
                                        .down = experts[e].down.device,
                                        .pairs = (uint32_t *)device_pairs + e * PAIRS,
                                        .pair_count = counts[e] };
    }
    struct cuda_experts batch = { .experts = device_new(list, sizeof list, 0),
                                  .expert_count = EXPERTS,
                                  .most_pairs = EXPERT_ROWS,
                                  .per_row = PER_ROW,
                                  .activation = 0,
                                  .width = WIDTH,
                                  .expert_width = EXPERT_WIDTH,
                                  .gate_format = (int)what->format,
                                  .up_format = (int)what->format,
                                  .down_format = (int)what->format,
                                  .routed = device_new(x, sizeof x, 0),
                                  .hidden = device_new(NULL, PAIRS * EXPERT_WIDTH * sizeof *x, 0),
                                  .answers = device_new(NULL, sizeof answers, 0) };
    for (int way = 0; way < WAYS; way++) {
        batch.decode = way == DECODE;
        if (way == PROMPT_BF16)
            cuda_run_experts_matrix(stream, &batch);
        else
            cuda_run_experts(stream, &batch);
        copy_back(answers, batch.answers, sizeof answers);
        check_answers(experts, chosen, answers, x, way == PROMPT_BF16);
    }
    for (size_t e = 0; e < EXPERTS; e++) {
        matrix_free(&experts[e].gate);
        matrix_free(&experts[e].up);
        matrix_free(&experts[e].down);
    }
    device_free((void *)batch.experts);
    device_free((void *)batch.routed);
    device_free(batch.hidden);
    device_free(batch.answers);
    device_free(device_pairs);
}

static void experts_are_near_double(void **state)
{
    (void)state;
    for_every_format(check_experts);
}

int main(void)
{
    if (!open_device()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_near_double),
        cmocka_unit_test(experts_are_near_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
