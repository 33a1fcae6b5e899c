#include "checkpoint/tensor_directory.h"

#include "base/array.h"
#include "base/checksum.h"
#include "base/status.h"

#include <stdio.h>

void tensor_directory_init(struct tensor_directory *directory, const mf_allocator *allocator)
{
    *directory = (struct tensor_directory){ 0 };
    arena_init(&directory->arena, allocator);
    name_table_init(&directory->names, allocator);
}

void tensor_directory_free(struct tensor_directory *directory)
{
    const mf_allocator *allocator = directory->arena.allocator;
    if (!allocator) return; /* never initialised */
    for (size_t i = 0; i < directory->file_count; i++) file_close(&directory->files[i]);
    array_free(directory->files, directory->file_capacity, sizeof *directory->files, allocator);
    array_free(directory->tensors, directory->capacity, sizeof *directory->tensors, allocator);
    name_table_free(&directory->names);
    arena_free(&directory->arena);
    tensor_directory_init(directory, allocator);
}

/* A place for one more file, and a copy of its path. */
static mf_status reserve_file(struct file **out, struct tensor_directory *directory,
                              const char **path, mf_error *why)
{
    mf_status status = ARRAY_RESERVE(directory->files, directory->file_capacity,
                                     directory->file_count + 1, directory->arena.allocator, why);
    if (status != MF_OK) return status;
    const char *kept = arena_text(&directory->arena, *path, strlen(*path));
    if (!kept) return fail_memory(why, strlen(*path) + 1);
    *path = kept;
    *out = &directory->files[directory->file_count];
    return MF_OK;
}

mf_status tensor_file_require(const mf_files *files, const char *path, mf_error *why)
{
    bool present = false;
    mf_status status = file_probe(&present, files, path, why);
    if (status != MF_OK || present) return status;
    return fail(why, MF_ERR_IO, "%s is missing; the download may be incomplete", path);
}

mf_status tensor_directory_add_file(struct tensor_directory *directory, uint32_t *index,
                                    const mf_files *files, const char *path, mf_error *why)
{
    struct file *file = NULL;
    mf_status status = reserve_file(&file, directory, &path, why);
    if (status == MF_OK) status = file_open(file, files, path, why);
    if (status == MF_OK) *index = (uint32_t)directory->file_count++;
    return status;
}

mf_status tensor_directory_add_absent(struct tensor_directory *directory, uint32_t *index,
                                      const char *path, mf_error *why)
{
    struct file *file = NULL;
    mf_status status = reserve_file(&file, directory, &path, why);
    if (status != MF_OK) return status;
    *file = (struct file){ .path = path };
    *index = (uint32_t)directory->file_count++;
    return MF_OK;
}

struct tensor *tensor_directory_add(struct tensor_directory *directory)
{
    /* Numbers of tensors are 32-bit in the name table. */
    if (directory->count >= UINT32_MAX / 2 ||
        ARRAY_RESERVE(directory->tensors, directory->capacity, directory->count + 1,
                      directory->arena.allocator, NULL) != MF_OK)
        return NULL;
    struct tensor *tensor = &directory->tensors[directory->count++];
    *tensor = (struct tensor){ 0 };
    return tensor;
}

mf_status tensor_directory_finish(struct tensor_directory *directory, mf_error *why)
{
    name_table_free(&directory->names);
    for (uint32_t i = 0; i < directory->count; i++) {
        const struct tensor *tensor = &directory->tensors[i];
        uint32_t holder;
        mf_status status =
            name_table_add(&holder, &directory->names, tensor->name, strlen(tensor->name), i, why);
        if (status != MF_OK) return status;
        if (holder == i) continue;
        const struct tensor *earlier = &directory->tensors[holder];
        return fail(why, MF_ERR_FORMAT, "tensor %.128s stands twice: in %s and in %s", tensor->name,
                    directory->files[earlier->file].path, directory->files[tensor->file].path);
    }
    return MF_OK;
}

struct tensor *tensor_find(const struct tensor_directory *directory, const char *name)
{
    uint32_t number = name_table_find(&directory->names, name, strlen(name));
    return number == NAME_UNKNOWN ? NULL : &directory->tensors[number];
}

/* With the page cache never holding more than a piece, and what the kernel read ahead. */
static mf_status read_uncached(const struct file *file, uint8_t *out, uint64_t offset,
                               uint64_t bytes, mf_error *why)
{
    enum { PIECE = 16 << 20 };
    mf_status status = MF_OK;
    for (uint64_t at = 0; at < bytes && status == MF_OK; at += PIECE) {
        status = file_read(file, out + at, offset + at, min_size(bytes - at, PIECE), why);
        file_forget(file);
    }
    return status;
}

mf_status tensor_read(const struct tensor_directory *directory, const struct tensor *tensor,
                      void *out, mf_error *why)
{
    const struct file *file = &directory->files[tensor->file];
    mf_status status = directory->uncached
                           ? read_uncached(file, out, tensor->offset, tensor->bytes, why)
                           : file_read(file, out, tensor->offset, tensor->bytes, why);
    if (status != MF_OK || !tensor->checksummed) return status;
    if (checksum_of(out, tensor->bytes) == tensor->checksum) return MF_OK;
    return fail(why, MF_ERR_IO,
                "%s: the %llu bytes of tensor %.128s from byte %llu are not those that were "
                "written: the checksum differs",
                file->path, (unsigned long long)tensor->bytes, tensor->name,
                (unsigned long long)tensor->offset);
}

const char *tensor_shape_text(const struct tensor *tensor, char *out, size_t capacity)
{
    size_t used = 0;
    if (capacity == 0) return out;
    for (uint32_t i = 0; i < tensor->rank && used < capacity; i++) {
        int written = snprintf(out + used, capacity - used, "%s%llu", i ? ", " : "[",
                               (unsigned long long)tensor->shape[i]);
        used += written > 0 ? (size_t)written : 0;
    }
    if (used < capacity) snprintf(out + used, capacity - used, tensor->rank ? "]" : "[]");
    return out;
}
