#include "checkpoint/packed.h"

#include "base/status.h"

#include <stdio.h>

/* Far above any model, and no sum or product of them below overflows. */
#define TENSOR_LIMIT ((uint64_t)1 << 50)
#define BLOB_LIMIT   ((uint64_t)1 << 40)

enum { MANIFEST_BYTES_MAX = 256 << 20 };

void packed_manifest_init(struct packed_manifest *manifest, const mf_allocator *allocator)
{
    *manifest = (struct packed_manifest){ 0 };
    arena_init(&manifest->arena, allocator);
}

void packed_manifest_free(struct packed_manifest *manifest)
{
    const mf_allocator *allocator = manifest->arena.allocator;
    if (!allocator) return; /* never initialised */
    arena_free(&manifest->arena);
    packed_manifest_init(manifest, allocator);
}

void packed_layer_name(char out[PACKED_NAME_CAPACITY], uint32_t layer)
{
    snprintf(out, PACKED_NAME_CAPACITY, "layer-%03u.bin", layer);
}

/* ------------------------------------------------------------- arithmetic */

static bool is_affine(enum format format)
{
    return format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8;
}

static bool is_scale_format(enum format format)
{
    return format == FORMAT_F32 || format == FORMAT_F16 || format == FORMAT_BF16 ||
           format == FORMAT_F8_E8M0;
}

/* What a format may have beside its values: affine ones scales and biases by group, 8-bit
 * floats scales by tile, all others nothing. */
static bool arrange_scales(struct weight *w, bool scaled)
{
    bool floats =
        w->format == FORMAT_F8_E4M3 || w->format == FORMAT_F8_E5M2 || w->format == FORMAT_E2M1;
    if (format_by_row(w->format) != FORMAT_COUNT) return false;
    if (w->format == FORMAT_E2M1 &&
        (!scaled || w->scale_format != FORMAT_F8_E8M0 || w->group_rows != 1 || w->group_cols != 32))
        return false;
    w->scale_row_bytes = 0;
    if (!scaled) return !is_affine(w->format) && w->format != FORMAT_F8_E4M3;
    if (!is_affine(w->format) && !floats) return false;
    if (!is_scale_format(w->scale_format) || w->group_rows == 0 || w->group_cols == 0) return false;
    if (is_affine(w->format) && (w->scale_format == FORMAT_F8_E8M0 || w->group_rows != 1 ||
                                 w->group_cols % 8 != 0 || w->cols % w->group_cols != 0))
        return false;
    uint64_t groups = (w->cols + w->group_cols - 1) / w->group_cols;
    w->scale_row_bytes = groups * format_info(w->scale_format)->block_bytes;
    return true;
}

static bool arrange_matrix(struct packed_matrix *m)
{
    struct weight *w = &m->shape;
    uint64_t row_bytes;
    if (w->format >= FORMAT_COUNT || !format_info(w->format)->dequantise) return false;
    if (w->rows == 0 || w->cols == 0 || w->rows > UINT32_MAX || w->cols > UINT32_MAX) return false;
    if (!format_row_bytes(&row_bytes, w->format, w->cols)) return false;
    if (!arrange_scales(w, w->group_cols > 0)) return false;
    w->row_bytes = row_bytes;
    uint64_t scale_rows = w->scale_row_bytes ? (w->rows + w->group_rows - 1) / w->group_rows : 0;
    uint64_t bytes[PACKED_ARRAYS] = { 0 };
    if (!checked_multiply(&bytes[0], w->rows, row_bytes) ||
        !checked_multiply(&bytes[1], scale_rows, w->scale_row_bytes))
        return false;
    if (is_affine(w->format)) bytes[2] = bytes[1];
    enum format addends = m->addend_format;
    if (m->has_addends && (!is_scale_format(addends) || addends == FORMAT_F8_E8M0)) return false;
    if (m->has_addends) bytes[3] = w->rows * format_info(addends)->block_bytes;
    memcpy(m->bytes, bytes, sizeof bytes);
    return true;
}

bool packed_layer_arrange(struct packed_layer *layer)
{
    uint64_t end = 0;
    for (size_t part = 0; part < PACKED_PARTS; part++) {
        struct packed_matrix *m = &layer->parts[part];
        if (!arrange_matrix(m)) return false;
        for (size_t i = 0; i < COUNT_OF(m->bytes); i++) {
            m->offsets[i] = 0;
            if (m->bytes[i] == 0) continue;
            m->offsets[i] = align_up(end, PACKED_TENSOR_ALIGNMENT);
            if (m->bytes[i] > BLOB_LIMIT) return false;
            end = m->offsets[i] + m->bytes[i];
        }
    }
    if (end > BLOB_LIMIT) return false;
    layer->blob_bytes = end;
    layer->stride = align_up(end, PACKED_BLOB_ALIGNMENT);
    return true;
}

bool packed_tensor_size(uint64_t *out, enum format format, const uint64_t *shape, uint32_t rank)
{
    uint64_t rows = 1, row_bytes;
    if (rank == 0 || rank > TENSOR_RANK_MAX) return false;
    for (uint32_t i = 0; i + 1 < rank; i++)
        if (!checked_multiply(&rows, rows, shape[i])) return false;
    return format_row_bytes(&row_bytes, format, shape[rank - 1]) &&
           checked_multiply(out, rows, row_bytes) && *out > 0 && *out <= TENSOR_LIMIT;
}

uint64_t packed_resident_bytes(const struct packed_manifest *manifest)
{
    if (manifest->tensor_count == 0) return 0;
    const struct packed_tensor *last = &manifest->tensors[manifest->tensor_count - 1];
    return last->offset + last->bytes;
}

/* ----------------------------------------------------------------- opening */

mf_status packed_probe(bool *present, const mf_files *files, const char *path, mf_error *why)
{
    char manifest[PATH_CAPACITY];
    *present = false;
    mf_status status = path_join(manifest, sizeof manifest, path, PACKED_MANIFEST, why);
    return status == MF_OK ? file_probe(present, files, manifest, why) : status;
}

/* Opens path/name, which must have exactly this size: a shorter one was cut off, a longer
 * one is not the file that the manifest tells of. */
static mf_status add_file(uint32_t *index, struct tensor_directory *directory,
                          const mf_files *files, const char *path, const char *name, uint64_t bytes,
                          mf_error *why)
{
    char full[PATH_CAPACITY];
    mf_status status = path_join(full, sizeof full, path, name, why);
    if (status == MF_OK) status = tensor_directory_add_file(directory, index, files, full, why);
    if (status != MF_OK) return status;
    uint64_t found = directory->files[*index].size;
    if (found == bytes) return MF_OK;
    return fail(why, MF_ERR_MISMATCH, "%s has %llu bytes, %llu were expected%s", full,
                (unsigned long long)found, (unsigned long long)bytes,
                found < bytes ? ": it was cut off" : "");
}

static mf_status add_tensors(struct tensor_directory *directory, uint32_t file,
                             const struct packed_manifest *manifest, mf_error *why)
{
    for (size_t i = 0; i < manifest->tensor_count; i++) {
        const struct packed_tensor *from = &manifest->tensors[i];
        struct tensor *tensor = tensor_directory_add(directory);
        if (!tensor) return fail_memory(why, sizeof *tensor);
        tensor->name = arena_text(&directory->arena, from->name, strlen(from->name));
        if (!tensor->name) return fail_memory(why, strlen(from->name) + 1);
        tensor->format = from->format;
        tensor->rank = from->rank;
        memcpy(tensor->shape, from->shape, sizeof tensor->shape);
        tensor->file = file;
        tensor->offset = from->offset;
        tensor->bytes = from->bytes;
        tensor->checksummed = true;
        tensor->checksum = from->checksum;
    }
    return tensor_directory_finish(directory, why);
}

static mf_status open_files(struct packed_manifest *manifest, struct tensor_directory *directory,
                            const mf_files *files, const char *path, mf_error *why)
{
    uint32_t resident = 0;
    mf_status status = add_file(&resident, directory, files, path, PACKED_RESIDENT,
                                packed_resident_bytes(manifest), why);
    for (size_t i = 0; i < manifest->layer_count && status == MF_OK; i++) {
        struct packed_layer *layer = &manifest->layers[i];
        char name[PACKED_NAME_CAPACITY];
        packed_layer_name(name, layer->number);
        status = add_file(&layer->file, directory, files, path, name,
                          layer->stride * manifest->experts, why);
    }
    return status == MF_OK ? add_tensors(directory, resident, manifest, why) : status;
}

mf_status packed_open(struct packed_manifest *manifest, struct tensor_directory *directory,
                      const mf_files *files, const char *path, mf_error *why)
{
    char name[PATH_CAPACITY];
    json_t *json = NULL;
    mf_status status = path_join(name, sizeof name, path, PACKED_MANIFEST, why);
    if (status == MF_OK) status = json_read_file_new(&json, files, name, MANIFEST_BYTES_MAX, why);
    if (status == MF_OK) status = packed_manifest_parse(manifest, json, name, why);
    json_decref(json);
    return status == MF_OK ? open_files(manifest, directory, files, path, why) : status;
}
