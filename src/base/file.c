#include "base/file.h"

#include "base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A handle is the descriptor plus one, so that NULL stays "not open". */
static void *handle_of(int descriptor)
{
    return (void *)((intptr_t)descriptor + 1);
}

static int descriptor_of(void *handle)
{
    return (int)((intptr_t)handle - 1);
}

static int posix_open(void *user, const char *path, void **handle, uint64_t *size)
{
    (void)user;
    /* O_NONBLOCK, because opening a FIFO would wait for a writer; removed after the open, because
     * io_uring returns EAGAIN for reads of such a descriptor. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (descriptor < 0) return -errno;
    struct stat info;
    int problem = fstat(descriptor, &info) < 0 ? errno : 0;
    if (!problem && S_ISDIR(info.st_mode)) problem = EISDIR;
    if (!problem && !S_ISREG(info.st_mode)) problem = EINVAL;
    int flags = problem ? 0 : fcntl(descriptor, F_GETFL);
    if (!problem && (flags < 0 || fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) < 0))
        problem = errno;
    if (problem) {
        close(descriptor);
        return -problem;
    }
    /* No read-ahead by the kernel: it would fetch experts that no router has chosen. */
    posix_fadvise(descriptor, 0, 0, POSIX_FADV_RANDOM);
    *handle = handle_of(descriptor);
    *size = (uint64_t)info.st_size;
    return 0;
}

static int64_t posix_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    (void)user;
    ssize_t got;
    do {
        got = pread(descriptor_of(handle), out, count, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static void posix_close(void *user, void *handle)
{
    (void)user;
    close(descriptor_of(handle));
}

static int posix_list(void *user, const char *directory,
                      void (*entry)(void *context, const char *name), void *context)
{
    (void)user;
    DIR *stream = opendir(directory);
    if (!stream) return -errno;
    struct dirent *item;
    while ((item = readdir(stream))) entry(context, item->d_name);
    closedir(stream);
    return 0;
}

static int posix_descriptor(void *user, void *handle)
{
    (void)user;
    return descriptor_of(handle);
}

const mf_files files_posix = { .open = posix_open,
                               .read = posix_read,
                               .close = posix_close,
                               .list = posix_list,
                               .descriptor = posix_descriptor };

mf_status file_open(struct file *out, const mf_files *files, const char *path, mf_error *why)
{
    *out = (struct file){ .files = files, .path = path };
    int result = files->open(files->user, path, &out->handle, &out->size);
    if (result == 0) return MF_OK;
    out->handle = NULL;
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be opened", path);
}

void file_close(struct file *file)
{
    if (file->handle) file->files->close(file->files->user, file->handle);
    file->handle = NULL;
}

mf_status file_read(const struct file *file, void *out, uint64_t offset, size_t count,
                    mf_error *why)
{
    uint8_t *to = out;
    if (!file->handle) return fail(why, MF_ERR_IO, "%s is missing", file->path);
    while (count > 0) {
        int64_t got = file->files->read(file->files->user, file->handle, offset, to, count);
        if (got < 0)
            return fail_errno(why, MF_ERR_IO, (int)-got, "%s cannot be read at byte %llu",
                              file->path, (unsigned long long)offset);
        if (got == 0)
            return fail(why, MF_ERR_IO, "%s ends at byte %llu, %zu more were expected", file->path,
                        (unsigned long long)offset, count);
        to += got;
        offset += (uint64_t)got;
        count -= (size_t)got;
    }
    return MF_OK;
}

void file_forget(const struct file *file)
{
    if (!file->handle || !file->files->descriptor) return;
    int descriptor = file->files->descriptor(file->files->user, file->handle);
    if (descriptor >= 0) posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
}

/* Reads an open file and closes it. */
static mf_status read_whole_new(char **out, size_t *length, struct file *file, size_t limit,
                                mf_error *why)
{
    mf_status status;
    char *text = NULL;
    if (file->size > limit) {
        status = fail(why, MF_ERR_FORMAT, "%s has %llu bytes, at most %zu are accepted", file->path,
                      (unsigned long long)file->size, limit);
        goto done;
    }
    text = malloc((size_t)file->size + 1);
    if (!text) {
        status = fail_memory(why, (size_t)file->size + 1);
        goto done;
    }
    status = file_read(file, text, 0, (size_t)file->size, why);
    if (status != MF_OK) goto done;
    text[file->size] = '\0';
    *out = text;
    *length = (size_t)file->size;
    text = NULL; /* the caller's now */
done:
    free(text);
    file_close(file);
    return status;
}

mf_status file_read_whole_new(char **out, size_t *length, const mf_files *files, const char *path,
                              size_t limit, mf_error *why)
{
    struct file file;
    *out = NULL;
    *length = 0;
    mf_status status = file_open(&file, files, path, why);
    return status == MF_OK ? read_whole_new(out, length, &file, limit, why) : status;
}

mf_status file_read_maybe_new(char **out, size_t *length, const mf_files *files, const char *path,
                              size_t limit, mf_error *why)
{
    struct file file = { .files = files, .path = path };
    *out = NULL;
    *length = 0;
    int result = files->open(files->user, path, &file.handle, &file.size);
    if (result == -ENOENT) return MF_OK;
    if (result != 0) return fail_errno(why, MF_ERR_IO, -result, "%s cannot be opened", path);
    return read_whole_new(out, length, &file, limit, why);
}

mf_status file_probe(bool *present, const mf_files *files, const char *path, mf_error *why)
{
    void *handle;
    uint64_t size;
    int result = files->open(files->user, path, &handle, &size);
    *present = result == 0;
    if (result == 0) files->close(files->user, handle);
    if (result == 0 || result == -ENOENT) return MF_OK;
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be opened", path);
}

mf_status file_refuse_pointer(const char *path, const char *bytes, size_t count, mf_error *why)
{
    static const char start[] = "version https://git-lfs";
    if (count < sizeof start - 1 || memcmp(bytes, start, sizeof start - 1) != 0) return MF_OK;
    return fail(why, MF_ERR_FORMAT,
                "%s is a pointer of git-lfs and not the file itself; `git lfs install` and "
                "`git lfs pull` in its repository fetch it",
                path);
}

mf_status path_join(char *out, size_t capacity, const char *directory, const char *name,
                    mf_error *why)
{
    size_t length = strlen(directory);
    const char *separator = length > 0 && directory[length - 1] == '/' ? "" : "/";
    int needed = snprintf(out, capacity, "%s%s%s", directory, separator, name);
    if (needed < 0 || (size_t)needed >= capacity)
        return fail(why, MF_ERR_ARGUMENT, "the path %.64s… is longer than %zu bytes", directory,
                    capacity);
    return MF_OK;
}

bool path_is_base_name(const char *name)
{
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
    return !strpbrk(name, "/\\");
}
