/* dtype.h: the element types of safetensors by their names, which the ancestors' manifest uses too. */
#ifndef CHECKPOINT_DTYPE_H
#define CHECKPOINT_DTYPE_H

#include "base/json.h"
#include "checkpoint/tensor_directory.h"

/* Names a tensor in messages; a long name does not push the reason out. */
#define TENSOR_NAMED "%s: tensor %.128s"

/* The format called `name`; FORMAT_COUNT for one that we cannot compute with.
 * *bits of an element; 0 for an unknown type. */
enum format dtype_find(unsigned *bits, const char *name);

/* True if the tensor's shape times `bits` is exactly `bytes`; always for 0 bits,
 * where there is nothing to compare. */
bool dtype_size_matches(const struct tensor *tensor, unsigned bits, uint64_t bytes);

/* Format and shape from the fields "dtype" and "shape" of `entry`; *bits as dtype_find.  `path` and
 * `name` are for messages. */
mf_status tensor_from_json(struct tensor *tensor, unsigned *bits, const json_t *entry,
                           const char *path, const char *name, mf_error *why);

#endif
