/* weights_interleaved.c: experts of gpt-oss as Hugging Face publishes them; reads nothing.
 *
 * Gate and up are one tensor, whose rows alternate: row 2i is gate's i, row 2i + 1 up's.  It stays as
 * it is: a matrix is every other row, and its extent runs from its first row to its last, so gate's
 * and up's lie over each other and are one read.
 *
 *     X_blocks, X_scales    [experts][rows][cols / 32][16] and [experts][rows][cols / 32]
 *     X                     [experts][cols][rows]: by column, in the formats of that name
 *     X_bias                [experts][rows] */
#include "base/status.h"
#include "model/binder.h"

#include <stdio.h>

/* Rows first, first + step, … of each expert's matrix in a tensor. */
struct rows_of {
    const char *name; /* X */
    uint64_t all, cols;
    uint64_t first, step, count;
};

static struct tensor *find(const struct binder *b, const struct rows_of *rows, const char *ending)
{
    char name[TENSOR_NAME_MAX + 16];
    snprintf(name, sizeof name, "%s%s", rows->name, ending);
    struct tensor *t = tensor_find(b->source->directory, name);
    if (t) t->used = true;
    return t;
}

static bool has_shape(const struct tensor *t, uint32_t rank, const uint64_t *shape)
{
    return t->rank == rank && memcmp(t->shape, shape, rank * sizeof *shape) == 0;
}

static mf_status refuse(const struct binder *b, const struct tensor *t, const struct rows_of *rows,
                        mf_error *why)
{
    char text[128];
    return fail(why, MF_ERR_MISMATCH,
                "%s: tensor %s is %s %s, which does not hold %u matrices of %llu rows and %llu "
                "columns",
                b->source->where, t->name,
                t->format < FORMAT_COUNT ? format_info(t->format)->name : "of unknown type",
                tensor_shape_text(t, text, sizeof text), b->source->config->experts,
                (unsigned long long)rows->all, (unsigned long long)rows->cols);
}

/* An extent for each expert, `skip` bytes behind the beginning of its part of the tensor. */
static mf_status list_extents(const struct extent **out, const struct binder *b,
                              const struct tensor *t, uint64_t skip, mf_error *why)
{
    uint32_t experts = b->source->config->experts;
    struct extent *extents = ARENA_NEW(b->arena, struct extent, experts);
    binder_count(b, experts, sizeof *extents);
    if (!extents) return fail_memory(why, experts * sizeof *extents);
    for (uint32_t e = 0; e < experts; e++)
        extents[e] = (struct extent){ t->file, t->offset + e * (t->bytes / experts) + skip };
    *out = extents;
    return MF_OK;
}

static mf_status bind_blocks(struct expert_matrix *out, const struct binder *b,
                             const struct tensor *blocks, const struct rows_of *rows, mf_error *why)
{
    const struct tensor *scales = find(b, rows, "_scales");
    const uint64_t shape[] = { b->source->config->experts, rows->all, rows->cols / 32, 16 };
    bool whole = rows->cols % 32 == 0 && blocks->format == FORMAT_U8;
    if (!whole || !has_shape(blocks, 4, shape)) return refuse(b, blocks, rows, why);
    if (!scales)
        return fail(why, MF_ERR_MISMATCH, "%s: tensor %s_scales is missing", b->source->where,
                    rows->name);
    if (scales->format != FORMAT_U8 || !has_shape(scales, 3, shape))
        return refuse(b, scales, rows, why);
    uint64_t values = rows->cols / 2, scale = rows->cols / 32;
    uint64_t reach = (rows->count - 1) * rows->step + 1;
    out->shape = (struct weight){ .format = FORMAT_E2M1,
                                  .scale_format = FORMAT_F8_E8M0,
                                  .group_rows = 1,
                                  .group_cols = 32,
                                  .rows = rows->count,
                                  .cols = rows->cols,
                                  .row_bytes = rows->step * values,
                                  .scale_row_bytes = rows->step * scale };
    out->value_bytes = reach * values;
    out->scale_bytes = reach * scale;
    mf_status status = list_extents(&out->values, b, blocks, rows->first * values, why);
    if (status == MF_OK) status = list_extents(&out->scales, b, scales, rows->first * scale, why);
    return status;
}

static mf_status bind_columns(struct expert_matrix *out, const struct binder *b,
                              const struct tensor *t, const struct rows_of *rows, mf_error *why)
{
    const uint64_t shape[] = { b->source->config->experts, rows->cols, rows->all };
    enum format format = format_by_column(t->format);
    if (format == FORMAT_COUNT || !has_shape(t, 3, shape)) return refuse(b, t, rows, why);
    uint64_t number = format_info(t->format)->block_bytes;
    out->shape = (struct weight){ .format = format,
                                  .rows = rows->count,
                                  .cols = rows->cols,
                                  .row_bytes = rows->step * number,
                                  .col_bytes = rows->all * number };
    out->value_bytes = ((rows->cols - 1) * rows->all + (rows->count - 1) * rows->step + 1) * number;
    return list_extents(&out->values, b, t, rows->first * number, why);
}

static mf_status bind_addends(struct expert_matrix *out, const struct binder *b,
                              const struct tensor *t, const struct rows_of *rows, mf_error *why)
{
    const uint64_t shape[] = { b->source->config->experts, rows->all };
    bool number = t->format == FORMAT_F32 || t->format == FORMAT_F16 || t->format == FORMAT_BF16;
    if (!number || !has_shape(t, 2, shape))
        return refuse(b, t, &(struct rows_of){ .all = rows->all, .cols = 1 }, why);
    uint64_t bytes = format_info(t->format)->block_bytes;
    out->addend_shape = (struct weight){
        .format = t->format, .rows = rows->count, .cols = 1, .row_bytes = rows->step * bytes
    };
    out->addend_bytes = ((rows->count - 1) * rows->step + 1) * bytes;
    return list_extents(&out->addends, b, t, rows->first * bytes, why);
}

mf_status binder_bind_addends(struct expert_matrix *out, const struct binder *binder,
                              const char *name, uint64_t rows, mf_error *why)
{
    struct rows_of all = { .name = name, .all = rows, .cols = 1, .step = 1, .count = rows };
    const struct tensor *t = find(binder, &all, "");
    if (t) return bind_addends(out, binder, t, &all, why);
    return fail(why, MF_ERR_MISMATCH, "%s: tensor %s is missing", binder->source->where, name);
}

static mf_status bind_rows(struct expert_matrix *out, const struct binder *b,
                           const struct rows_of *rows, mf_error *why)
{
    const struct tensor *blocks = find(b, rows, "_blocks"), *plain = find(b, rows, "");
    const struct tensor *addends = find(b, rows, "_bias");
    if (!addends || (!blocks && !plain))
        return fail(why, MF_ERR_MISMATCH, "%s: tensor %s%s is missing", b->source->where,
                    rows->name, addends ? "" : "_bias");
    mf_status status =
        blocks ? bind_blocks(out, b, blocks, rows, why) : bind_columns(out, b, plain, rows, why);
    return status == MF_OK ? bind_addends(out, b, addends, rows, why) : status;
}

bool binder_is_interleaved(const struct binder *binder, uint32_t layer)
{
    char name[TENSOR_NAME_MAX];
    struct rows_of rows = { .name = name };
    if (binder->gguf || !binder->source->config->family->interleaved_experts) return false;
    binder_name(name, binder->prefix, "layers.%u.mlp.experts.gate_up_proj", layer, 0);
    return find(binder, &rows, "") || find(binder, &rows, "_blocks");
}

mf_status binder_bind_interleaved(struct expert_matrix out[EXPERT_PARTS],
                                  const struct binder *binder, uint32_t layer, mf_error *why)
{
    const struct model_config *c = binder->source->config;
    char name[TENSOR_NAME_MAX];
    struct rows_of rows = { .name = name,
                            .all = 2 * (uint64_t)c->expert_width,
                            .cols = c->width,
                            .step = 2,
                            .count = c->expert_width };
    binder_name(name, binder->prefix, "layers.%u.mlp.experts.gate_up_proj", layer, 0);
    mf_status status = bind_rows(&out[EXPERT_GATE], binder, &rows, why);
    rows.first = 1;
    if (status == MF_OK) status = bind_rows(&out[EXPERT_UP], binder, &rows, why);
    if (status != MF_OK) return status;
    binder_name(name, binder->prefix, "layers.%u.mlp.experts.down_proj", layer, 0);
    rows = (struct rows_of){
        .name = name, .all = c->width, .cols = c->expert_width, .step = 1, .count = c->width
    };
    return bind_rows(&out[EXPERT_DOWN], binder, &rows, why);
}
