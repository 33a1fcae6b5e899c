/* tiny_directory.h: a tiny model (support/tiny_model.h) in a directory on disk, for what opens its
 * files itself.  Problems abort the test.  Threads: one. */
#ifndef SUPPORT_TINY_DIRECTORY_H
#define SUPPORT_TINY_DIRECTORY_H

#include "support/tiny_model.h"

struct tiny_directory {
    char path[64];
};

/* A new directory without a model. */
void tiny_directory_make(struct tiny_directory *directory);

/* The model of this shape, in place of the one that is there. */
void tiny_directory_write(const struct tiny_directory *directory, const struct tiny_shape *shape);
void tiny_directory_remove(const struct tiny_directory *directory);

#endif
