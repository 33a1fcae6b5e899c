/* ops_attend.c: full attention, tuned: tiles of 64 positions for prompts, stretches of 256
 * for generated rows (kernels/attention/attention.h).
 *
 * All heads that share keys and values go together: a prompt's block is some positions of
 * all heads of a group, a decode row's stretch reads a page once for the whole group.
 * The number of workers decides which worker computes a part, not how it is computed. */
#include "backend/cpu/cpu.h"

#include "model/weights.h"

/* Query rows of a block, so that its memory fits into the second-level cache. */
enum { BLOCK_ROWS = 1024, BLOCK_NUMBERS = BLOCK_ROWS * 128 };

/* Positions of a decode row that are summed on their own, then joined in order. */
enum { STRETCH = 256, STRETCH_PAGES = STRETCH / KV_PAGE_TOKENS };

/* ------------------------------------------------------------- pages of a cache */

/* Keys and values of one head in one page, as tiles. */
struct page {
    const uint16_t *keys, *values;
};

/* A page that is not in f16 is converted in `memory`. */
static struct page load_page(const struct cpu_job *job, const struct kv_view *kv, uint32_t head,
                             size_t position, void *memory)
{
    size_t width = job->op->attention.head_width;
    struct kv_head keys = cpu_kv_head(kv, true, position, head, width);
    struct kv_head values = cpu_kv_head(kv, false, position, head, width);
    uint16_t *k = memory, *v = k + width * KV_PAGE_TOKENS;
    return (struct page){ cpu_kv_tile(job->kernels, &keys, k),
                          cpu_kv_tile(job->kernels, &values, v) };
}

/* Floats of memory for load_page. */
static size_t page_floats(size_t width)
{
    return KV_PAGE_TOKENS * align_up(width, 16);
}

/* Of the heads that share one head of keys and values. */
static const float *sinks_of(const struct cpu_job *job, uint32_t kv_head)
{
    const struct attention_shape *shape = &job->op->attention;
    return weight_vector(job_weight(job, job->op->weight)) +
           kv_head * (shape->heads / shape->kv_heads);
}

/* -------------------------------------------------------------------- prompts */

/* Positions in a block, a multiple of 16: fewer where workers would have nothing to do. */
static size_t block_positions(const struct attention_shape *shape, size_t rows, unsigned workers)
{
    size_t group = shape->heads / shape->kv_heads;
    size_t lanes = min_size(BLOCK_ROWS, BLOCK_NUMBERS / shape->head_width);
    size_t positions = max_size(lanes / group / 16 * 16, 16);
    while (positions > 16 && rows * shape->kv_heads < 2 * workers * positions)
        positions = max_size(positions / 2 / 16 * 16, 16);
    return positions;
}

/* Rows [first, first + count) of a span, for one head of keys and values. */
struct prompt_block {
    const struct span *span;
    size_t first, count;
    uint32_t kv_head;
};

static void attend_block(const struct cpu_job *job, const struct prompt_block *p)
{
    const struct attention_shape *shape = &job->op->attention;
    const struct attend_kernels *attend = job->kernels->attend;
    size_t group = shape->heads / shape->kv_heads, width = shape->head_width;
    size_t rows = p->count * group;
    const float **queries = (const float **)(void *)job->scratch;
    float **out = (float **)(void *)(queries + rows);
    uint32_t *positions = (uint32_t *)(void *)(out + rows);
    float *sinks = (float *)(void *)(positions + rows);
    float *page_memory = (float *)align_up((uintptr_t)(sinks + rows), CACHE_LINE);
    const float *sink = shape->sinks ? sinks_of(job, p->kv_head) : NULL;
    for (size_t i = 0; i < rows; i++) {
        size_t row = p->span->first_row + p->first + i / group;
        size_t channel = (p->kv_head * group + i % group) * width;
        queries[i] = job_row(job, job->op->a, row) + channel;
        out[i] = job_row(job, job->op->out, row) + channel;
        positions[i] = p->span->position + (uint32_t)(p->first + i / group);
        if (sink) sinks[i] = sink[i % group];
    }
    struct attend_block block = { .key_width = width,
                                  .value_width = width,
                                  .row_count = rows,
                                  .queries = queries,
                                  .positions = positions,
                                  .window = shape->window,
                                  .sinks = sink ? sinks : NULL,
                                  .out = out,
                                  .scale = shape->scale,
                                  .memory = page_memory + page_floats(width) };
    uint32_t end = positions[rows - 1] + 1;
    attend->begin(&block);
    uint32_t first = attend_first(&block, 0) / ATTEND_TILE * ATTEND_TILE;
    for (uint32_t at = first; at < end; at += ATTEND_TILE) {
        struct page page = load_page(job, &p->span->kv, p->kv_head, at, page_memory);
        struct attend_tile tile = { page.keys, page.values, at,
                                    (uint32_t)min_size(ATTEND_TILE, end - at) };
        attend->tile(&block, &tile);
    }
    attend->end(&block);
}

/* Later blocks see more positions: blocks are assigned round-robin, the most expensive first. */
static void attend_prompt(const struct cpu_job *job, const struct span *span)
{
    const struct attention_shape *shape = &job->op->attention;
    size_t positions = block_positions(shape, span->row_count, job->worker.count);
    size_t blocks = (span->row_count + positions - 1) / positions;
    size_t items = blocks * shape->kv_heads;
    for (size_t i = job->worker.index; i < items; i += job->worker.count) {
        size_t block = blocks - 1 - i / shape->kv_heads;
        struct prompt_block p = { .span = span,
                                  .first = block * positions,
                                  .kv_head = (uint32_t)(i % shape->kv_heads) };
        p.count = min_size(positions, span->row_count - p.first);
        attend_block(job, &p);
    }
}

/* --------------------------------------------------------------------- decode */

/* Memory of one stretch's results: greatest scores, sums of weights, sums of values. */
static size_t result_floats(size_t heads, size_t width)
{
    return heads * (2 + width);
}

static void place_results(struct attend_stretch *s, float *memory)
{
    s->greatest = memory;
    s->weight_sums = memory + s->heads;
    s->sums = s->weight_sums + s->heads;
}

/* One row and one head of keys and values. */
struct decode_item {
    const struct kv_view *kv;
    size_t row;
    uint32_t kv_head;
    size_t first, end; /* of the positions that it sees */
};

static size_t stretches(size_t first, size_t end)
{
    return (end - 1) / STRETCH - first / STRETCH + 1;
}

/* The fields that are the same for all stretches of an item. */
static struct attend_stretch stretch_of(const struct cpu_job *job, const struct decode_item *item)
{
    const struct attention_shape *shape = &job->op->attention;
    size_t group = shape->heads / shape->kv_heads;
    return (struct attend_stretch){ .queries = job_row(job, job->op->a, item->row) +
                                               item->kv_head * group * shape->head_width,
                                    .heads = group,
                                    .key_width = shape->head_width,
                                    .value_width = shape->head_width,
                                    .value_stride = shape->head_width,
                                    .scale = shape->scale };
}

/* Stretch `index` of an item, its results in `memory`.  Stretches begin at multiples of STRETCH, but
 * pages that are before a window are not read. */
static struct attend_stretch attend_stretch(const struct cpu_job *job,
                                            const struct decode_item *item, size_t index,
                                            float *memory)
{
    struct attend_stretch s = stretch_of(job, item);
    const void *keys[STRETCH_PAGES], *values[STRETCH_PAGES];
    float *pages = job->scratch + s.heads * STRETCH;
    size_t begin = (item->first / STRETCH + index) * STRETCH;
    size_t end = min_size(begin + STRETCH, item->end);
    if (begin < item->first) {
        begin = item->first / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        s.hidden = item->first - begin;
    }
    s.count = end - begin;
    s.scores = job->scratch;
    s.keys = keys;
    s.values = values;
    s.q8 = item->kv->format == KV_Q8;
    place_results(&s, memory);
    for (size_t p = 0; p * KV_PAGE_TOKENS < s.count; p++) {
        size_t position = begin + p * KV_PAGE_TOKENS;
        if (s.q8) {
            keys[p] = cpu_kv_head(item->kv, true, position, item->kv_head, s.key_width).page;
            values[p] = cpu_kv_head(item->kv, false, position, item->kv_head, s.key_width).page;
            continue;
        }
        struct page page =
            load_page(job, item->kv, item->kv_head, position, pages + p * page_floats(s.key_width));
        keys[p] = page.keys;
        values[p] = page.values;
    }
    job->kernels->attend->stretch(&s);
    s.keys = s.values = NULL; /* of this function */
    return s;
}

static void write_row(const struct cpu_job *job, const struct decode_item *item,
                      const struct attend_stretch *s)
{
    float *out = job_row(job, job->op->out, item->row) + item->kv_head * s->heads * s->value_width;
    for (size_t h = 0; h < s->heads; h++) {
        float scale = 1.0f / s->weight_sums[h];
        for (size_t c = h * s->value_width; c < (h + 1) * s->value_width; c++)
            out[c] = s->sums[c] * scale;
    }
}

/* Results of a stretch without positions: the sinks alone; in `memory`. */
static void join_sinks(const struct cpu_job *job, const struct decode_item *item,
                       const struct attend_stretch *all, float *memory)
{
    if (!job->op->attention.sinks) return;
    const float *sinks = sinks_of(job, item->kv_head);
    struct attend_stretch alone = *all;
    place_results(&alone, memory);
    for (size_t h = 0; h < all->heads; h++) {
        alone.greatest[h] = sinks[h] / all->scale;
        alone.weight_sums[h] = 1.0f;
    }
    memset(alone.sums, 0, all->heads * all->value_width * sizeof *alone.sums);
    job->kernels->attend->join(all, &alone);
}

/* All stretches of an item, one after the other. */
static void attend_item(const struct cpu_job *job, const struct decode_item *item)
{
    const struct attention_shape *shape = &job->op->attention;
    size_t group = shape->heads / shape->kv_heads, width = shape->head_width;
    float *first = job->scratch + group * STRETCH + STRETCH_PAGES * page_floats(width);
    float *next = first + result_floats(group, width);
    struct attend_stretch all = attend_stretch(job, item, 0, first);
    for (size_t i = 1; i < stretches(item->first, item->end); i++) {
        struct attend_stretch more = attend_stretch(job, item, i, next);
        job->kernels->attend->join(&all, &more);
    }
    join_sinks(job, item, &all, next);
    write_row(job, item, &all);
}

/* Divides the stretches of all heads of one row among the workers, then joins them: for long contexts
 * with fewer heads than workers.  The same sums in the same order as attend_item. */
static void attend_split(const struct cpu_job *job, struct decode_item item)
{
    const struct attention_shape *shape = &job->op->attention;
    size_t group = shape->heads / shape->kv_heads, count = stretches(item.first, item.end);
    size_t floats = result_floats(group, shape->head_width);
    struct share share = worker_share(job->worker, count * shape->kv_heads, 1);
    for (size_t i = share.begin; i < share.end; i++) {
        item.kv_head = (uint32_t)(i / count);
        attend_stretch(job, &item, i % count, job->shared + i * floats);
    }
    worker_barrier(job->worker);
    share = worker_share(job->worker, shape->kv_heads, 1);
    for (size_t h = share.begin; h < share.end; h++) {
        item.kv_head = (uint32_t)h;
        struct attend_stretch all = stretch_of(job, &item), more = all;
        place_results(&all, job->shared + h * count * floats);
        for (size_t i = 1; i < count; i++) {
            place_results(&more, job->shared + (h * count + i) * floats);
            job->kernels->attend->join(&all, &more);
        }
        join_sinks(job, &item, &all, job->scratch);
        write_row(job, &item, &all);
    }
    worker_barrier(job->worker);
}

/* All decode rows of a step. */
struct decode_load {
    size_t items, stretches;
};

static struct decode_load load_of(const struct frame *frame, const struct attention_shape *shape)
{
    uint32_t kv_heads = shape->kv_heads;
    struct decode_load load = { 0 };
    for (size_t s = 0; s < frame->span_count; s++) {
        const struct span *span = &frame->spans[s];
        if (!span->decode) continue;
        load.items += (size_t)span->row_count * kv_heads;
        for (uint32_t t = 0; t < span->row_count; t++)
            load.stretches += stretches(attention_first(shape, span->position + t),
                                        (size_t)span->position + t + 1) *
                              kv_heads;
    }
    return load;
}

/* Whether dividing by whole heads would leave workers idle: the heads of all rows are few, or one of
 * this row is more than a worker's part of them. */
static bool worth_splitting(const struct cpu_job *job, const struct decode_load *load,
                            const struct decode_item *item)
{
    size_t workers = job->worker.count, count = stretches(item->first, item->end);
    bool few = load->items < 4 * workers && load->items % workers != 0;
    return count > 4 && (few || count * workers > load->stretches);
}

static void attend_decode(const struct cpu_job *job, const struct span *span,
                          const struct decode_load *load)
{
    uint32_t kv_heads = job->op->attention.kv_heads;
    for (uint32_t t = 0; t < span->row_count; t++) {
        struct decode_item item = { .kv = &span->kv,
                                    .row = span->first_row + t,
                                    .first =
                                        attention_first(&job->op->attention, span->position + t),
                                    .end = (size_t)span->position + t + 1 };
        if (worth_splitting(job, load, &item)) {
            attend_split(job, item);
            continue;
        }
        for (uint32_t h = 0; h < kv_heads; h++) {
            item.kv_head = h;
            if ((item.row * kv_heads + h) % job->worker.count == job->worker.index)
                attend_item(job, &item);
        }
    }
}

void cpu_attend_tuned(const struct cpu_job *job)
{
    struct decode_load load = load_of(job->frame, &job->op->attention);
    for (size_t s = 0; s < job->frame->span_count; s++) {
        const struct span *span = &job->frame->spans[s];
        if (span->decode)
            attend_decode(job, span, &load);
        else
            attend_prompt(job, span);
    }
}

/* -------------------------------------------------------------------- memory */

size_t cpu_attend_scratch(const struct backend_sizes *sizes)
{
    size_t width = sizes->head_width, group = sizes->heads / max_size(sizes->kv_heads, 1);
    if (!width || !group) return 0;
    size_t rows =
        min_size(max_size(BLOCK_ROWS, 16 * group), align_up(sizes->row_count * group, 16));
    struct attend_block block = { .key_width = width, .value_width = width, .row_count = rows };
    size_t pointers =
        rows * (2 * sizeof(void *) + sizeof(uint32_t)) / sizeof(float) + rows + CACHE_LINE;
    size_t prompt = pointers + page_floats(width) + attend_floats(&block);
    size_t decode =
        group * STRETCH + STRETCH_PAGES * page_floats(width) + 2 * result_floats(group, width);
    return max_size(prompt, decode);
}

size_t cpu_attend_shared(const struct backend_sizes *sizes)
{
    if (sizes->context == 0) return 0;
    return stretches(0, sizes->context) * result_floats(sizes->heads, sizes->head_width);
}
