/* packed_manifest.c: moeflux.json, written and read.
 *
 *     { "format": "moeflux packed", "version": 1, "layout": "rows",
 *       "origin": { "name", "kind", "fingerprint", "experts", "rest" },
 *       "convention": "huggingface" | "mlx" | "gguf",
 *       "tensors": [ { "name", "type", "shape", "offset", "bytes", "xxh3" }, … ],
 *       "experts": 64,
 *       "layers": [ { "layer", "bytes", "stride",
 *                     "gate": { "type", "rows", "cols", "values",
 *                               "scale_type", "group": [rows, cols], "scales", "biases",
 *                               "addend_type", "addends" },
 *                     "up": …, "down": …, "xxh3": [ one for each expert ] }, … ],
 *       "files": [ { "name", "bytes", "xxh3" }, … ] }
 *
 * What follows from something else (offsets, sizes) is written for other readers and must
 * agree when it is read. */
#include "checkpoint/packed.h"

#include "base/checksum.h"
#include "base/status.h"
#include "checkpoint/name_table.h"

#include <stdio.h>
#include <stdlib.h>

enum { EXPERTS_MAX = 65536, LAYERS_MAX = 4096, WHERE_CAPACITY = 512 };

#define FORMAT_NAME "moeflux packed"

static const char *const convention_names[PACKED_CONVENTIONS] = {
    [PACKED_HUGGING_FACE] = "huggingface",
    [PACKED_MLX] = "mlx",
    [PACKED_GGUF] = "gguf",
};

static const char *const part_names[PACKED_PARTS] = { "gate", "up", "down" };
static const char *const array_names[PACKED_ARRAYS] = { "values", "scales", "biases", "addends" };

/* ----------------------------------------------------------------- writing */

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *checksum_json_new(uint64_t value)
{
    char text[CHECKSUM_TEXT];
    checksum_print(value, text);
    return json_string(text);
}

static json_t *tensor_json_new(const struct packed_tensor *t, bool checksums)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t->rank; i++) json_array_append_new(shape, number(t->shape[i]));
    json_t *out =
        json_pack("{s:s,s:s,s:o,s:o,s:o}", "name", t->name, "type", format_info(t->format)->name,
                  "shape", shape, "offset", number(t->offset), "bytes", number(t->bytes));
    if (checksums) json_object_set_new(out, "xxh3", checksum_json_new(t->checksum));
    return out;
}

static json_t *matrix_json_new(const struct packed_matrix *m)
{
    const struct weight *w = &m->shape;
    json_t *out = json_pack("{s:s,s:o,s:o}", "type", format_info(w->format)->name, "rows",
                            number(w->rows), "cols", number(w->cols));
    if (w->scale_row_bytes) {
        json_object_set_new(out, "scale_type", json_string(format_info(w->scale_format)->name));
        json_object_set_new(
            out, "group", json_pack("[I,I]", (json_int_t)w->group_rows, (json_int_t)w->group_cols));
    }
    if (m->has_addends)
        json_object_set_new(out, "addend_type", json_string(format_info(m->addend_format)->name));
    for (size_t i = 0; i < COUNT_OF(array_names); i++)
        if (m->bytes[i]) json_object_set_new(out, array_names[i], number(m->offsets[i]));
    return out;
}

static json_t *layer_json_new(const struct packed_layer *layer, uint32_t experts, bool checksums)
{
    json_t *out = json_pack("{s:I,s:o,s:o}", "layer", (json_int_t)layer->number, "bytes",
                            number(layer->blob_bytes), "stride", number(layer->stride));
    for (size_t i = 0; i < PACKED_PARTS; i++)
        json_object_set_new(out, part_names[i], matrix_json_new(&layer->parts[i]));
    if (!checksums) return out;
    json_t *list = json_array();
    for (uint32_t e = 0; e < experts; e++)
        json_array_append_new(list, checksum_json_new(layer->checksums[e]));
    json_object_set_new(out, "xxh3", list);
    return out;
}

static json_t *files_json_new(const struct packed_manifest *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->file_count; i++)
        json_array_append_new(list, json_pack("{s:s,s:o,s:o}", "name", m->files[i].name, "bytes",
                                              number(m->files[i].bytes), "xxh3",
                                              checksum_json_new(m->files[i].checksum)));
    return list;
}

char *packed_manifest_text_new(const struct packed_manifest *m, bool checksums)
{
    const struct packed_origin *o = &m->origin;
    json_t *tensors = json_array(), *layers = json_array();
    for (size_t i = 0; i < m->tensor_count; i++)
        json_array_append_new(tensors, tensor_json_new(&m->tensors[i], checksums));
    for (size_t i = 0; i < m->layer_count; i++)
        json_array_append_new(layers, layer_json_new(&m->layers[i], m->experts, checksums));
    json_t *root =
        json_pack("{s:s,s:i,s:s,s:{s:s,s:s,s:s,s:s,s:s},s:s,s:o,s:I,s:o}", "format", FORMAT_NAME,
                  "version", PACKED_VERSION, "layout", PACKED_LAYOUT, "origin", "name", o->name,
                  "kind", o->kind, "fingerprint", o->fingerprint, "experts", o->experts, "rest",
                  o->rest, "convention", convention_names[m->convention], "tensors", tensors,
                  "experts", (json_int_t)m->experts, "layers", layers);
    if (root && checksums) json_object_set_new(root, "files", files_json_new(m));
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
    json_decref(root);
    return text;
}

/* ----------------------------------------------------------------- reading */

/* A text that must be there; copied, because the JSON goes before the manifest does. */
static mf_status need_text(const char **out, struct arena *arena, const json_t *object,
                           const char *key, const char *where, mf_error *why)
{
    const json_t *value = json_object_get(object, key);
    const char *text = json_string_value(value);
    if (!text)
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s, a text was expected", where, key,
                    json_kind(value));
    if (strlen(text) != json_string_length(value))
        return fail(why, MF_ERR_FORMAT, "%s: %s has a NUL inside", where, key);
    *out = arena_text(arena, text, strlen(text));
    return *out ? MF_OK : fail_memory(why, strlen(text) + 1);
}

static mf_status need_checksum(uint64_t *out, const json_t *value, const char *where, mf_error *why)
{
    const char *text = json_string_value(value);
    if (text && checksum_parse(out, text)) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "%s: xxh3 is not 16 hexadecimal digits", where);
}

static mf_status need_format(enum format *out, const json_t *object, const char *key,
                             const char *where, mf_error *why)
{
    const json_t *value = json_object_get(object, key);
    const char *name = json_string_value(value);
    *out = name ? format_find(name) : FORMAT_COUNT;
    if (*out < FORMAT_COUNT) return MF_OK;
    return fail(why, MF_ERR_UNSUPPORTED, "%s: the %s \"%.32s\" is not known", where, key,
                name ? name : json_kind(value));
}

/* A number that follows from others and must agree. */
static mf_status must_be(uint64_t expected, const json_t *object, const char *key,
                         const char *where, mf_error *why)
{
    uint64_t found;
    mf_status status = json_need_count(&found, object, key, 0, INT64_MAX, where, why);
    if (status != MF_OK || found == expected) return status;
    return fail(why, MF_ERR_FORMAT, "%s: %s is %llu, from what stands before it follows %llu",
                where, key, (unsigned long long)found, (unsigned long long)expected);
}

static mf_status parse_tensor(struct packed_manifest *out, size_t index, const json_t *json,
                              const char *where, mf_error *why)
{
    struct packed_tensor *t = &out->tensors[index];
    uint64_t offset = 0;
    if (index > 0) offset = align_up(t[-1].offset + t[-1].bytes, PACKED_TENSOR_ALIGNMENT);
    mf_status status = need_text(&t->name, &out->arena, json, "name", where, why);
    if (status != MF_OK) return status;
    char here[WHERE_CAPACITY];
    snprintf(here, sizeof here, "%.300s: tensor %.128s", where, t->name);
    status = need_format(&t->format, json, "type", here, why);
    if (status != MF_OK) return status;
    if (!json_whole_numbers(t->shape, &t->rank, TENSOR_RANK_MAX, json_object_get(json, "shape")) ||
        !packed_tensor_size(&t->bytes, t->format, t->shape, t->rank))
        return fail(why, MF_ERR_FORMAT, "%s: shape is not that of a tensor of type %s", here,
                    format_info(t->format)->name);
    if (offset > INT64_MAX / 2) return fail(why, MF_ERR_FORMAT, "%s begins too far away", here);
    t->offset = offset;
    status = must_be(t->offset, json, "offset", here, why);
    if (status == MF_OK) status = must_be(t->bytes, json, "bytes", here, why);
    if (status != MF_OK) return status;
    return need_checksum(&t->checksum, json_object_get(json, "xxh3"), here, why);
}

static mf_status parse_tensors(struct packed_manifest *out, const json_t *list, const char *where,
                               mf_error *why)
{
    if (!json_is_array(list))
        return fail(why, MF_ERR_FORMAT, "%s: tensors is %s, an array was expected", where,
                    json_kind(list));
    out->tensors = ARENA_NEW(&out->arena, struct packed_tensor, json_array_size(list));
    if (!out->tensors) return fail_memory(why, json_array_size(list) * sizeof *out->tensors);
    mf_status status = MF_OK;
    for (size_t i = 0; i < json_array_size(list) && status == MF_OK; i++) {
        status = parse_tensor(out, i, json_array_get(list, i), where, why);
        out->tensor_count += status == MF_OK;
    }
    return status;
}

static mf_status parse_matrix(struct packed_matrix *out, const json_t *json, const char *where,
                              mf_error *why)
{
    struct weight *w = &out->shape;
    uint64_t group[2] = { 0 };
    uint32_t count = 0;
    mf_status status = need_format(&w->format, json, "type", where, why);
    if (status == MF_OK)
        status = json_need_count(&w->rows, json, "rows", 1, UINT32_MAX, where, why);
    if (status == MF_OK)
        status = json_need_count(&w->cols, json, "cols", 1, UINT32_MAX, where, why);
    out->has_addends = json_object_get(json, "addend_type") != NULL;
    if (status == MF_OK && out->has_addends)
        status = need_format(&out->addend_format, json, "addend_type", where, why);
    const json_t *value = json_object_get(json, "group");
    if (status != MF_OK || !value) return status;
    status = need_format(&w->scale_format, json, "scale_type", where, why);
    if (status != MF_OK) return status;
    if (!json_whole_numbers(group, &count, 2, value) || count != 2 || group[0] == 0 ||
        group[1] == 0 || group[0] > UINT32_MAX || group[1] > UINT32_MAX)
        return fail(why, MF_ERR_FORMAT, "%s: group is not two sizes", where);
    w->group_rows = (uint32_t)group[0];
    w->group_cols = (uint32_t)group[1];
    return MF_OK;
}

/* Where the arrays lie, which follows from the shapes. */
static mf_status check_offsets(const struct packed_matrix *m, const json_t *json, const char *where,
                               mf_error *why)
{
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(array_names) && status == MF_OK; i++) {
        if (m->bytes[i])
            status = must_be(m->offsets[i], json, array_names[i], where, why);
        else if (json_object_get(json, array_names[i]))
            status = fail(why, MF_ERR_FORMAT, "%s: %s stands there, but the type %s has none",
                          where, array_names[i], format_info(m->shape.format)->name);
    }
    return status;
}

static mf_status parse_checksums(struct packed_manifest *out, struct packed_layer *layer,
                                 const json_t *list, const char *where, mf_error *why)
{
    if (json_array_size(list) != out->experts)
        return fail(why, MF_ERR_FORMAT,
                    "%s: xxh3 has %zu entries, one for each of %u experts was "
                    "expected",
                    where, json_array_size(list), out->experts);
    layer->checksums = ARENA_NEW(&out->arena, uint64_t, out->experts);
    if (!layer->checksums) return fail_memory(why, out->experts * sizeof *layer->checksums);
    mf_status status = MF_OK;
    for (uint32_t e = 0; e < out->experts && status == MF_OK; e++)
        status = need_checksum(&layer->checksums[e], json_array_get(list, e), where, why);
    return status;
}

static mf_status parse_layer(struct packed_manifest *out, size_t index, const json_t *json,
                             const char *where, mf_error *why)
{
    struct packed_layer *layer = &out->layers[index];
    uint64_t number = 0, least = index ? (uint64_t)layer[-1].number + 1 : 0;
    mf_status status = json_need_count(&number, json, "layer", least, LAYERS_MAX - 1, where, why);
    if (status != MF_OK) return status;
    layer->number = (uint32_t)number;
    char here[WHERE_CAPACITY];
    for (size_t i = 0; i < PACKED_PARTS && status == MF_OK; i++) {
        snprintf(here, sizeof here, "%.300s: layer %u: %s", where, layer->number, part_names[i]);
        status = parse_matrix(&layer->parts[i], json_object_get(json, part_names[i]), here, why);
    }
    snprintf(here, sizeof here, "%.300s: layer %u", where, layer->number);
    if (status == MF_OK && !packed_layer_arrange(layer))
        status = fail(why, MF_ERR_FORMAT, "%s: rows, cols and groups do not fit the types", here);
    for (size_t i = 0; i < PACKED_PARTS && status == MF_OK; i++)
        status = check_offsets(&layer->parts[i], json_object_get(json, part_names[i]), here, why);
    if (status == MF_OK) status = must_be(layer->blob_bytes, json, "bytes", here, why);
    if (status == MF_OK) status = must_be(layer->stride, json, "stride", here, why);
    if (status != MF_OK) return status;
    return parse_checksums(out, layer, json_object_get(json, "xxh3"), here, why);
}

static mf_status parse_layers(struct packed_manifest *out, const json_t *list, const char *where,
                              mf_error *why)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > LAYERS_MAX || (count > 0) != (out->experts > 0))
        return fail(why, MF_ERR_FORMAT,
                    "%s: layers is not a list of those that have %u experts each", where,
                    out->experts);
    out->layers = ARENA_NEW(&out->arena, struct packed_layer, count);
    if (!out->layers) return fail_memory(why, count * sizeof *out->layers);
    mf_status status = MF_OK;
    for (size_t i = 0; i < count && status == MF_OK; i++) {
        status = parse_layer(out, i, json_array_get(list, i), where, why);
        out->layer_count += status == MF_OK;
    }
    return status;
}

static mf_status parse_files(struct packed_manifest *out, const json_t *list, const char *where,
                             mf_error *why)
{
    if (!json_is_array(list))
        return fail(why, MF_ERR_FORMAT, "%s: files is %s, an array was expected", where,
                    json_kind(list));
    out->files = ARENA_NEW(&out->arena, struct packed_side_file, json_array_size(list));
    if (!out->files) return fail_memory(why, json_array_size(list) * sizeof *out->files);
    mf_status status = MF_OK;
    for (size_t i = 0; i < json_array_size(list) && status == MF_OK; i++) {
        const json_t *json = json_array_get(list, i);
        struct packed_side_file *file = &out->files[i];
        status = need_text(&file->name, &out->arena, json, "name", where, why);
        if (status == MF_OK && !path_is_base_name(file->name))
            status = fail(why, MF_ERR_FORMAT, "%s: '%.128s' is not a plain file name", where,
                          file->name);
        if (status == MF_OK)
            status = json_need_count(&file->bytes, json, "bytes", 0, INT64_MAX, where, why);
        if (status == MF_OK)
            status = need_checksum(&file->checksum, json_object_get(json, "xxh3"), where, why);
        out->file_count += status == MF_OK;
    }
    return status;
}

/* Is this a manifest, and one of those that are known here? */
static mf_status check_kind(const json_t *json, const char *where, mf_error *why)
{
    const char *format = json_string_value(json_object_get(json, "format"));
    const char *layout = json_string_value(json_object_get(json, "layout"));
    uint64_t version = 0;
    if (!format || strcmp(format, FORMAT_NAME) != 0)
        return fail(why, MF_ERR_FORMAT,
                    "%s is not the manifest of a packed model: format is not "
                    "\"" FORMAT_NAME "\"",
                    where);
    mf_status status = json_need_count(&version, json, "version", 1, INT64_MAX, where, why);
    if (status != MF_OK) return status;
    if (version != PACKED_VERSION)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s has version %llu of the packed layout, this program reads version %d",
                    where, (unsigned long long)version, PACKED_VERSION);
    if (!layout || strcmp(layout, PACKED_LAYOUT) != 0)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s: the layout \"%.64s\" is not known, this program reads \"" PACKED_LAYOUT
                    "\"",
                    where, layout ? layout : json_kind(json_object_get(json, "layout")));
    return MF_OK;
}

static mf_status parse_origin(struct packed_manifest *out, const json_t *json, const char *where,
                              mf_error *why)
{
    struct packed_origin *o = &out->origin;
    const struct {
        const char **field;
        const char *key;
    } fields[] = { { &o->name, "name" },
                   { &o->kind, "kind" },
                   { &o->fingerprint, "fingerprint" },
                   { &o->experts, "experts" },
                   { &o->rest, "rest" } };
    char here[WHERE_CAPACITY];
    snprintf(here, sizeof here, "%.300s: origin", where);
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(fields) && status == MF_OK; i++)
        status = need_text(fields[i].field, &out->arena, json, fields[i].key, here, why);
    return status;
}

static mf_status parse_convention(struct packed_manifest *out, const json_t *value,
                                  const char *where, mf_error *why)
{
    const char *name = json_string_value(value);
    for (int i = 0; name && i < PACKED_CONVENTIONS; i++) {
        if (strcmp(name, convention_names[i]) != 0) continue;
        out->convention = (enum packed_convention)i;
        return MF_OK;
    }
    return fail(why, MF_ERR_UNSUPPORTED, "%s: the convention \"%.32s\" is not known", where,
                name ? name : json_kind(value));
}

mf_status packed_manifest_parse(struct packed_manifest *out, const json_t *json, const char *where,
                                mf_error *why)
{
    uint64_t experts = 0;
    mf_status status = check_kind(json, where, why);
    if (status == MF_OK) status = parse_origin(out, json_object_get(json, "origin"), where, why);
    if (status == MF_OK)
        status = parse_convention(out, json_object_get(json, "convention"), where, why);
    if (status == MF_OK)
        status = json_need_count(&experts, json, "experts", 0, EXPERTS_MAX, where, why);
    if (status != MF_OK) return status;
    out->experts = (uint32_t)experts;
    status = parse_tensors(out, json_object_get(json, "tensors"), where, why);
    if (status == MF_OK) status = parse_layers(out, json_object_get(json, "layers"), where, why);
    if (status == MF_OK) status = parse_files(out, json_object_get(json, "files"), where, why);
    return status;
}
