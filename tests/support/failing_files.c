#include "support/failing_files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Counts a call; true if it is the one that fails. */
static bool fires(struct failing_files *files)
{
    uint64_t call = atomic_fetch_add(&files->calls, 1) + 1;
    uint64_t every = files->fail_every;
    bool regular = every && call % every == 0;
    if (call != files->fail_at && !regular) return false;
    atomic_store(&files->fired, true);
    return true;
}

static int failing_open(void *user, const char *path, void **handle, uint64_t *size)
{
    struct failing_files *files = user;
    if (fires(files)) return -EIO;
    return files->inner->open(files->inner->user, path, handle, size);
}

static int64_t failing_read(void *user, void *handle, uint64_t offset, void *out, size_t count)
{
    struct failing_files *files = user;
    uint64_t delay_us = files->delay_us, piece_bytes = files->piece_bytes, end_at = files->end_at;
    if (delay_us) usleep((useconds_t)delay_us);
    if (fires(files)) return -EIO;
    if (offset < files->bad_to && offset + count > files->bad_from) {
        atomic_store(&files->fired, true);
        return -EIO;
    }
    if (piece_bytes && count > piece_bytes) count = piece_bytes;
    if (end_at && offset >= end_at) return 0;
    if (end_at && count > end_at - offset) count = end_at - offset;
    return files->inner->read(files->inner->user, handle, offset, out, count);
}

static void failing_close(void *user, void *handle)
{
    struct failing_files *files = user;
    files->inner->close(files->inner->user, handle);
}

static int failing_list(void *user, const char *directory,
                        void (*entry)(void *context, const char *name), void *context)
{
    struct failing_files *files = user;
    if (fires(files)) return -EIO;
    return files->inner->list(files->inner->user, directory, entry, context);
}

void failing_files_init(struct failing_files *files, const mf_files *inner)
{
    memset(files, 0, sizeof *files);
    files->inner = inner;
    files->files = (mf_files){ .user = files,
                               .open = failing_open,
                               .read = failing_read,
                               .close = failing_close,
                               .list = failing_list };
}

void failing_files_arm(struct failing_files *files, uint64_t nth)
{
    atomic_store(&files->calls, 0);
    atomic_store(&files->fired, false);
    files->fail_at = nth;
}

bool failing_files_disarm(struct failing_files *files)
{
    files->fail_at = 0;
    return atomic_load(&files->fired);
}
