/* dtype.h: the element types of safetensors by their names, which the ancestors' manifest uses too. */
#ifndef CHECKPOINT_DTYPE_H
#define CHECKPOINT_DTYPE_H

#include "base/json.h"
#include "checkpoint/tensor_directory.h"

/* printf format of a tensor in messages; cuts long names so that the reason fits. */
#define TENSOR_NAMED "%s: tensor %.128s"

/* The format called `name`; FORMAT_COUNT if no kernel supports it.  *bits: per element; 0 for an
 * unknown type. */
enum format dtype_find(unsigned *bits, const char *name);

/* Whether the tensor's elements of `bits` each take exactly `bytes`; true if `bits` is 0. */
bool dtype_size_matches(const struct tensor *tensor, unsigned bits, uint64_t bytes);

/* Format and shape from the fields "dtype" and "shape" of `entry`; *bits as dtype_find.  `path` and
 * `name` are for messages. */
mf_status tensor_from_json(struct tensor *tensor, unsigned *bits, const json_t *entry,
                           const char *path, const char *name, mf_error *why);

#endif
