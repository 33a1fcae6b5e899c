/* cases_attend.c: attention over a cache of f16 or q8 (kernels/attention/attention.h).
 *
 * n is the width of keys and queries, m that of values.  Bounds are relative to the largest
 * result: f32 sets differ by rounding, a matrix unit rounds queries, keys, weights and
 * values to bf16.  Positions of the cache that no row may see are NaN.
 *
 * in[3], where a case has a window: a sink for each row, and the window is WINDOW positions. */
#include "bench/cases.h"

#include <math.h>

/* Usual numbers have a variance of 3: scores get a deviation of 3, which the greatest of some
 * hundreds exceeds three times. */
static float scale_of(const struct kernel_case *what)
{
    return (float)(1.0 / sqrt((double)what->n));
}

enum { WINDOW = 80 };

static size_t window_of(const struct kernel_case *what)
{
    return what->op->windowed ? WINDOW : 0;
}

static size_t first_of(const struct kernel_case *what, size_t end)
{
    size_t window = window_of(what);
    return window > 0 && end > window ? end - window : 0;
}

static const double bound_f32 = 1e-5;

static double widen_for_bf16(const struct kernels *k)
{
    return kernels_have_panels(k) ? 1500 : 1;
}

/* ------------------------------------------------------------------ a cache */

static size_t pages_of(const struct kernel_case *what)
{
    return (what->depth + ATTEND_TILE - 1) / ATTEND_TILE;
}

/* 64 positions of one head, `width` numbers from one position to the next. */
static size_t page_bytes(const struct kernel_case *what, size_t width)
{
    size_t numbers = width * ATTEND_TILE;
    if (!what->op->q8) return numbers * sizeof(uint16_t);
    return numbers + q8_groups(width) * ATTEND_TILE * sizeof(uint16_t);
}

static size_t cache_bytes(const struct kernel_case *what)
{
    return what->depth * (page_bytes(what, what->n) + page_bytes(what, what->m)) / ATTEND_TILE;
}

/* Values of one position may lie in something wider where one row is decoded. */
static size_t value_stride(const struct kernel_case *what)
{
    bool decodes = what->x_rows == what->heads && !what->op->q8;
    return what->m + (decodes && what->m % 16 != 0 ? 3 : 0);
}

struct cache {
    int8_t *keys, *values; /* pages */
    const void **key_pages, **value_pages;
};

static struct cache cut_cache(struct case_cutter *cutter, const struct kernel_case *what)
{
    size_t pages = pages_of(what);
    struct cache c;
    c.keys = case_cut(cutter, pages * page_bytes(what, what->n));
    c.values = case_cut(cutter, pages * page_bytes(what, value_stride(what)));
    c.key_pages = case_cut(cutter, pages * sizeof *c.key_pages);
    c.value_pages = case_cut(cutter, pages * sizeof *c.value_pages);
    return c;
}

/* The page of position p; its numbers are bytes or, unless the case is of q8, halves. */
static struct q8_tile tile_of(const struct kernel_case *what, const struct cache *c, bool keys,
                              size_t p)
{
    size_t width = keys ? what->n : value_stride(what), page = p / ATTEND_TILE;
    return (struct q8_tile){ (keys ? c->keys : c->values) + page * page_bytes(what, width), width,
                             keys };
}

static size_t place_in(const struct q8_tile *tile, size_t p, size_t channel)
{
    size_t cell = p % ATTEND_TILE;
    return tile->by_channel ? channel * ATTEND_TILE + cell : cell * tile->width + channel;
}

static double number_of(const struct kernel_case *what, const struct q8_tile *tile, size_t p,
                        size_t channel)
{
    size_t place = place_in(tile, p, channel), group = channel / Q8_GROUP;
    if (!what->op->q8)
        return (double)f32_from_f16(((const uint16_t *)(const void *)tile->numbers)[place]);
    return tile->numbers[place] *
           (double)f32_from_f16(q8_scales(tile)[group * ATTEND_TILE + p % ATTEND_TILE]);
}

static void store_position(const struct kernels *k, const struct kernel_case *what,
                           const struct q8_tile *tile, size_t p, const float *x, size_t count)
{
    if (what->op->q8) {
        k->attend->store_q8(tile, p % ATTEND_TILE, x);
        return;
    }
    uint16_t *numbers = (uint16_t *)(void *)tile->numbers;
    for (size_t i = 0; i < count; i++) numbers[place_in(tile, p, i)] = f16_from_f32(x[i]);
}

/* in[0]: keys [depth][n]; in[1]: values [depth][m] */
static void fill_cache(const struct cache *c, const struct kernels *k, const struct case_task *t)
{
    const struct kernel_case *what = &t->what;
    size_t pages = pages_of(what), key_bytes = page_bytes(what, what->n);
    size_t value_bytes = page_bytes(what, value_stride(what));
    memset(c->keys, 0xff, pages * key_bytes); /* NaN */
    memset(c->values, 0xff, pages * value_bytes);
    size_t seen = what->depth + 1 - what->x_rows / what->heads;
    for (size_t p = first_of(what, seen); p < what->depth; p++) {
        struct q8_tile keys = tile_of(what, c, true, p), values = tile_of(what, c, false, p);
        store_position(k, what, &keys, p, t->in[0] + p * what->n, what->n);
        store_position(k, what, &values, p, t->in[1] + p * what->m, what->m);
    }
    for (size_t page = 0; page < pages; page++) {
        c->key_pages[page] = c->keys + page * key_bytes;
        c->value_pages[page] = c->values + page * value_bytes;
    }
}

/* ------------------------------------------------------------------- prompts */

/* The last rows of the cache: x_rows / heads positions. */
static uint32_t position_of(const struct kernel_case *what, size_t row)
{
    return (uint32_t)(what->depth - what->x_rows / what->heads + row / what->heads);
}

struct prompt_scratch {
    struct cache cache;
    const float **queries;
    float **out;
    uint32_t *positions;
    void *memory;
};

static struct prompt_scratch cut_prompt(struct case_cutter *cutter, const struct kernel_case *what)
{
    struct attend_block sizes = {
        .key_width = what->n, .value_width = what->m, .row_count = what->x_rows, .memory = cutter
    }; /* any address: only distances count */
    struct prompt_scratch s = { .cache = cut_cache(cutter, what) };
    s.queries = case_cut(cutter, what->x_rows * sizeof *s.queries);
    s.out = case_cut(cutter, what->x_rows * sizeof *s.out);
    s.positions = case_cut(cutter, what->x_rows * sizeof *s.positions);
    s.memory = case_cut(cutter, attend_floats(&sizes) * sizeof(float));
    return s;
}

static double count_pairs(const struct kernel_case *what)
{
    double pairs = 0;
    for (size_t r = 0; r < what->x_rows; r++) pairs += position_of(what, r) + 1.0;
    return pairs;
}

/* in[2]: queries [x_rows][n] */
static void measure_prompt(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    cut_prompt(&cutter, what);
    *out = (struct case_sizes){
        .in = { what->depth * what->n, what->depth * what->m, what->x_rows * what->n,
                what->op->windowed ? what->x_rows : 0 },
        .out = what->x_rows * what->m,
        .scratch_bytes = cutter.bytes,
        .bytes = cache_bytes(what) + what->x_rows * (what->n + what->m) * sizeof(float),
        .flops = 2.0 * count_pairs(what) * (double)(what->n + what->m)
    };
}

static void prepare_prompt(const struct kernels *k, const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct prompt_scratch s = cut_prompt(&cutter, &t->what);
    if (t->x_first > 0) return; /* it is */
    memset(t->scratch, 0xff, t->sizes.scratch_bytes);
    fill_cache(&s.cache, k, t);
    for (size_t r = 0; r < t->what.x_rows; r++) {
        s.queries[r] = t->in[2] + r * t->what.n;
        s.out[r] = t->out + r * t->what.m;
        s.positions[r] = position_of(&t->what, r);
    }
}

static void run_prompt(const struct kernels *k, const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct prompt_scratch s = cut_prompt(&cutter, &t->what);
    struct attend_block block = { .key_width = t->what.n,
                                  .value_width = t->what.m,
                                  .row_count = t->x_end - t->x_first,
                                  .queries = s.queries + t->x_first,
                                  .positions = s.positions + t->x_first,
                                  .window = (uint32_t)window_of(&t->what),
                                  .sinks = t->what.op->windowed ? t->in[3] + t->x_first : NULL,
                                  .out = s.out + t->x_first,
                                  .scale = scale_of(&t->what),
                                  .memory = s.memory };
    uint32_t seen = s.positions[t->x_end - 1] + 1;
    k->attend->begin(&block);
    for (uint32_t at = attend_first(&block, 0) / ATTEND_TILE * ATTEND_TILE; at < seen;
         at += ATTEND_TILE) {
        size_t page = at / ATTEND_TILE;
        struct attend_tile tile = { s.cache.key_pages[page], s.cache.value_pages[page], at,
                                    (uint32_t)min_size(ATTEND_TILE, seen - at) };
        k->attend->tile(&block, &tile);
    }
    k->attend->end(&block);
}

/* Row r, which sees `seen` positions. */
static void double_row(const struct case_task *t, const struct cache *c, size_t r, size_t seen)
{
    enum { DEPTH_MAX = 1200 };
    bool windowed = t->what.op->windowed;
    double weights[DEPTH_MAX], most = windowed ? (double)t->in[3][r] : -HUGE_VAL, sum = 0;
    size_t n = t->what.n, m = t->what.m, first = first_of(&t->what, seen);
    for (size_t p = first; p < seen; p++) {
        struct q8_tile keys = tile_of(&t->what, c, true, p);
        weights[p] = 0;
        for (size_t i = 0; i < n; i++)
            weights[p] += (double)t->in[2][r * n + i] * number_of(&t->what, &keys, p, i);
        most = fmax(most, weights[p] *= (double)scale_of(&t->what));
    }
    if (windowed) sum = exp((double)t->in[3][r] - most);
    for (size_t p = first; p < seen; p++) sum += weights[p] = exp(weights[p] - most);
    for (size_t i = 0; i < m; i++) {
        double *out = &t->expected[r * m + i];
        *out = 0;
        for (size_t p = first; p < seen; p++) {
            struct q8_tile values = tile_of(&t->what, c, false, p);
            *out += weights[p] / sum * number_of(&t->what, &values, p, i);
        }
    }
}

static void double_prompt(const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct cache cache = cut_cache(&cutter, &t->what);
    for (size_t r = 0; r < t->what.x_rows; r++)
        double_row(t, &cache, r, position_of(&t->what, r) + 1);
    case_bound_by_largest(t, 0, t->sizes.out, bound_f32, 0);
}

/* -------------------------------------------------------------------- decode */

/* All heads of one row: pages in stretches of 1, 2, 4, … of them, joined. */
struct decode_scratch {
    struct cache cache;
    float *scores;     /* [heads][depth up to a multiple of 64] */
    float *results[2]; /* [2][heads]: greatest scores, sums of weights */
    float *sums[2];    /* [heads][m] */
};

static struct decode_scratch cut_decode(struct case_cutter *cutter, const struct kernel_case *what)
{
    struct decode_scratch s = { .cache = cut_cache(cutter, what) };
    s.scores = case_cut(cutter, what->heads * pages_of(what) * ATTEND_TILE * sizeof(float));
    for (int i = 0; i < 2; i++) {
        s.results[i] = case_cut(cutter, 2 * what->heads * sizeof(float));
        s.sums[i] = case_cut(cutter, what->heads * what->m * sizeof(float));
    }
    return s;
}

static void measure_decode(struct case_sizes *out, const struct kernel_case *what)
{
    struct case_cutter cutter = { 0 };
    cut_decode(&cutter, what);
    *out = (struct case_sizes){
        .in = { what->depth * what->n, what->depth * what->m, what->heads * what->n,
                what->op->windowed ? what->heads : 0 },
        .out = what->heads * what->m,
        .scratch_bytes = cutter.bytes,
        .bytes = cache_bytes(what) + what->heads * (what->n + what->m) * sizeof(float),
        .flops = 2.0 * (double)(what->heads * what->depth * (what->n + what->m))
    };
}

static void prepare_decode(const struct kernels *k, const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct decode_scratch s = cut_decode(&cutter, &t->what);
    if (t->x_first > 0) return; /* it is */
    memset(t->scratch, 0xff, t->sizes.scratch_bytes);
    fill_cache(&s.cache, k, t);
}

/* `pages` pages from `first` on, results in place 0 or 1. */
static struct attend_stretch stretch_of(const struct case_task *t, const struct decode_scratch *s,
                                        size_t first, size_t pages, int place)
{
    size_t left = t->what.depth - first * ATTEND_TILE;
    return (struct attend_stretch){ .queries = t->in[2] + t->x_first * t->what.n,
                                    .heads = t->x_end - t->x_first,
                                    .key_width = t->what.n,
                                    .value_width = t->what.m,
                                    .value_stride = value_stride(&t->what),
                                    .q8 = t->what.op->q8,
                                    .keys = s->cache.key_pages + first,
                                    .values = s->cache.value_pages + first,
                                    .count = min_size(pages * ATTEND_TILE, left),
                                    .scale = scale_of(&t->what),
                                    .scores = s->scores,
                                    .greatest = s->results[place],
                                    .weight_sums = s->results[place] + t->what.heads,
                                    .sums = s->sums[place] };
}

static void run_decode(const struct kernels *k, const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct decode_scratch s = cut_decode(&cutter, &t->what);
    size_t first = first_of(&t->what, t->what.depth), page = first / ATTEND_TILE;
    struct attend_stretch all = stretch_of(t, &s, page, 1, 0);
    all.hidden = first % ATTEND_TILE;
    k->attend->stretch(&all);
    for (size_t at = page + 1, pages = 2; at < pages_of(&t->what); at += pages, pages *= 2) {
        struct attend_stretch next = stretch_of(t, &s, at, pages, 1);
        k->attend->stretch(&next);
        k->attend->join(&all, &next);
    }
    if (t->what.op->windowed) {
        struct attend_stretch sinks = stretch_of(t, &s, page, 1, 1);
        for (size_t h = 0; h < all.heads; h++) {
            sinks.greatest[h] = t->in[3][t->x_first + h] / all.scale;
            sinks.weight_sums[h] = 1.0f;
        }
        memset(sinks.sums, 0, all.heads * all.value_width * sizeof *sinks.sums);
        k->attend->join(&all, &sinks);
    }
    for (size_t i = 0; i < all.heads * all.value_width; i++)
        t->out[t->x_first * t->what.m + i] = all.sums[i] / all.weight_sums[i / all.value_width];
}

static void double_decode(const struct case_task *t)
{
    struct case_cutter cutter = { t->scratch, 0 };
    struct cache cache = cut_cache(&cutter, &t->what);
    for (size_t r = 0; r < t->what.heads; r++) double_row(t, &cache, r, t->what.depth);
    case_bound_by_largest(t, 0, t->sizes.out, bound_f32, 0);
}

/* ------------------------------------------------------- half floats, turned */

/* m is the stride; what lies between keeps its bits. */
static const uint16_t between = 0x5555;

static void measure_f16(struct case_sizes *out, const struct kernel_case *what)
{
    size_t cells = what->n * what->m;
    *out = (struct case_sizes){ .in = { what->n },
                                .out = cells,
                                .scratch_bytes = cells * sizeof(uint16_t),
                                .bytes = what->n * (sizeof(float) + sizeof(uint16_t)) };
}

static void prepare_f16(const struct kernels *k, const struct case_task *t)
{
    (void)k;
    memset(t->scratch, between & 0xff, t->sizes.scratch_bytes);
}

static void run_f16(const struct kernels *k, const struct case_task *t)
{
    k->attend->store_f16(t->scratch, t->what.m, t->in[0], t->what.n);
}

static void collect_f16(const struct case_task *t)
{
    const uint16_t *found = t->scratch;
    for (size_t i = 0; i < t->sizes.out; i++) t->out[i] = f32_from_f16(found[i]);
}

static void double_f16(const struct case_task *t)
{
    for (size_t i = 0; i < t->sizes.out; i++) {
        uint16_t bits = i % t->what.m == 0 ? f16_from_f32(t->in[0][i / t->what.m]) : between;
        t->expected[i] = (double)f32_from_f16(bits);
    }
}

/* The same numbers the other way. */
static void measure_load_f16(struct case_sizes *out, const struct kernel_case *what)
{
    *out = (struct case_sizes){ .in = { what->n },
                                .out = what->n,
                                .scratch_bytes = what->n * sizeof(uint16_t),
                                .bytes = what->n * (sizeof(float) + sizeof(uint16_t)) };
}

static void prepare_load_f16(const struct kernels *k, const struct case_task *t)
{
    uint16_t *x = t->scratch;
    (void)k;
    for (size_t i = 0; i < t->what.n; i++) x[i] = f16_from_f32(t->in[0][i]);
}

static void run_load_f16(const struct kernels *k, const struct case_task *t)
{
    k->attend->load_f16(t->out, t->scratch, t->what.n);
}

static void double_load_f16(const struct case_task *t)
{
    for (size_t i = 0; i < t->what.n; i++)
        t->expected[i] = (double)f32_from_f16(f16_from_f32(t->in[0][i]));
}

/* A tile's rows of n channels, in rows of n + m numbers, as f16 by channel. */
static void measure_turn_rows(struct case_sizes *out, const struct kernel_case *what)
{
    size_t numbers = ATTEND_TILE * what->n;
    *out = (struct case_sizes){ .in = { ATTEND_TILE * (what->n + what->m) },
                                .out = numbers,
                                .scratch_bytes = numbers * sizeof(uint16_t),
                                .bytes = numbers * (sizeof(float) + sizeof(uint16_t)) };
}

static void run_turn_rows(const struct kernels *k, const struct case_task *t)
{
    k->attend->turn_rows(t->scratch, t->in[0], t->what.n + t->what.m, t->what.n);
}

static void double_turn_rows(const struct case_task *t)
{
    for (size_t i = 0; i < t->sizes.out; i++) {
        size_t row = i % ATTEND_TILE, channel = i / ATTEND_TILE;
        float x = t->in[0][row * (t->what.n + t->what.m) + channel];
        t->expected[i] = (double)f32_from_f16(f16_from_f32(x));
    }
}

/* m rows of n words to n rows of m; in and out are words, side by side in the scratch. */
static void measure_turn_words(struct case_sizes *out, const struct kernel_case *what)
{
    size_t numbers = what->m * what->n;
    *out = (struct case_sizes){ .in = { numbers },
                                .out = numbers,
                                .scratch_bytes = 2 * numbers * sizeof(uint16_t),
                                .bytes = 2 * numbers * sizeof(uint16_t) };
}

static void prepare_turn_words(const struct kernels *k, const struct case_task *t)
{
    uint16_t *x = (uint16_t *)t->scratch + t->sizes.out;
    (void)k;
    for (size_t i = 0; i < t->sizes.out; i++) x[i] = f16_from_f32(t->in[0][i]);
}

static void run_turn_words(const struct kernels *k, const struct case_task *t)
{
    k->attend->turn_words(&(struct turned_words){ .out = t->scratch,
                                                  .out_stride = t->what.m,
                                                  .x = (uint16_t *)t->scratch + t->sizes.out,
                                                  .stride = t->what.n,
                                                  .rows = t->what.m,
                                                  .columns = t->what.n });
}

static void double_turn_words(const struct case_task *t)
{
    for (size_t i = 0; i < t->sizes.out; i++) {
        float x = t->in[0][i % t->what.m * t->what.n + i / t->what.m];
        t->expected[i] = (double)f32_from_f16(f16_from_f32(x));
    }
}

/* --------------------------------------------------------------- the table */

/* m, n, rows, heads, depth */
static const struct case_shape prompts[] = {
    { 128, 128, 1040, 8, 130 },
    { 256, 256, 560, 8, 70 },
    { 64, 64, 640, 2, 320 },
    { 128, 192, 200, 1, 200 },
    { 80, 80, 195, 3, 65 },
    { 7, 9, 130, 1, 130 },
    { 48, 16, 320, 5, 64 },
    { 31, 33, 90, 9, 129 },
    { 1, 1, 3, 1, 3 },
    { 64, 64, 6, 2, 300 },
    { 64, 48, 200, 2, 1100 }, /* more tiles than wait at a time */
    { 0 },
};

static const struct case_shape decodes[] = {
    { 128, 128, 8, 8, 130 },
    { 256, 256, 8, 8, 70 },
    { 64, 64, 2, 2, 320 },
    { 128, 192, 1, 1, 200 },
    { 80, 80, 3, 3, 65 },
    { 7, 9, 1, 1, 130 },
    { 48, 16, 5, 5, 64 },
    { 31, 33, 9, 9, 129 },
    { 24, 40, 9, 9, 140 },
    { 1, 1, 1, 1, 3 },
    { 0 },
};

const struct case_op case_attend_ops[] = {
    { .name = "attend_prompt",
      .rule = CASE_NEAR,
      .has_rows = true,
      .in_parts = true,
      .on_matrix = true,
      .fills = FILL_BIT(FILL_USUAL),
      .tried = prompts,
      .measure = measure_prompt,
      .prepare = prepare_prompt,
      .run = run_prompt,
      .in_double = double_prompt,
      .widen_bound = widen_for_bf16,
      .timed = { { 128, 128, 512, 8, 512 },
                 { 128, 128, 512, 8, 4096 },
                 { 256, 256, 512, 8, 4096 } } },
    { .name = "attend_decode",
      .rule = CASE_NEAR,
      .has_rows = true,
      .in_parts = true,
      .fills = FILL_BIT(FILL_USUAL),
      .tried = decodes,
      .measure = measure_decode,
      .prepare = prepare_decode,
      .run = run_decode,
      .in_double = double_decode,
      .timed = { { 128, 128, 8, 8, 512 }, { 128, 128, 8, 8, 8192 }, { 256, 256, 8, 8, 8192 } } },
    { .name = "attend_prompt_window",
      .rule = CASE_NEAR,
      .has_rows = true,
      .windowed = true,
      .in_parts = true,
      .on_matrix = true,
      .fills = FILL_BIT(FILL_USUAL),
      .tried = prompts,
      .measure = measure_prompt,
      .prepare = prepare_prompt,
      .run = run_prompt,
      .in_double = double_prompt,
      .widen_bound = widen_for_bf16,
      .timed = { { 64, 64, 512, 8, 4096 } } },
    { .name = "attend_decode_window",
      .rule = CASE_NEAR,
      .has_rows = true,
      .windowed = true,
      .in_parts = true,
      .fills = FILL_BIT(FILL_USUAL),
      .tried = decodes,
      .measure = measure_decode,
      .prepare = prepare_decode,
      .run = run_decode,
      .in_double = double_decode,
      .timed = { { 64, 64, 8, 8, 8192 } } },
    { .name = "attend_decode_q8",
      .rule = CASE_NEAR,
      .has_rows = true,
      .q8 = true,
      .in_parts = true,
      .fills = FILL_BIT(FILL_USUAL),
      .tried = decodes,
      .measure = measure_decode,
      .prepare = prepare_decode,
      .run = run_decode,
      .in_double = double_decode,
      .timed = { { 64, 64, 8, 8, 8192 } } },
    { .name = "attend_decode_q8_window",
      .rule = CASE_NEAR,
      .has_rows = true,
      .windowed = true,
      .q8 = true,
      .in_parts = true,
      .fills = FILL_BIT(FILL_USUAL),
      .tried = decodes,
      .measure = measure_decode,
      .prepare = prepare_decode,
      .run = run_decode,
      .in_double = double_decode,
      .timed = { { 64, 64, 8, 8, 8192 } } },
    { .name = "store_f16",
      .has_rows = true,
      .fills = FILLS_FINITE | FILL_BIT(FILL_HUGE),
      .measure = measure_f16,
      .prepare = prepare_f16,
      .run = run_f16,
      .collect = collect_f16,
      .in_double = double_f16,
      .timed = { { 1, 128, 1, 0, 0 }, { 64, 128, 1, 0, 0 } } },
    { .name = "load_f16",
      .fills = FILLS_FINITE | FILL_BIT(FILL_HUGE),
      .measure = measure_load_f16,
      .prepare = prepare_load_f16,
      .run = run_load_f16,
      .in_double = double_load_f16,
      .timed = { { 1, 512, 1, 0, 0 } } },
    { .name = "turn_rows",
      .has_rows = true,
      .fills = FILLS_FINITE | FILL_BIT(FILL_HUGE),
      .measure = measure_turn_rows,
      .run = run_turn_rows,
      .collect = collect_f16,
      .in_double = double_turn_rows,
      .timed = { { 128, 128, 1, 0, 0 } } },
    { .name = "turn_words",
      .has_rows = true,
      .fills = FILLS_FINITE | FILL_BIT(FILL_HUGE),
      .measure = measure_turn_words,
      .prepare = prepare_turn_words,
      .run = run_turn_words,
      .collect = collect_f16,
      .in_double = double_turn_words,
      .timed = { { 64, 512, 1, 0, 0 } } },
    { .name = NULL },
};
