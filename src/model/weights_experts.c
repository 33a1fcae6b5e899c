#include "base/status.h"
#include "model/binder.h"

/* weights_experts.c: finds where each expert of a layer lies in the files; reads nothing.
 *
 * Published checkpoints store the experts of a layer in one of three ways:
 *
 *     stacked    one tensor [experts][rows][cols] per matrix         (MLX, GGUF)
 *     fused      gate and up in one tensor [experts][2 x rows][cols] (Hugging Face, newer GGUF)
 *     separate   one tensor per expert and matrix                    (Hugging Face)
 *
 * In each of them the rows of one expert's matrix are contiguous, so a matrix has at most three
 * extents: values, scales and biases, and one for the numbers of a layer's bias.  gpt-oss has ways
 * of its own (weights_interleaved.c).  A packed model lists the offsets in its manifest. */
typedef const char *const part_names[EXPERT_PARTS];

static part_names mlx_names[] = {
    { "layers.%u.mlp.switch_mlp.gate_proj.weight", "layers.%u.mlp.switch_mlp.up_proj.weight",
      "layers.%u.mlp.switch_mlp.down_proj.weight" },
    { "layers.%u.experts.switch_glu.gate_proj.weight",
      "layers.%u.experts.switch_glu.up_proj.weight",
      "layers.%u.experts.switch_glu.down_proj.weight" },
    { "layers.%u.block_sparse_moe.switch_mlp.gate_proj.weight",
      "layers.%u.block_sparse_moe.switch_mlp.up_proj.weight",
      "layers.%u.block_sparse_moe.switch_mlp.down_proj.weight" },
    { "layers.%u.mlp.experts.gate_proj.weight", "layers.%u.mlp.experts.up_proj.weight",
      "layers.%u.mlp.experts.down_proj.weight" },
};
static part_names gguf_names[] = {
    { "blk.%u.ffn_gate_exps.weight", "blk.%u.ffn_up_exps.weight", "blk.%u.ffn_down_exps.weight" },
};
static part_names separate_names[] = {
    { "layers.%u.mlp.experts.%u.gate_proj.weight", "layers.%u.mlp.experts.%u.up_proj.weight",
      "layers.%u.mlp.experts.%u.down_proj.weight" },
    { "layers.%u.block_sparse_moe.experts.%u.w1.weight",
      "layers.%u.block_sparse_moe.experts.%u.w3.weight",
      "layers.%u.block_sparse_moe.experts.%u.w2.weight" },
};
static const struct fused_names {
    const char *gate_and_up, *down;
} fused_names[] = {
    { "layers.%u.mlp.experts.gate_up_proj", "layers.%u.mlp.experts.down_proj" },
    { "layers.%u.experts.gate_up_proj", "layers.%u.experts.down_proj" },
}, gguf_fused = { "blk.%u.ffn_gate_up_exps.weight", "blk.%u.ffn_down_exps.weight" };

static bool has_tensor(const struct binder *b, const char *name, uint32_t layer)
{
    char full[TENSOR_NAME_MAX];
    binder_name(full, b->gguf ? "" : b->prefix, name, layer, 0);
    return tensor_find(b->source->directory, full) != NULL;
}

/* The names that the layer's first matrix has one of, or NULL. */
static const char *const *find_names(const struct binder *b, part_names *names, size_t count,
                                     uint32_t layer)
{
    for (size_t i = 0; i < count; i++)
        if (has_tensor(b, names[i][EXPERT_GATE], layer)) return names[i];
    return NULL;
}

/* An extent per expert in the arena; *out is the same array for readers. */
static mf_status new_extents(const struct extent **out, struct extent **fill,
                             const struct binder *b, mf_error *why)
{
    uint32_t count = b->source->config->experts;
    *fill = ARENA_NEW(b->arena, struct extent, count);
    binder_count(b, count, sizeof **fill);
    if (!*fill) return fail_memory(why, count * sizeof **fill);
    *out = *fill;
    return MF_OK;
}

/* Extents of rows [first, first + rows) of every expert in a stacked tensor; *bytes: of one of
 * them.  A NULL tensor (a format without scales or biases) leaves both untouched. */
static mf_status slice_stack(const struct extent **out, uint64_t *bytes, const struct binder *b,
                             const struct tensor *tensor, uint64_t first, uint64_t rows,
                             mf_error *why)
{
    if (!tensor) return MF_OK;
    struct extent *extents;
    mf_status status = new_extents(out, &extents, b, why);
    if (status != MF_OK) return status;
    uint64_t expert_bytes = tensor->bytes / tensor->shape[0];
    uint64_t row_bytes = expert_bytes / tensor->shape[1];
    for (uint32_t e = 0; e < b->source->config->experts; e++)
        extents[e] =
            (struct extent){ tensor->file, tensor->offset + e * expert_bytes + first * row_bytes };
    *bytes = rows * row_bytes;
    return MF_OK;
}

/* `need` describes the whole tensor; an expert's matrix is rows [first, first + rows) of its part
 * of it. */
static mf_status bind_stacked(struct expert_matrix *out, const struct binder *b,
                              const struct matrix_need *need, uint64_t first, uint64_t rows,
                              mf_error *why)
{
    struct matrix_source source;
    mf_status status = binder_find_matrix(&source, b, need, why);
    if (status != MF_OK) return status;
    out->shape = source.shape;
    out->shape.rows = rows;
    uint64_t shared = max_size(source.shape.group_rows, 1); /* rows that share scales */
    uint64_t scale_first = first / shared, scale_rows = (rows + shared - 1) / shared;
    if (first % shared) /* a row of scales would belong to both gate and up */
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s: %s is cut at row %llu, inside a tile of %llu rows", b->source->where,
                    need->name, (unsigned long long)first, (unsigned long long)shared);
    status = slice_stack(&out->values, &out->value_bytes, b, source.values, first, rows, why);
    if (status == MF_OK)
        status = slice_stack(&out->scales, &out->scale_bytes, b, source.scales, scale_first,
                             scale_rows, why);
    if (status == MF_OK)
        status = slice_stack(&out->biases, &out->bias_bytes, b, source.biases, scale_first,
                             scale_rows, why);
    return status;
}

static bool same_layout(const struct weight *a, const struct weight *b)
{
    return a->format == b->format && a->scale_format == b->scale_format &&
           a->group_rows == b->group_rows && a->group_cols == b->group_cols;
}

/* `need` without a name: `pattern` makes one from the layer and the expert. */
static mf_status bind_separate(struct expert_matrix *out, const struct binder *b,
                               const char *pattern, uint32_t layer, struct matrix_need need,
                               mf_error *why)
{
    struct extent *values = NULL, *scales = NULL, *biases = NULL;
    mf_status status = new_extents(&out->values, &values, b, why);
    for (uint32_t e = 0; status == MF_OK && e < b->source->config->experts; e++) {
        char name[TENSOR_NAME_MAX];
        binder_name(name, b->prefix, pattern, layer, e);
        need.name = name;
        struct matrix_source source;
        status = binder_find_matrix(&source, b, &need, why);
        if (status != MF_OK) return status;
        if (e == 0) {
            out->shape = source.shape;
            out->value_bytes = source.values->bytes;
            out->scale_bytes = source.scales ? source.scales->bytes : 0;
            out->bias_bytes = source.biases ? source.biases->bytes : 0;
            if (source.scales) status = new_extents(&out->scales, &scales, b, why);
            if (source.biases && status == MF_OK)
                status = new_extents(&out->biases, &biases, b, why);
            if (status != MF_OK) return status;
        } else if (!same_layout(&out->shape, &source.shape)) {
            return fail(why, MF_ERR_UNSUPPORTED,
                        "%s: %s has another format than expert 0 of its layer", b->source->where,
                        name);
        }
        values[e] = (struct extent){ source.values->file, source.values->offset };
        if (scales) scales[e] = (struct extent){ source.scales->file, source.scales->offset };
        if (biases) biases[e] = (struct extent){ source.biases->file, source.biases->offset };
    }
    return status;
}

static mf_status bind_fused(struct expert_matrix out[EXPERT_PARTS], const struct binder *b,
                            const struct fused_names *names, uint32_t layer, mf_error *why)
{
    const char *prefix = b->gguf ? "" : b->prefix;
    const struct model_config *c = b->source->config;
    char name[TENSOR_NAME_MAX];
    binder_name(name, prefix, names->gate_and_up, layer, 0);
    struct matrix_need both = {
        .name = name, .stack = c->experts, .rows = 2 * (uint64_t)c->expert_width, .cols = c->width
    };
    uint64_t rows = c->expert_width;
    mf_status status = bind_stacked(&out[EXPERT_GATE], b, &both, 0, rows, why);
    if (status == MF_OK) status = bind_stacked(&out[EXPERT_UP], b, &both, rows, rows, why);
    if (status != MF_OK) return status;

    binder_name(name, prefix, names->down, layer, 0);
    struct matrix_need down = {
        .name = name, .stack = c->experts, .rows = c->width, .cols = c->expert_width
    };
    return bind_stacked(&out[EXPERT_DOWN], b, &down, 0, c->width, why);
}

mf_status binder_bind_experts(struct expert_matrix out[EXPERT_PARTS], const struct binder *binder,
                              uint32_t layer, mf_error *why)
{
    const struct model_config *c = binder->source->config;
    const struct fused_names *fused = binder->gguf ? &gguf_fused : fused_names;
    if (binder_is_interleaved(binder, layer))
        return binder_bind_interleaved(out, binder, layer, why);
    for (size_t i = 0; i < (binder->gguf ? 1 : COUNT_OF(fused_names)); i++)
        if (has_tensor(binder, fused[i].gate_and_up, layer))
            return bind_fused(out, binder, &fused[i], layer, why);

    const char *const *separate =
        binder->gguf ? NULL : find_names(binder, separate_names, COUNT_OF(separate_names), layer);
    const char *const *stacked =
        binder->gguf ? gguf_names[0] : find_names(binder, mlx_names, COUNT_OF(mlx_names), layer);
    if (!stacked) stacked = mlx_names[0]; /* for the message */
    mf_status status = MF_OK;
    for (int part = 0; part < EXPERT_PARTS && status == MF_OK; part++) {
        bool down = part == EXPERT_DOWN;
        struct matrix_need need = { .rows = down ? c->width : c->expert_width,
                                    .cols = down ? c->expert_width : c->width };
        if (separate) {
            status = bind_separate(&out[part], binder, separate[part], layer, need, why);
        } else {
            char name[TENSOR_NAME_MAX];
            binder_name(name, binder->gguf ? "" : binder->prefix, stacked[part], layer, 0);
            need.name = name;
            need.stack = c->experts;
            status = bind_stacked(&out[part], binder, &need, 0, need.rows, why);
            if (status != MF_OK || !c->family->expert_biases) continue;
            /* "….weight" -> "….bias" */
            size_t end = strlen(name) - strlen("weight");
            memcpy(name + end, "bias", sizeof "bias");
            status = binder_bind_addends(&out[part], binder, name, need.rows, why);
        }
    }
    return status;
}

/* Extents of one array (0 values, 1 scales, 2 biases) of every expert: it has the same offset in
 * each blob. */
static mf_status packed_extents(const struct extent **out, uint64_t *bytes, const struct binder *b,
                                const struct packed_layer *layer, const struct packed_matrix *m,
                                size_t array, mf_error *why)
{
    *bytes = m->bytes[array];
    if (*bytes == 0) return MF_OK;
    struct extent *extents;
    mf_status status = new_extents(out, &extents, b, why);
    for (uint64_t e = 0; e < b->source->config->experts && status == MF_OK; e++)
        extents[e] = (struct extent){ layer->file, e * layer->stride + m->offsets[array] };
    return status;
}

static mf_status bind_packed_matrix(struct expert_matrix *out, const struct binder *b,
                                    const struct packed_layer *layer, int part, mf_error *why)
{
    const struct model_config *c = b->source->config;
    const struct packed_matrix *m = &layer->parts[part];
    uint64_t rows = part == EXPERT_DOWN ? c->width : c->expert_width;
    uint64_t cols = part == EXPERT_DOWN ? c->expert_width : c->width;
    if (m->shape.rows != rows || m->shape.cols != cols)
        return fail(why, MF_ERR_MISMATCH,
                    "%s: the experts of layer %u have a matrix [%llu, %llu], [%llu, %llu] was "
                    "expected",
                    b->source->where, layer->number, (unsigned long long)m->shape.rows,
                    (unsigned long long)m->shape.cols, (unsigned long long)rows,
                    (unsigned long long)cols);
    out->shape = m->shape;
    mf_status status = packed_extents(&out->values, &out->value_bytes, b, layer, m, 0, why);
    if (status == MF_OK)
        status = packed_extents(&out->scales, &out->scale_bytes, b, layer, m, 1, why);
    if (status == MF_OK)
        status = packed_extents(&out->biases, &out->bias_bytes, b, layer, m, 2, why);
    if (status == MF_OK)
        status = packed_extents(&out->addends, &out->addend_bytes, b, layer, m, 3, why);
    if (status == MF_OK && (out->addend_bytes > 0) != c->family->expert_biases)
        return fail(why, MF_ERR_MISMATCH, "%s: the experts of layer %u have %s biases",
                    b->source->where, layer->number, out->addend_bytes > 0 ? "unexpected" : "no");
    if (out->addend_bytes > 0)
        out->addend_shape = (struct weight){
            .format = m->addend_format, .rows = rows, .cols = 1, .row_bytes = m->bytes[3] / rows
        };
    return status;
}

mf_status binder_bind_packed(struct layer_weights *out, const struct binder *binder, uint32_t layer,
                             mf_error *why)
{
    const struct packed_manifest *packed = binder->source->packed;
    const struct packed_layer *found = NULL;
    for (size_t i = 0; i < packed->layer_count && !found; i++)
        if (packed->layers[i].number == layer) found = &packed->layers[i];
    if (!found || packed->experts != binder->source->config->experts)
        return fail(why, MF_ERR_MISMATCH, "%s: layer %u has %u experts, %u were expected",
                    binder->source->where, layer, found ? packed->experts : 0,
                    binder->source->config->experts);
    out->expert_checksums = found->checksums;
    mf_status status = MF_OK;
    for (int part = 0; part < EXPERT_PARTS && status == MF_OK; part++)
        status = bind_packed_matrix(&out->experts[part], binder, found, part, why);
    return status;
}

uint64_t expert_matrix_own_bytes(const struct expert_matrix *m)
{
    const struct weight *w = &m->shape;
    uint64_t bytes = expert_matrix_bytes(m), row, own;
    if (!format_row_bytes(&row, w->format, w->cols)) return bytes;
    own = m->addend_shape.rows * format_info(m->addend_shape.format)->block_bytes;
    if (m->addend_bytes > own) bytes -= m->addend_bytes - own;
    if (m->value_bytes > w->rows * row) bytes -= m->value_bytes - w->rows * row;
    if (m->scale_bytes == 0 || w->group_rows != 1) return bytes;
    own = w->rows * (w->cols / w->group_cols) * format_info(w->scale_format)->block_bytes;
    return m->scale_bytes > own ? bytes - (m->scale_bytes - own) : bytes;
}
