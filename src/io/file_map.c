#include "io/file_map.h"

#include "base/status.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

bool file_can_be_mapped(const struct file *file)
{
    return file->handle && file->files->descriptor && file->size <= SIZE_MAX &&
           file->files->descriptor(file->files->user, file->handle) >= 0;
}

mf_status file_map_open(struct file_map *out, const struct file *file, mf_error *why)
{
    *out = (struct file_map){ .descriptor = -1 };
    if (!file_can_be_mapped(file))
        return fail(why, MF_ERR_UNSUPPORTED, "%s cannot be mapped: it has no descriptor",
                    file->path);
    out->descriptor = file->files->descriptor(file->files->user, file->handle);
    if (file->size == 0) return MF_OK;
    void *bytes = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, out->descriptor, 0);
    if (bytes == MAP_FAILED)
        return fail_errno(why, MF_ERR_IO, errno, "%s cannot be mapped", file->path);
    out->bytes = bytes;
    out->size = file->size;
    return MF_OK;
}

void file_map_close(struct file_map *map)
{
    if (map->bytes) munmap((void *)map->bytes, (size_t)map->size);
    *map = (struct file_map){ .descriptor = -1 };
}

uint64_t file_map_bytes_left(const struct file_map *map)
{
    struct stat info;
    if (fstat(map->descriptor, &info) != 0 || info.st_size < 0) return 0;
    return (uint64_t)info.st_size < map->size ? (uint64_t)info.st_size : map->size;
}
