/* latent.c: the CUDA kernels of latent attention against double arithmetic, with heads as wide as
 * DeepSeek's.
 *
 * Built twice, as products.c is. */
#include "cuda/device_memory.h"

#include "backend/backend.h"
#include "backend/cuda/launch.h"

#include <math.h>
#include <stdlib.h>

enum { POSITIONS_MAX = 150, HEADS_MAX = 128, LATENT_MAX = 512, ROPE_MAX = 64, HALF_MAX = 128 };
enum { STORED_MAX = LATENT_MAX + ROPE_MAX, QUERY_MAX = HALF_MAX + ROPE_MAX, ROWS = 3 };

struct shape {
    uint32_t heads, latent, nope, rope, values;
};

static const struct shape shapes[] = { { 16, 512, 128, 64, 128 },
                                       { 128, 512, 128, 64, 128 },
                                       { 4, 32, 24, 16, 40 } };

static float appended[POSITIONS_MAX * STORED_MAX], queries[ROWS * HEADS_MAX * QUERY_MAX];
static float weights[HEADS_MAX * 2 * HALF_MAX * LATENT_MAX], angles[POSITIONS_MAX * ROPE_MAX];
static float norm[LATENT_MAX], out[ROWS * HEADS_MAX * HALF_MAX];
static double stored[POSITIONS_MAX][STORED_MAX];

/* What the cache has, unrounded: the latent of rms 1, and the rest, which angles of 0 do not turn. */
static void store_in_double(const struct shape *s)
{
    uint32_t width = s->latent + s->rope;
    for (size_t p = 0; p < POSITIONS_MAX; p++) {
        const float *row = appended + p * width;
        double squares = 0.0;
        for (uint32_t i = 0; i < s->latent; i++) squares += (double)row[i] * (double)row[i];
        for (uint32_t i = 0; i < width; i++) stored[p][i] = (double)row[i];
        for (uint32_t i = 0; i < s->latent; i++) stored[p][i] /= sqrt(squares / s->latent + 1e-6);
    }
}

static void make_inputs(const struct shape *s)
{
    fill(appended, COUNT_OF(appended), 1);
    fill(queries, COUNT_OF(queries), 2);
    fill(weights, COUNT_OF(weights), 3);
    for (size_t i = 0; i < COUNT_OF(weights); i++) weights[i] /= sqrtf((float)s->latent);
    for (size_t i = 0; i < LATENT_MAX; i++) norm[i] = 1.0f;
    for (size_t p = 0; p < POSITIONS_MAX; p++)
        for (uint32_t i = 0; i < s->rope; i++) angles[p * s->rope + i] = i < s->rope / 2 ? 1 : 0;
    store_in_double(s);
}

/* A head of a row at `position`: scores by way of the keys that the head makes of a latent. */
static void attend_in_double(double *answer, const struct shape *s, uint32_t row, uint32_t head,
                             uint32_t position)
{
    static double scores[POSITIONS_MAX];
    const float *query = queries + ((size_t)row * s->heads + head) * (s->nope + s->rope);
    const float *matrix = weights + (size_t)head * (s->nope + s->values) * s->latent;
    double inward[LATENT_MAX] = { 0 }, mean[LATENT_MAX] = { 0 }, most = -HUGE_VAL, sum = 0.0;
    for (uint32_t i = 0; i < s->nope; i++)
        for (uint32_t j = 0; j < s->latent; j++)
            inward[j] += (double)query[i] * (double)matrix[(size_t)i * s->latent + j];
    for (uint32_t p = 0; p <= position; p++) {
        scores[p] = 0.0;
        for (uint32_t j = 0; j < s->latent; j++) scores[p] += inward[j] * stored[p][j];
        for (uint32_t j = 0; j < s->rope; j++)
            scores[p] += (double)query[s->nope + j] * stored[p][s->latent + j];
        scores[p] /= sqrt((double)(s->nope + s->rope));
        most = fmax(most, scores[p]);
    }
    for (uint32_t p = 0; p <= position; p++) {
        double weight = exp(scores[p] - most);
        sum += weight;
        for (uint32_t j = 0; j < s->latent; j++) mean[j] += weight * stored[p][j];
    }
    for (uint32_t i = 0; i < s->values; i++) {
        const float *line = matrix + (size_t)(s->nope + i) * s->latent;
        answer[i] = 0.0;
        for (uint32_t j = 0; j < s->latent; j++) answer[i] += (double)line[j] * mean[j] / sum;
    }
}

static void check_rows(const struct shape *s, const struct cuda_row *rows, double bound)
{
    double wanted[HALF_MAX];
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t head = 0; head < s->heads; head += 1 + s->heads / 8) {
            attend_in_double(wanted, s, r, head, rows[r].position);
            for (uint32_t i = 0; i < s->values; i++) {
                float found = out[((size_t)r * s->heads + head) * s->values + i];
                if (!(fabs((double)found - wanted[i]) <= bound))
                    fail_msg("%u heads, latents of %u: row %u, head %u, number %u is %g instead of "
                             "%g",
                             s->heads, s->latent, r, head, i, (double)found, wanted[i]);
            }
        }
    }
}

static struct cuda_latent latent_of(const struct shape *s, const void *matrix)
{
    uint64_t row_bytes = s->latent * sizeof(float);
    return (struct cuda_latent){ .heads = s->heads,
                                 .latent_width = s->latent,
                                 .nope_width = s->nope,
                                 .rope_width = s->rope,
                                 .value_width = s->values,
                                 .scale = 1.0f / sqrtf((float)(s->nope + s->rope)),
                                 .kv_b = { .format = FORMAT_F32,
                                           .rows = (uint64_t)s->heads * (s->nope + s->values),
                                           .cols = s->latent,
                                           .values = matrix,
                                           .row_bytes = row_bytes } };
}

/* Fills a cache with all positions, then attends from three of them. */
static void check_shape(const struct shape *s, enum kv_format format, double bound)
{
    enum { PAGES = (POSITIONS_MAX + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS };
    const struct cuda_row ends[ROWS] = { { 0, POSITIONS_MAX - 1 }, { 0, 64 }, { 0, 0 } };
    struct cuda_row list[POSITIONS_MAX];
    uint8_t *pages[PAGES];
    size_t page_bytes = align_up(kv_head_bytes(format, s->latent + s->rope), 64);
    uint8_t *memory = device_new(NULL, PAGES * page_bytes, 0);
    for (size_t i = 0; i < PAGES; i++) pages[i] = memory + i * page_bytes;
    for (uint32_t i = 0; i < POSITIONS_MAX; i++) list[i] = (struct cuda_row){ 0, i };
    void *table = device_new(pages, sizeof pages, 0);
    struct cuda_span span = { .row_count = POSITIONS_MAX, .pages = table, .kv_format = format };
    void *spans = device_new(&span, sizeof span, 0), *rows = device_new(list, sizeof list, 0);
    void *row_ends = device_new(ends, sizeof ends, 0);
    struct cuda_rows step = {
        .row_count = POSITIONS_MAX, .span_count = 1, .rows = rows, .spans = spans
    };
    struct cuda_rope rope = { .width = s->rope };
    size_t stored_bytes = (size_t)POSITIONS_MAX * (s->latent + s->rope) * sizeof(float);
    void *a = device_new(appended, stored_bytes, 0);
    void *turns = device_new(angles, (size_t)POSITIONS_MAX * s->rope * sizeof(float), 0);
    void *ones = device_new(norm, sizeof norm, 0);
    cuda_latent_append(stream, a, turns, &step, ones, 1e-6f, s->latent, &rope);

    size_t matrix_floats = (size_t)s->heads * (s->nope + s->values) * s->latent;
    void *matrix = device_new(weights, matrix_floats * sizeof(float), 0);
    struct cuda_latent shape = latent_of(s, matrix);
    size_t out_bytes = (size_t)ROWS * s->heads * s->values * sizeof(float);
    void *q = device_new(queries, (size_t)ROWS * s->heads * (s->nope + s->rope) * sizeof(float), 0);
    void *result = device_new(NULL, out_bytes, 0);
    void *scratch = device_new(NULL, cuda_latent_scratch(&shape, ROWS) * sizeof(float), 0);
    step.row_count = ROWS;
    step.rows = row_ends;
    cuda_latent_attend(stream, result, q, &step, &shape, POSITIONS_MAX - 1, scratch);
    copy_back(out, result, out_bytes);
    check_rows(s, ends, bound);
    void *all[] = {
        memory, table, spans, rows, row_ends, a, turns, ones, matrix, q, result, scratch
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) device_free(all[i]);
}

static void latent_attention_is_near_double(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        make_inputs(&shapes[i]);
        check_shape(&shapes[i], KV_F32, 5e-5);
        check_shape(&shapes[i], KV_F16, 2e-3);
        check_shape(&shapes[i], KV_Q8, 5e-2);
    }
}

int main(void)
{
    if (!open_device()) return 77;
    const struct CMUnitTest tests[] = { cmocka_unit_test(latent_attention_is_near_double) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
