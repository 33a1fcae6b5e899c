/* The files of the page, as they are in the program: / and /assets/….  The build makes them from
 * web/, or has a plain page that says what was missing (tools/make_page.py). */
#ifndef VIEW_PAGE_H
#define VIEW_PAGE_H

#include <stdbool.h>
#include <stddef.h>

struct page_file {
    const char *path;
    const char *content_type;
    const unsigned char *bytes;
    size_t length;
    bool gzip;        /* the bytes are compressed: Content-Encoding: gzip */
    const char *etag; /* with its quotes */
};

/* Sorted by path; generated. */
extern const struct page_file page_files[];
extern const size_t page_file_count;

/* The file that a request for `path` (without its query) gets, or NULL. */
const struct page_file *page_find(const char *path);

#endif
