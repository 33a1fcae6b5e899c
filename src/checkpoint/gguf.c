#include "checkpoint/gguf.h"

#include "base/array.h"
#include "base/status.h"

#include <stdio.h>

enum {
    HEAD_CHUNK_BYTES = 64 * 1024, /* the first read; each later one doubles what is there */
    VALUE_RECORD_BYTES = 13,      /* the least that a value takes: key, type, a byte */
    TENSOR_RECORD_BYTES = 24,     /* and a tensor: name, rank, type, offset */
    TENSOR_NAME_BYTES_MAX = 63,
    TENSOR_DIMENSIONS_MAX = 4,
    ALIGNMENT_DEFAULT = 32,
};

/* Texts, arrays and the head as a whole: far above any model, far below what hurts. */
#define HEAD_BYTES_MAX ((uint64_t)1 << 30)

/* ------------------------------------------------------------ tensor types */

/* By the number in the file.  Types that we cannot compute with have their size
 * all the same, so that the layout can be checked: a file may hold them in
 * tensors that the model does not use.  No elements: retired, or never given. */
static const struct {
    enum format format;
    uint16_t elements, bytes; /* of a block */
} types[] = {
#define HERE(number, id, block_elements, block_bytes)                                              \
    [number] = { FORMAT_##id, block_elements, block_bytes },
#define ELSEWHERE(number, block_elements, block_bytes)                                             \
    [number] = { FORMAT_COUNT, block_elements, block_bytes },
    HERE(0, F32, 1, 4) HERE(1, F16, 1, 2) HERE(2, Q4_0, 32, 18) HERE(3, Q4_1, 32, 20)
        HERE(6, Q5_0, 32, 22) HERE(7, Q5_1, 32, 24) HERE(8, Q8_0, 32, 34)
            ELSEWHERE(9, 32, 36) /* Q8_1 */
    HERE(10, Q2_K, 256, 84) HERE(11, Q3_K, 256, 110) HERE(12, Q4_K, 256, 144)
        HERE(13, Q5_K, 256, 176) HERE(14, Q6_K, 256, 210) ELSEWHERE(15, 256, 292) /* Q8_K */
    ELSEWHERE(16, 256, 66)                                                        /* IQ2_XXS */
    ELSEWHERE(17, 256, 74)                                                        /* IQ2_XS */
    ELSEWHERE(18, 256, 98)                                                        /* IQ3_XXS */
    ELSEWHERE(19, 256, 50)                                                        /* IQ1_S */
    HERE(20, IQ4_NL, 32, 18) ELSEWHERE(21, 256, 110)                              /* IQ3_S */
    ELSEWHERE(22, 256, 82)                                                        /* IQ2_S */
    HERE(23, IQ4_XS, 256, 136) HERE(24, I8, 1, 1) HERE(25, I16, 1, 2) HERE(26, I32, 1, 4)
        HERE(27, I64, 1, 8) HERE(28, F64, 1, 8) ELSEWHERE(29, 256, 56) /* IQ1_M */
    HERE(30, BF16, 1, 2) ELSEWHERE(34, 256, 54)                        /* TQ1_0 */
    ELSEWHERE(35, 256, 66)                                             /* TQ2_0 */
    HERE(39, MXFP4, 32, 17) ELSEWHERE(40, 64, 36)                      /* NVFP4 */
    ELSEWHERE(41, 128, 18)                                             /* Q1_0 */
    ELSEWHERE(42, 64, 18)                                              /* Q2_0 */
#undef HERE
#undef ELSEWHERE
};

/* -------------------------------------------------------- walking the head */

/* The head of one file, loaded as far as it has been needed. */
struct reader {
    const struct file *file;
    struct metadata *metadata; /* its bytes are ours to fill */
    uint64_t at;               /* what comes next */
    uint64_t loaded;
};

static uint64_t remaining(const struct reader *reader)
{
    return reader->file->size - reader->at;
}

/* Makes the next `count` bytes readable at metadata->bytes + at.  `what` is for the message. */
static mf_status load(struct reader *reader, uint64_t count, const char *what, mf_error *why)
{
    struct metadata *metadata = reader->metadata;
    if (reader->file->size == 0) return fail(why, MF_ERR_FORMAT, "%s is empty", reader->file->path);
    if (count > remaining(reader))
        return fail(
            why, MF_ERR_FORMAT,
            "%s: %.128s needs %llu bytes at byte %llu of %llu; the download may be incomplete",
            reader->file->path, what, (unsigned long long)count, (unsigned long long)reader->at,
            (unsigned long long)reader->file->size);
    uint64_t end = reader->at + count;
    if (end <= reader->loaded) return MF_OK;
    if (end > HEAD_BYTES_MAX)
        return fail(why, MF_ERR_FORMAT, "%s: the head is longer than %llu bytes, at %.128s",
                    reader->file->path, (unsigned long long)HEAD_BYTES_MAX, what);
    mf_status status =
        ARRAY_RESERVE(metadata->bytes, metadata->byte_capacity, max_size(end, HEAD_CHUNK_BYTES),
                      metadata->arena.allocator, why);
    if (status != MF_OK) return status;
    uint64_t target =
        reader->file->size < metadata->byte_capacity ? reader->file->size : metadata->byte_capacity;
    status = file_read(reader->file, metadata->bytes + reader->loaded, reader->loaded,
                       target - reader->loaded, why);
    if (status == MF_OK) reader->loaded = target;
    return status;
}

static const uint8_t *here(const struct reader *reader)
{
    return reader->metadata->bytes + reader->at;
}

static mf_status take_u32(uint32_t *out, struct reader *reader, const char *what, mf_error *why)
{
    mf_status status = load(reader, 4, what, why);
    if (status != MF_OK) return status;
    *out = load_u32(here(reader));
    reader->at += 4;
    return MF_OK;
}

static mf_status take_u64(uint64_t *out, struct reader *reader, const char *what, mf_error *why)
{
    mf_status status = load(reader, 8, what, why);
    if (status != MF_OK) return status;
    *out = load_u64(here(reader));
    reader->at += 8;
    return MF_OK;
}

/* Passes over a text, whose bytes then end at reader->at. */
static mf_status skip_text(uint64_t *length, struct reader *reader, const char *what, mf_error *why)
{
    mf_status status = take_u64(length, reader, what, why);
    if (status == MF_OK) status = load(reader, *length, what, why);
    if (status == MF_OK) reader->at += *length;
    return status;
}

/* A text, copied to `arena` and terminated.  A NUL inside is an error if it is a name. */
static mf_status take_text(const char **out, size_t *length, struct reader *reader,
                           struct arena *arena, const char *name_of, mf_error *why)
{
    uint64_t bytes;
    mf_status status = skip_text(&bytes, reader, name_of ? name_of : "a text", why);
    if (status != MF_OK) return status;
    const char *text = (const char *)here(reader) - bytes;
    if (name_of && memchr(text, '\0', bytes))
        return fail(why, MF_ERR_FORMAT, "%s: %s before byte %llu has a NUL byte",
                    reader->file->path, name_of, (unsigned long long)reader->at);
    *out = arena_text(arena, text, bytes);
    if (!*out) return fail_memory(why, bytes + 1);
    *length = bytes;
    return MF_OK;
}

/* ------------------------------------------------------------------ values */

static bool type_size(size_t *out, uint32_t type)
{
    *out = type < METADATA_TYPE_COUNT ? metadata_type_bytes(type) : 0;
    return type < METADATA_TYPE_COUNT;
}

static mf_status take_texts(struct metadata_entry *entry, struct reader *reader, mf_error *why)
{
    struct metadata *metadata = reader->metadata;
    entry->starts = metadata->start_count;
    for (uint64_t i = 0; i < entry->count; i++) {
        mf_status status = ARRAY_RESERVE(metadata->starts, metadata->start_capacity,
                                         metadata->start_count + 1, metadata->arena.allocator, why);
        if (status != MF_OK) return status;
        metadata->starts[metadata->start_count++] = reader->at;
        uint64_t length;
        status = skip_text(&length, reader, entry->key, why);
        if (status != MF_OK) return status;
    }
    return MF_OK;
}

static mf_status take_array(struct metadata_entry *entry, struct reader *reader, mf_error *why)
{
    uint32_t type = 0;
    size_t size;
    mf_status status = take_u32(&type, reader, entry->key, why);
    if (status == MF_OK) status = take_u64(&entry->count, reader, entry->key, why);
    if (status != MF_OK) return status;
    if (!type_size(&size, type) || type == METADATA_ARRAY)
        return fail(why, MF_ERR_FORMAT, "%s: %.128s is an array of elements of type %u",
                    reader->file->path, entry->key, type);
    size_t least = size ? size : 8; /* a text has at least its length */
    if (entry->count > remaining(reader) / least)
        return fail(why, MF_ERR_FORMAT, "%s: %.128s should have %llu elements, %llu bytes are left",
                    reader->file->path, entry->key, (unsigned long long)entry->count,
                    (unsigned long long)remaining(reader));
    entry->is_array = true;
    entry->type = (enum metadata_type)type;
    if (type == METADATA_TEXT) return take_texts(entry, reader, why);
    status = load(reader, entry->count * size, entry->key, why);
    if (status != MF_OK) return status;
    entry->offset = reader->at;
    reader->at += entry->count * size;
    return MF_OK;
}

static mf_status take_value(struct metadata_entry *entry, struct reader *reader, mf_error *why)
{
    uint32_t type = 0;
    size_t size;
    mf_status status = take_u32(&type, reader, entry->key, why);
    if (status != MF_OK) return status;
    if (!type_size(&size, type))
        return fail(why, MF_ERR_FORMAT, "%s: %.128s has type %u, at most %d is known",
                    reader->file->path, entry->key, type, METADATA_TYPE_COUNT - 1);
    if (type == METADATA_ARRAY) return take_array(entry, reader, why);
    entry->type = (enum metadata_type)type;
    entry->count = 1;
    if (type == METADATA_TEXT)
        return take_text(&entry->text, &entry->length, reader, &reader->metadata->arena, NULL, why);
    status = load(reader, size, entry->key, why);
    entry->offset = reader->at;
    if (status == MF_OK) reader->at += size;
    return status;
}

static mf_status take_entry(struct reader *reader, mf_error *why)
{
    struct metadata *metadata = reader->metadata;
    mf_status status = ARRAY_RESERVE(metadata->entries, metadata->capacity, metadata->count + 1,
                                     metadata->arena.allocator, why);
    if (status != MF_OK) return status;
    struct metadata_entry *entry = &metadata->entries[metadata->count];
    *entry = (struct metadata_entry){ 0 };
    size_t length = 0;
    status = take_text(&entry->key, &length, reader, &metadata->arena, "a key", why);
    if (status != MF_OK) return status;
    if (length == 0)
        return fail(why, MF_ERR_FORMAT, "%s: the key before byte %llu is empty", reader->file->path,
                    (unsigned long long)reader->at);
    uint32_t number = (uint32_t)metadata->count, holder;
    status = name_table_add(&holder, &metadata->keys, entry->key, length, number, why);
    if (status != MF_OK) return status;
    if (holder != number)
        return fail(why, MF_ERR_FORMAT, "%s: the key %.128s stands twice", reader->file->path,
                    entry->key);
    metadata->count++;
    return take_value(entry, reader, why);
}

/* ----------------------------------------------------------------- tensors */

/* Sizes from shape and type; the shape turned round. */
static mf_status size_tensor(struct tensor *tensor, const uint64_t dims[TENSOR_DIMENSIONS_MAX],
                             uint32_t type, const char *path, mf_error *why)
{
    if (type >= COUNT_OF(types) || types[type].elements == 0)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: tensor %s has type %u, which is not known", path,
                    tensor->name, type);
    tensor->format = types[type].format;
    uint64_t elements = 1;
    bool fits = true;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        tensor->shape[tensor->rank - 1 - i] = dims[i];
        if (dims[i] > INT64_MAX) fits = false;
        if (dims[i] == 0) elements = 0;
    }
    for (uint32_t i = 0; i < tensor->rank && elements; i++)
        fits = fits && checked_multiply(&elements, elements, dims[i]);
    char shape[128];
    if (!fits || elements > INT64_MAX)
        return fail(why, MF_ERR_FORMAT, "%s: tensor %s has the shape %s, too large", path,
                    tensor->name, tensor_shape_text(tensor, shape, sizeof shape));
    uint64_t row = tensor->rank ? dims[0] : 1;
    if (row % types[type].elements != 0)
        return fail(why, MF_ERR_FORMAT, "%s: tensor %s has rows of %llu, not a multiple of %u",
                    path, tensor->name, (unsigned long long)row, types[type].elements);
    if (!checked_multiply(&tensor->bytes, elements / types[type].elements, types[type].bytes))
        return fail(why, MF_ERR_FORMAT, "%s: tensor %s has the shape %s, too large", path,
                    tensor->name, tensor_shape_text(tensor, shape, sizeof shape));
    return MF_OK;
}

static mf_status take_tensor(struct tensor_directory *directory, struct reader *reader,
                             uint32_t file, mf_error *why)
{
    struct tensor *tensor = tensor_directory_add(directory);
    if (!tensor) return fail_memory(why, sizeof *tensor);
    tensor->file = file;
    tensor->name = "";
    size_t length = 0;
    mf_status status =
        take_text(&tensor->name, &length, reader, &directory->arena, "a tensor name", why);
    if (status == MF_OK) status = take_u32(&tensor->rank, reader, "a tensor's rank", why);
    if (status != MF_OK) return status;
    if (length > TENSOR_NAME_BYTES_MAX)
        return fail(why, MF_ERR_FORMAT, "%s: the name of tensor %.63s… has %zu bytes, at most %d",
                    reader->file->path, tensor->name, length, TENSOR_NAME_BYTES_MAX);
    if (tensor->rank > TENSOR_DIMENSIONS_MAX)
        return fail(why, MF_ERR_FORMAT, "%s: tensor %s has %u dimensions, at most %d",
                    reader->file->path, tensor->name, tensor->rank, TENSOR_DIMENSIONS_MAX);
    uint64_t dims[TENSOR_DIMENSIONS_MAX] = { 0 };
    uint32_t type = 0;
    for (uint32_t i = 0; i < tensor->rank && status == MF_OK; i++)
        status = take_u64(&dims[i], reader, tensor->name, why);
    if (status == MF_OK) status = take_u32(&type, reader, tensor->name, why);
    if (status == MF_OK) status = take_u64(&tensor->offset, reader, tensor->name, why);
    if (status != MF_OK) return status;
    return size_tensor(tensor, dims, type, reader->file->path, why);
}

/* The tensor begins where the one before it ends, padded to the alignment; *expected
 * moves on.  Checked as each is read: a vast file of zeros is refused at the second. */
static mf_status check_offset(uint64_t *expected, const struct tensor *tensor, uint64_t alignment,
                              const struct file *file, mf_error *why)
{
    if (tensor->offset != *expected)
        return fail(why, MF_ERR_FORMAT,
                    "%s: tensor %s begins at byte %llu of the data, %llu was expected", file->path,
                    tensor->name, (unsigned long long)tensor->offset,
                    (unsigned long long)*expected);
    uint64_t end;
    if (!checked_add(&end, *expected, tensor->bytes) || end > file->size)
        return fail(why, MF_ERR_FORMAT,
                    "%s: tensor %s has %llu bytes from byte %llu of the data, the file has %llu",
                    file->path, tensor->name, (unsigned long long)tensor->bytes,
                    (unsigned long long)*expected, (unsigned long long)file->size);
    *expected = align_up(end, alignment); /* bounded by the size of the file */
    return MF_OK;
}

/* The offsets of the tensors from number `first` on become those in the file. */
static mf_status place_tensors(struct tensor_directory *directory, size_t first,
                               const struct reader *reader, uint64_t alignment, mf_error *why)
{
    uint64_t data = align_up(reader->at, alignment);
    uint64_t data_bytes = data < reader->file->size ? reader->file->size - data : 0;
    for (size_t i = first; i < directory->count; i++) {
        struct tensor *tensor = &directory->tensors[i];
        if (tensor->bytes > 0 && tensor->offset + tensor->bytes > data_bytes)
            return fail(why, MF_ERR_FORMAT,
                        "%s: tensor %s has %llu bytes from byte %llu of the data, which has %llu; "
                        "the download may be incomplete",
                        reader->file->path, tensor->name, (unsigned long long)tensor->bytes,
                        (unsigned long long)tensor->offset, (unsigned long long)data_bytes);
        tensor->offset += data;
    }
    return MF_OK;
}

/* ---------------------------------------------------------------- one file */

static mf_status check_version(uint32_t version, const char *path, mf_error *why)
{
    if ((version & 0xffffu) == 0 && version != 0)
        return fail(why, MF_ERR_UNSUPPORTED, "%s was written for big-endian machines", path);
    if (version < 2 || version > 3)
        return fail(why, MF_ERR_UNSUPPORTED, "%s has GGUF version %u, 2 or 3 was expected", path,
                    version);
    return MF_OK;
}

static mf_status take_header(uint64_t *tensor_count, uint64_t *value_count, struct reader *reader,
                             mf_error *why)
{
    const char *path = reader->file->path;
    uint32_t version = 0;
    mf_status status = load(reader, 4, "the magic", why);
    if (status != MF_OK) return status;
    if (memcmp(here(reader), "GGUF", 4) != 0)
        return fail(why, MF_ERR_FORMAT, "%s is not a GGUF file: it does not begin with GGUF", path);
    reader->at = 4;
    status = take_u32(&version, reader, "the version", why);
    if (status == MF_OK) status = check_version(version, path, why);
    if (status == MF_OK) status = take_u64(tensor_count, reader, "the number of tensors", why);
    if (status == MF_OK) status = take_u64(value_count, reader, "the number of values", why);
    if (status != MF_OK) return status;
    if (*value_count > remaining(reader) / VALUE_RECORD_BYTES ||
        *tensor_count > remaining(reader) / TENSOR_RECORD_BYTES)
        return fail(why, MF_ERR_FORMAT,
                    "%s should have %llu values and %llu tensors, too many for its %llu bytes",
                    path, (unsigned long long)*value_count, (unsigned long long)*tensor_count,
                    (unsigned long long)reader->file->size);
    return MF_OK;
}

static mf_status find_alignment(uint64_t *out, const struct metadata *metadata, mf_error *why)
{
    static const char key[] = "general.alignment";
    const struct metadata_entry *entry = metadata_find(metadata, key);
    *out = ALIGNMENT_DEFAULT;
    if (entry && (entry->is_array || entry->type != METADATA_U32))
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s, a 32-bit number was expected",
                    metadata->path, key, metadata_kind(entry));
    mf_status status = metadata_maybe_count(out, metadata, key, 1, UINT32_MAX, why);
    if (status != MF_OK) return status;
    if (*out & (*out - 1))
        return fail(why, MF_ERR_FORMAT, "%s: %s is %llu, a power of two was expected",
                    metadata->path, key, (unsigned long long)*out);
    return MF_OK;
}

/* One file: its tensors are appended, its values go into `metadata`. */
static mf_status add_file(struct tensor_directory *directory, struct metadata *metadata,
                          const mf_files *files, const char *path, mf_error *why)
{
    uint32_t number;
    uint64_t tensor_count = 0, value_count = 0, alignment;
    mf_status status = tensor_directory_add_file(directory, &number, files, path, why);
    if (status != MF_OK) return status;
    struct reader reader = { .file = &directory->files[number], .metadata = metadata };
    metadata->path = arena_text(&metadata->arena, path, strlen(path));
    if (!metadata->path) return fail_memory(why, strlen(path));

    status = take_header(&tensor_count, &value_count, &reader, why);
    for (uint64_t i = 0; i < value_count && status == MF_OK; i++) status = take_entry(&reader, why);
    if (status == MF_OK) status = find_alignment(&alignment, metadata, why);
    size_t first = directory->count;
    uint64_t expected = 0;
    for (uint64_t i = 0; i < tensor_count && status == MF_OK; i++) {
        status = take_tensor(directory, &reader, number, why);
        if (status == MF_OK)
            status = check_offset(&expected, &directory->tensors[first + i], alignment, reader.file,
                                  why);
    }
    if (status == MF_OK) status = place_tensors(directory, first, &reader, alignment, why);
    return status;
}

/* ------------------------------------------------------------- split files */

/* "-00001-of-00003.gguf" */
static void part_suffix(char *out, size_t capacity, unsigned part, unsigned count)
{
    snprintf(out, capacity, "-%05u-of-%05u.gguf", part + 1, count);
}

static mf_status check_part(const struct metadata *metadata, unsigned part, unsigned count,
                            mf_error *why)
{
    uint64_t number = 0, total = 0;
    mf_status status = metadata_need_count(&number, metadata, "split.no", 0, UINT16_MAX, why);
    if (status == MF_OK)
        status = metadata_need_count(&total, metadata, "split.count", 0, UINT16_MAX, why);
    if (status != MF_OK) return status;
    if (number != part || total != count)
        return fail(why, MF_ERR_MISMATCH, "%s is part %u of %u, part %u of %u was expected",
                    metadata->path, (unsigned)number + 1, (unsigned)total, part + 1, count);
    return MF_OK;
}

/* Parts 1 to count - 1, found by the name of part 0. */
static mf_status add_parts(struct tensor_directory *directory, const mf_files *files,
                           const char *path, unsigned count, mf_error *why)
{
    char suffix[32], part_path[PATH_CAPACITY];
    part_suffix(suffix, sizeof suffix, 0, count);
    size_t length = strlen(path), suffix_length = strlen(suffix);
    if (length < suffix_length || strcmp(path + length - suffix_length, suffix) != 0)
        return fail(why, MF_ERR_MISMATCH,
                    "%s is the first of %u parts, but its name does not end in %s", path, count,
                    suffix);
    mf_status status = MF_OK;
    for (unsigned part = 1; part < count && status == MF_OK; part++) {
        part_suffix(suffix, sizeof suffix, part, count);
        int needed = snprintf(part_path, sizeof part_path, "%.*s%s", (int)(length - suffix_length),
                              path, suffix);
        if (needed < 0 || (size_t)needed >= sizeof part_path)
            return fail(why, MF_ERR_ARGUMENT, "the path %.64s… is too long", path);
        struct metadata metadata;
        metadata_init(&metadata, directory->arena.allocator);
        status = tensor_file_require(files, part_path, why);
        if (status == MF_OK) status = add_file(directory, &metadata, files, part_path, why);
        if (status == MF_OK) status = check_part(&metadata, part, count, why);
        metadata_free(&metadata);
    }
    return status;
}

mf_status checkpoint_gguf_open(struct tensor_directory *directory, struct metadata *metadata,
                               const mf_files *files, const char *path, mf_error *why)
{
    uint64_t count = 0, tensor_count = 0;
    mf_status status = add_file(directory, metadata, files, path, why);
    if (status == MF_OK)
        status = metadata_maybe_count(&count, metadata, "split.count", 0, UINT16_MAX, why);
    if (status == MF_OK && count > 1) {
        status = check_part(metadata, 0, (unsigned)count, why);
        if (status == MF_OK) status = add_parts(directory, files, path, (unsigned)count, why);
        if (status == MF_OK)
            status = metadata_need_count(&tensor_count, metadata, "split.tensors.count", 0,
                                         INT32_MAX, why);
        if (status == MF_OK && tensor_count != directory->count)
            status =
                fail(why, MF_ERR_MISMATCH, "%s: the %u parts should have %llu tensors, have %zu",
                     path, (unsigned)count, (unsigned long long)tensor_count, directory->count);
    }
    return status == MF_OK ? tensor_directory_finish(directory, why) : status;
}
