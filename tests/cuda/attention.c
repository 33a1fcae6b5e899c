/* attention.c: the CUDA kernels' key/value cache and attention against double arithmetic: all formats
 * of the cache, contexts of one position and of many pages, windows, sinks, groups of heads.
 *
 * Built twice, as products.c is. */
#include "cuda/device_memory.h"

#include "backend/backend.h"
#include "backend/cuda/launch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POSITIONS_MAX = 1500, PROMPT_ROWS = 37, ROWS = 3 };

struct shape {
    uint32_t heads, kv_heads, width, window;
    bool sinks;
};

static const struct shape shapes[] = {
    { 8, 2, 128, 0, false }, { 32, 4, 64, 0, false },  { 6, 6, 24, 0, true },
    { 16, 1, 80, 0, false }, { 8, 4, 128, 100, true }, { 4, 2, 256, 33, false },
};
static const uint32_t lengths[] = { 1, 32, 65, 200, POSITIONS_MAX };

/* One sequence's cache of `count` positions, and what is in it. */
struct cache {
    const struct shape *shape;
    enum kv_format format;
    uint32_t count;
    float *keys, *values, *sinks; /* [count][kv_heads][width]; [heads] */
    void *pages, *table, *device_sinks;
    size_t values_at; /* in a page */
};

static size_t row_floats(const struct shape *shape)
{
    return (size_t)shape->kv_heads * shape->width;
}

/* The rows of a step on the device. */
struct step {
    struct cuda_rows rows;
    void *row_list, *span_list;
};

static void step_free(struct step *step)
{
    device_free(step->row_list);
    device_free(step->span_list);
}

/* `counts[i]` rows up to `ends[i]`, each in a span of its own; all see the same pages. */
static struct step step_make(const struct cache *cache, const uint32_t *ends,
                             const uint32_t *counts, uint32_t span_count, bool decode)
{
    static struct cuda_row rows[POSITIONS_MAX];
    struct cuda_span spans[ROWS];
    uint32_t row_count = 0;
    for (uint32_t s = 0; s < span_count; s++) {
        uint32_t position = ends[s] - counts[s];
        spans[s] = (struct cuda_span){ .first_row = row_count,
                                       .row_count = counts[s],
                                       .position = position,
                                       .decode = decode,
                                       .pages = cache->table,
                                       .keys = 0,
                                       .values = cache->values_at,
                                       .kv_format = cache->format };
        for (uint32_t i = 0; i < counts[s]; i++)
            rows[row_count++] = (struct cuda_row){ s, position + i };
    }
    struct step step = { .row_list = device_new(rows, row_count * sizeof *rows, 0),
                         .span_list = device_new(spans, span_count * sizeof *spans, 0) };
    step.rows = (struct cuda_rows){ .row_count = row_count,
                                    .span_count = span_count,
                                    .rows = step.row_list,
                                    .spans = step.span_list };
    return step;
}

static void cache_fill(struct cache *c)
{
    const struct shape *shape = c->shape;
    size_t floats = c->count * row_floats(shape);
    void *keys = device_new(c->keys, floats * sizeof(float), 0);
    void *values = device_new(c->values, floats * sizeof(float), 0);
    struct step step = step_make(c, &c->count, &c->count, 1, false);
    cuda_kv_append(stream, keys, values, &step.rows, shape->kv_heads, shape->width);
    finish();
    step_free(&step);
    device_free(keys);
    device_free(values);
}

static void cache_make(struct cache *c, const struct shape *shape, enum kv_format format,
                       uint32_t count)
{
    uint8_t *pages[POSITIONS_MAX / KV_PAGE_TOKENS + 1];
    size_t floats = count * row_floats(shape);
    size_t page_count = (count + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    *c = (struct cache){ .shape = shape, .format = format, .count = count };
    c->values_at = align_up(shape->kv_heads * kv_head_bytes(format, shape->width), 64);
    c->keys = malloc(floats * sizeof *c->keys);
    c->values = malloc(floats * sizeof *c->values);
    c->sinks = malloc(shape->heads * sizeof *c->sinks);
    assert_true(c->keys && c->values && c->sinks);
    fill(c->keys, floats, 11);
    fill(c->values, floats, 12);
    fill(c->sinks, shape->heads, 13);
    c->pages = device_new(NULL, page_count * 2 * c->values_at, 0);
    /* In descending order: a table is read, not added to. */
    for (size_t i = 0; i < page_count; i++)
        pages[i] = (uint8_t *)c->pages + (page_count - 1 - i) * 2 * c->values_at;
    c->table = device_new(pages, page_count * sizeof *pages, 0);
    c->device_sinks = device_new(c->sinks, shape->heads * sizeof *c->sinks, 0);
    cache_fill(c);
}

static void cache_free(struct cache *c)
{
    free(c->keys);
    free(c->values);
    free(c->sinks);
    device_free(c->pages);
    device_free(c->table);
    device_free(c->device_sinks);
}

/* What a head of a row at `position` sees, in double. */
static void attend_in_double(double *out, const struct cache *c, const float *query, uint32_t head,
                             uint32_t position)
{
    static double scores[POSITIONS_MAX];
    const struct shape *s = c->shape;
    uint32_t kv_head = head / (s->heads / s->kv_heads);
    uint32_t first = s->window > 0 && position >= s->window ? position + 1 - s->window : 0;
    double most = s->sinks ? (double)c->sinks[head] : -HUGE_VAL, sum = 0.0;
    for (uint32_t p = first; p <= position; p++) {
        const float *key = c->keys + p * row_floats(s) + kv_head * s->width;
        scores[p] = 0.0;
        for (uint32_t i = 0; i < s->width; i++) scores[p] += (double)query[i] * (double)key[i];
        scores[p] /= sqrt((double)s->width);
        if (scores[p] > most) most = scores[p];
    }
    if (s->sinks) sum = exp((double)c->sinks[head] - most);
    for (uint32_t i = 0; i < s->width; i++) out[i] = 0.0;
    for (uint32_t p = first; p <= position; p++) {
        const float *value = c->values + p * row_floats(s) + kv_head * s->width;
        double weight = exp(scores[p] - most);
        sum += weight;
        for (uint32_t i = 0; i < s->width; i++) out[i] += weight * (double)value[i];
    }
    for (uint32_t i = 0; i < s->width; i++) out[i] /= sum;
}

/* Of weighted means of numbers below 1.  The cache's rounding dominates: 11 bits, or 7. */
static const double bounds[] = { [KV_F32] = 2e-5, [KV_F16] = 1e-3, [KV_Q8] = 1e-2 };

static void check_row(const struct cache *c, const float *out, const float *query,
                      uint32_t position, const char *what)
{
    const struct shape *s = c->shape;
    double wanted[256];
    for (uint32_t head = 0; head < s->heads; head++) {
        attend_in_double(wanted, c, query + head * s->width, head, position);
        for (uint32_t i = 0; i < s->width; i++)
            if (!(fabs((double)out[head * s->width + i] - wanted[i]) <= bounds[c->format]))
                fail_msg("%s, cache format %d, %u heads of %u for %u, window %u: position %u of "
                         "%u, head %u, number %u is %g instead of %g",
                         what, (int)c->format, s->heads, s->width, s->kv_heads, s->window, position,
                         c->count, head, i, (double)out[head * s->width + i], wanted[i]);
    }
}

static struct cuda_attention attention_of(const struct cache *c)
{
    const struct shape *s = c->shape;
    return (struct cuda_attention){ .heads = s->heads,
                                    .kv_heads = s->kv_heads,
                                    .head_width = s->width,
                                    .window = s->window,
                                    .sinks = s->sinks ? c->device_sinks : NULL,
                                    .scale = 1.0f / sqrtf((float)s->width) };
}

/* Rows that end at `ends`, attended together. */
static void attend(float *out, const struct cache *c, const float *queries, const uint32_t *ends,
                   const uint32_t *counts, uint32_t span_count, bool decode)
{
    struct step step = step_make(c, ends, counts, span_count, decode);
    struct cuda_attention shape = attention_of(c);
    uint32_t context = POSITIONS_MAX, row_count = step.rows.row_count;
    size_t bytes = (size_t)row_count * shape.heads * shape.head_width * sizeof(float);
    float *device_queries = device_new(queries, bytes, 0), *device_out = device_new(NULL, bytes, 0);
    if (decode) {
        size_t scratch_bytes =
            cuda_attend_decode_scratch(&shape, row_count, context) * sizeof(float);
        float *scratch = device_new(NULL, scratch_bytes, 0);
        must_run(cudaMemsetAsync(scratch, 0, scratch_bytes, stream));
        for (int again = 0; again < 2; again++) /* the counters are at zero once more */
            cuda_attend_decode(stream, device_out, device_queries, &step.rows, &shape, context,
                               scratch);
        copy_back(out, device_out, bytes);
        device_free(scratch);
    } else {
        cuda_attend(stream, device_out, device_queries, &step.rows, &shape, c->count - 1);
        copy_back(out, device_out, bytes);
    }
    step_free(&step);
    device_free(device_queries);
    device_free(device_out);
}

/* Generated rows at the end, in the middle and at the beginning, together and alone. */
static void check_decode(const struct cache *c, const float *queries, float *out)
{
    const uint32_t ends[ROWS] = { c->count, c->count / 2 + 1, 1 }, counts[ROWS] = { 1, 1, 1 };
    size_t width = (size_t)c->shape->heads * c->shape->width;
    float *alone = out + ROWS * width;
    attend(out, c, queries, ends, counts, ROWS, true);
    for (uint32_t r = 0; r < ROWS; r++) {
        check_row(c, out + r * width, queries + r * width, ends[r] - 1, "a generated row");
        attend(alone, c, queries + r * width, &ends[r], &counts[r], 1, true);
        if (memcmp(alone, out + r * width, width * sizeof *alone) != 0)
            fail_msg("a generated row at position %u has other bits alone", ends[r] - 1);
    }
}

/* The last rows of a prompt, together and cut. */
static void check_prompt(const struct cache *c, const float *queries, float *out)
{
    size_t width = (size_t)c->shape->heads * c->shape->width;
    uint32_t count = c->count < PROMPT_ROWS ? c->count : PROMPT_ROWS, first = c->count - count;
    float *cut = out + PROMPT_ROWS * width;
    attend(out, c, queries, &c->count, &count, 1, false);
    for (uint32_t r = 0; r < count; r++)
        check_row(c, out + r * width, queries + r * width, first + r, "a row of a prompt");
    uint32_t rest = count / 3, end = first + rest;
    if (rest > 0) attend(cut, c, queries, &end, &rest, 1, false);
    if (memcmp(cut, out, rest * width * sizeof *cut) != 0)
        fail_msg("rows of a prompt have other bits when it is cut");
}

static void check_shape(const struct shape *shape, enum kv_format format)
{
    static float queries[PROMPT_ROWS * 4096], out[2 * PROMPT_ROWS * 4096];
    fill(queries, COUNT_OF(queries), 5);
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct cache cache;
        cache_make(&cache, shape, format, lengths[i]);
        check_decode(&cache, queries, out);
        check_prompt(&cache, queries, out);
        cache_free(&cache);
    }
}

static void attention_is_near_double(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (int format = KV_F32; format <= KV_Q8; format++)
            check_shape(&shapes[i], (enum kv_format)format);
}

int main(void)
{
    if (!open_device()) return 77;
    const struct CMUnitTest tests[] = { cmocka_unit_test(attention_is_near_double) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
