#include "checkpoint/metadata.h"

#include "base/array.h"
#include "base/status.h"

void metadata_init(struct metadata *metadata, const mf_allocator *allocator)
{
    *metadata = (struct metadata){ 0 };
    arena_init(&metadata->arena, allocator);
    name_table_init(&metadata->keys, allocator);
}

void metadata_free(struct metadata *metadata)
{
    const mf_allocator *allocator = metadata->arena.allocator;
    if (!allocator) return;
    array_free(metadata->entries, metadata->capacity, sizeof *metadata->entries, allocator);
    array_free(metadata->starts, metadata->start_capacity, sizeof *metadata->starts, allocator);
    array_free(metadata->bytes, metadata->byte_capacity, 1, allocator);
    name_table_free(&metadata->keys);
    arena_free(&metadata->arena);
    metadata_init(metadata, allocator);
}

const struct metadata_entry *metadata_find(const struct metadata *metadata, const char *key)
{
    uint32_t number = name_table_find(&metadata->keys, key, strlen(key));
    return number == NAME_UNKNOWN ? NULL : &metadata->entries[number];
}

static const char *type_name(enum metadata_type type)
{
    switch (type) {
#define NAME_CASE(id, number, bytes, name)                                                         \
    case METADATA_##id:                                                                            \
        return name;
        METADATA_TYPE_LIST(NAME_CASE)
#undef NAME_CASE
    default:
        return "an unknown type";
    }
}

const char *metadata_kind(const struct metadata_entry *entry)
{
    if (!entry) return "nothing";
    return entry->is_array ? "an array" : type_name(entry->type);
}

/* ---------------------------------------------------------- single values */

static mf_status missing(const struct metadata *metadata, const char *key, mf_error *why)
{
    return fail(why, MF_ERR_FORMAT, "%s: %s is missing", metadata->path, key);
}

static mf_status wrong_type(const struct metadata *metadata, const struct metadata_entry *entry,
                            const char *expected, mf_error *why)
{
    return fail(why, MF_ERR_FORMAT, "%s: %s is %s, %s was expected", metadata->path, entry->key,
                metadata_kind(entry), expected);
}

static bool is_whole(enum metadata_type type)
{
    return type != METADATA_F32 && type != METADATA_F64 && type != METADATA_FLAG &&
           type != METADATA_TEXT && type != METADATA_ARRAY;
}

static bool is_float(enum metadata_type type)
{
    return type == METADATA_F32 || type == METADATA_F64;
}

/* The whole number at `bytes`; `negative` tells how to read it. */
static uint64_t load_whole(bool *negative, enum metadata_type type, const uint8_t *bytes)
{
    int64_t number;
    switch (type) {
    case METADATA_U8:
    case METADATA_FLAG:
        number = bytes[0];
        break;
    case METADATA_I8:
        number = (int8_t)bytes[0];
        break;
    case METADATA_U16:
        number = load_u16(bytes);
        break;
    case METADATA_I16:
        number = (int16_t)load_u16(bytes);
        break;
    case METADATA_U32:
        number = load_u32(bytes);
        break;
    case METADATA_I32:
        number = (int32_t)load_u32(bytes);
        break;
    case METADATA_U64:
        *negative = false;
        return load_u64(bytes);
    default: /* I64 */
        number = (int64_t)load_u64(bytes);
        break;
    }
    *negative = number < 0;
    return (uint64_t)number;
}

static double load_real(enum metadata_type type, const uint8_t *bytes)
{
    double value;
    if (type == METADATA_F32) return (double)load_f32(bytes);
    if (type == METADATA_F64) {
        memcpy(&value, bytes, sizeof value);
        return value;
    }
    bool negative;
    uint64_t whole = load_whole(&negative, type, bytes);
    return negative ? (double)(int64_t)whole : (double)whole;
}

mf_status metadata_maybe_count(uint64_t *out, const struct metadata *metadata, const char *key,
                               uint64_t low, uint64_t high, mf_error *why)
{
    const struct metadata_entry *entry = metadata_find(metadata, key);
    if (!entry) return MF_OK;
    if (entry->is_array || !is_whole(entry->type))
        return wrong_type(metadata, entry, "a whole number", why);
    bool negative;
    uint64_t number = load_whole(&negative, entry->type, metadata->bytes + entry->offset);
    if (negative || number < low || number > high)
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s%llu, from %llu to %llu was expected",
                    metadata->path, key, negative ? "-" : "",
                    (unsigned long long)(negative ? 0 - number : number), (unsigned long long)low,
                    (unsigned long long)high);
    *out = number;
    return MF_OK;
}

mf_status metadata_need_count(uint64_t *out, const struct metadata *metadata, const char *key,
                              uint64_t low, uint64_t high, mf_error *why)
{
    if (!metadata_find(metadata, key)) return missing(metadata, key, why);
    return metadata_maybe_count(out, metadata, key, low, high, why);
}

mf_status metadata_maybe_real(double *out, const struct metadata *metadata, const char *key,
                              mf_error *why)
{
    const struct metadata_entry *entry = metadata_find(metadata, key);
    if (!entry) return MF_OK;
    if (entry->is_array || !(is_whole(entry->type) || is_float(entry->type)))
        return wrong_type(metadata, entry, "a number", why);
    *out = load_real(entry->type, metadata->bytes + entry->offset);
    return MF_OK;
}

mf_status metadata_maybe_flag(bool *out, const struct metadata *metadata, const char *key,
                              mf_error *why)
{
    const struct metadata_entry *entry = metadata_find(metadata, key);
    if (!entry) return MF_OK;
    if (entry->is_array || entry->type != METADATA_FLAG)
        return wrong_type(metadata, entry, "true or false", why);
    *out = metadata->bytes[entry->offset] != 0;
    return MF_OK;
}

mf_status metadata_maybe_text(const char **out, const struct metadata *metadata, const char *key,
                              mf_error *why)
{
    const struct metadata_entry *entry = metadata_find(metadata, key);
    if (!entry) return MF_OK;
    if (entry->is_array || entry->type != METADATA_TEXT)
        return wrong_type(metadata, entry, "a text", why);
    if (strlen(entry->text) != entry->length)
        return fail(why, MF_ERR_FORMAT, "%s: the text of %s has a NUL byte", metadata->path, key);
    *out = entry->text;
    return MF_OK;
}

mf_status metadata_need_text(const char **out, const struct metadata *metadata, const char *key,
                             mf_error *why)
{
    if (!metadata_find(metadata, key)) return missing(metadata, key, why);
    return metadata_maybe_text(out, metadata, key, why);
}

/* ------------------------------------------------------------------ arrays */

static bool is_kind(enum metadata_type type, enum metadata_type kind)
{
    if (kind == METADATA_I64) return is_whole(type);
    return type == kind;
}

mf_status metadata_maybe_array(struct metadata_array *out, const struct metadata *metadata,
                               const char *key, enum metadata_type kind, mf_error *why)
{
    const struct metadata_entry *entry = metadata_find(metadata, key);
    *out = (struct metadata_array){ .type = kind };
    if (!entry) return MF_OK;
    const char *elements = kind == METADATA_TEXT   ? "texts"
                           : kind == METADATA_FLAG ? "flags"
                                                   : "whole numbers";
    if (!entry->is_array || !is_kind(entry->type, kind))
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s%s, an array of %s was expected",
                    metadata->path, key,
                    entry->is_array ? "an array with elements of the kind " : "",
                    type_name(entry->type), elements);
    out->type = entry->type;
    out->count = entry->count;
    out->bytes = metadata->bytes + (entry->type == METADATA_TEXT ? 0 : entry->offset);
    if (entry->type == METADATA_TEXT && entry->count > 0)
        out->starts = metadata->starts + entry->starts;
    return MF_OK;
}

mf_status metadata_need_array(struct metadata_array *out, const struct metadata *metadata,
                              const char *key, enum metadata_type kind, mf_error *why)
{
    if (!metadata_find(metadata, key)) {
        *out = (struct metadata_array){ .type = kind };
        return missing(metadata, key, why);
    }
    return metadata_maybe_array(out, metadata, key, kind, why);
}

size_t metadata_type_bytes(enum metadata_type type)
{
    static const uint8_t sizes[METADATA_TYPE_COUNT] = {
#define SIZE_OF(id, number, bytes, name) [number] = bytes,
        METADATA_TYPE_LIST(SIZE_OF)
#undef SIZE_OF
    };
    return sizes[type];
}

struct metadata_text metadata_array_text(const struct metadata_array *array, uint64_t index)
{
    const uint8_t *field = array->bytes + array->starts[index];
    return (struct metadata_text){ (const char *)field + 8, load_u64(field) };
}

int64_t metadata_array_int(const struct metadata_array *array, uint64_t index)
{
    bool negative;
    uint64_t number =
        load_whole(&negative, array->type, array->bytes + index * metadata_type_bytes(array->type));
    return !negative && number > INT64_MAX ? INT64_MAX : (int64_t)number;
}
