#include "model/binder.h"

#include "base/status.h"

#include <stdio.h>

void binder_name(char out[TENSOR_NAME_MAX], const char *prefix, const char *name, uint32_t first,
                 uint32_t second)
{
    size_t used = (size_t)snprintf(out, TENSOR_NAME_MAX, "%s", prefix);
    uint32_t numbers[2] = { first, second };
    size_t next = 0;
    while (*name && used + 12 < TENSOR_NAME_MAX) {
        if (name[0] == '%' && name[1] == 'u' && next < COUNT_OF(numbers)) {
            used += (size_t)snprintf(out + used, TENSOR_NAME_MAX - used, "%u", numbers[next++]);
            name += 2;
        } else {
            out[used++] = *name++;
        }
    }
    out[used] = '\0';
}

/* The tensor beside `name`: its last part replaced ("X.weight" -> "X.scales"). */
static struct tensor *find_beside(const struct binder *b, const char *name, const char *part)
{
    static const char ending[] = ".weight";
    char other[TENSOR_NAME_MAX];
    size_t length = strlen(name);
    if (length >= sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0)
        length -= sizeof ending - 1;
    if (length + strlen(part) >= sizeof other) return NULL;
    memcpy(other, name, length);
    strcpy(other + length, part);
    return tensor_find(b->source->directory, other);
}

/* "[8, 64, 32]" */
static const char *need_text(char out[96], const struct matrix_need *need)
{
    int used = 0;
    if (need->stack) used = snprintf(out, 96, "[%llu, ", (unsigned long long)need->stack);
    snprintf(out + used, 96 - (size_t)used, "%s%llu, %llu]", used ? "" : "[",
             (unsigned long long)need->rows, (unsigned long long)need->cols);
    return out;
}

static mf_status shape_problem(const struct binder *b, const struct matrix_need *need,
                               const struct tensor *found, mf_error *why)
{
    char text[128];
    char expected[96];
    need_text(expected, need);
    return fail(why, MF_ERR_MISMATCH, "%s: tensor %s is %s %s, which does not hold a matrix %s",
                b->source->where, found->name,
                found->format < FORMAT_COUNT ? format_info(found->format)->name : "of unknown type",
                tensor_shape_text(found, text, sizeof text), expected);
}

/* Whether the tensor is [stack][rows][cols], without `stack` when that is 0; a matrix of
 * one row may be a vector. */
static bool shape_is(const struct tensor *t, uint64_t stack, uint64_t rows, uint64_t cols)
{
    const uint64_t *shape = t->shape;
    if (!stack && rows == 1 && t->rank == 1) return shape[0] == cols;
    if (stack) {
        if (t->rank != 3 || shape[0] != stack) return false;
        shape++;
    } else if (t->rank != 2) {
        return false;
    }
    return shape[0] == rows && shape[1] == cols;
}

/* What config.json says about a module of MLX: NULL and 0 where it is silent. */
struct said {
    const char *mode;
    uint64_t bits, group;
};

static mf_status configured_quantization(struct said *out, const struct binder *b, const char *name,
                                         mf_error *why)
{
    *out = (struct said){ 0 };
    if (!b->quantization) return MF_OK;
    char module[TENSOR_NAME_MAX];
    snprintf(module, sizeof module, "%s", name);
    char *ending = strstr(module, ".weight");
    if (ending) *ending = '\0';

    const json_t *entry = json_object_get(b->quantization, module);
    if (!json_is_object(entry)) entry = b->quantization;
    out->mode = "affine";
    mf_status status = json_maybe_text(&out->mode, entry, "mode", b->source->where, why);
    if (status == MF_OK && strcmp(out->mode, "affine") != 0 && strcmp(out->mode, "mxfp4") != 0)
        status = fail(why, MF_ERR_UNSUPPORTED,
                      "%s: %s is quantised in mode \"%s\", only \"affine\" and \"mxfp4\" are known",
                      b->source->where, module, out->mode);
    if (status == MF_OK)
        status = json_maybe_count(&out->bits, entry, "bits", 2, 8, b->source->where, why);
    if (status == MF_OK)
        status = json_maybe_count(&out->group, entry, "group_size", 8, 1024, b->source->where, why);
    return status;
}

/* Whether config.json agrees with the tensors, of which `found` tells. */
static mf_status check_said(const struct binder *b, const char *name, const struct said *found,
                            mf_error *why)
{
    struct said said;
    mf_status status = configured_quantization(&said, b, name, why);
    if (status != MF_OK) return status;
    if (said.mode && strcmp(said.mode, found->mode) != 0)
        return fail(why, MF_ERR_MISMATCH,
                    "%s: config.json says that %s is in mode \"%s\", its tensors are in \"%s\"",
                    b->source->where, name, said.mode, found->mode);
    if ((said.bits && said.bits != found->bits) || (said.group && said.group != found->group))
        return fail(why, MF_ERR_MISMATCH,
                    "%s: config.json says that %s has %llu bits in groups of %llu, its tensors "
                    "have %llu in groups of %llu",
                    b->source->where, name, (unsigned long long)said.bits,
                    (unsigned long long)said.group, (unsigned long long)found->bits,
                    (unsigned long long)found->group);
    return MF_OK;
}

static bool is_scale_format(enum format format)
{
    return format == FORMAT_F32 || format == FORMAT_F16 || format == FORMAT_BF16;
}

static mf_status describe_affine(struct matrix_source *out, const struct binder *b,
                                 const struct matrix_need *need, mf_error *why)
{
    const struct tensor *values = out->values, *scales = out->scales, *biases = out->biases;
    if (!biases)
        return fail(why, MF_ERR_MISMATCH, "%s: %s has scales but no biases", b->source->where,
                    need->name);
    uint64_t words = values->rank ? values->shape[values->rank - 1] : 0;
    uint64_t groups = scales->rank ? scales->shape[scales->rank - 1] : 0;
    uint64_t bits = words * 32 / need->cols;
    uint64_t group = groups ? need->cols / groups : 0;
    enum format format = bits <= 8 ? format_affine((unsigned)bits) : FORMAT_COUNT;
    bool fits = values->format == FORMAT_U32 && format != FORMAT_COUNT && group > 0 &&
                group % 8 == 0 && words * 32 == need->cols * bits && group * groups == need->cols &&
                shape_is(values, need->stack, need->rows, words);
    if (!fits) return shape_problem(b, need, values, why);
    if (!shape_is(scales, need->stack, need->rows, groups))
        return shape_problem(b, need, scales, why);
    if (!shape_is(biases, need->stack, need->rows, groups))
        return shape_problem(b, need, biases, why);
    if (!is_scale_format(scales->format) || biases->format != scales->format)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s: scales and biases of %s must both be F32, F16 or BF16", b->source->where,
                    need->name);

    const struct said found = { "affine", bits, group };
    mf_status status = check_said(b, need->name, &found, why);
    if (status != MF_OK) return status;
    out->shape.format = format;
    out->shape.scale_format = scales->format;
    out->shape.group_rows = 1;
    out->shape.group_cols = (uint32_t)group;
    out->shape.scale_row_bytes = groups * format_info(scales->format)->block_bytes;
    return MF_OK;
}

/* MLX's mxfp4: eight numbers in a word, the scale of 32 of them is a power of two in a byte. */
static mf_status describe_mxfp4(struct matrix_source *out, const struct binder *b,
                                const struct matrix_need *need, mf_error *why)
{
    enum { GROUP = 32 };
    const struct tensor *values = out->values, *scales = out->scales;
    uint64_t groups = need->cols / GROUP;
    if (values->format != FORMAT_U32 || need->cols % GROUP != 0 ||
        !shape_is(values, need->stack, need->rows, need->cols / 8))
        return shape_problem(b, need, values, why);
    if (!shape_is(scales, need->stack, need->rows, groups))
        return shape_problem(b, need, scales, why);
    const struct said found = { "mxfp4", 4, GROUP };
    mf_status status = check_said(b, need->name, &found, why);
    if (status != MF_OK) return status;
    out->shape.format = FORMAT_E2M1;
    out->shape.scale_format = FORMAT_F8_E8M0;
    out->shape.group_rows = 1;
    out->shape.group_cols = GROUP;
    out->shape.scale_row_bytes = groups;
    return MF_OK;
}

static uint64_t tiles(uint64_t count, uint32_t tile)
{
    return (count + tile - 1) / tile;
}

/* FP8 with a scale for every tile of the matrix. */
static mf_status describe_tiled(struct matrix_source *out, const struct binder *b,
                                const struct matrix_need *need, mf_error *why)
{
    const struct tensor *values = out->values, *scales = out->scales;
    uint32_t tile_cols = b->tile_cols ? b->tile_cols : (uint32_t)need->cols;
    uint64_t scale_cols = tiles(need->cols, tile_cols);
    if (!shape_is(values, need->stack, need->rows, need->cols))
        return shape_problem(b, need, values, why);
    bool known = is_scale_format(scales->format) || scales->format == FORMAT_F8_E8M0;
    if (!known || !shape_is(scales, need->stack, tiles(need->rows, b->tile_rows), scale_cols))
        return fail(why, MF_ERR_MISMATCH,
                    "%s: the scales %s do not hold one number for each %u x %u tile of %s",
                    b->source->where, scales->name, b->tile_rows, tile_cols, need->name);
    out->shape.format = FORMAT_F8_E4M3;
    out->shape.scale_format = scales->format;
    out->shape.group_rows = b->tile_rows;
    out->shape.group_cols = tile_cols;
    out->shape.scale_row_bytes = scale_cols * format_info(scales->format)->block_bytes;
    return MF_OK;
}

static mf_status describe_plain(struct matrix_source *out, const struct binder *b,
                                const struct matrix_need *need, mf_error *why)
{
    const struct tensor *values = out->values;
    if (!shape_is(values, need->stack, need->rows, need->cols))
        return shape_problem(b, need, values, why);
    bool known = values->format < FORMAT_COUNT;
    bool scaled_elsewhere = values->format == FORMAT_F8_E4M3;
    if (!known || !format_info(values->format)->dequantise || scaled_elsewhere)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: tensor %s is %s, which is not supported%s",
                    b->source->where, values->name,
                    known ? format_info(values->format)->name : "of unknown type",
                    scaled_elsewhere ? " without its scales" : "");
    out->shape.format = values->format;
    return MF_OK;
}

mf_status binder_find_matrix(struct matrix_source *out, const struct binder *binder,
                             const struct matrix_need *need, mf_error *why)
{
    *out = (struct matrix_source){ .shape = { .rows = need->rows, .cols = need->cols } };
    struct tensor *values = tensor_find(binder->source->directory, need->name);
    char expected[96];
    if (!values)
        return fail(why, MF_ERR_MISMATCH, "%s: tensor %s is missing; a matrix %s was expected",
                    binder->source->where, need->name, need_text(expected, need));
    struct tensor *scales = find_beside(binder, need->name, ".scales");
    struct tensor *biases = find_beside(binder, need->name, ".biases");
    struct tensor *tile_scales = find_beside(binder, need->name, binder->tile_scales);
    bool tiled = !scales && tile_scales && values->format == FORMAT_F8_E4M3;
    /* Biases alone belong to nothing. */
    struct tensor *parts[] = { values, tiled ? tile_scales : scales, scales ? biases : NULL };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (parts[i]) parts[i]->used = true;
    out->values = parts[0];
    out->scales = parts[1];
    out->biases = parts[2];

    mf_status status;
    if (scales && !biases && scales->format == FORMAT_U8)
        status = describe_mxfp4(out, binder, need, why);
    else if (scales)
        status = describe_affine(out, binder, need, why);
    else if (tiled)
        status = describe_tiled(out, binder, need, why);
    else
        status = describe_plain(out, binder, need, why);
    if (status != MF_OK) return status;
    uint64_t row_bytes;
    if (!format_row_bytes(&row_bytes, out->shape.format, need->cols))
        return shape_problem(binder, need, values, why);
    out->shape.row_bytes = row_bytes;
    return MF_OK;
}

bool binder_rule_name(char out[TENSOR_NAME_MAX], const struct binder *binder,
                      const struct tensor_rule *rule, uint32_t layer)
{
    const char *pattern = binder->gguf ? rule->gguf_name : rule->name;
    const char *prefix = rule->kind == RULE_HEAD ? binder->head_prefix : binder->prefix;
    if (!pattern) return false;
    binder_name(out, binder->gguf ? "" : prefix, pattern, layer, 0);
    return true;
}

static mf_status read_tensor(const uint8_t **out, const struct binder *b,
                             const struct tensor *tensor, mf_error *why)
{
    if (!tensor) return MF_OK;
    uint8_t *bytes = arena_take_raw(b->arena, tensor->bytes, 1);
    if (!bytes) return fail_memory(why, tensor->bytes);
    *out = bytes;
    return tensor_read(b->source->directory, tensor, bytes, why);
}

void binder_count(const struct binder *binder, uint64_t count, size_t size)
{
    if (binder->tally) arena_tally_take(binder->tally, count, size);
}

/* Matrices stay as they are, vectors become f32 beside what the file has. */
static void count_origin(const struct binder *binder, const struct weight_origin *origin)
{
    const struct tensor *const parts[] = { origin->values, origin->scales, origin->biases };
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        if (parts[i]) binder_count(binder, parts[i]->bytes, 1);
    if (origin->vector) binder_count(binder, origin->shape.cols, sizeof(float));
}

void binder_describe(struct weight *out, const struct binder *binder,
                     const struct weight_origin *origin)
{
    static const uint8_t not_read; /* marks the weight as bound */
    *out = origin->shape;
    out->values = &not_read;
    struct weight_origin *listed = &binder->listing->origins[binder->listing->origin_count++];
    *listed = *origin;
    count_origin(binder, origin);
}

mf_status binder_read_matrix(struct weight *out, const struct binder *binder,
                             const struct matrix_need *need, mf_error *why)
{
    struct matrix_source source;
    mf_status status = binder_find_matrix(&source, binder, need, why);
    if (status != MF_OK) return status;
    if (need->stack) source.shape.rows *= need->stack;
    if (binder->listing) {
        struct weight_origin origin = { .id = need->id,
                                        .shape = source.shape,
                                        .values = source.values,
                                        .scales = source.scales,
                                        .biases = source.biases };
        binder_describe(out, binder, &origin);
        return MF_OK;
    }
    *out = source.shape;
    status = read_tensor(&out->values, binder, source.values, why);
    if (status == MF_OK) status = read_tensor(&out->scales, binder, source.scales, why);
    if (status == MF_OK) status = read_tensor(&out->biases, binder, source.biases, why);
    return status;
}
