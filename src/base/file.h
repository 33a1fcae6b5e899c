/* file.h: reading whole and partial files through the functions given at open.
 *
 * Every path to disk in the library goes through an mf_files, so that a test
 * can make the Nth call fail, be short or be slow. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/common.h"
#include "moeflux.h"

/* POSIX files. */
extern const mf_files files_posix;

struct file {
    const mf_files *files;
    void *handle;
    uint64_t size;
    const char *path; /* borrowed; used in messages */
};

/* `path` must outlive the file. */
mf_status file_open(struct file *out, const mf_files *files, const char *path, mf_error *why);
void file_close(struct file *file); /* a zeroed struct is legal */

/* Reads exactly `count` bytes, continuing short reads; the message of a failure names the file.
 * A file without a handle (not on this disk) fails here, not at open. */
mf_status file_read(const struct file *file, void *out, uint64_t offset, size_t count,
                    mf_error *why);

/* Asks the system to drop the file's pages from the page cache; mapped pages stay. */
void file_forget(const struct file *file);

/* Reads a whole file and appends a NUL that *length does not count; release with free().  A file of
 * more than `limit` bytes is refused before anything is allocated. */
mf_status file_read_whole_new(char **out, size_t *length, const mf_files *files, const char *path,
                              size_t limit, mf_error *why);

/* The same, but a missing file gives MF_OK and *out == NULL. */
mf_status file_read_maybe_new(char **out, size_t *length, const mf_files *files, const char *path,
                              size_t limit, mf_error *why);

/* Whether `path` exists.  Any failure to find out is an error. */
mf_status file_probe(bool *present, const mf_files *files, const char *path, mf_error *why);

enum { FILE_POINTER_BYTES = 64 }; /* enough of a file to tell a pointer */

/* Refuses the pointer that git leaves in place of a large file when git-lfs is not installed;
 * `bytes` are the first `count` of the file. */
mf_status file_refuse_pointer(const char *path, const char *bytes, size_t count, mf_error *why);

/* directory/name into `out`; an error when it does not fit. */
mf_status path_join(char *out, size_t capacity, const char *directory, const char *name,
                    mf_error *why);

/* A plain file name: no separator, no "..", not empty.  Names from a file are checked with it. */
bool path_is_base_name(const char *name);

enum { PATH_CAPACITY = 4096 };

#endif
