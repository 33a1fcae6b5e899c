/* files.h: small helpers around files of the cache. */
#ifndef HUB_FILES_H
#define HUB_FILES_H

#include "common/basics.h"
#include "common/error.h"

/* All directories that `path` lies in. */
mf_status hub_make_directories(const char *path, mf_error *why);

/* The whole of a regular file of at most `limit` bytes, NUL-terminated, freed with free(); false: it
 * cannot be read. */
bool hub_read_file_new(char **out, size_t *length, const char *path, size_t limit);

/* Replaces a file as a whole: PATH.tmp first, then renamed.  The caller holds the lock that keeps
 * others from doing the same. */
mf_status hub_replace_file(const char *path, const void *bytes, size_t count, mf_error *why);

/* Takes the lock file `path` (flock) and makes it where it is not there; *out is -1 where another
 * process has it.  Closing it gives it back.  MF_ERR_IO: among others, a file system without locks. */
mf_status hub_take_lock(int *out, const char *path, mf_error *why);

/* Bytes that the file system of `path`, or of the nearest directory above it that exists, has left
 * for this user. */
uint64_t hub_disk_free(const char *path);

#endif
