/* attention: the tuned kernels of kernels/attend.h against the same in double, for every
 * kernel set, shapes that are and are not multiples of anything, and every place in a tile.
 *
 * Bounds are relative to the largest result: f32 sets differ by rounding, the matrix unit
 * rounds queries, keys, weights and values to bf16.  What no row may see is NaN. */
#include "support/test.h"

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define F32_BOUND  1e-5
#define BF16_BOUND 1.5e-2

enum { POSITIONS = 320, PAGES = POSITIONS / ATTEND_TILE, GROUP_MAX = 9 };

static struct machine machine;

/* A cache of one head, and queries of one group for all its positions. */
struct scene {
    size_t key_width, value_width, group, rows; /* rows: positions x group */
    float scale;
    uint16_t *keys[PAGES], *values[PAGES]; /* as in a tile */
    float *queries;                        /* [POSITIONS][group][key_width] */
    float *found;                          /* [POSITIONS][group][value_width] */
    double *expected;                      /* the same */
    uint64_t random;
};

static float next(struct scene *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(s->random >> 40) * 0x1p-23 - 1.0);
}

static void *new_numbers(size_t count, size_t bytes)
{
    void *memory = malloc(count * bytes + 64);
    assert_non_null(memory);
    return memset(memory, 0xff, count * bytes + 64); /* NaN in f16, f32 and double */
}

static double key(const struct scene *s, size_t position, size_t channel)
{
    size_t slot = position % ATTEND_TILE;
    return (double)f32_from_f16(s->keys[position / ATTEND_TILE][channel * ATTEND_TILE + slot]);
}

static double value(const struct scene *s, size_t position, size_t channel)
{
    size_t slot = position % ATTEND_TILE;
    return (double)f32_from_f16(s->values[position / ATTEND_TILE][slot * s->value_width + channel]);
}

/* Row r in double. */
static void attend_double(struct scene *s, size_t r)
{
    double weights[POSITIONS], most = -INFINITY, sum = 0;
    size_t position = r / s->group;
    const float *q = s->queries + r * s->key_width;
    double *out = s->expected + r * s->value_width;
    for (size_t p = 0; p <= position; p++) {
        weights[p] = 0;
        for (size_t c = 0; c < s->key_width; c++) weights[p] += (double)q[c] * key(s, p, c);
        most = fmax(most, weights[p] *= (double)s->scale);
    }
    for (size_t p = 0; p <= position; p++) sum += weights[p] = exp(weights[p] - most);
    for (size_t c = 0; c < s->value_width; c++) {
        out[c] = 0;
        for (size_t p = 0; p <= position; p++) out[c] += weights[p] / sum * value(s, p, c);
    }
}

/* The cache is filled up to `positions`; the rest is NaN. */
static void scene_make(struct scene *s, size_t key_width, size_t value_width, size_t group,
                       size_t positions)
{
    *s = (struct scene){ .key_width = key_width,
                         .value_width = value_width,
                         .group = group,
                         .rows = positions * group,
                         .scale = (float)(3.0 / sqrt((double)key_width)),
                         .random = key_width * 1000 + value_width * 10 + group };
    for (size_t i = 0; i < PAGES; i++) {
        s->keys[i] = new_numbers(ATTEND_TILE * key_width, sizeof(uint16_t));
        s->values[i] = new_numbers(ATTEND_TILE * value_width, sizeof(uint16_t));
    }
    for (size_t p = 0; p < positions; p++) {
        size_t slot = p % ATTEND_TILE;
        for (size_t c = 0; c < key_width; c++)
            s->keys[p / ATTEND_TILE][c * ATTEND_TILE + slot] = f16_from_f32(2.0f * next(s));
        for (size_t c = 0; c < value_width; c++)
            s->values[p / ATTEND_TILE][slot * value_width + c] = f16_from_f32(next(s));
    }
    s->queries = new_numbers(s->rows * key_width, sizeof(float));
    s->found = new_numbers(s->rows * value_width, sizeof(float));
    s->expected = new_numbers(s->rows * value_width, sizeof(double));
    for (size_t i = 0; i < s->rows * key_width; i++) s->queries[i] = 2.0f * next(s);
    for (size_t r = 0; r < s->rows; r++) attend_double(s, r);
}

static void scene_free(struct scene *s)
{
    for (size_t i = 0; i < PAGES; i++) {
        free(s->keys[i]);
        free(s->values[i]);
    }
    free(s->queries);
    free(s->found);
    free(s->expected);
}

/* Rows [first, end) as one block, into `out` laid out as `found`. */
static void run_block(const struct scene *s, const struct kernels *k, float *out, size_t first,
                      size_t end)
{
    size_t rows = end - first;
    const float **queries = new_numbers(rows, sizeof *queries);
    float **to = new_numbers(rows, sizeof *to);
    uint32_t *positions = new_numbers(rows, sizeof *positions);
    for (size_t i = 0; i < rows; i++) {
        queries[i] = s->queries + (first + i) * s->key_width;
        to[i] = out + (first + i) * s->value_width;
        positions[i] = (uint32_t)((first + i) / s->group);
    }
    struct attend_block b = { .key_width = s->key_width,
                              .value_width = s->value_width,
                              .row_count = rows,
                              .queries = queries,
                              .positions = positions,
                              .out = to,
                              .scale = s->scale };
    size_t bytes = align_up(attend_layout(&b).floats * sizeof(float), CACHE_LINE);
    b.memory = aligned_alloc(CACHE_LINE, bytes);
    assert_non_null(b.memory);
    memset(b.memory, 0xff, bytes);
    uint32_t seen = positions[rows - 1] + 1;
    k->attend->begin(&b);
    for (uint32_t at = 0; at < seen; at += ATTEND_TILE) {
        struct attend_tile tile = { s->keys[at / ATTEND_TILE], s->values[at / ATTEND_TILE], at,
                                    (uint32_t)min_size(ATTEND_TILE, seen - at) };
        k->attend->tile(&b, &tile);
    }
    k->attend->end(&b);
    free(b.memory);
    free(queries);
    free(to);
    free(positions);
}

static double worst_error(const struct scene *s, size_t first, size_t end)
{
    double most = 0, error = 0;
    for (size_t i = first * s->value_width; i < end * s->value_width; i++) {
        most = fmax(most, fabs(s->expected[i]));
        double difference = fabs((double)s->found[i] - s->expected[i]);
        error = difference <= error ? error : difference; /* NaN wins */
    }
    return error / most;
}

static double prompt_bound(const struct kernels *k)
{
    return strcmp(k->name, "amx") == 0 ? BF16_BOUND : F32_BOUND;
}

static const struct {
    size_t key_width, value_width, group, positions;
} shapes[] = {
    { 128, 128, 8, 130 }, { 256, 256, 8, 70 }, { 64, 64, 2, POSITIONS },
    { 192, 128, 1, 200 }, { 80, 80, 3, 65 },   { 9, 7, 1, 130 },
    { 16, 48, 5, 64 },    { 33, 31, 9, 129 },  { 1, 1, 1, 3 },
};

static void prompts_are_near_double(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct scene s;
        scene_make(&s, shapes[i].key_width, shapes[i].value_width, shapes[i].group,
                   shapes[i].positions);
        for (size_t j = 0; kernels_at(&machine, j); j++) {
            const struct kernels *k = kernels_at(&machine, j);
            run_block(&s, k, s.found, 0, s.rows);
            double error = worst_error(&s, 0, s.rows);
            if (!(error <= prompt_bound(k)))
                fail_msg("%s, widths %zu and %zu: off by %g", k->name, s.key_width, s.value_width,
                         error);
        }
        scene_free(&s);
    }
}

/* Rows in other company have the same bits. */
static void blocks_of_any_size_give_the_same_bits(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 17, 50 };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct scene s;
        scene_make(&s, shapes[i].key_width, shapes[i].value_width, shapes[i].group,
                   shapes[i].positions);
        size_t bytes = s.rows * s.value_width * sizeof(float);
        float *alone = new_numbers(s.rows * s.value_width, sizeof(float));
        for (size_t j = 0; kernels_at(&machine, j); j++) {
            const struct kernels *k = kernels_at(&machine, j);
            run_block(&s, k, s.found, 0, s.rows);
            for (size_t n = 0; n < COUNT_OF(sizes); n++) {
                memset(alone, 0xff, bytes);
                for (size_t r = 0; r < s.rows; r += sizes[n])
                    run_block(&s, k, alone, r, min_size(r + sizes[n], s.rows));
                if (memcmp(alone, s.found, bytes) != 0)
                    fail_msg("%s, widths %zu and %zu, blocks of %zu: other bits", k->name,
                             s.key_width, s.value_width, sizes[n]);
            }
        }
        free(alone);
        scene_free(&s);
    }
}

/* -------------------------------------------------------------------- decode */

/* The last position's rows, in stretches of `length`. */
static void run_stretches(const struct scene *s, const struct kernels *k, float *out, size_t heads,
                          size_t length)
{
    size_t positions = s->rows / s->group, first = (positions - 1) * s->group;
    float results[2][GROUP_MAX][2], *sums[2], *scores;
    const uint16_t *keys[PAGES], *values[PAGES];
    struct attend_stretch all = { 0 };
    scores = new_numbers(heads * length, sizeof(float));
    for (int i = 0; i < 2; i++) sums[i] = new_numbers(heads * s->value_width, sizeof(float));
    for (size_t at = 0; at < positions; at += length) {
        int which = at > 0;
        for (size_t p = 0; p < length / ATTEND_TILE && at + p * ATTEND_TILE < positions; p++) {
            keys[p] = s->keys[at / ATTEND_TILE + p];
            values[p] = s->values[at / ATTEND_TILE + p];
        }
        struct attend_stretch one = { .queries = s->queries + first * s->key_width,
                                      .heads = heads,
                                      .key_width = s->key_width,
                                      .value_width = s->value_width,
                                      .value_stride = s->value_width,
                                      .keys = keys,
                                      .values = values,
                                      .count = min_size(length, positions - at),
                                      .scale = s->scale,
                                      .scores = scores,
                                      .greatest = &results[which][0][0],
                                      .weight_sums = &results[which][0][0] + GROUP_MAX,
                                      .sums = sums[which] };
        k->attend->stretch(&one);
        if (which)
            k->attend->join(&all, &one);
        else
            all = one;
    }
    for (size_t i = 0; i < heads * s->value_width; i++)
        out[first * s->value_width + i] = all.sums[i] / all.weight_sums[i / s->value_width];
    for (int i = 0; i < 2; i++) free(sums[i]);
    free(scores);
}

static void stretches_are_near_double(void **state)
{
    (void)state;
    static const size_t lengths[] = { 64, 128, 256, 320 };
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct scene s;
        scene_make(&s, shapes[i].key_width, shapes[i].value_width, shapes[i].group,
                   shapes[i].positions);
        for (size_t j = 0; kernels_at(&machine, j); j++) {
            const struct kernels *k = kernels_at(&machine, j);
            for (size_t n = 0; n < COUNT_OF(lengths); n++) {
                run_stretches(&s, k, s.found, s.group, lengths[n]);
                double error = worst_error(&s, s.rows - s.group, s.rows);
                if (!(error <= F32_BOUND))
                    fail_msg("%s, widths %zu and %zu, stretches of %zu: off by %g", k->name,
                             s.key_width, s.value_width, lengths[n], error);
            }
        }
        scene_free(&s);
    }
}

/* A head's bits do not depend on how many others are asked for. */
static void heads_do_not_see_each_other(void **state)
{
    (void)state;
    struct scene s;
    scene_make(&s, 40, 24, GROUP_MAX, 140);
    size_t first = (s.rows - s.group) * s.value_width;
    float *alone = new_numbers(s.rows * s.value_width, sizeof(float));
    for (size_t j = 0; kernels_at(&machine, j); j++) {
        const struct kernels *k = kernels_at(&machine, j);
        run_stretches(&s, k, s.found, s.group, 128);
        for (size_t heads = 1; heads < s.group; heads++) {
            run_stretches(&s, k, alone, heads, 128);
            assert_memory_equal(alone + first, s.found + first,
                                heads * s.value_width * sizeof(float));
        }
    }
    free(alone);
    scene_free(&s);
}

/* ---------------------------------------------------------------- half floats */

static void f16_is_rounded_as_the_format_says(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    static const float special[] = { 0.0f,   -0.0f, 65504.0f, 65519.9f, 65520.0f,   1e30f,
                                     -1e30f, 1e-8f, 6e-8f,    1e-5f,    1.0009766f, 3.0e-8f };
    float x[COUNT];
    uint16_t out[3 * COUNT];
    struct scene source = { .random = 5 };
    for (size_t i = 0; i < COUNT; i++)
        x[i] = i < COUNT_OF(special) ? special[i] : next(&source) * powf(10, (float)(i % 12) - 7);
    for (size_t j = 0; kernels_at(&machine, j); j++)
        for (size_t n = 0; n <= COUNT; n++)
            for (size_t stride = 1; stride <= 3; stride += 2) {
                memset(out, 0x55, sizeof out);
                kernels_at(&machine, j)->attend->store_f16(out, stride, x, n);
                for (size_t i = 0; i < stride * COUNT; i++) {
                    bool written = i % stride == 0 && i / stride < n;
                    assert_int_equal(out[i], written ? f16_from_f32(x[i / stride]) : 0x5555);
                }
            }
}

int main(void)
{
    machine_probe(&machine);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_are_near_double),
        cmocka_unit_test(blocks_of_any_size_give_the_same_bits),
        cmocka_unit_test(stretches_are_near_double),
        cmocka_unit_test(heads_do_not_see_each_other),
        cmocka_unit_test(f16_is_rounded_as_the_format_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
