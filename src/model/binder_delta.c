/* binder_delta.c: fused projections of a delta net.
 *
 * qwen3_next keeps them in one matrix whose rows are grouped by key head, r value
 * heads to each:
 *
 *     qkvz   [q (keys) | k (keys) | v (r x values) | z (r x values)] per key head
 *     ba     [b (r) | a (r)]                                         per key head
 *
 * We want [q of all heads | k of all | v of all], z, b and a.  A row of any format
 * is contiguous, so rows are moved and nothing is converted. */
#include "base/status.h"
#include "model/binder.h"

/* An empty matrix of `rows` rows in the layout of `like`; scales go by row, also where
 * `like` shares them between rows, because its rows are about to part. */
static mf_status new_rows(struct weight *out, const struct binder *b, const struct weight *like,
                          uint64_t rows, mf_error *why)
{
    *out = *like;
    out->rows = rows;
    if (like->scales) out->group_rows = 1;
    out->values = arena_take_raw(b->arena, rows, like->row_bytes);
    if (like->scales) out->scales = arena_take_raw(b->arena, rows, like->scale_row_bytes);
    if (like->biases) out->biases = arena_take_raw(b->arena, rows, like->scale_row_bytes);
    bool complete = out->values && !out->scales == !like->scales && !out->biases == !like->biases;
    return complete ? MF_OK : fail_memory(why, rows * like->row_bytes);
}

/* What new_rows takes, of a fused matrix that was described. */
static void count_rows(const struct binder *b, const struct weight_origin *like, uint64_t rows)
{
    binder_count(b, rows, like->shape.row_bytes);
    if (like->scales) binder_count(b, rows, like->shape.scale_row_bytes);
    if (like->biases) binder_count(b, rows, like->shape.scale_row_bytes);
}

static void copy_rows(struct weight *to, uint64_t to_row, const struct weight *from,
                      uint64_t from_row, uint64_t count)
{
    uint32_t shared = from->group_rows ? from->group_rows : 1;
    memcpy((uint8_t *)to->values + to_row * to->row_bytes,
           from->values + from_row * from->row_bytes, count * from->row_bytes);
    for (uint64_t i = 0; i < count && from->scales; i++) {
        size_t offset = (from_row + i) / shared * from->scale_row_bytes;
        size_t target = (to_row + i) * to->scale_row_bytes;
        memcpy((uint8_t *)to->scales + target, from->scales + offset, from->scale_row_bytes);
        if (from->biases)
            memcpy((uint8_t *)to->biases + target, from->biases + offset, from->scale_row_bytes);
    }
}

static void split_qkvz(struct weight *qkv, struct weight *z, const struct weight *fused,
                       const struct model_config *c)
{
    uint64_t keys = c->delta_key_width, heads = c->delta_key_heads;
    uint64_t values = (uint64_t)c->delta_value_heads / heads * c->delta_value_width;
    uint64_t group = 2 * keys + 2 * values;
    for (uint64_t h = 0; h < heads; h++) {
        copy_rows(qkv, h * keys, fused, h * group, keys);
        copy_rows(qkv, (heads + h) * keys, fused, h * group + keys, keys);
        copy_rows(qkv, 2 * heads * keys + h * values, fused, h * group + 2 * keys, values);
        copy_rows(z, h * values, fused, h * group + 2 * keys + values, values);
    }
}

static void split_ba(struct weight *b, struct weight *a, const struct weight *fused,
                     const struct model_config *c)
{
    uint64_t heads = c->delta_key_heads, ratio = c->delta_value_heads / heads;
    for (uint64_t h = 0; h < heads; h++) {
        copy_rows(b, h * ratio, fused, 2 * h * ratio, ratio);
        copy_rows(a, h * ratio, fused, (2 * h + 1) * ratio, ratio);
    }
}

mf_status binder_bind_fused_delta(struct weight weights[WEIGHT_COUNT], const struct binder *binder,
                                  const struct tensor_rule *rule, const char *name, mf_error *why)
{
    const struct model_config *config = binder->source->config;
    bool qkvz = rule->kind == RULE_DELTA_QKVZ;
    struct weight *first = &weights[qkvz ? WEIGHT_DELTA_QKV : WEIGHT_DELTA_B];
    struct weight *second = &weights[qkvz ? WEIGHT_DELTA_Z : WEIGHT_DELTA_A];
    struct matrix_need need = { .name = name,
                                .id = rule->id,
                                .rows = binder_size(binder, rule->shape[0]),
                                .cols = binder_size(binder, rule->shape[1]) };
    uint64_t second_rows = binder_size(binder, qkvz ? DIM_DELTA_VALUES : DIM_DELTA_VALUE_HEADS);
    struct arena scratch; /* the fused matrix is not kept */
    arena_init(&scratch, binder->arena->allocator);
    struct binder reading = *binder;
    reading.arena = &scratch;
    reading.tally = NULL;
    struct weight fused = { 0 };
    mf_status status = binder_read_matrix(&fused, &reading, &need, why);
    if (status == MF_OK && binder->listing) { /* both weights are bound by one tensor, not read */
        const struct weights *listing = binder->listing;
        const struct weight_origin *origin = &listing->origins[listing->origin_count - 1];
        count_rows(binder, origin, need.rows - second_rows);
        count_rows(binder, origin, second_rows);
        *first = *second = fused;
        return MF_OK;
    }
    if (status == MF_OK) status = new_rows(first, binder, &fused, need.rows - second_rows, why);
    if (status == MF_OK) status = new_rows(second, binder, &fused, second_rows, why);
    if (status == MF_OK && qkvz) split_qkvz(first, second, &fused, config);
    if (status == MF_OK && !qkvz) split_ba(first, second, &fused, config);
    arena_free(&scratch);
    return status;
}
