/* disk.h: writing files through functions given by the caller.
 *
 * The counterpart of mf_files.  All code of the library that writes uses a struct disk, so that a
 * test can let the Nth call fail, as on a full disk, or stop there, as in a crash, and then check
 * what a later run finds. */
#ifndef BASE_DISK_H
#define BASE_DISK_H

#include "base/file.h"
#include "moeflux.h"

/* Functions return 0 or a count on success, else a negative errno value. */
struct disk {
    void *user;
    int (*make_directory)(void *user, const char *path);
    /* Opens a regular file for writing, creating it if it does not exist; keeps its content. */
    int (*open)(void *user, const char *path, void **handle, uint64_t *size);
    int64_t (*write)(void *user, void *handle, uint64_t offset, const void *bytes, size_t count);
    int (*resize)(void *user, void *handle, uint64_t bytes); /* new bytes are zero */
    int (*sync)(void *user, void *handle);                   /* to the medium */
    /* Exclusive, until close; -EWOULDBLOCK if another process holds the lock. */
    int (*lock)(void *user, void *handle);
    void (*close)(void *user, void *handle);
    int (*rename)(void *user, const char *from, const char *to);
    int (*remove)(void *user, const char *path); /* files only */
    int (*sync_directory)(void *user, const char *path);
    int (*free_bytes)(void *user, const char *path, uint64_t *bytes);
    /* Optional: drops the file's synced pages from the page cache, so that a check reads the
     * medium. */
    void (*forget)(void *user, void *handle);
};

/* POSIX files; those that only their owner can read and write. */
extern const struct disk disk_posix, disk_private;

struct disk_file {
    const struct disk *disk;
    void *handle; /* NULL: not open */
    uint64_t size;
    char path[PATH_CAPACITY]; /* for messages */
};

/* Opens directory/name.  After a failure nothing is open. */
mf_status disk_file_open(struct disk_file *out, const struct disk *disk, const char *directory,
                         const char *name, mf_error *why);
void disk_file_close(struct disk_file *file); /* a zeroed struct is legal */

/* Writes all bytes; the message of a failure names the file and the offset. */
mf_status disk_file_write(struct disk_file *file, uint64_t offset, const void *bytes, size_t count,
                          mf_error *why);
mf_status disk_file_resize(struct disk_file *file, uint64_t bytes, mf_error *why);
mf_status disk_file_sync(struct disk_file *file, mf_error *why);

/* Writes and syncs a whole small file; the directory is not synced. */
mf_status disk_put(const struct disk *disk, const char *directory, const char *name,
                   const void *bytes, size_t count, mf_error *why);

/* Puts a whole file at `path`, in place of one that is there: first under the name with ".partial"
 * behind it, which is synced and renamed, so that `path` is the old file or the new one at any
 * time.  After a failure the partial file is removed. */
mf_status disk_replace(const struct disk *disk, const char *path, const void *bytes, size_t count,
                       mf_error *why);

#endif
