/* multipart.h: the parts of a multipart/form-data body, as they lie in it. */
#ifndef RECORDS_MULTIPART_H
#define RECORDS_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

struct multipart_part {
    const char *name; /* not terminated, as the other two */
    size_t name_length;
    const char *filename; /* NULL: it is no file */
    size_t filename_length;
    const char *content;
    size_t content_length;
};

/* The boundary in a Content-Type; false: there is none, or one that is no boundary. */
bool multipart_boundary(char out[72], const char *content_type);

/* The part that begins at *at of the body, and moves *at behind it; false: there is none, or the
 * body is malformed.  Begin with *at 0. */
bool multipart_next(struct multipart_part *out, size_t *at, const char *body, size_t length,
                    const char *boundary);

#endif
