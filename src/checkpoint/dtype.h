/* dtype.h: the element types of safetensors by their names, which the ancestors' manifest uses too. */
#ifndef CHECKPOINT_DTYPE_H
#define CHECKPOINT_DTYPE_H

#include "checkpoint/tensor_directory.h"

/* The format called `name`; FORMAT_COUNT for one that we cannot compute with.
 * *bits of an element; 0 for an unknown type. */
enum format dtype_find(unsigned *bits, const char *name);

/* True if the tensor's shape times `bits` is exactly `bytes`; always for 0 bits,
 * where there is nothing to compare. */
bool dtype_size_matches(const struct tensor *tensor, unsigned bits, uint64_t bytes);

#endif
