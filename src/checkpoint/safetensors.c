#include "checkpoint/safetensors.h"

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/dtype.h"

#include <stdlib.h>

enum { HEADER_BYTES_MAX = 100 * 1000 * 1000 };

/* ------------------------------------------------------------- one tensor */

/* A tensor's bytes, counted from the start of the data. */
struct extent {
    uint64_t begin, end;
    const char *name;
};

static mf_status read_fields(struct tensor *tensor, struct extent *extent, unsigned *bits,
                             const json_t *entry, const char *path, mf_error *why)
{
    const char *name = extent->name;
    mf_status status = tensor_from_json(tensor, bits, entry, path, name, why);
    if (status != MF_OK) return status;
    uint64_t offsets[2];
    uint32_t count;
    if (!json_whole_numbers(offsets, &count, 2, json_object_get(entry, "data_offsets")) ||
        count != 2)
        return fail(why, MF_ERR_FORMAT, TENSOR_NAMED ": data_offsets are not two whole numbers",
                    path, name);
    extent->begin = offsets[0];
    extent->end = offsets[1];
    if (extent->begin > extent->end)
        return fail(why, MF_ERR_FORMAT, TENSOR_NAMED " ends at %llu, before its begin at %llu",
                    path, name, (unsigned long long)extent->end, (unsigned long long)extent->begin);
    return MF_OK;
}

/* shape x bits is what the extent holds; nothing to compare for an unknown type. */
static mf_status check_size(const struct tensor *tensor, const struct extent *extent, unsigned bits,
                            const char *path, mf_error *why)
{
    if (dtype_size_matches(tensor, bits, extent->end - extent->begin)) return MF_OK;
    char shape[200];
    return fail(why, MF_ERR_FORMAT, TENSOR_NAMED " of shape %s and %u bits has %llu bytes", path,
                extent->name, tensor_shape_text(tensor, shape, sizeof shape), bits,
                (unsigned long long)(extent->end - extent->begin));
}

/* ---------------------------------------------------------------- one file */

struct shard {
    struct tensor_directory *directory;
    uint32_t file;
    const char *path;
    uint64_t data_begin, data_bytes;
    struct extent *extents; /* one for each tensor */
    size_t extent_count;
};

static mf_status add_tensor(struct shard *shard, const char *name, const json_t *entry,
                            mf_error *why)
{
    struct tensor *tensor = tensor_directory_add(shard->directory);
    if (!tensor) return fail_memory(why, sizeof *tensor);
    tensor->name = arena_text(&shard->directory->arena, name, strlen(name));
    if (!tensor->name) return fail_memory(why, strlen(name));

    struct extent *extent = &shard->extents[shard->extent_count++];
    extent->name = tensor->name;
    unsigned bits = 0;
    mf_status status = read_fields(tensor, extent, &bits, entry, shard->path, why);
    if (status == MF_OK) status = check_size(tensor, extent, bits, shard->path, why);
    if (status != MF_OK) return status;
    if (extent->end > shard->data_bytes)
        return fail(why, MF_ERR_FORMAT,
                    TENSOR_NAMED " ends at byte %llu of the data, which has %llu; the download "
                                 "may be incomplete",
                    shard->path, name, (unsigned long long)extent->end,
                    (unsigned long long)shard->data_bytes);
    tensor->file = shard->file;
    tensor->offset = shard->data_begin + extent->begin;
    tensor->bytes = extent->end - extent->begin;
    return MF_OK;
}

static int compare_extents(const void *left, const void *right)
{
    const struct extent *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1; /* an empty one comes first */
    return strcmp(a->name, b->name);
}

/* The tensors cover the data from the first byte to the last: no hole, no overlap. */
static mf_status check_tiling(struct shard *shard, mf_error *why)
{
    uint64_t end = 0;
    qsort(shard->extents, shard->extent_count, sizeof *shard->extents, compare_extents);
    for (size_t i = 0; i < shard->extent_count; i++) {
        const struct extent *extent = &shard->extents[i];
        if (extent->begin != end)
            return fail(
                why, MF_ERR_FORMAT, TENSOR_NAMED " begins at byte %llu of the data, %s at %llu",
                shard->path, extent->name, (unsigned long long)extent->begin,
                extent->begin < end ? "inside the one that ends" : "after a hole that begins",
                (unsigned long long)end);
        end = extent->end;
    }
    if (end != shard->data_bytes)
        return fail(why, MF_ERR_FORMAT,
                    "%s: the tensors end at byte %llu of the data, which has %llu", shard->path,
                    (unsigned long long)end, (unsigned long long)shard->data_bytes);
    return MF_OK;
}

/* "__metadata__" holds strings only.  Nothing in it is used. */
static mf_status check_metadata(const struct shard *shard, const json_t *metadata, mf_error *why)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return fail(why, MF_ERR_FORMAT, "%s: __metadata__ is %s, an object was expected",
                    shard->path, json_kind(metadata));
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value))
            return fail(why, MF_ERR_FORMAT, "%s: __metadata__ %.128s is %s, a string was expected",
                        shard->path, key, json_kind(value));
    }
    return MF_OK;
}

static mf_status add_tensors(struct shard *shard, json_t *header, mf_error *why)
{
    const mf_allocator *allocator = shard->directory->arena.allocator;
    size_t bytes = max_size(json_object_size(header), 1) * sizeof *shard->extents;
    shard->extents = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!shard->extents) return fail_memory(why, bytes);

    mf_status status = MF_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        bool metadata = strcmp(name, "__metadata__") == 0;
        status = metadata ? check_metadata(shard, entry, why) : add_tensor(shard, name, entry, why);
        if (status != MF_OK) break;
    }
    if (status == MF_OK) status = check_tiling(shard, why);
    allocator->release(allocator->user, shard->extents, bytes);
    shard->extents = NULL;
    return status;
}

/* The header of the open file, parsed; the caller owns it. */
static mf_status read_header_new(json_t **out, uint64_t *header_bytes, const struct file *file,
                                 const mf_allocator *allocator, mf_error *why)
{
    uint8_t length[8];
    *out = NULL;
    if (file->size < sizeof length)
        return fail(why, MF_ERR_FORMAT, "%s has %llu bytes, a safetensors file has at least 8",
                    file->path, (unsigned long long)file->size);
    mf_status status = file_read(file, length, 0, sizeof length, why);
    if (status != MF_OK) return status;
    uint64_t bytes = load_u64(length);
    if (memcmp(length, "version ", sizeof length) == 0 && file->size >= FILE_POINTER_BYTES) {
        char head[FILE_POINTER_BYTES];
        status = file_read(file, head, 0, sizeof head, why);
        if (status == MF_OK) status = file_refuse_pointer(file->path, head, sizeof head, why);
        if (status != MF_OK) return status;
    }
    if (bytes > HEADER_BYTES_MAX || bytes > file->size - sizeof length || bytes == 0)
        return fail(why, MF_ERR_FORMAT,
                    "%s: the header should have %llu bytes, from 1 to %llu were expected",
                    file->path, (unsigned long long)bytes,
                    (unsigned long long)(file->size - sizeof length < HEADER_BYTES_MAX
                                             ? file->size - sizeof length
                                             : HEADER_BYTES_MAX));
    char *text = allocator->allocate(allocator->user, bytes, CACHE_LINE);
    if (!text) return fail_memory(why, bytes);
    status = file_read(file, text, sizeof length, bytes, why);
    if (status == MF_OK && text[0] != '{')
        status = fail(why, MF_ERR_FORMAT, "%s: the header does not begin with '{'", file->path);
    if (status == MF_OK) status = json_parse_new(out, text, bytes, file->path, why);
    allocator->release(allocator->user, text, bytes);
    *header_bytes = bytes;
    return status;
}

static mf_status add_shard(struct tensor_directory *directory, const mf_files *files,
                           const char *path, mf_error *why)
{
    struct shard shard = { .directory = directory };
    mf_status status = tensor_directory_add_file(directory, &shard.file, files, path, why);
    if (status != MF_OK) return status;
    const struct file *file = &directory->files[shard.file];
    json_t *header;
    uint64_t header_bytes = 0;
    status = read_header_new(&header, &header_bytes, file, directory->arena.allocator, why);
    if (status != MF_OK) return status;
    shard.path = file->path;
    shard.data_begin = 8 + header_bytes;
    shard.data_bytes = file->size - shard.data_begin;
    status = add_tensors(&shard, header, why);
    json_decref(header);
    return status;
}

/* ---------------------------------------------------------- the checkpoint */

/* File names of a checkpoint, each once. */
struct shard_names {
    struct arena arena;
    struct name_table known;
    const char **names;
    size_t count, capacity;
    mf_status status; /* the first failure: the listing callback cannot return one */
};

static void shard_names_init(struct shard_names *names, const mf_allocator *allocator)
{
    *names = (struct shard_names){ 0 };
    arena_init(&names->arena, allocator);
    name_table_init(&names->known, allocator);
}

static void shard_names_free(struct shard_names *names)
{
    name_table_free(&names->known);
    arena_free(&names->arena);
}

static mf_status remember_name(struct shard_names *names, const char *name, mf_error *why)
{
    size_t length = strlen(name);
    if (name_table_find(&names->known, name, length) != NAME_UNKNOWN) return MF_OK;
    if (names->count == names->capacity) {
        size_t wider = names->capacity ? names->capacity * 2 : 64;
        const char **array = ARENA_NEW(&names->arena, const char *, wider);
        if (!array) return fail_memory(why, wider * sizeof *array);
        if (names->count) memcpy(array, names->names, names->count * sizeof *array);
        names->names = array;
        names->capacity = wider;
    }
    char *copy = arena_text(&names->arena, name, length);
    if (!copy) return fail_memory(why, length + 1);
    uint32_t holder;
    mf_status status =
        name_table_add(&holder, &names->known, copy, length, (uint32_t)names->count, why);
    if (status == MF_OK) names->names[names->count++] = copy;
    return status;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static mf_status add_shards(struct tensor_directory *directory, const mf_files *files,
                            const char *path, struct shard_names *names, mf_error *why)
{
    mf_status status = MF_OK;
    char shard_path[PATH_CAPACITY];
    if (names->count) qsort(names->names, names->count, sizeof *names->names, compare_names);
    for (size_t i = 0; i < names->count && status == MF_OK; i++) {
        status = path_join(shard_path, sizeof shard_path, path, names->names[i], why);
        if (status == MF_OK) status = tensor_file_require(files, shard_path, why);
        if (status == MF_OK) status = add_shard(directory, files, shard_path, why);
    }
    return status;
}

/* Every mapped tensor is in the shard that the index names.  (A shard path is joined,
 * so it has a slash.) */
static mf_status check_map(const struct tensor_directory *directory, json_t *map, const char *where,
                           mf_error *why)
{
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value)
    {
        const char *shard = json_string_value(value);
        const struct tensor *tensor = tensor_find(directory, name);
        const char *found = tensor ? strrchr(directory->files[tensor->file].path, '/') + 1 : NULL;
        if (found && strcmp(found, shard) == 0) continue;
        return fail(why, MF_ERR_MISMATCH, TENSOR_NAMED " is to be in %.128s, but it is %s%.128s",
                    where, name, shard, found ? "in " : "nowhere", found ? found : "");
    }
    return MF_OK;
}

static mf_status collect_map(struct shard_names *names, json_t *map, const char *where,
                             mf_error *why)
{
    const char *name;
    json_t *value;
    if (!json_is_object(map))
        return fail(why, MF_ERR_FORMAT, "%s: weight_map is %s, an object was expected", where,
                    json_kind(map));
    json_object_foreach(map, name, value)
    {
        const char *shard = json_string_value(value);
        if (!shard)
            return fail(why, MF_ERR_FORMAT, TENSOR_NAMED " is mapped to %s, not to a file name",
                        where, name, json_kind(value));
        if (strlen(shard) != json_string_length(value) || !path_is_base_name(shard))
            return fail(why, MF_ERR_FORMAT,
                        TENSOR_NAMED " is mapped to '%.128s', not to a plain file name", where,
                        name, shard);
        mf_status status = remember_name(names, shard, why);
        if (status != MF_OK) return status;
    }
    if (names->count == 0) return fail(why, MF_ERR_FORMAT, "%s: weight_map is empty", where);
    return MF_OK;
}

static mf_status open_indexed(struct tensor_directory *directory, const mf_files *files,
                              const char *path, const char *index_path, mf_error *why)
{
    struct shard_names names;
    json_t *index;
    mf_status status = json_read_file_new(&index, files, index_path, HEADER_BYTES_MAX, why);
    if (status != MF_OK) return status;
    shard_names_init(&names, directory->arena.allocator);
    json_t *map = json_object_get(index, "weight_map");
    status = collect_map(&names, map, index_path, why);
    if (status == MF_OK) status = add_shards(directory, files, path, &names, why);
    if (status == MF_OK) status = tensor_directory_finish(directory, why);
    if (status == MF_OK) status = check_map(directory, map, index_path, why);
    shard_names_free(&names);
    json_decref(index);
    return status;
}

static void take_model_file(void *context, const char *name)
{
    static const char suffix[] = ".safetensors";
    struct shard_names *names = context;
    size_t length = strlen(name);
    if (strncmp(name, "model", 5) != 0 || length < sizeof suffix + 4) return;
    if (strcmp(name + length - (sizeof suffix - 1), suffix) != 0) return;
    if (names->status == MF_OK) names->status = remember_name(names, name, NULL);
}

static mf_status open_listed(struct tensor_directory *directory, const mf_files *files,
                             const char *path, mf_error *why)
{
    struct shard_names names;
    shard_names_init(&names, directory->arena.allocator);
    mf_status status;
    int result = files->list(files->user, path, take_model_file, &names);
    if (result < 0) {
        status = fail_errno(why, MF_ERR_IO, -result, "%s cannot be listed", path);
    } else if (names.status != MF_OK) {
        status = fail(why, names.status, "the files of %s cannot be listed: %s", path,
                      mf_status_text(names.status));
    } else if (names.count == 0) {
        status = fail(why, MF_ERR_IO, "%s has no model*.safetensors", path);
    } else {
        status = add_shards(directory, files, path, &names, why);
    }
    if (status == MF_OK) status = tensor_directory_finish(directory, why);
    shard_names_free(&names);
    return status;
}

mf_status safetensors_open(struct tensor_directory *directory, const mf_files *files,
                           const char *path, mf_error *why)
{
    char index_path[PATH_CAPACITY], model_path[PATH_CAPACITY];
    mf_status status =
        path_join(index_path, sizeof index_path, path, "model.safetensors.index.json", why);
    if (status == MF_OK)
        status = path_join(model_path, sizeof model_path, path, "model.safetensors", why);
    if (status != MF_OK) return status;

    bool present;
    status = file_probe(&present, files, index_path, why);
    if (status != MF_OK) return status;
    if (present) return open_indexed(directory, files, path, index_path, why);
    status = file_probe(&present, files, model_path, why);
    if (status != MF_OK) return status;
    if (!present) return open_listed(directory, files, path, why);
    status = add_shard(directory, files, model_path, why);
    return status == MF_OK ? tensor_directory_finish(directory, why) : status;
}
