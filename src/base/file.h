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

/* Exactly `count` bytes or an error that names the file. Short reads are continued.
 * A file without a handle is one that is not there, which is an error only now. */
mf_status file_read(const struct file *file, void *out, uint64_t offset, size_t count,
                    mf_error *why);

/* What the page cache holds of the file leaves it, unless others use it; a request. */
void file_forget(const struct file *file);

/* The whole file, terminated by a NUL that is not counted; freed with free().
 * A file above `limit` bytes is refused before anything is allocated. */
mf_status file_read_whole_new(char **out, size_t *length, const mf_files *files, const char *path,
                              size_t limit, mf_error *why);

/* The same where the file may be missing: then MF_OK, and *out is NULL. */
mf_status file_read_maybe_new(char **out, size_t *length, const mf_files *files, const char *path,
                              size_t limit, mf_error *why);

/* Whether `path` is there: any trouble in finding out, except absence, is an error. */
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
