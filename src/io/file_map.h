/* file_map.h: files mapped into memory.
 *
 * Touching a page past the end of a file that has been truncated raises SIGBUS.  So fault pages in
 * first (async_read.h, `populate`), which fails with an error, and call file_map_bytes_left before
 * every use.  A truncation between that call and the end of the use cannot be caught.
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

/* Whether the file has a descriptor that can be mapped. */
bool file_can_be_mapped(const struct file *file);

/* The file must stay open as long as the map.  The map of an empty file has no bytes. */
mf_status file_map_open(struct file_map *out, const struct file *file, mf_error *why);
void file_map_close(struct file_map *map); /* a zeroed struct is legal */

/* The current length of the file, at most its length when it was mapped. */
uint64_t file_map_bytes_left(const struct file_map *map);

#endif
