/* memory_files.h: files that lie in memory, for readers under test.
 *
 *     struct memory_files files;
 *     memory_files_init(&files);
 *     memory_files_put(&files, "model/config.json", "{}", 2);
 *     thing_open(&thing, &files.files, "model");
 *
 * Contents are borrowed.  A directory exists when a file lies in it.
 * `open_count` is the number of handles not yet closed: 0 when all is well.
 * Threads: any may read; one puts, while no thread reads. */
#ifndef SUPPORT_MEMORY_FILES_H
#define SUPPORT_MEMORY_FILES_H

#include "moeflux.h"

#include <stdatomic.h>

enum { MEMORY_FILES_MAX = 32 };

struct memory_file {
    const char *path;
    const void *data;
    size_t size;
};

struct memory_files {
    mf_files files;
    struct memory_file list[MEMORY_FILES_MAX];
    size_t count;
    atomic_size_t open_count;
    atomic_uint_fast64_t read_bytes; /* in all */
};

void memory_files_init(struct memory_files *files);

/* Adds a file, or replaces the one of that path. */
void memory_files_put(struct memory_files *files, const char *path, const void *data, size_t size);

#endif
