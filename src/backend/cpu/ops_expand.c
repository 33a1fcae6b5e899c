/* ops_expand.c: latent attention of a prompt, tuned.
 *
 * First all workers turn the context's latents into what the matrix unit multiplies (packs);
 * that is the same for all heads.  Then a worker has whole heads: a head's Wk and Wv become
 * one panel, each tile of 64 positions is expanded with it once for a block of query rows,
 * and from there on it is attention as in ops_attend.c, with one head of keys for each head
 * of queries.
 *
 *     cache f16 [64][latent | rope] ─┬─▶ packs ──▶ panel · packs ─▶ keys, values f16 ─▶ attend
 *                                    └─▶ rope by channel ─────────────────┘ */
#include "backend/cpu/latent.h"

/* Query rows per block: a tile is expanded once per block. */
enum { EXPAND_ROWS = 1024 };

/* Floats of a tile's latents: four packs of bf16, or f32 where products are not in bf16. */
static size_t latents_floats(const struct kernels *kernels, size_t latent)
{
    return kernels_have_panels(kernels) ? KV_PAGE_TOKENS / 2 * matrix_cols(latent)
                                        : KV_PAGE_TOKENS * latent;
}

static size_t tile_floats(const struct kernels *kernels, size_t latent, size_t rope)
{
    return align_up(latents_floats(kernels, latent) + KV_PAGE_TOKENS / 2 * rope, 16);
}

/* ---------------------------------------------------------------- all together */

/* Tile `index` of the context in shared memory: latents, then the rope part by channel. */
static float *tile_latents(const struct cpu_job *job, size_t index)
{
    const struct latent_shape *shape = &job->op->latent;
    return job->shared + index * tile_floats(job->kernels, shape->latent_width, shape->rope_width);
}

static uint16_t *tile_rope(const struct cpu_job *job, size_t index)
{
    float *latents = tile_latents(job, index);
    return (uint16_t *)(void *)(latents +
                                latents_floats(job->kernels, job->op->latent.latent_width));
}

/* Converts one tile.  Zeroes the rows past the last position; the page may hold stale data. */
static void prepare_tile(const struct cpu_job *job, const struct span *span, size_t index)
{
    const struct latent_shape *shape = &job->op->latent;
    const struct kernels *kernels = job->kernels;
    size_t latent = shape->latent_width, stored = latent + shape->rope_width;
    size_t first = index * KV_PAGE_TOKENS, end = (size_t)span->position + span->row_count;
    size_t count = min_size(KV_PAGE_TOKENS, end - first);
    float *rows = job->scratch, *out = tile_latents(job, index);
    uint16_t *memory = (uint16_t *)(void *)(rows + KV_PAGE_TOKENS * stored);
    const uint16_t *page = cpu_latent_page(job, &span->kv, first, memory);
    kernels->attend->load_f16(rows, page, count * stored);
    memset(rows + count * stored, 0, (KV_PAGE_TOKENS - count) * stored * sizeof *rows);
    kernels->attend->turn_rows(tile_rope(job, index), rows + latent, stored, shape->rope_width);
    for (size_t p = 0; p < KV_PAGE_TOKENS; p += PACK_ROWS) {
        const float *x[PACK_ROWS];
        for (size_t i = 0; i < PACK_ROWS; i++) x[i] = rows + (p + i) * stored;
        if (kernels_have_panels(kernels))
            kernels->matrix->make_pack((uint16_t *)(void *)out + p * matrix_cols(latent), x,
                                       PACK_ROWS, latent);
        else
            for (size_t i = 0; i < PACK_ROWS; i++)
                memcpy(out + (p + i) * latent, x[i], latent * sizeof *out);
    }
}

/* ---------------------------------------------------------------------- a head */

/* One head on one worker. */
struct expansion {
    const struct cpu_job *job;
    const struct latent_shape *shape;
    uint32_t head;
    uint16_t *panel; /* matrix unit: [nope + value][stride] */
    size_t stride;
    float *rows;      /* without one [nope + value][latent]; else room for products */
    float *expanded;  /* [64][nope + value] */
    uint16_t *keys;   /* [nope + rope][64] */
    uint16_t *values; /* [64][value] */
    float *memory;    /* of the block */
};

/* Wk of a split file is [latent][nope] and has to be turned. */
static void load_turned_keys(const struct expansion *e, const struct latent_weights *w)
{
    const struct kernels *kernels = e->job->kernels;
    size_t latent = e->shape->latent_width, nope = e->shape->nope_width;
    enum { LINES = 16 };
    if (kernels_have_panels(kernels)) {
        uint16_t *lines = (uint16_t *)(void *)e->rows;
        size_t stride = cpu_panel_stride(nope), padded = matrix_cols(latent);
        kernels->matrix->make_panel(lines, stride, w->keys, w->first_key, latent);
        kernels->attend->turn_words(
            &(struct turned_words){ e->panel, e->stride, lines, stride, latent, nope });
        for (size_t i = 0; i < nope && padded > latent; i++)
            memset(e->panel + i * e->stride + latent, 0, (padded - latent) * sizeof *e->panel);
        return;
    }
    for (size_t c = 0; c < latent; c += LINES) {
        size_t count = min_size(LINES, latent - c);
        float *lines = e->expanded; /* not in use yet */
        for (size_t j = 0; j < count; j++)
            kernels_dequantise(kernels, lines + j * nope, w->keys, w->first_key + c + j);
        for (size_t i = 0; i < nope; i++)
            for (size_t j = 0; j < count; j++) e->rows[i * latent + c + j] = lines[j * nope + i];
    }
}

/* `count` rows of a matrix that become rows from `row` on of the head. */
static void load_rows(const struct expansion *e, size_t row, const struct weight *weight,
                      uint64_t first, size_t count)
{
    const struct kernels *kernels = e->job->kernels;
    if (kernels_have_panels(kernels)) {
        kernels->matrix->make_panel(e->panel + row * e->stride, e->stride, weight, first, count);
        return;
    }
    for (size_t i = 0; i < count; i++)
        kernels_dequantise(kernels, e->rows + (row + i) * weight->cols, weight, first + i);
}

static void load_head(const struct expansion *e)
{
    struct latent_weights w = cpu_latent_weights(e->job, e->head);
    size_t nope = e->shape->nope_width;
    if (w.by_latent)
        load_turned_keys(e, &w);
    else
        load_rows(e, 0, w.keys, w.first_key, nope);
    load_rows(e, nope, w.values, w.first_value, e->shape->value_width);
}

/* Keys and values of tile `index`. */
static struct attend_tile expand_tile(const struct expansion *e, size_t index)
{
    const struct kernels *kernels = e->job->kernels;
    size_t nope = e->shape->nope_width, rope = e->shape->rope_width;
    size_t values = e->shape->value_width, latent = e->shape->latent_width;
    size_t rows = nope + values;
    float *out[KV_PAGE_TOKENS];
    const float *x[KV_PAGE_TOKENS];
    float *latents = tile_latents(e->job, index);
    for (size_t i = 0; i < KV_PAGE_TOKENS; i++) {
        out[i] = e->expanded + i * rows;
        x[i] = latents + i * latent;
    }
    if (kernels_have_panels(kernels)) {
        struct weight panel = { .format = FORMAT_BF16,
                                .rows = rows,
                                .cols = matrix_cols(latent),
                                .values = (const uint8_t *)e->panel,
                                .row_bytes = e->stride * sizeof *e->panel };
        kernels->matrix->begin();
        kernels->matrix->multiply(
            &(struct matrix_product){ .from = { { &panel, 0, rows, 2 * PACK_ROWS },
                                                { &panel, PACK_ROWS, rows, 2 * PACK_ROWS } },
                                      .rows = rows,
                                      .packs = (const uint16_t *)(const void *)latents,
                                      .x_rows = KV_PAGE_TOKENS,
                                      .out = out,
                                      .room = e->rows });
        kernels->matrix->end();
    } else {
        kernels->dot_block(&(struct dot_block){ .w = e->rows,
                                                .x = x,
                                                .out = out,
                                                .w_rows = rows,
                                                .x_rows = KV_PAGE_TOKENS,
                                                .n = latent });
    }
    kernels->attend->turn_rows(e->keys, e->expanded, rows, nope);
    memcpy(e->keys + nope * KV_PAGE_TOKENS, tile_rope(e->job, index),
           rope * KV_PAGE_TOKENS * sizeof *e->keys);
    for (size_t i = 0; i < KV_PAGE_TOKENS; i++)
        kernels->attend->store_f16(e->values + i * values, 1, out[i] + nope, values);
    return (struct attend_tile){ .keys = e->keys,
                                 .values = e->values,
                                 .first = (uint32_t)(index * KV_PAGE_TOKENS) };
}

/* Rows [first, first + count) of the span. */
static void expand_block(const struct expansion *e, const struct span *span, size_t first,
                         size_t count)
{
    const struct cpu_job *job = e->job;
    const struct attend_kernels *attend = job->kernels->attend;
    size_t values = e->shape->value_width, keys = e->shape->nope_width + e->shape->rope_width;
    const float **queries = (const float **)(void *)e->memory;
    float **out = (float **)(void *)(queries + count);
    uint32_t *positions = (uint32_t *)(void *)(out + count);
    for (size_t i = 0; i < count; i++) {
        size_t row = span->first_row + first + i;
        queries[i] = job_row(job, job->op->a, row) + e->head * keys;
        out[i] = job_row(job, job->op->out, row) + e->head * values;
        positions[i] = span->position + (uint32_t)(first + i);
    }
    struct attend_block block = { .key_width = keys,
                                  .value_width = values,
                                  .row_count = count,
                                  .queries = queries,
                                  .positions = positions,
                                  .out = out,
                                  .scale = e->shape->scale,
                                  .memory = (void *)align_up((uintptr_t)(positions + count),
                                                             CACHE_LINE) };
    uint32_t end = positions[count - 1] + 1;
    attend->begin(&block);
    for (uint32_t at = 0; at < end; at += KV_PAGE_TOKENS) {
        struct attend_tile tile = expand_tile(e, at / KV_PAGE_TOKENS);
        tile.count = (uint32_t)min_size(KV_PAGE_TOKENS, end - at);
        attend->tile(&block, &tile);
    }
    attend->end(&block);
}

/* Floats of an expansion's scratch before the memory of the block. */
struct expansion_sizes {
    size_t panel, rows, expanded, keys, values;
};

static struct expansion_sizes expansion_sizes(size_t latent, size_t nope, size_t rope,
                                              size_t values)
{
    size_t rows = nope + values, turned = latent * cpu_panel_stride(nope) / 2;
    size_t room = matrix_room(latent) / sizeof(float);
    return (struct expansion_sizes){ .panel = align_up(rows * cpu_panel_stride(latent) / 2, 16),
                                     .rows = align_up(
                                         max_size(max_size(rows * latent, turned), room), 16),
                                     .expanded = align_up(KV_PAGE_TOKENS * rows, 16),
                                     .keys = align_up(KV_PAGE_TOKENS / 2 * (nope + rope), 16),
                                     .values = align_up(KV_PAGE_TOKENS / 2 * values, 16) };
}

static struct expansion expansion_of(const struct cpu_job *job, uint32_t head)
{
    const struct latent_shape *shape = &job->op->latent;
    struct expansion_sizes sizes = expansion_sizes(shape->latent_width, shape->nope_width,
                                                   shape->rope_width, shape->value_width);
    struct expansion e = { .job = job,
                           .shape = shape,
                           .head = head,
                           .panel = (uint16_t *)(void *)job->scratch,
                           .stride = cpu_panel_stride(shape->latent_width) };
    e.rows = job->scratch + sizes.panel;
    e.expanded = e.rows + sizes.rows;
    e.keys = (uint16_t *)(void *)(e.expanded + sizes.expanded);
    e.values = e.keys + 2 * sizes.keys;
    e.memory = e.expanded + sizes.expanded + sizes.keys + sizes.values;
    return e;
}

void cpu_latent_expand(const struct cpu_job *job, const struct span *span)
{
    size_t end = (size_t)span->position + span->row_count;
    struct share tiles = worker_share(job->worker, (end + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS, 1);
    for (size_t i = tiles.begin; i < tiles.end; i++) prepare_tile(job, span, i);
    worker_barrier(job->worker);
    for (uint32_t h = job->worker.index; h < job->op->latent.heads; h += job->worker.count) {
        struct expansion e = expansion_of(job, h);
        load_head(&e);
        for (size_t r = 0; r < span->row_count; r += EXPAND_ROWS)
            expand_block(&e, span, r, min_size(EXPAND_ROWS, span->row_count - r));
    }
    worker_barrier(job->worker); /* the shared tiles are free again */
}

/* --------------------------------------------------------------------- memory */

size_t cpu_expand_scratch(const struct backend_sizes *s)
{
    size_t latent = s->latent.latent, nope = s->latent.nope, rope = s->latent.rope;
    size_t rows = min_size(EXPAND_ROWS, align_up(s->row_count, 16));
    struct expansion_sizes sizes = expansion_sizes(latent, nope, rope, s->latent.values);
    struct attend_block block = { .key_width = nope + rope,
                                  .value_width = s->latent.values,
                                  .row_count = rows };
    size_t pointers = rows * (2 * sizeof(void *) + sizeof(uint32_t)) / sizeof(float) + CACHE_LINE;
    size_t head = sizes.panel + sizes.rows + sizes.expanded + sizes.keys + sizes.values + pointers +
                  attend_floats(&block);
    size_t tile = 2 * KV_PAGE_TOKENS * (latent + rope);
    return max_size(head, tile);
}

size_t cpu_expand_shared(const struct backend_sizes *s, const struct kernels *kernels)
{
    size_t tiles = (s->context + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    return tiles * tile_floats(kernels, s->latent.latent, s->latent.rope);
}
