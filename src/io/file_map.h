/* file_map.h: files as memory.
 *
 * What a mapping shows is the page cache.  A file that is made shorter takes its pages
 * away, and touching one then kills the process; so bring pages in first (async_read.h,
 * `populate`), which fails in the ordinary way, and ask file_map_bytes_left before every
 * use.  What happens between the question and the end of the use nobody can answer for.
 *
 * Threads: a map may be read by many. */
#ifndef IO_FILE_MAP_H
#define IO_FILE_MAP_H

#include "base/file.h"

struct file_map {
    const uint8_t *bytes; /* NULL: not mapped */
    uint64_t size;
    int descriptor;
};

/* Can files of this kind be mapped at all? */
bool file_can_be_mapped(const struct file *file);

/* The file stays open as long as the map.  An empty one has no bytes. */
mf_status file_map_open(struct file_map *out, const struct file *file, mf_error *why);
void file_map_close(struct file_map *map); /* a zeroed struct is legal */

/* How long the file is now: at most what it was when it was mapped. */
uint64_t file_map_bytes_left(const struct file_map *map);

#endif
