/* ops_absorb.c: latent attention of generated rows, tuned.
 *
 * Scores are computed from the latents: (Wkᵀ·q)·l, and the weighted sum of latents is multiplied
 * with Wv once.  All heads then share one cache of "keys" [latent | rope] whose first part
 * is also the "values", which is grouped attention with one group (kernels/attention/attention.h).
 *
 *     1  by head            q ─ Wk ─▶ query [latent | rope]
 *     2  by stretch, heads  greatest score, sum of weights, sum of latents
 *     3  by head            stretches joined in order ─ Wv ─▶ out
 *
 * As many rows are processed at a time as the scratch for step 2 holds. */
#include "backend/cpu/latent.h"

enum { STRETCH = 256, STRETCH_PAGES = STRETCH / KV_PAGE_TOKENS, HEAD_BLOCK = 8 };

/* Rows that are multiplied with a head's matrices together, and the limit of their results in floats,
 * beyond which rows are processed one by one. */
enum { ROWS_MAX = 16, RESULT_FLOATS = 1 << 20 };

static size_t stretches(size_t positions)
{
    return (positions + STRETCH - 1) / STRETCH;
}

/* Results of one head in one stretch: greatest, weight sum, sums. */
static size_t result_floats(size_t latent)
{
    return 2 + latent;
}

/* The rows that are processed together. */
struct absorption {
    const struct cpu_job *job;
    const struct latent_shape *shape;
    size_t stored; /* latent | rope */
    size_t count;
    size_t rows[ROWS_MAX];
    const struct kv_view *kvs[ROWS_MAX];
    size_t positions[ROWS_MAX]; /* that it sees */
    float *queries;             /* [ROWS_MAX][heads][stored] */
    float *results[ROWS_MAX];   /* [stretches][head blocks][greatest | weight sums | sums] */
};

/* ------------------------------------------------------- products with a matrix */

/* out[j] = rows [first, first + count) of weight · x[j], in integers or floats where the format has
 * them. */
struct row_products {
    const struct weight *weight;
    uint64_t first;
    size_t count;
    const float *x[ROWS_MAX];
    float *out[ROWS_MAX];
    size_t x_rows;
};

static void multiply_rows(const struct cpu_job *job, const struct row_products *p)
{
    const struct weight *weight = p->weight;
    if (kernels_have_integers(job->kernels, weight)) {
        struct integer_unit *units = (struct integer_unit *)(void *)job->scratch;
        const struct integer_unit *x[ROWS_MAX];
        for (size_t j = 0; j < p->x_rows; j++) {
            x[j] = units + j * units_of(weight->cols);
            job->kernels->make_units(units + j * units_of(weight->cols), p->x[j], weight->cols,
                                     kernels_unit_order(job->kernels, weight));
        }
        job->kernels->integer_dot[weight->format](&(struct integer_block){ .weight = weight,
                                                                           .first = p->first,
                                                                           .count = p->count,
                                                                           .x = x,
                                                                           .out = p->out,
                                                                           .x_rows = p->x_rows });
        return;
    }
    if (kernels_have_floats(job->kernels, weight)) {
        job->kernels->float_dot[weight->format](&(struct float_block){ .weight = weight,
                                                                       .first = p->first,
                                                                       .count = p->count,
                                                                       .x = p->x,
                                                                       .out = p->out,
                                                                       .x_rows = p->x_rows });
        return;
    }
    for (size_t i = 0; i < p->count; i++) {
        kernels_dequantise(job->kernels, job->scratch, weight, p->first + i);
        for (size_t j = 0; j < p->x_rows; j++)
            p->out[j][i] = job->kernels->dot(job->scratch, p->x[j], weight->cols);
    }
}

/* -------------------------------------------------------------------- 1: queries */

static float *query_of(const struct absorption *a, size_t i, uint32_t head)
{
    return a->queries + (i * a->shape->heads + head) * a->stored;
}

static void make_queries(const struct absorption *a, uint32_t head)
{
    const struct cpu_job *job = a->job;
    size_t nope = a->shape->nope_width, rope = a->shape->rope_width;
    size_t latent = a->shape->latent_width;
    struct latent_weights w = cpu_latent_weights(job, head);
    struct row_products products = {
        .weight = w.keys, .first = w.first_key, .count = latent, .x_rows = a->count
    };
    for (size_t i = 0; i < a->count; i++) {
        const float *q = job_row(job, job->op->a, a->rows[i]) + head * (nope + rope);
        products.x[i] = q;
        products.out[i] = query_of(a, i, head);
        memcpy(products.out[i] + latent, q + nope, rope * sizeof *q);
    }
    if (w.by_latent) {
        multiply_rows(job, &products);
        return;
    }
    for (size_t i = 0; i < a->count; i++) memset(products.out[i], 0, latent * sizeof(float));
    for (size_t c = 0; c < nope; c++) {
        kernels_dequantise(job->kernels, job->scratch, w.keys, w.first_key + c);
        for (size_t i = 0; i < a->count; i++)
            job->kernels->add_scaled(products.out[i], job->scratch, products.x[i][c], latent);
    }
}

/* ----------------------------------------------------------------- 2: stretches */

/* Heads [first, first + count) of row i in stretch `index`: where its results are. */
static struct attend_stretch stretch_at(const struct absorption *a, size_t i, size_t index,
                                        uint32_t first, uint32_t count)
{
    size_t latent = a->shape->latent_width, floats = result_floats(latent);
    float *memory = a->results[i] + (index * a->shape->heads + first) * floats;
    struct attend_stretch s = { .queries = query_of(a, i, first),
                                .heads = count,
                                .key_width = a->stored,
                                .value_width = latent,
                                .value_stride = a->stored,
                                .scale = a->shape->scale,
                                .greatest = memory,
                                .weight_sums = memory + count,
                                .sums = memory + 2 * (size_t)count };
    s.count = min_size(STRETCH, a->positions[i] - index * STRETCH);
    return s;
}

static uint32_t block_heads(const struct absorption *a, uint32_t first)
{
    return (uint32_t)min_size(HEAD_BLOCK, a->shape->heads - first);
}

/* Blocks of heads [begin, end) of row i in stretch `index`. */
static void attend_blocks(const struct absorption *a, size_t i, size_t index, struct share blocks)
{
    const struct cpu_job *job = a->job;
    const void *keys[STRETCH_PAGES], *values[STRETCH_PAGES];
    size_t page_words = KV_PAGE_TOKENS * a->stored;
    float *scores = job->scratch;
    uint16_t *turned = (uint16_t *)(void *)(scores + HEAD_BLOCK * STRETCH);
    uint16_t *rounded = turned + STRETCH_PAGES * page_words;
    size_t count = min_size(STRETCH, a->positions[i] - index * STRETCH);
    for (size_t p = 0; p * KV_PAGE_TOKENS < count; p++) {
        size_t position = index * STRETCH + p * KV_PAGE_TOKENS;
        values[p] = cpu_latent_page(job, a->kvs[i], position, rounded + p * page_words);
        keys[p] = turned + p * page_words;
        job->kernels->attend->turn_words(&(struct turned_words){ .out = turned + p * page_words,
                                                                 .out_stride = KV_PAGE_TOKENS,
                                                                 .x = values[p],
                                                                 .stride = a->stored,
                                                                 .rows = KV_PAGE_TOKENS,
                                                                 .columns = a->stored });
    }
    for (size_t b = blocks.begin; b < blocks.end; b++) {
        uint32_t first = (uint32_t)b * HEAD_BLOCK;
        struct attend_stretch s = stretch_at(a, i, index, first, block_heads(a, first));
        s.keys = keys;
        s.values = values;
        s.scores = scores;
        job->kernels->attend->stretch(&s);
    }
}

/* Divides the stretches among the workers; if there are few, their blocks of heads, too, and pages
 * are then transposed more than once. */
static void attend_row(const struct absorption *a, size_t i)
{
    struct worker worker = a->job->worker;
    size_t count = stretches(a->positions[i]);
    size_t blocks = (a->shape->heads + HEAD_BLOCK - 1) / HEAD_BLOCK;
    if (count >= 2 * worker.count) {
        for (size_t s = worker.index; s < count; s += worker.count)
            attend_blocks(a, i, s, (struct share){ 0, blocks });
        return;
    }
    for (size_t s = 0; s < count; s++) {
        struct share share = worker_share(worker, blocks, 1);
        if (share.begin < share.end) attend_blocks(a, i, s, share);
    }
}

/* ------------------------------------------------------------------- 3: results */

/* Sum of weighted latents of one head: the stretches joined in ascending order. */
static void join_head(const struct absorption *a, size_t i, uint32_t head, float *out)
{
    uint32_t first = head - head % HEAD_BLOCK, count = block_heads(a, first), in = head - first;
    size_t latent = a->shape->latent_width;
    struct attend_stretch all = {
        .heads = 1, .value_width = latent, .scale = a->shape->scale, .sums = out
    };
    float greatest = 0, weight_sum = 1; /* a row sees itself at least: both are set below */
    all.greatest = &greatest;
    all.weight_sums = &weight_sum;
    for (size_t s = 0; s < stretches(a->positions[i]); s++) {
        struct attend_stretch one = stretch_at(a, i, s, first, count);
        one.heads = 1;
        one.greatest += in;
        one.weight_sums += in;
        one.sums += in * latent;
        if (s > 0) {
            a->job->kernels->attend->join(&all, &one);
            continue;
        }
        greatest = *one.greatest;
        weight_sum = *one.weight_sums;
        memcpy(out, one.sums, latent * sizeof *out);
    }
    for (size_t c = 0; c < latent; c++) out[c] /= weight_sum;
}

static void make_values(const struct absorption *a, uint32_t head)
{
    const struct cpu_job *job = a->job;
    size_t values = a->shape->value_width;
    struct latent_weights w = cpu_latent_weights(job, head);
    struct row_products products = {
        .weight = w.values, .first = w.first_value, .count = values, .x_rows = a->count
    };
    for (size_t i = 0; i < a->count; i++) {
        float *context = query_of(a, i, head); /* the query is not needed any more */
        join_head(a, i, head, context);
        products.x[i] = context;
        products.out[i] = job_row(job, job->op->out, a->rows[i]) + head * values;
    }
    multiply_rows(job, &products);
}

/* -------------------------------------------------------------------------- all */

static void absorb(const struct absorption *a)
{
    const struct cpu_job *job = a->job;
    struct share heads = worker_share(job->worker, a->shape->heads, 1);
    for (size_t h = heads.begin; h < heads.end; h++) make_queries(a, (uint32_t)h);
    worker_barrier(job->worker);
    for (size_t i = 0; i < a->count; i++) attend_row(a, i);
    worker_barrier(job->worker);
    for (size_t h = heads.begin; h < heads.end; h++) make_values(a, (uint32_t)h);
    worker_barrier(job->worker); /* queries and results are free again */
}

static size_t row_floats(const struct absorption *a, size_t positions)
{
    return stretches(positions) * a->shape->heads * result_floats(a->shape->latent_width);
}

void cpu_latent_absorb(const struct cpu_job *job)
{
    const struct latent_shape *shape = &job->op->latent;
    struct absorption a = { .job = job,
                            .shape = shape,
                            .stored = (size_t)shape->latent_width + shape->rope_width,
                            .queries = job->shared };
    float *results = a.queries + ROWS_MAX * shape->heads * a.stored;
    size_t used = 0;
    for (size_t r = 0; r < job->frame->row_count; r++) {
        const struct row *row = &job->frame->rows[r];
        const struct span *span = &job->frame->spans[row->span];
        if (!span->decode) continue;
        size_t floats = row_floats(&a, (size_t)row->position + 1);
        if (a.count == ROWS_MAX || (a.count > 0 && used + floats > RESULT_FLOATS)) {
            absorb(&a);
            a.count = used = 0;
        }
        a.rows[a.count] = r;
        a.kvs[a.count] = &span->kv;
        a.positions[a.count] = (size_t)row->position + 1;
        a.results[a.count++] = results + used;
        used += floats;
    }
    if (a.count > 0) absorb(&a);
}

/* ---------------------------------------------------------------------- memory */

size_t cpu_absorb_scratch(const struct backend_sizes *s)
{
    size_t stored = s->latent.latent + s->latent.rope;
    size_t cols = max_size(s->latent.latent, s->latent.nope);
    size_t units = ROWS_MAX * units_of(cols) * sizeof(struct integer_unit) / sizeof(float);
    size_t pages = HEAD_BLOCK * STRETCH + STRETCH_PAGES * KV_PAGE_TOKENS * stored;
    return max_size(max_size(units, cols), pages);
}

size_t cpu_absorb_shared(const struct backend_sizes *s)
{
    size_t queries = ROWS_MAX * s->latent.heads * (s->latent.latent + s->latent.rope);
    size_t row = stretches(s->context) * s->latent.heads * result_floats(s->latent.latent);
    return queries + max_size(row, RESULT_FLOATS);
}
