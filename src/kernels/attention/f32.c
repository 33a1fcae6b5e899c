/* f32.c: attention in f32, a query row in each lane.
 *
 * A key or value is one number for all lanes, so that products need no sums across lanes:
 *
 *     scores[64][16]   += keys[channel][64] · queries[channel][16]
 *     sums[value][16]  += values[64][value] · weights[64][16]
 *
 * Queries are stored as [group][channel][16], sums as [group][value][16]. */
#include "kernels/attention/attention.h"
#include "kernels/set.h"
#include "kernels/simd/simd.h"

#include <math.h>

/* Numbers that a pass multiplies with the lanes of one group: as many sums as registers. */
enum { NUMBERS = PARTS == 1 ? 16 : 4 };

/* ------------------------------------------------------------ prompt: begin, end */

void NAMED(attend_begin)(const struct attend_block *b)
{
    struct attend_layout l = attend_layout(b);
    memset(l.queries, 0, l.groups * l.key_padded * LANES * sizeof(float));
    for (size_t r = 0; r < b->row_count; r++) {
        float *lane = l.queries + r / LANES * l.key_padded * LANES + r % LANES;
        for (size_t c = 0; c < b->key_width; c++) lane[c * LANES] = b->queries[r][c];
    }
    memset(l.sums, 0, l.groups * l.value_padded * LANES * sizeof(float));
    memset(l.weight_sums, 0, l.groups * LANES * sizeof(float));
    for (size_t i = 0; i < l.groups * LANES; i++) l.greatest[i] = -INFINITY;
    NAMED(attend_begin_sinks)(b);
}

/* e^0 of what is the greatest score so far. */
void NAMED(attend_begin_sinks)(const struct attend_block *b)
{
    struct attend_layout l = attend_layout(b);
    for (size_t r = 0; b->sinks && r < b->row_count; r++) {
        l.greatest[r] = b->sinks[r] / b->scale;
        l.weight_sums[r] = 1.0f;
    }
}

void NAMED(attend_end)(const struct attend_block *b)
{
    struct attend_layout l = attend_layout(b);
    for (size_t r = 0; r < b->row_count; r += LANES) {
        const float *sums = l.sums + r * l.value_padded;
        lanes scale = 1.0f / lanes_load(l.weight_sums + r);
        size_t rows = min_size(LANES, b->row_count - r);
        for (size_t c = 0; c < b->value_width; c += LANES) {
            float scaled[LANES * LANES], turned[LANES * LANES];
            size_t count = min_size(LANES, b->value_width - c);
            for (size_t i = 0; i < LANES; i++)
                lanes_store(scaled + i * LANES, lanes_load(sums + (c + i) * LANES) * scale);
            transpose_floats(turned, LANES, scaled, LANES, LANES, LANES);
            for (size_t i = 0; i < rows; i++) {
                lanes row = lanes_load(turned + i * LANES);
                if (count == LANES)
                    lanes_stream_any(b->out[r + i] + c, row);
                else
                    lanes_store_some(b->out[r + i] + c, row, count);
            }
        }
    }
    lanes_streamed();
}

/* --------------------------------------------------------------- prompt: a tile */

/* out[NUMBERS][16] (+)= Σ over n of numbers[n][NUMBERS] · lanes[n][16] */
LANES_INLINE void outer_products(float *out, const float *numbers, size_t stride, const float *rows,
                                 size_t n)
{
    part sums[NUMBERS][PARTS];
    for (int i = 0; i < NUMBERS; i++)
        for (int j = 0; j < PARTS; j++) sums[i][j] = part_load(out + i * LANES + j * PART);
    for (size_t k = 0; k < n; k++) {
        part row[PARTS];
        for (int j = 0; j < PARTS; j++) row[j] = part_load(rows + k * LANES + j * PART);
        for (int i = 0; i < NUMBERS; i++)
            for (int j = 0; j < PARTS; j++)
                sums[i][j] = part_fma(part_all(numbers[k * stride + i]), row[j], sums[i][j]);
    }
    for (int i = 0; i < NUMBERS; i++)
        for (int j = 0; j < PARTS; j++) part_store(out + i * LANES + j * PART, sums[i][j]);
}

/* Scores become weights; what the old greatest score leaves of the sums is in `keep`.  A lane that
 * has seen no position has the greatest score -∞, which is not subtracted. */
LANES_INLINE lanes weigh(float *scores, size_t rows, float *greatest, float *weight_sums,
                         float factor)
{
    lanes before = lanes_load(greatest), most = before, sum = { 0 };
    for (size_t i = 0; i < rows; i++) most = lanes_greater(most, lanes_load(scores + i * LANES));
    lanes shift = lanes_choose(most > -INFINITY, most, (lanes){ 0 });
    for (size_t i = 0; i < rows; i++) {
        lanes e = lanes_exp2((lanes_load(scores + i * LANES) - shift) * factor);
        lanes_store(scores + i * LANES, e);
        sum += e;
    }
    lanes keep = lanes_exp2((before - shift) * factor);
    lanes_store(weight_sums, lanes_fma(lanes_load(weight_sums), keep, sum));
    lanes_store(greatest, most);
    return keep;
}

/* Positions of the tile that a lane sees, lane by lane: from `first` to `end` - 1. */
struct visible {
    int_lanes first, end;
};

LANES_INLINE struct visible visible(const struct attend_block *b, const struct attend_tile *tile,
                                    size_t g)
{
    struct visible v;
    for (size_t i = 0; i < LANES; i++) {
        size_t row = min_size(g * LANES + i, b->row_count - 1);
        v.first[i] = (int32_t)(attend_first(b, row) - tile->first);
        v.end[i] = (int32_t)(b->positions[row] - tile->first + 1);
    }
    return v;
}

/* Rows [begin, end) of scores become -∞ where a lane does not see the position. */
static void hide(float *scores, const struct visible *v, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        int_lanes seen = (v->first <= (int32_t)i) & (v->end > (int32_t)i);
        lanes s = lanes_load(scores + i * LANES);
        lanes_store(scores + i * LANES, lanes_choose(seen, s, lanes_all(-INFINITY)));
    }
}

static void attend_group(const struct attend_block *b, const struct attend_layout *l,
                         const struct attend_tile *tile, size_t g)
{
    const float log2e = 1.44269504f;
    float *queries = l->queries + g * l->key_padded * LANES;
    float *sums = l->sums + g * l->value_padded * LANES;
    size_t last = min_size((g + 1) * LANES, b->row_count) - 1;
    size_t count = min_size(ATTEND_TILE, b->positions[last] - tile->first + 1);
    size_t rows = align_up(count, NUMBERS);
    memset(l->scores, 0, rows * LANES * sizeof(float));
    for (size_t i = 0; i < rows; i += NUMBERS)
        outer_products(l->scores + i * LANES, l->keys + i, ATTEND_TILE, queries, b->key_width);
    struct visible v = visible(b, tile, g);
    uint32_t nearest = b->positions[g * LANES], furthest = attend_first(b, last);
    size_t all_see = nearest < tile->first ? 0 : nearest - tile->first + 1;
    size_t some_miss = furthest < tile->first ? 0 : min_size(furthest - tile->first, rows);
    hide(l->scores, &v, 0, some_miss);
    hide(l->scores, &v, max_size(all_see, some_miss), rows);
    lanes keep = weigh(l->scores, rows, l->greatest + g * LANES, l->weight_sums + g * LANES,
                       b->scale * log2e);
    for (size_t c = 0; c < l->value_padded; c++)
        lanes_store(sums + c * LANES, lanes_load(sums + c * LANES) * keep);
    for (size_t c = 0; c < l->value_padded; c += NUMBERS)
        outer_products(sums + c * LANES, l->values + c, l->value_padded, l->scores, rows);
}

/* Keys stay by channel, values by position; both padded with zeroes.  What no row sees may be
 * anything: its weights are zeroes, so it must be finite. */
static void load_tile(const struct attend_block *b, const struct attend_layout *l,
                      const struct attend_tile *tile)
{
    for (size_t i = 0; i < b->key_width * ATTEND_TILE; i += LANES)
        lanes_store(l->keys + i, lanes_from_f16(tile->keys + i));
    memset(l->values, 0, ATTEND_TILE * l->value_padded * sizeof(float));
    uint32_t seen = attend_first(b, 0);
    for (size_t p = seen > tile->first ? seen - tile->first : 0; p < tile->count; p++) {
        const uint16_t *from = tile->values + p * b->value_width;
        float *to = l->values + p * l->value_padded;
        size_t c = 0;
        for (; c + LANES <= b->value_width; c += LANES)
            lanes_store(to + c, lanes_from_f16(from + c));
        for (; c < b->value_width; c++) to[c] = f32_from_f16(from[c]);
    }
}

void NAMED(attend_tile)(const struct attend_block *b, const struct attend_tile *tile)
{
    struct attend_layout l = attend_layout(b);
    load_tile(b, &l, tile);
    for (size_t g = 0; g * LANES < b->row_count; g++) {
        size_t last = min_size((g + 1) * LANES, b->row_count) - 1;
        if (b->positions[last] >= tile->first &&
            attend_first(b, g * LANES) < tile->first + ATTEND_TILE)
            attend_group(b, &l, tile, g);
    }
}

/* ------------------------------------------------------------- decode: a stretch */

/* Heads and lanes of neighbours (positions or channels) in one pass. */
enum { HEADS = PARTS == 1 ? 8 : 4, SIDE = PARTS == 1 ? 2 : 1 };

/* What a pass works on: some heads of a stretch. */
struct heads {
    const struct attend_stretch *stretch;
    size_t first, padded; /* positions, up to a multiple of 64 */
};

/* Numbers of `from`, a page's keys or values, from `at` on. */
LANES_INLINE part load_part(const void *from, size_t at, bool q8)
{
    return q8 ? part_from_signed((const int8_t *)from + at)
              : part_from_f16((const uint16_t *)from + at);
}

/* Scales of a q8 page of this width, for the group of `channel`: [64] */
LANES_INLINE const uint16_t *scales_of(const void *page, size_t width, size_t channel)
{
    const int8_t *scales = (const int8_t *)page + width * ATTEND_TILE;
    return (const uint16_t *)(const void *)scales + channel / Q8_GROUP * ATTEND_TILE;
}

/* scores of one page; `count` (of heads) and `q8` are constants where this is inlined. */
LANES_INLINE void score_page(const struct heads *h, size_t page, int count, bool q8)
{
    const struct attend_stretch *s = h->stretch;
    const float *q = s->queries + h->first * s->key_width;
    float *out = s->scores + h->first * h->padded + page * ATTEND_TILE;
    bool page_follows = (page + 1) * ATTEND_TILE < s->count;
    const uint8_t *next = page_follows ? s->keys[page + 1] : s->values[0];
    for (size_t p = 0; p < ATTEND_TILE; p += SIDE * LANES) {
        part sums[HEADS][SIDE * PARTS] = { 0 }, scales[SIDE * PARTS] = { 0 };
        for (size_t c = 0; c < s->key_width; c++) {
            size_t at = c * ATTEND_TILE + p;
            __builtin_prefetch(next + at * (q8 ? 1 : sizeof(uint16_t)));
            for (int j = 0; q8 && c % Q8_GROUP == 0 && j < SIDE * PARTS; j++)
                scales[j] = part_from_f16(scales_of(s->keys[page], s->key_width, c) + p + j * PART);
            part k[SIDE * PARTS];
            for (int j = 0; j < SIDE * PARTS; j++) {
                k[j] = load_part(s->keys[page], at + j * PART, q8);
                if (q8) k[j] *= scales[j];
            }
            for (int i = 0; i < count; i++)
                for (int j = 0; j < SIDE * PARTS; j++)
                    sums[i][j] = part_fma(part_all(q[i * s->key_width + c]), k[j], sums[i][j]);
        }
        for (int i = 0; i < count; i++)
            for (int j = 0; j < SIDE * PARTS; j++)
                part_store(out + i * h->padded + p + j * PART, sums[i][j]);
    }
}

/* `side` lanes of value channels from `channel` on, over all positions. */
LANES_INLINE void sum_values(const struct heads *h, size_t channel, int count, int side, bool q8)
{
    const struct attend_stretch *s = h->stretch;
    const float *weights = s->scores + h->first * h->padded;
    part sums[HEADS][SIDE * PARTS] = { 0 };
    for (size_t p = s->hidden; p < s->count; p++) {
        const void *page = s->values[p / ATTEND_TILE];
        size_t at = p % ATTEND_TILE * s->value_stride + channel;
        part v[SIDE * PARTS], scale = { 0 };
        __builtin_prefetch((const uint8_t *)page +
                           (at + SIDE * LANES) * (q8 ? 1 : sizeof(uint16_t)));
        if (q8) {
            const uint16_t *scales = scales_of(page, s->value_stride, channel);
            scale = part_all(float_from_f16((const uint8_t *)(scales + p % ATTEND_TILE)));
        }
        for (int j = 0; j < side * PARTS; j++) {
            v[j] = load_part(page, at + j * PART, q8);
            if (q8) v[j] *= scale;
        }
        for (int i = 0; i < count; i++)
            for (int j = 0; j < side * PARTS; j++)
                sums[i][j] = part_fma(part_all(weights[i * h->padded + p]), v[j], sums[i][j]);
    }
    float *out = s->sums + h->first * s->value_width + channel;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < side * PARTS; j++)
            part_store(out + i * s->value_width + j * PART, sums[i][j]);
}

/* The last channels of a width that is no multiple of 16. */
static void sum_last_values(const struct heads *h, size_t channel, int count)
{
    const struct attend_stretch *s = h->stretch;
    for (int i = 0; i < count; i++)
        for (size_t c = channel; c < s->value_width; c++) {
            float sum = 0.0f;
            for (size_t p = s->hidden; p < s->count; p++) {
                const void *page = s->values[p / ATTEND_TILE];
                size_t at = p % ATTEND_TILE * s->value_stride + c;
                float value =
                    s->q8 ? (float)((const int8_t *)page)[at] *
                                f32_from_f16(scales_of(page, s->value_stride, c)[p % ATTEND_TILE])
                          : f32_from_f16(((const uint16_t *)page)[at]);
                sum += s->scores[(h->first + i) * h->padded + p] * value;
            }
            s->sums[(h->first + i) * s->value_width + c] = sum;
        }
}

/* Scores of one head become weights. */
static void weigh_head(const struct heads *h, size_t head)
{
    const struct attend_stretch *s = h->stretch;
    const float log2e = 1.44269504f;
    float *scores = s->scores + head * h->padded, factor = s->scale * log2e;
    for (size_t p = 0; p < s->hidden; p++) scores[p] = -INFINITY;
    for (size_t p = s->count; p < h->padded; p++) scores[p] = -INFINITY;
    lanes best = lanes_load(scores);
    for (size_t p = LANES; p < h->padded; p += LANES)
        best = lanes_greater(best, lanes_load(scores + p));
    float most = best[0];
    for (int i = 1; i < LANES; i++) most = best[i] > most ? best[i] : most;
    lanes sum = { 0 };
    for (size_t p = 0; p < h->padded; p += LANES) {
        lanes e = lanes_exp2((lanes_load(scores + p) - most) * factor);
        lanes_store(scores + p, e);
        sum += e;
    }
    s->greatest[head] = most;
    s->weight_sums[head] = lanes_sum(sum);
}

LANES_INLINE void attend_heads(struct heads *h, int count, bool q8)
{
    const struct attend_stretch *s = h->stretch;
    size_t c = 0;
    for (size_t page = 0; page * ATTEND_TILE < s->count; page++) score_page(h, page, count, q8);
    for (int i = 0; i < count; i++) weigh_head(h, h->first + i);
    for (; c + SIDE * LANES <= s->value_width; c += SIDE * LANES) sum_values(h, c, count, SIDE, q8);
    for (; c + LANES <= s->value_width; c += LANES) sum_values(h, c, count, 1, q8);
    if (c < s->value_width) sum_last_values(h, c, count);
    h->first += count;
}

LANES_INLINE void attend_pages(const struct attend_stretch *s, bool q8)
{
    struct heads h = { .stretch = s, .padded = align_up(s->count, ATTEND_TILE) };
    while (h.first + HEADS <= s->heads) attend_heads(&h, HEADS, q8);
    while (HEADS > 4 && h.first + 4 <= s->heads) attend_heads(&h, 4, q8);
    while (h.first + 2 <= s->heads) attend_heads(&h, 2, q8);
    while (h.first < s->heads) attend_heads(&h, 1, q8);
}

static void attend_f16(const struct attend_stretch *s)
{
    attend_pages(s, false);
}

static void attend_q8(const struct attend_stretch *s)
{
    attend_pages(s, true);
}

void NAMED(attend_stretch)(const struct attend_stretch *s)
{
    if (s->q8)
        attend_q8(s);
    else
        attend_f16(s);
}

void NAMED(attend_join)(const struct attend_stretch *s, const struct attend_stretch *next)
{
    const float log2e = 1.44269504f;
    for (size_t h = 0; h < s->heads; h++) {
        float most = s->greatest[h] > next->greatest[h] ? s->greatest[h] : next->greatest[h];
        lanes shifts = { s->greatest[h] - most, next->greatest[h] - most };
        lanes factors = lanes_exp2(shifts * (s->scale * log2e));
        float *sums = s->sums + h * s->value_width;
        const float *more = next->sums + h * s->value_width;
        s->greatest[h] = most;
        s->weight_sums[h] = s->weight_sums[h] * factors[0] + next->weight_sums[h] * factors[1];
        for (size_t c = 0; c < s->value_width; c++)
            sums[c] = sums[c] * factors[0] + more[c] * factors[1];
    }
}

void NAMED(store_f16)(uint16_t *out, size_t stride, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        uint16_t half[LANES];
        lanes_to_f16(stride == 1 ? out + i : half, lanes_load(x + i));
        for (size_t j = 0; stride > 1 && j < LANES; j++) out[(i + j) * stride] = half[j];
    }
    for (; i < n; i++) out[i * stride] = f16_from_f32(x[i]);
}

void NAMED(load_f16)(float *out, const uint16_t *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) lanes_store(out + i, lanes_from_f16(x + i));
    for (; i < n; i++) out[i] = f32_from_f16(x[i]);
}

void NAMED(turn_rows)(uint16_t *out, const float *x, size_t stride, size_t n)
{
    for (size_t c = 0; c < n; c += LANES) {
        float turned[LANES * ATTEND_TILE];
        size_t count = min_size(LANES, n - c);
        transpose_floats(turned, ATTEND_TILE, x + c, stride, ATTEND_TILE, count);
        for (size_t i = 0; i < count * ATTEND_TILE; i += LANES)
            lanes_to_f16(out + c * ATTEND_TILE + i, lanes_load(turned + i));
    }
}

void NAMED(turn_words)(const struct turned_words *w)
{
    size_t c = transpose_words(w);
    for (; c < w->columns; c++)
        for (size_t r = 0; r < w->rows; r++)
            w->out[c * w->out_stride + r] = w->x[r * w->stride + c];
}
