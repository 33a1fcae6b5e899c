/* disk.h: writing files through functions given by the caller.
 *
 * The counterpart of mf_files: everything in the library that writes goes through a
 * struct disk, so that a test can fill the disk at the Nth call, or end the world there
 * and see what a later run finds. */
#ifndef BASE_DISK_H
#define BASE_DISK_H

#include "base/file.h"
#include "moeflux.h"

/* Functions return 0 (or a count) when done, else a negative errno value. */
struct disk {
    void *user;
    int (*make_directory)(void *user, const char *path);
    /* For writing; what is there stays, what is not is made.  Regular files only. */
    int (*open)(void *user, const char *path, void **handle, uint64_t *size);
    int64_t (*write)(void *user, void *handle, uint64_t offset, const void *bytes, size_t count);
    int (*resize)(void *user, void *handle, uint64_t bytes); /* new bytes are zero */
    int (*sync)(void *user, void *handle);                   /* to the medium */
    /* For as long as it is open; -EWOULDBLOCK: another process has it. */
    int (*lock)(void *user, void *handle);
    void (*close)(void *user, void *handle);
    int (*rename)(void *user, const char *from, const char *to);
    int (*remove)(void *user, const char *path); /* a file */
    int (*sync_directory)(void *user, const char *path);
    int (*free_bytes)(void *user, const char *path, uint64_t *bytes);
    /* Optional: what was written and synced is read from the medium next time. */
    void (*forget)(void *user, void *handle);
};

/* POSIX files. */
extern const struct disk disk_posix;

struct disk_file {
    const struct disk *disk;
    void *handle; /* NULL: not open */
    uint64_t size;
    char path[PATH_CAPACITY]; /* for messages */
};

/* directory/name.  After a failure nothing is open. */
mf_status disk_file_open(struct disk_file *out, const struct disk *disk, const char *directory,
                         const char *name, mf_error *why);
void disk_file_close(struct disk_file *file); /* a zeroed struct is legal */

/* All of it or an error that names file and place. */
mf_status disk_file_write(struct disk_file *file, uint64_t offset, const void *bytes, size_t count,
                          mf_error *why);
mf_status disk_file_resize(struct disk_file *file, uint64_t bytes, mf_error *why);
mf_status disk_file_sync(struct disk_file *file, mf_error *why);

/* The whole of a small file, synced; its directory is not. */
mf_status disk_put(const struct disk *disk, const char *directory, const char *name,
                   const void *bytes, size_t count, mf_error *why);

#endif
