#include "records/multipart.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { BOUNDARY_MAX = 70 };

bool multipart_boundary(char out[72], const char *content_type)
{
    const char *found = content_type ? strcasestr(content_type, "boundary=") : NULL;

    if (!found) return false;
    found += strlen("boundary=");
    bool quoted = *found == '"';
    size_t length = quoted ? strcspn(++found, "\"") : strcspn(found, "; \t");
    if (length == 0 || length > BOUNDARY_MAX) return false;
    memcpy(out, found, length);
    out[length] = '\0';
    return true;
}

static const char *find(const char *text, size_t length, const char *wanted)
{
    return memmem(text, length, wanted, strlen(wanted));
}

/* The value of name="…" in a line. */
static bool read_parameter(const char **out, size_t *count, const char *line, size_t length,
                           const char *name)
{
    char pattern[32];

    snprintf(pattern, sizeof pattern, "; %s=\"", name);
    const char *found = find(line, length, pattern);
    if (!found) return false;
    found += strlen(pattern);
    const char *end = memchr(found, '"', (size_t)(line + length - found));
    if (!end) return false;
    *out = found;
    *count = (size_t)(end - found);
    return true;
}

/* The line Content-Disposition says what the part is. */
static bool read_head(struct multipart_part *out, const char *head, size_t length)
{
    static const char wanted[] = "Content-Disposition:";

    while (length > 0) {
        const char *end = find(head, length, "\r\n");
        size_t count = end ? (size_t)(end - head) : length;
        if (count >= sizeof wanted && strncasecmp(head, wanted, sizeof wanted - 1) == 0) {
            if (!read_parameter(&out->filename, &out->filename_length, head, count, "filename"))
                out->filename = NULL;
            return read_parameter(&out->name, &out->name_length, head, count, "name");
        }
        count += end ? 2 : 0;
        head += count;
        length -= count;
    }
    return false;
}

/* Where the part ends: a line with the boundary and nothing else of a name. */
static const char *find_end(const char *content, const char *end, const char *between)
{
    const char *next = content;

    while ((next = find(next, (size_t)(end - next), between))) {
        const char *behind = next + strlen(between);
        if (end - behind >= 2 && (memcmp(behind, "\r\n", 2) == 0 || memcmp(behind, "--", 2) == 0))
            return next;
        next = behind;
    }
    return NULL;
}

bool multipart_next(struct multipart_part *out, size_t *at, const char *body, size_t length,
                    const char *boundary)
{
    char line[BOUNDARY_MAX + 8], between[BOUNDARY_MAX + 8];

    *out = (struct multipart_part){ 0 };
    snprintf(line, sizeof line, "--%s\r\n", boundary);
    snprintf(between, sizeof between, "\r\n--%s", boundary);
    size_t left = length - *at, opening = strlen(line);
    if (left < opening || memcmp(body + *at, line, opening) != 0) return false;
    const char *head = body + *at + opening, *end = body + length;
    const char *blank = find(head, (size_t)(end - head), "\r\n\r\n");
    if (!blank || !read_head(out, head, (size_t)(blank - head))) return false;
    out->content = blank + 4;
    const char *next = find_end(out->content, end, between);
    if (!next) return false;
    out->content_length = (size_t)(next - out->content);
    *at = (size_t)(next + 2 - body);
    return true;
}
