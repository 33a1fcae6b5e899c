#include "base/disk.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Large aligned writes bypass the page cache: several times as fast on a busy machine, and they
 * evict no files of other programs. */
enum { DIRECT_ALIGNMENT = 4096 };

struct posix_file {
    int descriptor;
    int direct; /* the same file; -1: not on this file system */
};

static int descriptor_of(void *handle)
{
    return ((struct posix_file *)handle)->descriptor;
}

/* `user` is the mode of new files; NULL: what the process's mask leaves. */
static mode_t mode_of(const void *user, mode_t otherwise)
{
    return user ? *(const mode_t *)user : otherwise;
}

static int posix_make_directory(void *user, const char *path)
{
    mode_t mode = mode_of(user, 0777);
    mode |= (mode & 0444) >> 2; /* a directory that can be read can be searched */
    return mkdir(path, mode) == 0 ? 0 : -errno;
}

static int posix_open(void *user, const char *path, void **handle, uint64_t *size)
{
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, mode_of(user, 0666));
    if (descriptor < 0) return -errno;
    struct stat info;
    int problem = fstat(descriptor, &info) < 0 ? errno : 0;
    if (!problem && !S_ISREG(info.st_mode)) problem = EINVAL;
    struct posix_file *file = problem ? NULL : malloc(sizeof *file);
    if (!file) {
        close(descriptor);
        return problem ? -problem : -ENOMEM;
    }
    *file = (struct posix_file){ descriptor, open(path, O_WRONLY | O_DIRECT | O_CLOEXEC) };
    *handle = file;
    *size = (uint64_t)info.st_size;
    return 0;
}

static bool fits_direct(uint64_t offset, const void *bytes, size_t count)
{
    return (offset | (uintptr_t)bytes | count) % DIRECT_ALIGNMENT == 0;
}

static int64_t posix_write(void *user, void *handle, uint64_t offset, const void *bytes,
                           size_t count)
{
    const struct posix_file *file = handle;
    (void)user;
    bool direct = file->direct >= 0 && fits_direct(offset, bytes, count);
    ssize_t written;
    do {
        written = pwrite(direct ? file->direct : file->descriptor, bytes, count, (off_t)offset);
    } while (written < 0 && errno == EINTR);
    if (written < 0 && errno == EINVAL &&
        direct) /* stricter alignment than ours: write through the page cache */
        written = pwrite(file->descriptor, bytes, count, (off_t)offset);
    return written < 0 ? -errno : written;
}

static int posix_resize(void *user, void *handle, uint64_t bytes)
{
    (void)user;
    return ftruncate(descriptor_of(handle), (off_t)bytes) == 0 ? 0 : -errno;
}

static int posix_sync(void *user, void *handle)
{
    (void)user;
    return fsync(descriptor_of(handle)) == 0 ? 0 : -errno;
}

static int posix_lock(void *user, void *handle)
{
    (void)user;
    return flock(descriptor_of(handle), LOCK_EX | LOCK_NB) == 0 ? 0 : -errno;
}

static void posix_close(void *user, void *handle)
{
    struct posix_file *file = handle;
    (void)user;
    if (file->direct >= 0) close(file->direct);
    close(file->descriptor);
    free(file);
}

static int posix_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return rename(from, to) == 0 ? 0 : -errno;
}

static int posix_remove(void *user, const char *path)
{
    (void)user;
    return unlink(path) == 0 ? 0 : -errno;
}

static int posix_sync_directory(void *user, const char *path)
{
    (void)user;
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return -errno;
    /* Some file systems have nothing to sync in a directory. */
    int problem = fsync(descriptor) < 0 && errno != EINVAL ? errno : 0;
    close(descriptor);
    return -problem;
}

static int posix_free_bytes(void *user, const char *path, uint64_t *bytes)
{
    (void)user;
    struct statvfs info;
    if (statvfs(path, &info) != 0) return -errno;
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return 0;
}

static void posix_forget(void *user, void *handle)
{
    (void)user;
    posix_fadvise(descriptor_of(handle), 0, 0, POSIX_FADV_DONTNEED);
}

#define POSIX_CALLS                                                                                \
    .make_directory = posix_make_directory, .open = posix_open, .write = posix_write,              \
    .resize = posix_resize, .sync = posix_sync, .lock = posix_lock, .close = posix_close,          \
    .rename = posix_rename, .remove = posix_remove, .sync_directory = posix_sync_directory,        \
    .free_bytes = posix_free_bytes, .forget = posix_forget

static const mode_t owner_only = 0600;

const struct disk disk_posix = { POSIX_CALLS };
const struct disk disk_private = { .user = (void *)&owner_only, POSIX_CALLS };

mf_status disk_file_open(struct disk_file *out, const struct disk *disk, const char *directory,
                         const char *name, mf_error *why)
{
    *out = (struct disk_file){ .disk = disk };
    mf_status status = path_join(out->path, sizeof out->path, directory, name, why);
    if (status != MF_OK) return status;
    int result = disk->open(disk->user, out->path, &out->handle, &out->size);
    if (result == 0) return MF_OK;
    out->handle = NULL;
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be opened for writing", out->path);
}

void disk_file_close(struct disk_file *file)
{
    if (file->handle) file->disk->close(file->disk->user, file->handle);
    file->handle = NULL;
}

mf_status disk_file_write(struct disk_file *file, uint64_t offset, const void *bytes, size_t count,
                          mf_error *why)
{
    const uint8_t *from = bytes;
    while (count > 0) {
        int64_t written = file->disk->write(file->disk->user, file->handle, offset, from, count);
        if (written <= 0)
            return fail_errno(why, MF_ERR_IO, written < 0 ? (int)-written : EIO,
                              "%s cannot be written at byte %llu", file->path,
                              (unsigned long long)offset);
        from += written;
        offset += (uint64_t)written;
        count -= (size_t)written;
    }
    if (offset > file->size) file->size = offset;
    return MF_OK;
}

mf_status disk_file_resize(struct disk_file *file, uint64_t bytes, mf_error *why)
{
    int result = file->disk->resize(file->disk->user, file->handle, bytes);
    if (result < 0)
        return fail_errno(why, MF_ERR_IO, -result, "%s cannot be made %llu bytes long", file->path,
                          (unsigned long long)bytes);
    file->size = bytes;
    return MF_OK;
}

mf_status disk_file_sync(struct disk_file *file, mf_error *why)
{
    int result = file->disk->sync(file->disk->user, file->handle);
    return result == 0 ? MF_OK
                       : fail_errno(why, MF_ERR_IO, -result, "%s cannot be written", file->path);
}

mf_status disk_put(const struct disk *disk, const char *directory, const char *name,
                   const void *bytes, size_t count, mf_error *why)
{
    struct disk_file file;
    mf_status status = disk_file_open(&file, disk, directory, name, why);
    if (status == MF_OK) status = disk_file_resize(&file, 0, why);
    if (status == MF_OK) status = disk_file_write(&file, 0, bytes, count, why);
    if (status == MF_OK) status = disk_file_sync(&file, why);
    disk_file_close(&file);
    return status;
}

mf_status disk_replace(const struct disk *disk, const char *path, const void *bytes, size_t count,
                       mf_error *why)
{
    char partial[PATH_CAPACITY], directory[PATH_CAPACITY] = ".";
    size_t length = strlen(path);
    if (length + sizeof ".partial" > sizeof partial)
        return fail(why, MF_ERR_ARGUMENT, "a path of %zu bytes is too long", length);
    memcpy(partial, path, length);
    memcpy(partial + length, ".partial", sizeof ".partial");
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (slash) {
        memcpy(directory, path, (size_t)(slash - path));
        directory[slash - path] = '\0';
    }
    const char *parent = slash == path ? "/" : directory;
    mf_status status = disk_put(disk, parent, partial + (name - path), bytes, count, why);
    int result = status == MF_OK ? disk->rename(disk->user, partial, path) : 0;
    if (status != MF_OK || result < 0) disk->remove(disk->user, partial);
    if (status != MF_OK) return status;
    if (result < 0)
        return fail_errno(why, MF_ERR_IO, -result, "%s cannot be renamed to %s", partial, path);
    result = disk->sync_directory(disk->user, parent);
    if (result < 0) return fail_errno(why, MF_ERR_IO, -result, "%s cannot be synced", parent);
    return MF_OK;
}
