/* safetensors.h: reads checkpoints of Hugging Face and MLX into a tensor directory.
 *
 *     byte 0    u64 N, little-endian
 *          8    N bytes of JSON: { name: { "dtype", "shape", "data_offsets": [b, e] }, … }
 *          8+N  the data; b and e count from here, the tensors tile it without a gap
 *
 * A checkpoint is a directory: model.safetensors.index.json names the file of
 * every tensor; without it there is one model.safetensors, or else every
 * model*.safetensors counts, in the order of their names.
 *
 * Lengths in the file are not trusted for allocation: the header is read only if it lies within
 * the file, and memory is proportional to its size. */
#ifndef CHECKPOINT_SAFETENSORS_H
#define CHECKPOINT_SAFETENSORS_H

#include "checkpoint/tensor_directory.h"

/* Adds all tensors of the checkpoint at `path` to `directory`, which is initialised and empty, and
 * finishes it.  Only headers are read.  The caller frees the directory, also after a failure. */
mf_status safetensors_open(struct tensor_directory *directory, const mf_files *files,
                           const char *path, mf_error *why);

#endif
