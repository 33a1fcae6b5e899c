/* call_vectors.h: outputs of models and what they mean, one JSON object per line.
 *
 * The form is described in tests/fixtures/toolcalls/README.md. */
#ifndef SUPPORT_CALL_VECTORS_H
#define SUPPORT_CALL_VECTORS_H

#include "base/common.h"

#include <jansson.h>

struct call_vectors {
    json_t *tools; /* that every line assumes */
    size_t count;  /* lines checked */
    size_t first;  /* of them, with `expected` and not one of `also_ok` */
};

/* How a text is fed: in pieces of `chunk` bytes, 0: of random sizes. */
struct call_feeding {
    size_t chunk;
    size_t length; /* of the output that is fed; SIZE_MAX: all of it */
    bool stream;   /* calls */
    bool cut;      /* a limit ended the output */
};

/* What a line's output means: a new reference. */
json_t *call_vector_parse(const struct call_vectors *vectors, const json_t *line,
                          struct call_feeding how);

/* Reads every line of the file and fails the test that finds another meaning, or another one in
 * pieces.  `each` is called for every line and may be NULL. */
void call_vectors_check(struct call_vectors *vectors, const char *path,
                        void (*each)(const struct call_vectors *vectors, const json_t *line));

#endif
