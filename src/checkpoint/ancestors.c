#include "checkpoint/ancestors.h"

#include "base/array.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/dtype.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MANIFEST_BYTES_MAX = 100 * 1000 * 1000,
    GROUP = 64, /* numbers that share a scale */
    PARTS = 9,  /* of an expert: three projections, each weights, scales, biases */
    LAYERS_MAX = 1000,
    EXPERTS_MAX = 4096,
};

/* ---------------------------------------------------------------- manifest */

struct manifest {
    struct tensor_directory *directory;
    const char *path;
    uint64_t weights_bytes;
    uint32_t file;
};

static mf_status read_fields(struct tensor *tensor, unsigned *bits, const char *path,
                             const json_t *entry, mf_error *why)
{
    const char *name = tensor->name;
    mf_status status = tensor_from_json(tensor, bits, entry, path, name, why);
    if (status != MF_OK) return status;
    char where[256];
    snprintf(where, sizeof where, "%.100s: tensor %.128s", path, name);
    uint64_t quantised_bits = 4;
    status = json_need_count(&tensor->offset, entry, "offset", 0, INT64_MAX, where, why);
    if (status == MF_OK)
        status = json_need_count(&tensor->bytes, entry, "size", 0, INT64_MAX, where, why);
    if (status == MF_OK)
        status = json_maybe_count(&quantised_bits, entry, "bits", 1, 32, where, why);
    if (status == MF_OK && format_affine((unsigned)quantised_bits) == FORMAT_COUNT)
        status = fail(why, MF_ERR_UNSUPPORTED, TENSOR_NAMED " has %u bits", path, name,
                      (unsigned)quantised_bits);
    return status;
}

static mf_status add_tensor(const struct manifest *m, const char *name, const json_t *entry,
                            mf_error *why)
{
    struct tensor *tensor = tensor_directory_add(m->directory);
    if (!tensor) return fail_memory(why, sizeof *tensor);
    tensor->file = m->file;
    tensor->name = arena_text(&m->directory->arena, name, strlen(name));
    if (!tensor->name) return fail_memory(why, strlen(name) + 1);
    unsigned bits = 0;
    mf_status status = read_fields(tensor, &bits, m->path, entry, why);
    if (status != MF_OK) return status;
    if (tensor->offset > m->weights_bytes || tensor->bytes > m->weights_bytes - tensor->offset)
        return fail(why, MF_ERR_FORMAT,
                    TENSOR_NAMED " has %llu bytes from byte %llu of the weights, which have %llu",
                    m->path, name, (unsigned long long)tensor->bytes,
                    (unsigned long long)tensor->offset, (unsigned long long)m->weights_bytes);
    if (tensor->offset % 4 != 0)
        return fail(why, MF_ERR_FORMAT, TENSOR_NAMED " begins at byte %llu, not a multiple of 4",
                    m->path, name, (unsigned long long)tensor->offset);
    char shape[200];
    if (!dtype_size_matches(tensor, bits, tensor->bytes))
        return fail(why, MF_ERR_FORMAT, TENSOR_NAMED " of shape %s and %u bits has %llu bytes",
                    m->path, name, tensor_shape_text(tensor, shape, sizeof shape), bits,
                    (unsigned long long)tensor->bytes);
    return MF_OK;
}

static int compare_offsets(const void *left, const void *right)
{
    const struct tensor *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* The order of a manifest means nothing, so the list may be sorted to find overlaps. */
static mf_status check_overlaps(const struct manifest *m, mf_error *why)
{
    struct tensor_directory *directory = m->directory;
    if (directory->count)
        qsort(directory->tensors, directory->count, sizeof *directory->tensors, compare_offsets);
    for (size_t i = 1; i < directory->count; i++) {
        const struct tensor *before = &directory->tensors[i - 1], *tensor = before + 1;
        if (before->offset + before->bytes > tensor->offset)
            return fail(why, MF_ERR_FORMAT, TENSOR_NAMED " begins inside tensor %.128s", m->path,
                        tensor->name, before->name);
    }
    return MF_OK;
}

static mf_status read_manifest(struct tensor_directory *directory, const mf_files *files,
                               const struct ancestors_paths *paths, mf_error *why)
{
    struct manifest m = { .directory = directory, .path = paths->manifest };
    json_t *root;
    mf_status status = json_read_file_new(&root, files, m.path, MANIFEST_BYTES_MAX, why);
    if (status != MF_OK) return status;
    status = tensor_directory_add_file(directory, &m.file, files, paths->weights, why);
    if (status != MF_OK) goto done;
    m.weights_bytes = directory->files[m.file].size;

    json_t *tensors = json_object_get(root, "tensors");
    const char *name;
    json_t *entry;
    if (!json_is_object(tensors))
        status = fail(why, MF_ERR_FORMAT, "%s: tensors is %s, an object was expected", m.path,
                      json_kind(tensors));
    json_object_foreach(tensors, name, entry)
    {
        if (status == MF_OK) status = add_tensor(&m, name, entry, why);
    }
    if (status == MF_OK) status = check_overlaps(&m, why);
    if (status == MF_OK) status = tensor_directory_finish(directory, why);
done:
    json_decref(root);
    return status;
}

/* ----------------------------------------------------------- expert blobs */

/* One of the nine parts of an expert's blob. */
struct part {
    char name[24]; /* "gate_proj.weight" */
    enum format format;
    uint64_t rows, cols;
    uint64_t offset, bytes; /* in the blob */
};

struct layer {
    bool present; /* it has a file */
    bool routed;  /* it has a router */
};

struct packed {
    struct tensor_directory *directory;
    const mf_files *files;
    char path[PATH_CAPACITY]; /* of the directory with the layer files */
    unsigned bits;            /* 4 or 2 */
    uint64_t hidden, experts, intermediate, blob_bytes;
    struct part parts[PARTS];
    struct layer *layers;
    size_t layer_count, layer_capacity;
    mf_status status; /* of the listing */
};

/* Layer `number`, the list made long enough; NULL: no memory, or not a layer. */
static struct layer *need_layer(struct packed *p, unsigned long number)
{
    if (number >= LAYERS_MAX) return NULL;
    if (ARRAY_RESERVE(p->layers, p->layer_capacity, number + 1, p->directory->arena.allocator,
                      NULL) != MF_OK)
        return NULL;
    for (; p->layer_count <= number; p->layer_count++)
        p->layers[p->layer_count] = (struct layer){ 0 };
    return &p->layers[number];
}

/* The number between `prefix` and `suffix`, written without a sign. */
static bool parse_between(unsigned long *out, const char *text, const char *prefix,
                          const char *suffix)
{
    size_t length = strlen(prefix);
    if (strncmp(text, prefix, length) != 0) return false;
    if (text[length] < '0' || text[length] > '9') return false;
    char *end;
    *out = strtoul(text + length, &end, 10);
    return strcmp(end, suffix) == 0;
}

static void take_layer_file(void *context, const char *name)
{
    struct packed *p = context;
    unsigned long number;
    char expected[32];
    if (p->status != MF_OK || !parse_between(&number, name, "layer_", ".bin")) return;
    if (number >= LAYERS_MAX) return;
    snprintf(expected, sizeof expected, "layer_%02lu.bin", number);
    if (strcmp(name, expected) != 0) return;
    struct layer *layer = need_layer(p, number);
    if (layer)
        layer->present = true;
    else
        p->status = MF_ERR_MEMORY;
}

/* Lists packed_experts, or packed_experts_2bit when it is asked for or alone. */
static mf_status find_layer_files(struct packed *p, const char *root, bool two_bit, mf_error *why)
{
    static const char *const names[] = { "packed_experts", "packed_experts_2bit" };
    for (unsigned i = two_bit ? 1 : 0; i < COUNT_OF(names); i++) {
        mf_status status = path_join(p->path, sizeof p->path, root, names[i], why);
        if (status != MF_OK) return status;
        p->bits = i == 0 ? 4 : 2;
        int result = p->files->list(p->files->user, p->path, take_layer_file, p);
        if (p->status != MF_OK) return fail_memory(why, LAYERS_MAX * sizeof *p->layers);
        if (result == 0 && p->layer_count > 0) return MF_OK;
        if (result < 0 && result != -ENOENT)
            return fail_errno(why, MF_ERR_IO, -result, "%s cannot be listed", p->path);
    }
    return fail(why, MF_ERR_IO, "%s has no packed_experts%s with a layer_NN.bin", root,
                two_bit ? "_2bit" : "");
}

/* The hidden size, from the tensors of the manifest. */
static mf_status read_hidden_size(struct packed *p, const char *manifest, mf_error *why)
{
    unsigned long number;
    for (size_t i = 0; i < p->directory->count && p->hidden == 0; i++) {
        const struct tensor *tensor = &p->directory->tensors[i];
        if (parse_between(&number, tensor->name, "model.layers.", ".input_layernorm.weight") &&
            tensor->rank == 1)
            p->hidden = tensor->shape[0];
    }
    if (p->hidden == 0 || p->hidden % GROUP != 0 || p->hidden > UINT32_MAX)
        return fail(why, MF_ERR_MISMATCH,
                    "%s: the layers' input_layernorm.weight has %llu numbers, a multiple of %d was "
                    "expected",
                    manifest, (unsigned long long)p->hidden, GROUP);
    return MF_OK;
}

/* The routers: which layers have experts, and how many. */
static mf_status read_routers(struct packed *p, const char *manifest, mf_error *why)
{
    unsigned long number;
    for (size_t i = 0; i < p->directory->count; i++) {
        const struct tensor *tensor = &p->directory->tensors[i];
        if (!parse_between(&number, tensor->name, "model.layers.", ".mlp.gate.weight")) continue;
        uint64_t rows = tensor->rank == 2 ? tensor->shape[0] : 0;
        if (p->experts == 0) p->experts = rows;
        /* At least 2 bits per weight, so that a manifest cannot claim experts without data. */
        if (number >= LAYERS_MAX || rows == 0 || rows > EXPERTS_MAX || rows != p->experts ||
            tensor->bytes < rows * (p->hidden / 4)) {
            char shape[200];
            return fail(why, MF_ERR_MISMATCH,
                        TENSOR_NAMED " has the shape %s and %llu bytes, no router of %llu experts",
                        manifest, tensor->name, tensor_shape_text(tensor, shape, sizeof shape),
                        (unsigned long long)tensor->bytes, (unsigned long long)p->experts);
        }
        struct layer *layer = need_layer(p, number);
        if (!layer) return fail_memory(why, (number + 1) * sizeof *layer);
        layer->routed = true;
    }
    if (p->experts == 0)
        return fail(why, MF_ERR_MISMATCH, "%s has no router (model.layers.N.mlp.gate.weight)",
                    manifest);
    return MF_OK;
}

static void set_part(struct packed *p, unsigned index, const char *name, enum format format,
                     uint64_t rows, uint64_t cols)
{
    struct part *part = &p->parts[index];
    snprintf(part->name, sizeof part->name, "%s", name);
    part->format = format;
    part->rows = rows;
    part->cols = cols;
    part->offset = index ? p->parts[index - 1].offset + p->parts[index - 1].bytes : 0;
    part->bytes = rows * cols * format_info(format)->block_bytes;
}

/* The size of an expert follows from that of a file, and the rest from it:
 * blob = 3 · I · H · (bits / 8 + 2 · 2 / 64). */
static mf_status derive_parts(struct packed *p, uint64_t file_bytes, const char *path,
                              mf_error *why)
{
    p->blob_bytes = file_bytes / p->experts;
    uint64_t sixteenths = 3 * (2 * p->bits + 1); /* of a byte, for each of I · H */
    uint64_t numbers = p->blob_bytes / sixteenths * 16;
    p->intermediate = numbers / p->hidden;
    if (file_bytes % p->experts != 0 || p->blob_bytes % sixteenths != 0 ||
        numbers % p->hidden != 0 || p->intermediate == 0 || p->intermediate % GROUP != 0 ||
        p->intermediate > UINT32_MAX)
        return fail(why, MF_ERR_MISMATCH,
                    "%s has %llu bytes, which is not %llu experts of %u bits with a hidden size of "
                    "%llu",
                    path, (unsigned long long)file_bytes, (unsigned long long)p->experts, p->bits,
                    (unsigned long long)p->hidden);
    static const char *const projections[] = { "gate_proj", "up_proj", "down_proj" };
    for (unsigned i = 0; i < 3; i++) {
        uint64_t rows = i < 2 ? p->intermediate : p->hidden;
        uint64_t cols = i < 2 ? p->hidden : p->intermediate;
        char name[24];
        snprintf(name, sizeof name, "%s.weight", projections[i]);
        set_part(p, 3 * i, name, FORMAT_U32, rows, cols * p->bits / 32);
        snprintf(name, sizeof name, "%s.scales", projections[i]);
        set_part(p, 3 * i + 1, name, FORMAT_BF16, rows, cols / GROUP);
        snprintf(name, sizeof name, "%s.biases", projections[i]);
        set_part(p, 3 * i + 2, name, FORMAT_BF16, rows, cols / GROUP);
    }
    return MF_OK;
}

/* ------------------------------------------------------------- layout.json */

static mf_status check_component(const struct packed *p, const json_t *component, const char *path,
                                 mf_error *why)
{
    const char *name = json_string_value(json_object_get(component, "name"));
    uint64_t offset = 0, size = 0, shape[2] = { 0 };
    uint32_t rank = 0;
    mf_status status = json_need_count(&offset, component, "offset", 0, INT64_MAX, path, why);
    if (status == MF_OK)
        status = json_need_count(&size, component, "size", 0, INT64_MAX, path, why);
    if (status != MF_OK) return status;
    for (unsigned i = 0; i < PARTS && name; i++) {
        const struct part *part = &p->parts[i];
        if (strcmp(part->name, name) != 0) continue;
        if (offset != part->offset || size != part->bytes) break;
        const json_t *value = json_object_get(component, "shape");
        if (value && (!json_whole_numbers(shape, &rank, 2, value) || rank != 2 ||
                      shape[0] != part->rows || shape[1] != part->cols))
            break;
        return MF_OK;
    }
    return fail(why, MF_ERR_MISMATCH,
                "%s: component %.64s with %llu bytes at %llu does not fit the size of the files",
                path, name ? name : "without a name", (unsigned long long)size,
                (unsigned long long)offset);
}

/* layout.json, where it is there, says the same as the sizes of the files. */
static mf_status check_layout(const struct packed *p, mf_error *why)
{
    char path[PATH_CAPACITY];
    bool present = false;
    mf_status status = path_join(path, sizeof path, p->path, "layout.json", why);
    if (status == MF_OK) status = file_probe(&present, p->files, path, why);
    if (status != MF_OK || !present) return status;
    json_t *layout;
    status = json_read_file_new(&layout, p->files, path, MANIFEST_BYTES_MAX, why);
    if (status != MF_OK) return status;

    const json_t *components = json_object_get(layout, "components");
    uint64_t ignored = 0;
    status =
        json_need_count(&ignored, layout, "expert_size", p->blob_bytes, p->blob_bytes, path, why);
    if (status == MF_OK)
        status =
            json_need_count(&ignored, layout, "num_experts", p->experts, p->experts, path, why);
    if (status == MF_OK && json_array_size(components) != PARTS)
        status = fail(why, MF_ERR_FORMAT, "%s: components has %zu entries, %d were expected", path,
                      json_array_size(components), PARTS);
    for (size_t i = 0; i < PARTS && status == MF_OK; i++)
        status = check_component(p, json_array_get(components, i), path, why);
    json_decref(layout);
    return status;
}

/* ------------------------------------------------------------------ layers */

/* Room for "model.layers.", ".mlp.experts.", two numbers and the name of a part. */
enum { NAME_CAPACITY = 72 };

static mf_status add_expert(struct packed *p, size_t layer, uint64_t expert, uint32_t file,
                            mf_error *why)
{
    char *names = arena_take(&p->directory->arena, PARTS, NAME_CAPACITY);
    if (!names) return fail_memory(why, PARTS * NAME_CAPACITY);
    for (unsigned i = 0; i < PARTS; i++, names += NAME_CAPACITY) {
        const struct part *part = &p->parts[i];
        struct tensor *tensor = tensor_directory_add(p->directory);
        if (!tensor) return fail_memory(why, sizeof *tensor);
        snprintf(names, NAME_CAPACITY, "model.layers.%u.mlp.experts.%u.%s", (unsigned)layer,
                 (unsigned)expert, part->name);
        *tensor = (struct tensor){ .name = names,
                                   .format = part->format,
                                   .rank = 2,
                                   .shape = { part->rows, part->cols },
                                   .file = file,
                                   .offset = expert * p->blob_bytes + part->offset,
                                   .bytes = part->bytes };
    }
    return MF_OK;
}

static mf_status layer_path(char *out, size_t capacity, const struct packed *p, size_t layer,
                            mf_error *why)
{
    char name[32];
    snprintf(name, sizeof name, "layer_%02zu.bin", layer);
    return path_join(out, capacity, p->path, name, why);
}

static mf_status add_layer(struct packed *p, size_t layer, mf_error *why)
{
    char path[PATH_CAPACITY];
    uint32_t file = 0;
    mf_status status = layer_path(path, sizeof path, p, layer, why);
    if (status != MF_OK) return status;
    if (p->layers[layer].present) {
        status = tensor_directory_add_file(p->directory, &file, p->files, path, why);
        if (status != MF_OK) return status;
        uint64_t bytes = p->directory->files[file].size;
        if (bytes != p->experts * p->blob_bytes)
            return fail(why, MF_ERR_MISMATCH, "%s has %llu bytes, %llu were expected", path,
                        (unsigned long long)bytes,
                        (unsigned long long)(p->experts * p->blob_bytes));
    } else {
        status = tensor_directory_add_absent(p->directory, &file, path, why);
    }
    for (uint64_t x = 0; x < p->experts && status == MF_OK; x++)
        status = add_expert(p, layer, x, file, why);
    return status;
}

/* The size of the first layer file that is there. */
static mf_status measure_layer(uint64_t *bytes, char *path, size_t capacity, const struct packed *p,
                               mf_error *why)
{
    size_t first = 0;
    while (!p->layers[first].present) first++; /* find_layer_files has found one */
    struct file file;
    mf_status status = layer_path(path, capacity, p, first, why);
    if (status == MF_OK) status = file_open(&file, p->files, path, why);
    if (status != MF_OK) return status;
    *bytes = file.size;
    file_close(&file);
    return MF_OK;
}

static mf_status add_experts(struct packed *p, const struct ancestors_paths *paths, mf_error *why)
{
    char path[PATH_CAPACITY];
    uint64_t bytes = 0;
    mf_status status = find_layer_files(p, paths->experts, paths->two_bit, why);
    if (status == MF_OK) status = read_hidden_size(p, paths->manifest, why);
    if (status == MF_OK) status = read_routers(p, paths->manifest, why);
    if (status == MF_OK) status = measure_layer(&bytes, path, sizeof path, p, why);
    if (status == MF_OK) status = derive_parts(p, bytes, path, why);
    if (status == MF_OK) status = check_layout(p, why);
    for (size_t i = 0; i < p->layer_count && status == MF_OK; i++)
        if (p->layers[i].present || p->layers[i].routed) status = add_layer(p, i, why);
    return status;
}

mf_status ancestors_open(struct tensor_directory *directory, const mf_files *files,
                         const struct ancestors_paths *paths, mf_error *why)
{
    mf_status status = read_manifest(directory, files, paths, why);
    if (status != MF_OK || !paths->experts) return status;
    struct packed packed = { .directory = directory, .files = files };
    status = add_experts(&packed, paths, why);
    array_free(packed.layers, packed.layer_capacity, sizeof *packed.layers,
               directory->arena.allocator);
    return status == MF_OK ? tensor_directory_finish(directory, why) : status;
}

mf_status ancestors_open_parent(struct tensor_directory *directory, const mf_files *files,
                                const char *parent, bool two_bit, mf_error *why)
{
    char weights[PATH_CAPACITY], manifest[PATH_CAPACITY], experts[PATH_CAPACITY];
    mf_status status =
        path_join(weights, sizeof weights, parent, "artifacts/model_weights.bin", why);
    if (status == MF_OK)
        status = path_join(manifest, sizeof manifest, parent, "artifacts/model_weights.json", why);
    if (status == MF_OK) status = path_join(experts, sizeof experts, parent, "root", why);
    if (status != MF_OK) return status;
    struct ancestors_paths paths = { weights, manifest, experts, two_bit };
    return ancestors_open(directory, files, &paths, why);
}

mf_status ancestors_probe(bool *present, const mf_files *files, const char *parent, mf_error *why)
{
    char manifest[PATH_CAPACITY];
    *present = false;
    mf_status status =
        path_join(manifest, sizeof manifest, parent, "artifacts/model_weights.json", why);
    return status == MF_OK ? file_probe(present, files, manifest, why) : status;
}
