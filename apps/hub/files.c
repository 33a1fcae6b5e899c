#include "hub/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

mf_status hub_make_directories(const char *path, mf_error *why)
{
    char parent[PATH_CAPACITY];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        if ((size_t)(slash - path) >= sizeof parent) {
            return fail(why, MF_ERR_ARGUMENT, "a path of the cache is too long");
        }
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        if (mkdir(parent, 0777) != 0 && errno != EEXIST) {
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be made", parent);
        }
    }
    return MF_OK;
}

bool hub_read_file_new(char **out, size_t *length, const char *path, size_t limit)
{
    struct stat info;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = NULL;
    size_t done = 0;

    *out = NULL;
    *length = 0;
    if (descriptor < 0) return false;
    bool good = fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode) &&
                (uint64_t)info.st_size <= limit && (text = malloc((size_t)info.st_size + 1));
    while (good && done < (size_t)info.st_size) {
        ssize_t got = read(descriptor, text + done, (size_t)info.st_size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += (size_t)got;
    }
    close(descriptor);
    if (!good) return false;
    text[done] = '\0';
    *out = text;
    *length = done;
    return true;
}

mf_status hub_replace_file(const char *path, const void *bytes, size_t count, mf_error *why)
{
    char temporary[PATH_CAPACITY + 8];
    const char *from = bytes;
    size_t done = 0;

    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    int descriptor = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) {
        return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be written", path);
    }
    while (done < count) {
        ssize_t wrote = write(descriptor, from + done, count - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) break;
        done += (size_t)wrote;
    }
    int number = errno;
    close(descriptor);
    if (done == count && rename(temporary, path) == 0) return MF_OK;
    if (done == count) number = errno;
    unlink(temporary);
    return fail_errno(why, MF_ERR_IO, number, "%.256s cannot be written", path);
}

/* -------------------------------------------------------------------- lock */

/* A lock file may be removed by the tool that held it: what was locked must still be it. */
static bool is_current(int lock, const char *path)
{
    struct stat held, named;

    return fstat(lock, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

mf_status hub_take_lock(int *out, const char *path, mf_error *why)
{
    enum { ATTEMPTS = 100 };

    *out = -1;
    mf_status status = hub_make_directories(path, why);
    for (int i = 0; status == MF_OK && i < ATTEMPTS; i++) {
        int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (lock < 0) return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be opened", path);
        int number = flock(lock, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (number != 0) {
            close(lock);
            if (number == EWOULDBLOCK) return MF_OK;
            /* Two processes would write the same file, and one could rename it to its final name
             * while the other still writes. */
            if (number == ENOLCK || number == ENOSYS || number == EOPNOTSUPP)
                return fail(why, MF_ERR_IO,
                            "the file system of %.256s has no file locks, without which processes "
                            "would damage each other's downloads: set HF_HOME to another disk",
                            path);
            return fail_errno(why, MF_ERR_IO, number, "%.256s cannot be locked", path);
        }
        if (is_current(lock, path)) {
            *out = lock;
            return MF_OK;
        }
        close(lock);
    }
    return status;
}

/* -------------------------------------------------------------------- disk */

uint64_t hub_disk_free(const char *path)
{
    char place[PATH_CAPACITY];
    struct statvfs info;

    snprintf(place, sizeof place, "%s", path);
    while (statvfs(place, &info) != 0) {
        char *slash = strrchr(place, '/');
        if (!slash) return statvfs(".", &info) == 0 ? info.f_bavail * info.f_frsize : UINT64_MAX;
        slash[slash == place ? 1 : 0] = '\0';
        if (slash == place && statvfs(place, &info) != 0) return UINT64_MAX;
    }
    return (uint64_t)info.f_bavail * info.f_frsize;
}
